"""Estimates of the hidden share of a file: never all of a file in which a reader sees a row."""

from __future__ import annotations

import random

import pytest

from hummock.base.key import user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.compaction.picker.expiry import all_dead, dead_share
from hummock.epoch import Epoch
from hummock.iterator.row_filter import RowRules
from tests.support.worlds.manager_parts import Files

WATERMARK = Epoch(20 << 16)
PARTS = (b"\x00", b"a", b"b", b"\xff")


def file_of(rows):
    """The record of a file of (user key, epoch number)."""
    keys, epochs = sorted(key for key, _ in rows), [epoch for _, epoch in rows]
    tables = tuple(sorted({int.from_bytes(key[:4].ljust(4, b"\0"), "big") for key in keys}))
    return Files(len(rows)).make(0, keys[0], keys[-1], table_ids=tables, rows=len(rows),
                                 min_epoch=min(epochs) << 16, max_epoch=max(epochs) << 16)


def marked(key, is_descending=False):
    return {2: TableRules(watermarks=(KeyWatermark(Epoch(9 << 16), ((0, 0, key),), is_descending),))}


def test_a_file_is_dead_only_where_each_of_its_rows_is_hidden():
    dead = 0
    for seed in range(20_000):
        rng = random.Random(seed)
        some_key = lambda rng=rng: b"".join(rng.choices(PARTS, k=rng.randint(0, 3)))     # noqa: E731
        rules = marked(some_key(), rng.random() < .5)
        if rng.random() < .3:
            rules = {2: TableRules(None, rng.choice((1, 5)), rules[2].watermarks)}
        rows = [(user_key(rng.choice((2, 2, 2, 3)), rng.choice((0, 0, 0, 1)), some_key()), rng.randint(1, 20))
                for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < .1:
            rows.append((user_key(2, 0, b"")[:rng.randint(0, 6)], 1))
        row_rules = RowRules(rules)
        if all_dead(file_of(rows), rules, WATERMARK):
            dead += 1
            seen = [row for row in rows if not row_rules.hides_row(row[0], row[1] << 16, WATERMARK)]
            assert not seen, f"seed {seed}: {seen} of {rows} under {rules}"
    assert dead > 3_000


@pytest.mark.parametrize(("mark", "is_descending", "keys", "is_dead"), [
    (b"m", False, [b"a", b"lz"], True), (b"m", False, [b"a", b"m"], False), (b"m", False, [b"m", b"z"], False),
    (b"m", True, [b"n", b"z"], True), (b"m", True, [b"m", b"z"], False), (b"m", True, [b"m\x01", b"z"], False),
    (b"m", True, [b"a", b"m"], False), (b"", True, [b"", b"z"], False),
])  # fmt: skip
def test_a_watermark_at_a_files_border(mark, is_descending, keys, is_dead):
    """Under a descending mark, a key that starts with the mark is at it, not past it."""
    info = file_of([(user_key(2, 0, key), 3) for key in keys])
    assert all_dead(info, marked(mark, is_descending), WATERMARK) == is_dead
    assert 0 <= dead_share(info, marked(mark, is_descending), WATERMARK) <= 1
