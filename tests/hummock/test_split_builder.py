"""Sorted runs of files: cut by size, between two user keys only."""

from itertools import count, pairwise

import pytest

from hummock.key import table_id_of, user_key, vnode_of
from hummock.options import StorageOptions
from hummock.sstable.filter_policy import filter_policy
from hummock.sstable.split_builder import SplitSstableBuilder
from hummock.table_rules import TableRules
from tests.hummock.test_builder import entries_of


def split_builder(borders=(), **options) -> SplitSstableBuilder:
    numbers = count()
    return SplitSstableBuilder(
        StorageOptions(**options), filter_policy("blocked_bloom"), lambda: f"{next(numbers):032x}", {}, borders)


def test_files_hold_all_entries_in_order_and_are_about_the_asked_size():
    builder = split_builder(sstable_bytes=20_000, block_bytes=1_000, codec="none")
    entries = [(b"%06d" % n, 1, b"v" * 90) for n in range(3_000)]
    for entry in entries:
        builder.put(*entry)
    outputs = builder.finish()
    assert [entry for output in outputs for entry in entries_of(output)] == entries
    assert len(outputs) > 10 and all(20_000 <= len(o.data) <= 22_000 for o in outputs[:-1])
    assert len({output.name for output in outputs}) == len(outputs)


def test_all_versions_of_a_key_lie_in_one_file():
    builder = split_builder(sstable_bytes=2_000, block_bytes=300, codec="none")
    entries = [(b"%03d" % key, epoch, b"v" * 40) for key in range(40) for epoch in range(key % 30 + 1, 0, -1)]
    for entry in entries:
        builder.put(*entry)
    outputs = builder.finish()
    assert [entry for output in outputs for entry in entries_of(output)] == entries
    assert len(outputs) > 5
    assert all(a.info.largest < b.info.smallest for a, b in pairwise(outputs))


def test_finished_files_can_leave_before_the_end():
    builder, seen = split_builder(sstable_bytes=1_000, block_bytes=200, codec="none"), []
    for n in range(200):
        builder.put(b"%03d" % n, 1, b"v" * 40)
        seen += builder.take_outputs()
    assert len(seen) > 5
    seen += builder.finish()
    assert sum(output.info.rows for output in seen) == 200


def test_without_entries_there_are_no_files_and_the_builder_begins_anew():
    builder = split_builder()
    assert builder.finish() == []
    for _ in range(2):
        builder.put(b"a", 1, None)
        assert [output.info.rows for output in builder.finish()] == [1]


def test_disorder_is_refused_also_where_a_file_would_be_cut():
    builder = split_builder(sstable_bytes=1, block_bytes=1, codec="none")
    builder.put(b"b", 1, b"v")
    with pytest.raises(ValueError, match="does not stand after"):
        builder.put(b"a", 1, b"v")


def test_files_end_at_borders_of_tables_and_vnode_groups_and_nowhere_else():
    keys = [user_key(table, vnode, b"%d" % n)
            for table in (1, 2, 3, 4) for vnode in range(0, 16, 3) for n in range(3)]
    rules = TableRules(vnode_groups=4, vnode_count=16)
    assert rules.borders(2) == [(2, 0), (2, 4), (2, 8), (2, 12), (3, 0)]
    assert TableRules().borders(2) == []
    builder = split_builder(rules.borders(2), codec="none")
    for _ in range(2):                      # a builder that begins anew knows its borders again
        for key in keys:
            builder.put(key, 2, b"new")
            builder.put(key, 1, b"old")
        outputs = builder.finish()
        found = [[key for key, epoch, _ in entries_of(output) if epoch == 2] for output in outputs]
        groups = {}
        for key in keys:
            table = table_id_of(key)
            groups.setdefault((table, vnode_of(key) // 4) if table == 2 else table > 2, []).append(key)
        assert found == list(groups.values())


def test_many_borders_passed_at_once_make_one_cut():
    rules = TableRules(vnode_groups=256)
    builder = split_builder(rules.borders(1), codec="none")
    for key in (user_key(1, 0, b"a"), user_key(1, 200, b"a"), user_key(1, 200, b"b"), user_key(9, 0, b"a")):
        builder.put(key, 1, b"v")
    assert [output.info.rows for output in builder.finish()] == [1, 2, 1]
