"""Rules of tables from version to version: a change keeps watermarks, every reader finds those of its epoch."""

import random

import pytest

from hummock.base.key_watermark import MOST_WATERMARKS, KeyWatermark
from hummock.base.table_rules import PrefixRule, TableRules, next_tables, tables_format
from hummock.errors import Corruption

VNODES = 4


def mark(epoch, *keys, is_descending=False):
    return KeyWatermark.of(epoch, dict(enumerate(keys)), is_descending)


def seen_by(rules, epoch):
    """The watermarks, by vnode, of a reader at `epoch`."""
    found = rules.mark_at(epoch)
    keys = {vnode: None if found is None else found.key_of(vnode) for vnode in range(VNODES)}
    return {vnode: key for vnode, key in keys.items() if key is not None}


def test_nothing_changes_by_itself():
    tables = {1: TableRules(ttl_ms=3), 2: TableRules(watermarks=(mark(9, b"a"),))}
    assert next_tables(tables, {}, 50) is tables


def test_a_change_of_other_rules_keeps_watermarks_and_none_removes_all():
    tables = {1: TableRules(watermarks=(mark(9, b"a"),))}
    changed = next_tables(tables, {1: TableRules(PrefixRule(9))}, 0)
    assert changed == {1: TableRules(PrefixRule(9), watermarks=(mark(9, b"a"),))}
    assert next_tables(changed, {1: None, 2: None}, 0) == {}


def test_rules_that_say_nothing_are_none():
    tables = {1: TableRules(ttl_ms=3), 2: TableRules(watermarks=(mark(9, b"a"),))}
    assert next_tables(tables, {1: TableRules(vnode_count=7), 2: TableRules(), 3: TableRules()}, 0) == {
        2: TableRules(watermarks=(mark(9, b"a"),))}


def test_older_releases_read_records_without_ranges_of_vnodes():
    one = TableRules(PrefixRule(9), watermarks=(mark(9, b"a", b"b"),))
    assert tables_format({1: one, 2: None}) == 1
    assert tables_format({1: one, 2: TableRules(watermarks=(KeyWatermark(9, ((0, 255, b"a"),)),))}) == 2


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


def test_a_version_that_nobody_compacts_has_a_bounded_number_of_watermarks():
    """The safe epoch stays, so each might be needed; readers at the newest epochs and at the oldest find theirs."""
    tables, keys = {}, [b"%04d" % epoch for epoch in range(1_000)]
    for epoch in range(1, 1_000):
        tables = next_tables(tables, {1: TableRules(watermarks=(mark(epoch, keys[epoch]),))}, 0)
    assert len(tables[1].watermarks) == MOST_WATERMARKS
    for epoch in (1, *range(1_001 - MOST_WATERMARKS, 1_000)):
        assert seen_by(tables[1], epoch) == {0: keys[epoch]}
    assert seen_by(tables[1], 500) == {0: keys[1]}


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_reader_finds_the_furthest_key_up_to_its_epoch(seed, is_descending):
    rng = random.Random(f"watermarks {seed}")
    further = min if is_descending else max
    tables, history, safe = {}, [], 0
    for epoch in range(1, 60):
        if rng.random() < .5:
            keys = {vnode: rng.randbytes(2) for vnode in rng.sample(range(VNODES), rng.randrange(1, VNODES))}
            history.append((epoch, keys))
            added = KeyWatermark.of(epoch, keys, is_descending)
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
