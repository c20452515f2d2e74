"""One test for each rule of the storage engine, [S1] to [S20].

Each is the shortest program that fails if the rule is broken; docstrings name the exhaustive tests of the same rule.
"""

from __future__ import annotations

import importlib
import os
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction import subcompaction
from hummock.errors import (
    Corruption,
    EpochTooOld,
    Fenced,
    FormatTooNew,
    HummockError,
    MetaStoreForked,
    PreconditionFailed,
    SnapshotExpired,
    SstableRefused,
    TaskRefused,
)
from hummock.loaded_files import LoadedFiles
from hummock.meta import DATABASE, MetaOperations, ObjectLogMetaStore, SqliteMetaStore, open_meta_store
from hummock.meta.records import VACUUMED
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.pipeline import sorted_run_writer
from hummock.sstable.meta import SstableMeta, digest_of, encode_meta, read_sections
from tests.hummock.sstable.test_builder import build, opened, seek
from tests.hummock.sstable.test_meta import with_section
from tests.reliability.store_harness import LEASE_MS, Lab, at, keys
from tests.support.suites.interpreter_work import assert_no_work_per_row, gil_takings, work_of


@pytest.fixture
def lab():
    lab = Lab()
    yield lab
    lab.close()


def test_s1_keys_are_ordered_by_user_key_then_newest_first(lab):
    """Joined with its epoch, a would sort after a00: memcmp over both is wrong.

    Sweep: tests/hummock/base/test_key."""
    lab.commit(1, {b"a": b"1", b"a\x00": b"1", b"a\xff\xff\xff\xff\xff\xff\xff\xff\xff": b"1"})
    lab.commit(2, {b"a": b"2", b"a\x00": b"2"})
    expected = [(b"a", b"2"), (b"a\x00", b"2"), (b"a" + b"\xff" * 9, b"1")]
    assert lab.rows(2) == expected and lab.rows(2, reverse=True) == expected[::-1]
    lab.manager.pin_snapshot("reader", at(1))
    assert lab.compact()
    lab.store.wait_epoch(at(2))
    assert lab.rows(2) == expected
    assert [value for _, value in lab.rows(1)] == [b"1"] * 3


def test_s2_flushes_within_an_epoch_stay_ordered_and_only_pure_epochs_are_committed():
    """An older flush once hid the last row, because its batch was not ordered above earlier flushes."""
    lab = Lab(shared_buffer_bytes=1)
    for key, value in [(b"b", b"1"), (b"c", b"1"), (b"a", b"1"), (b"a", b"2")]:
        lab.write(1, {key: value})
    expected = [(b"a", b"2"), (b"b", b"1"), (b"c", b"1")]
    assert lab.rows(1) == expected and lab.store.get(b"a", at(1)) == b"2"
    assert lab.rows(0) == []
    lab.store.commit(at(1))
    assert lab.rows(1) == expected
    assert lab.store.committed_epoch == at(1)
    assert {info.max_epoch & 0xFFFF for info in lab.store.version.sstables} > {0}
    with pytest.raises(HummockError):
        lab.store.seal_epoch(at(2) + 1)
    lab.compact()
    assert lab.stored_rows() == 3       # the flush of the newer operation on a drops the older one
    lab.close()


def test_s3_retention_keeps_all_above_the_watermark_and_the_newest_at_or_below_it(lab):
    """Sweep: tests/hummock/pipeline/test_retention."""
    for number in range(1, 6):
        lab.commit(number, {b"k": b"%d" % number, b"gone": b"" if number == 1 else None})
    lab.manager.pin_snapshot("reader", at(3))
    (task,) = lab.compact()
    assert task.watermark == at(3)
    assert lab.stored_rows() == 3 + 2       # k at 3, 4, 5; the deletes of gone at 4 and 5, not that at 3
    lab.store.wait_epoch(at(5))
    assert [lab.rows(number) for number in (3, 4, 5)] == [[(b"k", b"%d" % number)] for number in (3, 4, 5)]


def test_s3_a_tombstone_stays_while_an_older_run_outside_of_the_task_may_hold_its_key():
    lab = Lab({"l0_runs": 2, "l0_base_bytes": 1 << 30})
    lab.commit(1, {b"k": b"1", b"other": b"1"})
    lab.compact()                       # now below level 0
    lab.commit(2, {b"k": None})
    lab.commit(3, {b"k": None})
    task, token = lab.manager.get_compact_task("compactor")
    assert {part.level for part in task.inputs} == {0} and not task.drop_tombstones
    lab.manager.report_compact_task(task.id, token, lab.merge(task, token))
    lab.store.wait_epoch(at(3))
    assert lab.rows(3) == [(b"other", b"1")]
    (task,) = lab.compact()
    assert task.drop_tombstones
    lab.store.wait_epoch(at(3))
    assert lab.rows(3) == [(b"other", b"1")] and lab.stored_rows() == 1
    lab.close()


def test_s4_a_read_below_the_safe_epoch_is_refused_and_never_short(lab):
    for number in range(1, 5):
        lab.commit(number, {b"k": b"%d" % number})
    lab.manager.renew_lease(lab.store._local._node)
    lab.manager.compact_range(hummock.KeyRange(b"", None))
    task, token = lab.manager.get_compact_task("compactor")
    assert task.watermark == at(4)
    with pytest.raises(EpochTooOld):            # the task still runs and has dropped nothing yet
        lab.process().pin_snapshot("late", at(2))
    lab.manager.report_compact_task(task.id, token, lab.merge(task, token))
    lab.store.wait_epoch(at(4))
    array = pa.array([b"k"], pa.binary())
    for read in (lambda: lab.store.get(b"k", at(3)), lambda: lab.store.get_many(array, at(3)), lambda: lab.rows(3),
                 lambda: lab.store.scan_prefixes(array, at(3)), lambda: lab.store.scan_many(array, at(3))):
        with pytest.raises(EpochTooOld):
            read()
    assert lab.rows(4) == [(b"k", b"4")]


def test_s5_a_read_keeps_its_one_view_and_its_files(lab):
    lab.commit(1, keys("abc"))
    lab.write(2, {b"b": b"2"})
    scan = lab.store.scan(hummock.KeyRange(b"", None), at(2))
    assert len(scan.next_batch(1)) == 1
    before = set(lab.names())
    lab.store.commit(at(2))
    lab.commit(3, {b"a": None, b"c": b"3"})
    lab.compact()
    lab.store.wait_epoch(at(3))
    lab.manager.renew_lease(lab.store._local._node)
    lab.vacuum()
    assert not before & set(lab.names())
    assert all(lab.objects.head(sstable_data_path(name)) for name in before)
    assert list(scan) == [(b"b", b"2"), (b"c", b"1")]
    assert lab.rows(3) == [(b"b", b"2"), (b"c", b"3")]


def test_s6_point_reads_are_compiled_and_get_is_get_many_of_one(lab):
    files = ("sstable.cache.block_cache", "sstable.reader", "sstable.block")
    for name in ("read.view", "read.sorted_run", "read.multi_get", "read.get", *files):
        assert not importlib.import_module(f"hummock.{name}").__file__.endswith(".py")
    for number in range(1, 9):
        lab.commit(number, {b"%d" % row: b"%d" % number for row in range(number, 100)})
    wanted = [b"%d" % row for row in range(120)]
    found = lab.store.get_many(pa.array(wanted, pa.binary()), at(8)).to_arrow().to_pylist()
    assert found == [lab.store.get(key, at(8)) for key in wanted]
    assert work_of(lambda: lab.store.get(b"50", at(8))) < 30       # objects and lines, for any number of runs


def work_of_sync_and_scan(codec: str, blocks: int) -> tuple[list[int], list[int]]:
    """(objects and lines, GIL acquisitions) of a sync, of the first scan and of a scan with open files."""
    lab = Lab(flush_codec=codec, block_bytes=1_024, block_cache_bytes=1)
    keys_ = pa.array([b"%08d" % row for row in range(blocks * 8)], pa.binary())
    values = pa.array([lab.rng.randbytes(120) for _ in range(blocks * 8)], pa.binary())
    lab.store.ingest_batch(WriteBatch(keys_, values), at(1))
    lab.store.seal_epoch(at(1))
    work, takings = [], []

    def scan():
        with lab.store.scan(hummock.KeyRange(b"", None), at(1), hummock.ReadOptions(read_ahead=True)) as rows:
            assert rows.to_arrow().num_rows == blocks * 8

    for step in (lambda: lab.store.sync(at(1)), scan, scan):
        with gil_takings() as taken:
            work.append(work_of(step))
        takings += taken
        if step is not scan:
            lab.store.commit(at(1))
            lab.objects.reads.clear()
    assert len(lab.objects.reads) < 6 + blocks // 300       # of two scans, some megabytes per read
    lab.close()
    return work, takings


def least_work_of_sync_and_scan(codec: str, blocks: int) -> tuple[list[int], list[int]]:
    """Threads that other tests left may take the GIL meanwhile, but not in each of several tries."""
    works, takings = zip(*(work_of_sync_and_scan(codec, blocks) for _ in range(5)), strict=True)
    return list(map(min, *works)), list(map(min, *takings))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_s7_a_scan_and_a_sync_ask_the_interpreter_per_megabytes_not_per_block(codec):
    """For compaction see the window in tests/hummock/compaction/test_subcompaction."""
    blocks, more_blocks = 1_000, 4_000      # of 1 KiB
    work_of_sync_and_scan(codec, 10)        # one-time work
    few, few_takings = least_work_of_sync_and_scan(codec, blocks)
    many, many_takings = least_work_of_sync_and_scan(codec, more_blocks)
    for less, more in zip(few, many, strict=True):
        assert_no_work_per_row(less, more, more_blocks - blocks, 0.25)
    for less, more in zip(few_takings, many_takings, strict=True):
        assert less < 16 and more - less <= 9, (few_takings, many_takings)       # three per megabyte


def test_s8_one_pipeline_builds_the_files_of_syncs_and_of_compactions(lab, monkeypatch):
    ran = []
    for module in (sorted_run_writer, subcompaction):
        real = module.run_pipeline
        monkeypatch.setattr(module, "run_pipeline", lambda *given, real=real, module=module, **how: (
            ran.append(module.__name__), real(*given, **how))[1])
    assert not importlib.import_module("hummock.pipeline.merge_loop").__file__.endswith(".py")
    lab.commit(1, keys("ab"))
    lab.commit(2, keys("bc"))
    lab.compact()
    assert ran == [sorted_run_writer.__name__, sorted_run_writer.__name__, subcompaction.__name__]


def test_s9_unknown_sections_are_skipped_unless_they_are_required():
    output = build([(b"a", 1 << 16, b"1")])
    assert SstableMeta.decode(with_section(output.meta, 200, 0, b"later"), None, "m").info.rows == 1
    with pytest.raises(FormatTooNew):
        SstableMeta.decode(with_section(output.meta, 200, 1, b"later"), None, "m")
    info = opened(output).info
    assert (info.stale_rows, info.min_epoch, info.max_epoch, info.codec) == (0, 1 << 16, 1 << 16, "lz4")
    assert info.filter_policy == "blocked_bloom" and info.global_epoch == 0


def test_s10_a_block_or_an_object_at_the_wrong_position_is_found(lab):
    lab.commit(1, {b"a": b"1" * 50})
    lab.commit(2, {b"a": b"2" * 50})
    newer, older = lab.names()
    for path_of in (sstable_data_path, sstable_meta_path):
        kept = lab.objects.get(path_of(newer))
        lab.objects.put(path_of(newer), lab.objects.get(path_of(older)))
        with lab.open(lab.process()) as reader:
            with pytest.raises(Corruption) as caught:
                reader.get(b"a", at(2))
            assert caught.value.object_name == path_of(newer)
            assert reader.get(b"a", at(1)) == b"1" * 50     # the other file is unchanged
        lab.objects.put(path_of(newer), kept)
    assert lab.open(lab.process()).get(b"a", at(2)) == b"2" * 50


def test_s11_a_prefix_that_a_file_does_not_hold_is_filtered_out():
    """Sweep: tests/hummock/read/test_prefix_filters."""
    lab = Lab(block_cache_bytes=1, block_bytes=1)
    lab.store.commit(at(1), tables={1: TableRules(PrefixRule(8))})
    prefixes = [user_key(1, 0, bytes([0, group])) for group in range(200)]
    lab.commit(2, {prefix + b"row": b"1" for prefix in prefixes[::2]})
    assert lab.rows(2)
    read = {}
    for parity in (0, 1):
        lab.objects.reads.clear()
        for prefix in prefixes[parity::2]:
            found = lab.store.scan_prefixes(pa.array([prefix], pa.binary()), at(2))[1]
            assert len(found) == 1 - parity
        read[parity] = len(lab.objects.reads)
    assert read[0] >= 90 and read[1] <= 10
    lab.compact()
    lab.store.wait_epoch(at(2))
    assert next(iter(lab.manager.version.sstables)).prefixes    # the task carries the rule
    lab.close()


def test_s12_repeated_commits_and_reports_are_answered_and_late_ones_refused(lab):
    lab.commit(1, keys("a"))
    lab.write(2, keys("b"))
    lab.store.seal_epoch(at(2))
    files = lab.store.sync(at(2)).sstables
    session = lab.store.session
    first = lab.manager.commit_epoch(session, at(2), files)
    assert lab.manager.commit_epoch(session, at(2), files) == first
    with pytest.raises(HummockError):
        lab.manager.commit_epoch(session, at(2), ())
    lab.manager.compact_range(hummock.KeyRange(b"", None))
    task, token = lab.manager.get_compact_task("silent")
    late = lab.merge(task, token)
    lab.clock.advance(lab.shape.task_lease_ms + 1)
    again, second = lab.process().get_compact_task("next")
    assert again == task and second != token
    done = lab.merge(task, second)
    assert {info.name for result in late for info in result.sstables}.isdisjoint(
        info.name for result in done for info in result.sstables)
    version = lab.manager.report_compact_task(task.id, second, done)
    assert lab.manager.report_compact_task(task.id, second, done) == version
    with pytest.raises(TaskRefused):
        lab.manager.report_compact_task(task.id, token, late)
    assert lab.manager.refresh() == version


def test_s13_what_vacuum_took_may_not_be_committed(lab):
    """All interleavings: tests/hummock/meta/vacuum/test_vacuum."""
    lab.write(1, keys("a"))
    lab.store.seal_epoch(at(1))
    (info,) = lab.store.sync(at(1)).sstables
    assert lab.vacuum().removed.files == 0          # the upload is registered
    lab.clock.advance(LEASE_MS + 1)                 # its writer is frozen
    assert lab.vacuum().removed.files == 1
    assert lab.meta.get(VACUUMED + info.name) is not None
    with pytest.raises(SstableRefused):
        lab.store.commit(at(1))
    assert lab.manager.refresh().max_committed_epoch == 0


def test_s14_opening_reads_and_only_claiming_a_role_fences(lab, tmp_path):
    lab.commit(1, keys("a"))
    reader = lab.open(lab.process())
    lab.commit(2, keys("b"))                        # opening a reader fences nobody
    other = lab.process()
    other.claim_writer("other")
    with pytest.raises(Fenced):
        lab.commit(3, keys("c"))
    reader.wait_epoch(at(2))
    assert [key for key, _ in lab.rows(3, reader)] == [b"a", b"b"]
    with pytest.raises(HummockError):
        reader.commit(at(4))
    assert lab.manager.refresh().max_committed_epoch == at(2)
    reader.close()
    hummock.open(f"file://{tmp_path}/store", role="writer").close()
    store = open_meta_store(f"file://{tmp_path}/store")
    if (pid := os.fork()) == 0:
        try:
            store.get("key")
        except MetaStoreForked:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    store.close()


def test_s14_after_the_lease_a_missing_object_is_an_expired_snapshot(lab):
    lab.commit(1, keys("ab"))
    frozen = lab.open(lab.process())
    lab.commit(2, keys("bc"))
    lab.compact()
    lab.store.wait_epoch(at(2))
    lab.clock.advance(LEASE_MS + 1)
    lab.store._local.protects(lab.store._local.pin())       # the writer is live, the reader is frozen
    lab.manager.renew_lease(lab.store._local._node)
    lab.vacuum()
    with pytest.raises(SnapshotExpired):
        lab.rows(1, frozen)
    frozen.close()


def test_s15_metadata_is_kept_beside_the_data_and_one_transaction_serves_several_managers(lab, tmp_path):
    with closing(open_meta_store(f"file://{tmp_path}")) as meta_store:
        assert isinstance(meta_store, SqliteMetaStore) and (tmp_path / DATABASE).exists()
    with closing(open_meta_store("s3://bucket/prefix", object_store=lab.objects)) as meta_store:
        assert isinstance(meta_store, ObjectLogMetaStore)
        meta_store.transaction(MetaOperations(put={"key": b"1"}))
        assert any(found.path.startswith("meta/") for found in lab.objects.list(""))
    lab.meta.transaction(MetaOperations(put={"catalog/view": b"old"}))
    ddl = MetaOperations(require={"catalog/view": b"old"}, put={"catalog/view": b"new"})
    lab.manager.commit_epoch(lab.store.session, at(1), (), operations=ddl)
    assert lab.meta.get("catalog/view") == b"new"
    with pytest.raises(PreconditionFailed):
        lab.manager.commit_epoch(lab.store.session, at(2), (), operations=ddl)
    assert lab.manager.refresh().max_committed_epoch == at(1)


def test_s16_files_are_cut_between_user_keys_and_a_seek_ends_in_the_second_block_of_a_key():
    entries = [(b"k", epoch << 16, b"%03d" % epoch * 20) for epoch in range(99, 0, -1)]
    output = build(entries, block_bytes=300)
    assert len(opened(output).index) > 10
    for key, epoch, value in entries:
        assert seek(output, key, epoch | 0xFFFF) == (key, epoch, value)
    lab = Lab(block_bytes=1, sstable_bytes=1, compaction={"sstable_bytes": 1, "block_bytes": 1})
    lab.manager.pin_snapshot("reader")
    for number in range(1, 12):
        lab.commit(number, {b"a": b"%d" % number, b"b": b"%d" % number, b"b\x00": b"%d" % number})
    lab.compact()
    files = list(lab.manager.refresh().sstables)
    assert [(info.smallest, info.largest, info.rows) for info in files] == [
        (key, key, 11) for key in (b"a", b"b", b"b\x00")]
    lab.store.wait_epoch(at(11))
    for number in range(1, 12):
        assert lab.rows(number) == [(key, b"%d" % number) for key in (b"a", b"b", b"b\x00")]
    lab.close()


def test_s17_batches_are_bounded_and_outlive_their_scan_and_small_slices_are_copied():
    lab = Lab(scan_batch_rows=100, scan_batch_bytes=1_000)
    lab.commit(1, {b"%04d" % row: b"v" * 40 for row in range(500)})
    with lab.store.scan(hummock.KeyRange(b"", None), at(1)) as scan:
        batches = []
        while (batch := scan.next_batch()) is not None:
            batches.append(batch.to_arrow())
    assert all(0 < batch.num_rows <= 100 for batch in batches)
    assert all(batch.nbytes <= 1_000 + 4 * 2 * 101 + 44 for batch in batches)
    lab.close()
    expected = [b"%04d" % row for row in range(500)]
    assert [key for batch in batches for key in batch.column(0).to_pylist()] == expected
    last = threading.Thread(target=batches.clear)       # another thread releases the buffers
    last.start()
    last.join()
    large = pa.array([b"x" * 1_000 for _ in range(2_000)], pa.binary())
    held = pa.total_allocated_bytes()
    batch = WriteBatch(large.slice(7, 1), large.slice(7, 1))
    del large
    assert held - pa.total_allocated_bytes() > 1_900_000
    assert list(batch) == [(b"x" * 1_000, b"x" * 1_000)]


def test_s18_a_loaded_file_has_the_epoch_of_its_commit_everywhere(lab):
    """Sweep: tests/hummock/test_global_epoch."""
    lab.commit(2, {b"a": b"written", b"b": b"written"})
    output = build([(b"b", 1 << 16, b"loaded"), (b"c", 1 << 16, b"loaded")])
    name = lab.store._registry.mint()
    lab.objects.put(sstable_data_path(name), bytes(output.data))
    record = replace(output.info, name=name, meta_bytes=0, meta_digest="")
    meta = encode_meta(record, *(bytes(read_sections(output.meta, "m")[tag]) for tag in (2, 3, 7)), [])
    lab.objects.put(sstable_meta_path(name), meta)
    info = replace(record, meta_bytes=len(meta), meta_digest=digest_of(meta))
    lab.manager.commit_epoch(lab.store.session, at(3), (), loads=[LoadedFiles("load", (info,))])
    assert lab.manager.load_answer("load").level == 0       # a written row is below
    lab.store.wait_epoch(at(3))
    lab.manager.pin_snapshot("reader", at(2))
    before, after = [(b"a", b"written"), (b"b", b"written")], [(b"a", b"written"), (b"b", b"loaded"), (b"c", b"loaded")]
    assert (lab.rows(2), lab.rows(3)) == (before, after)
    assert [lab.store.get(b"b", at(number)) for number in (1, 2, 3)] == [None, b"written", b"loaded"]
    assert lab.compact() and {info.global_epoch for info in lab.manager.version.sstables} == {0}
    lab.store.wait_epoch(at(3))
    assert (lab.rows(2), lab.rows(3)) == (before, after)


def test_s19_compaction_drops_rows_of_dropped_tables_and_not_of_unknown_ones(lab):
    rows = {user_key(table, 0, b"k"): b"%d" % table for table in (1, 2, 3)}
    lab.commit(1, rows, tables={1: TableRules(), 2: TableRules()})      # 3 is unknown
    lab.commit(2, {user_key(3, 0, b"l"): b"3"}, dropped_tables=[2])
    lab.compact()
    lab.store.wait_epoch(at(2))
    assert [value for _, value in lab.rows(2)] == [b"1", b"3", b"3"]
    assert lab.stored_rows() == 3


def test_s19_a_dropped_table_has_no_rows_at_any_epoch_whatever_of_it_compaction_has_left(lab):
    """If compaction dropped only some of its rows, older versions would reappear."""
    kept, gone = user_key(1, 0, b"k"), user_key(2, 0, b"k")
    for number in (1, 2):
        lab.commit(number, {kept: b"%d" % number, gone: b"%d" % number})
    begun = lab.store.scan(hummock.KeyRange(b"", None), at(2))
    reader = lab.open(lab.process())
    lab.commit(3, {kept: b"3"}, dropped_tables=[2])
    array = pa.array([gone], pa.binary())
    for number in (1, 2, 3):
        assert lab.rows(number) == lab.rows(number, reverse=True) == [(kept, b"%d" % number)]
        assert lab.store.get(gone, at(number)) is None
        assert lab.store.get_many(array, at(number)).to_arrow().null_count == 1
        assert len(lab.store.scan_prefixes(array, at(number))[1]) == len(lab.store.scan_many(
            array, at(number))[1]) == 0
    expected = [(kept, b"2"), (gone, b"2")]
    assert list(begun) == expected              # a scan begun before, and a reader that has not seen the drop
    assert lab.rows(2, reader) == expected
    reader.close()


def test_s20_one_epoch_is_committed_for_all_tables_at_once(lab):
    reader = lab.open(lab.process())
    tables = [user_key(table, 0, b"k") for table in range(1, 6)]
    seen = set()
    for number in range(1, 6):
        for key in tables:
            lab.write(number, {key: b"%d" % number})
            seen.add(tuple(value for _, value in lab.rows(99, reader)))
        lab.store.commit(at(number))
        seen.add(tuple(value for _, value in lab.rows(99, reader)))
        reader.wait_epoch(at(number))
        seen.add(tuple(value for _, value in lab.rows(99, reader)))
    assert seen == {(), *((b"%d" % number,) * 5 for number in range(1, 6))}
    reader.close()


def test_every_ruling_has_its_test():
    text = Path(__file__).read_text()
    assert all(f"def test_s{number}_" in text for number in range(1, 21))
