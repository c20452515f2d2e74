"""Key watermarks by epoch: every reader finds the watermarks valid at its epoch, and none moves back."""

import random

import pytest

from hummock.base.table_rules import KeyWatermark, PrefixRule, TableRules, next_tables
from hummock.errors import Corruption


def mark(epoch, *keys, is_descending=False):
    return KeyWatermark(epoch, tuple((vnode, key) for vnode, key in enumerate(keys)), is_descending)


def seen_by(rules, epoch):
    """The watermarks, by vnode, of a reader at `epoch`."""
    return next((dict(found.keys) for found in rules.watermarks if found.epoch <= epoch), {})


def test_nothing_changes_by_itself():
    tables = {1: TableRules(ttl_ms=3), 2: TableRules(watermarks=(mark(9, b"a"),))}
    assert next_tables(tables, {}, 50) is tables


def test_a_change_of_other_rules_keeps_watermarks_and_none_removes_all():
    tables = {1: TableRules(watermarks=(mark(9, b"a"),))}
    changed = next_tables(tables, {1: TableRules(PrefixRule(9))}, 0)
    assert changed == {1: TableRules(PrefixRule(9), watermarks=(mark(9, b"a"),))}
    assert next_tables(changed, {1: None, 2: None}, 0) == {}


def test_a_watermark_that_is_older_than_the_newest_is_refused():
    tables = {1: TableRules(watermarks=(mark(9, b"c"),))}
    with pytest.raises(Corruption):
        next_tables(tables, {1: TableRules(watermarks=(mark(8, b"d"),))}, 0)


@pytest.mark.parametrize(("first", "second", "kept"), [
    (b"ab", b"a", b"ab"), (b"ab", b"", b"ab"), (b"ab", b"aa", b"aa"), (b"a", b"ab", b"a"), (b"", b"z", b""),
])  # fmt: skip
def test_a_descending_mark_that_begins_the_one_before_would_show_rows_again(first, second, kept):
    """Keys that start with a watermark are visible, so the shorter of the two hides less."""
    tables = next_tables({}, {1: TableRules(watermarks=(mark(1, first, is_descending=True),))}, 0)
    tables = next_tables(tables, {1: TableRules(watermarks=(mark(2, second, is_descending=True),))}, 0)
    assert seen_by(tables[1], 2) == {0: kept}


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_reader_finds_the_furthest_key_up_to_its_epoch(seed, is_descending):
    rng = random.Random(f"watermarks {seed}")
    further = min if is_descending else max
    tables, history, safe = {}, [], 0
    for epoch in range(1, 60):
        if rng.random() < .5:
            keys = {vnode: rng.randbytes(2) for vnode in rng.sample(range(4), rng.randrange(1, 4))}
            history.append((epoch, keys))
            added = KeyWatermark(epoch, tuple(sorted(keys.items())), is_descending)
            tables = next_tables(tables, {1: TableRules(watermarks=(added,))}, safe)
        if rng.random() < .2:
            safe = rng.randrange(safe, epoch + 1)
            tables = next_tables(tables, {}, safe)
        for reader in range(safe, epoch + 1):
            expected = {}
            for written, keys in history:
                if written <= reader:
                    expected |= {vnode: further(key, expected.get(vnode, key)) for vnode, key in keys.items()}
            assert seen_by(tables.get(1, TableRules()), reader) == expected
    assert len(tables[1].watermarks) <= 1 + sum(epoch > safe for epoch, _ in history)
