"""Sorted runs: files are cut by size, only between two user keys."""

import threading
from contextlib import contextmanager
from itertools import count, pairwise

import pytest

from hummock.base.key import table_id_of, user_key, vnode_of
from hummock.base.table_rules import TableRules
from hummock.errors import ObjectStoreError
from hummock.options import StorageOptions
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder
from tests.hummock.sstable.test_builder import entries_of


def split_builder(borders=(), **options) -> MultiSstableBuilder:
    numbers = count()
    return MultiSstableBuilder(
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


def test_all_versions_of_a_key_are_in_one_file():
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
        seen += builder.pop_outputs()
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
    with pytest.raises(ValueError, match="is not after"):
        builder.put(b"a", 1, b"v")


def test_files_end_at_borders_of_tables_and_vnode_groups_and_nowhere_else():
    keys = [user_key(table, vnode, b"%d" % n)
            for table in (1, 2, 3, 4) for vnode in range(0, 16, 3) for n in range(3)]
    rules = TableRules(vnode_groups=4, vnode_count=16)
    assert rules.borders(2) == [(2, 0), (2, 4), (2, 8), (2, 12), (3, 0)]
    assert TableRules().borders(2) == []
    builder = split_builder(rules.borders(2), codec="none")
    for _ in range(2):                      # a reused builder applies its borders again
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


@contextmanager
def served(name_source=None, **options):
    """A builder, another thread that serves it, and the outputs of that thread."""
    numbers, outputs = count(), []
    builder = MultiSstableBuilder(
        StorageOptions(**options), filter_policy("blocked_bloom"), name_source or (lambda: f"{next(numbers):032x}"),
        is_served=True)
    builder.send_outputs_to(lambda output: outputs.append((threading.get_ident(), output)))
    thread = threading.Thread(target=builder.serve)
    thread.start()
    try:
        yield builder, outputs
    finally:
        builder.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_a_served_builder_makes_the_same_files_and_another_thread_ends_them():
    options = {"sstable_bytes": 5_000, "block_bytes": 500, "codec": "none"}
    entries = [(b"%06d" % (n // 3), 3 - n % 3, b"v" * 90) for n in range(3_000)]
    plain = split_builder(**options)
    with served(**options) as (builder, outputs):
        for _ in range(2):
            for entry in entries:
                plain.put(*entry)
                builder.put(*entry)
            assert builder.finish() == []
            files = plain.finish()
            assert [bytes(output.data) for _, output in outputs] == [bytes(output.data) for output in files]
            assert threading.get_ident() not in {ident for ident, _ in outputs}
            outputs.clear()


def test_without_entries_a_served_builder_gives_no_file():
    with served() as (builder, outputs):
        assert builder.finish() == []
        assert outputs == []


@pytest.mark.parametrize("files", [0, 1, 5])
def test_what_a_serving_thread_meets_with_is_raised_from_adding(files):
    """The name source is exhausted, so no further file can be started."""
    left = iter(range(files))

    def name_source():
        if (number := next(left, None)) is None:
            raise ObjectStoreError("names", "there are no more")
        return f"{number:032x}"

    with (served(name_source, sstable_bytes=1_000, block_bytes=200, codec="none") as (builder, outputs),
          pytest.raises(ObjectStoreError, match="no more")):
        for n in range(100_000):
            builder.put(b"%06d" % n, 1, b"v" * 90)
        pytest.fail("a builder without names did not fail")
    assert len(outputs) <= files


def test_what_takes_a_file_may_refuse_it_and_adding_ends():
    def refuse(output):
        raise ObjectStoreError(output.name, "refused")

    with served(block_bytes=200, sstable_bytes=1_000, codec="none") as (builder, _):
        builder.send_outputs_to(refuse)
        with pytest.raises(ObjectStoreError, match="refused"):
            for n in range(100_000):
                builder.put(b"%06d" % n, 1, b"v" * 90)
            builder.finish()
