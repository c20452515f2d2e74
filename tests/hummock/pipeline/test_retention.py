"""RetentionIterator: text cases, and random versions against the rule in plain Python."""

from __future__ import annotations

import random

import pytest

from hummock.base.key import table_id_of, vnode_of
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.epoch import Epoch
from hummock.iterator.merge import MergeIterator
from hummock.pipeline.retention import RetentionIterator
from tests.hummock.iterator.test_iterators import pulled
from tests.support.suites.entry_cases import iterator_of, parse_epoch, read_cases, show_entry


def with_table(key: bytes) -> bytes:
    table, slash, rest = key.partition(b"/")
    return (int(table[1:]) if slash else 1).to_bytes(4, "big") + (rest if slash else key)


@pytest.mark.parametrize("case", read_cases("retention.txt"), ids=lambda case: case.title)
def test_retention_case(case):
    runs = [[(with_table(key), epoch, value) for key, epoch, value in run] for run in case.runs]
    names = {with_table(key): key for run in case.runs for key, _, _ in run}
    for words, expected in case.steps:
        dropped = [int(n) for word in words if word.startswith("drop:") for n in word[5:].split(",")]
        child = MergeIterator([iterator_of(run) for run in runs])
        kept = RetentionIterator(child, parse_epoch(words[1]), "bottom" in words, dropped)
        shown = [show_entry((names[key], epoch, value)) for key, epoch, value in kept.entries()]
        assert shown == expected, words
        assert kept.dropped_rows == sum(map(len, runs)) - len(shown)
        child = MergeIterator([iterator_of(run) for run in runs])
        by_pull = RetentionIterator(child, parse_epoch(words[1]), "bottom" in words, dropped)
        assert [show_entry((names[key], epoch, value)) for key, epoch, value in pulled(by_pull)] == expected
        assert by_pull.dropped_rows == kept.dropped_rows


def kept_by_the_rule(entries, watermark, drop_tombstones):
    """The retained entries of (key, epoch, value) in full key order."""
    out, seen, below, = [], set(), set()
    for key, epoch, value in entries:
        pure = epoch >> 16
        if (key, pure) in seen:
            continue
        seen.add((key, pure))
        if pure <= watermark:
            if key in below:
                continue
            below.add(key)
            if value is None and drop_tombstones:
                continue
        out.append((key, epoch, value))
    return out


@pytest.mark.parametrize("seed", range(60))
def test_random_versions_are_retained_by_the_rule(seed):
    rng = random.Random(seed)
    entries = {
        (b"%05d" % rng.randint(0, 20), rng.randint(1, 9) << 16 | rng.randint(0, 2)):
        None if rng.random() < 0.4 else b"v%d" % rng.randint(0, 999)
        for _ in range(rng.randint(1, 150))
    }
    run = [(*at, value) for at, value in sorted(entries.items(), key=lambda item: (item[0][0], -item[0][1]))]
    for watermark in range(11):
        for drop_tombstones in (False, True):
            kept = RetentionIterator(iterator_of(run), watermark << 16, drop_tombstones)
            assert list(kept.entries()) == kept_by_the_rule(run, watermark, drop_tombstones)
            kept = RetentionIterator(iterator_of(run), watermark << 16, drop_tombstones)
            assert pulled(kept) == kept_by_the_rule(run, watermark, drop_tombstones)


def is_gone(key, epoch, watermark, dropped, tables):
    """Whether the rules of its table hide this version from every reader at or above `watermark` (ms)."""
    rules = tables.get(table_id_of(key), TableRules())
    if table_id_of(key) in dropped or (rules.ttl_ms and (epoch >> 16) < watermark - rules.ttl_ms):
        return True
    mark = next((mark for mark in rules.watermarks if mark.epoch >> 16 <= watermark), None)
    bound = mark.key_of(vnode_of(key)) if mark else None
    if bound is None:
        return False
    return key[6:] > bound and not key[6:].startswith(bound) if mark.is_descending else key[6:] < bound


def random_rules(rng):
    marks = sorted({rng.randint(1, 30) for _ in range(rng.randrange(3))}, reverse=True)
    watermarks = tuple(
        KeyWatermark.of(Epoch(epoch << 16), {vnode: rng.randbytes(rng.randint(0, 2))
                        for vnode in rng.sample(range(5), rng.randint(0, 5))}, rng.random() < 0.5)
        for epoch in marks)
    return TableRules(ttl_ms=rng.choice((0, 0, 1, 5, 20, 1_000)), watermarks=watermarks)


@pytest.mark.parametrize("seed", range(80))
def test_rules_of_tables_are_kept_by_compaction(seed):
    rng = random.Random(seed)
    tables = {table: random_rules(rng) for table in rng.sample(range(1, 5), rng.randint(0, 4))}
    dropped = rng.sample(range(1, 6), rng.choice((0, 0, 1, 2)))
    entries = {
        (rng.randint(1, 5).to_bytes(4, "big") + rng.randrange(5).to_bytes(2, "big") + rng.randbytes(rng.randint(0, 2)),
         rng.randint(1, 30) << 16 | rng.randint(0, 1)): None if rng.random() < 0.3 else b"%d" % rng.randint(0, 999)
        for _ in range(rng.randint(1, 600))
    }
    run = [(*at, value) for at, value in sorted(entries.items(), key=lambda item: (item[0][0], -item[0][1]))]
    for watermark in (0, 3, 17, 40):
        alive = {entry for entry in run if not is_gone(entry[0], entry[1], watermark, dropped, tables)}
        newest = [entry for index, entry in enumerate(run)
                  if index == 0 or (run[index - 1][0], run[index - 1][1] >> 16) != (entry[0], entry[1] >> 16)]
        expected = kept_by_the_rule([entry for entry in newest if entry in alive], watermark, True)
        for collect in (pulled, lambda kept: list(kept.entries())):
            kept = RetentionIterator(iterator_of(run), watermark << 16, True, dropped, tables)
            assert collect(kept) == expected
            assert kept.dropped_rows == len(run) - len(expected)


def test_reads_at_and_above_the_watermark_do_not_change():
    rng = random.Random(7)
    run = sorted(
        ((b"%05d" % key, epoch << 16, None if rng.random() < 0.4 else b"%d" % epoch)
         for key in range(30) for epoch in range(1, 8) if rng.random() < 0.6),
        key=lambda e: (e[0], -e[1]),
    )  # fmt: skip

    def read(entries, epoch):
        newest = {}
        for key, at, value in entries:
            if at <= epoch << 16:
                newest.setdefault(key, value)
        return {key: value for key, value in newest.items() if value is not None}

    for watermark in range(1, 8):
        kept = list(RetentionIterator(iterator_of(run), watermark << 16, True).entries())
        for epoch in range(watermark, 9):
            assert read(kept, epoch) == read(run, epoch)


def test_the_child_must_be_a_forward_iterator():
    with pytest.raises(ValueError, match="forward"):
        RetentionIterator(iterator_of([(b"a", 1, b"1")], -1))
