"""SharedBuffer, uploader and pipeline: order within an epoch, runs, flushes, and what is written."""

from __future__ import annotations

from itertools import count

import pytest

from hummock.compaction.pipeline import run_pipeline
from hummock.compaction.retention import RetentionIterator
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch
from hummock.iterator.merge import MergeIterator
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferBatchIterator
from hummock.shared_buffer.buffer import SharedBuffer, StagedRun
from hummock.shared_buffer.uploader import Uploader
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.filter_policy import filter_policy
from hummock.sstable.split_builder import SplitSstableBuilder
from hummock.sstable.store import SstableStore
from hummock.write_batch import WriteBatch

E1, E2, E3 = (Epoch(number << 16) for number in (1, 2, 3))
T1, T2 = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"


def rows(*keys, value=b"1"):
    return WriteBatch([(key, value) for key in keys])


def buffer_of(*batches, limit=1 << 20):
    buffer = SharedBuffer(limit, Epoch(0))
    for batch, epoch in batches:
        buffer.add(batch, epoch, False)
    return buffer


def offsets(buffer):
    return [source.epoch & 0xFFFF for source in reversed(buffer.sources)]


@pytest.fixture
def store():
    return SstableStore(MemoryObjectStore(), StorageOptions())


@pytest.fixture
def uploader(store):
    names = count(1)
    return Uploader(store, StorageOptions(), lambda: f"{next(names):032x}")


def content(store, infos):
    return [(key, epoch >> 16, epoch & 0xFFFF, value) for key, epoch, value in
            ConcatIterator(store, infos).entries()]  # fmt: skip


def test_a_batch_that_overlaps_an_earlier_one_of_its_epoch_gets_the_next_spill_offset():
    assert offsets(buffer_of((rows(b"aaaa1", b"aaaa3"), E1), (rows(b"aaaa2"), E1))) == [0, 1]
    assert offsets(buffer_of((rows(b"aaaa1", b"aaaa2"), E1), (rows(b"aaaa3"), E1))) == [0, 0]
    assert offsets(buffer_of((rows(T1 + b"a", T1 + b"z"), E1), (rows(T2 + b"b"), E1))) == [0, 0]
    assert offsets(buffer_of((rows(T1 + b"a"), E1), (rows(T1 + b"a", T2 + b"b"), E1))) == [0, 1]
    assert offsets(buffer_of((rows(T1 + b"a", T2 + b"b"), E1), (rows(T1 + b"z"), E1))) == [0, 1]
    assert offsets(buffer_of((rows(b"aaaa1"), E1), (rows(b"aaaa1"), E2))) == [0, 0]
    assert offsets(buffer_of(*[(rows(b"aaaa1"), E1)] * 3, (rows(b"aaaa0"), E1))) == [0, 1, 2, 2]


def test_after_the_last_spill_offset_a_batch_is_refused():
    buffer = SharedBuffer(1 << 30, Epoch(0))
    batch = rows(b"a")
    buffer.add(batch, E1, False)
    buffer._orders[E1].offset = 0xFFFE
    buffer.add(batch, E1, False)
    with pytest.raises(InvalidEpoch, match="16 bits"):
        buffer.add(batch, E1, False)
    assert len(buffer.sources) == 2


def test_sources_are_newest_first_however_they_came():
    buffer = buffer_of(*[(rows(b"a"), epoch) for epoch in (E2, E1, E2, E3, E1)])
    assert [source.epoch for source in buffer.sources] == [E3, E2 + 1, E2, E1 + 1, E1]


def test_what_is_committed_leaves_and_gives_its_room_back():
    buffer = buffer_of((rows(b"a"), E1), (rows(b"b"), E2), limit=10)
    assert not buffer.has_room(10, False)
    buffer.drop_through(E1)
    assert [source.epoch for source in buffer.sources] == [E2]
    buffer.drop_through(E2)
    assert buffer.waiting_bytes == 0
    assert buffer.has_room(1_000, False)


def test_all_epochs_of_a_sync_become_one_run(store, uploader):
    buffer = buffer_of((rows(b"a", b"b"), E1), (rows(b"b", value=b"2"), E2), (rows(b"c"), E3))
    (task,) = buffer.tasks_through(E2)
    readers = uploader.upload(task)
    buffer.finish(task, tuple(reader.info for reader in readers), E2)
    assert [type(source) for source in buffer.sources] == [SharedBufferBatch, StagedRun]
    assert content(store, buffer.hand_out(E2)) == [
        (b"a", 1, 0, b"1"), (b"b", 2, 0, b"2"), (b"b", 1, 0, b"1"),
    ]  # fmt: skip
    assert buffer.hand_out(E3) == ()
    assert buffer.hand_out(E2) == buffer.staged_through(E3)
    assert buffer.tasks_through(E2) == []


def test_of_one_epoch_only_the_last_operation_on_a_key_is_written(store, uploader):
    second = WriteBatch([(b"a", None), (b"b", b"2")])
    buffer = buffer_of((rows(b"a", b"b"), E1), (second, E1), (rows(b"a"), E1))
    (task,) = buffer.tasks_through(E1)
    infos = [reader.info for reader in uploader.upload(task)]
    assert content(store, infos) == [(b"a", 1, 0, b"1"), (b"b", 1, 0, b"2")]


def test_each_flush_of_an_epoch_is_stored_under_its_number(store, uploader):
    buffer = SharedBuffer(1, Epoch(0))
    for value in (b"1", b"2", b"3"):
        buffer.add(rows(b"a", value=value), E1, False)
        buffer.add(rows(b"a", value=value), E2, False)
        task = buffer.spill_task()
        assert {batch.epoch & ~0xFFFF for batch in task.batches} == {E1}
        buffer.finish(task, tuple(reader.info for reader in uploader.upload(task)), None)
    spilled = [source for source in buffer.sources if isinstance(source, StagedRun)]
    assert [content(store, run.sstables) for run in spilled] == [
        [(b"a", 1, flush, value)] for flush, value in ((2, b"3"), (1, b"2"), (0, b"1"))
    ]
    assert len(buffer.hand_out(E1)) == 3
    buffer.add(rows(b"a", value=b"4"), E1, False)
    assert [(task.max_epoch, task.flush) for task in buffer.tasks_through(E2)] == [(E1, 3), (E2, 0)]


def test_local_rows_are_never_uploaded_and_have_a_limit_of_their_own():
    buffer = SharedBuffer(10, Epoch(0))
    buffer.add(rows(b"aaaaaaaaaaa"), E1, True)
    assert buffer.spill_task() is None
    assert buffer.tasks_through(E1) == []
    assert buffer.has_room(1, False)
    assert not buffer.has_room(1, True)


def pipeline_of(source, **how):
    names = count(1)
    builder = SplitSstableBuilder(StorageOptions(), filter_policy("none"), lambda: f"{next(names):032x}")
    outputs = []
    return run_pipeline(source, builder, outputs.append, **how), outputs


def test_the_seeds_two_epochs_after_compaction_with_watermark_zero(store):
    newer = SharedBufferBatch(WriteBatch([(b"a", None), (b"b", b"3")]), E2)
    older = SharedBufferBatch(WriteBatch([(b"a", b"1"), (b"b", b"2")]), E1)
    merged = MergeIterator([SharedBufferBatchIterator(batch) for batch in (newer, older)])
    written, outputs = pipeline_of(RetentionIterator(merged, 0))
    for output in outputs:
        store.put(output)
    assert written == 4
    assert list(ConcatIterator(store, [output.info for output in outputs]).entries()) == [
        (b"a", E2, None), (b"a", E1, b"1"), (b"b", E2, b"3"), (b"b", E1, b"2"),
    ]  # fmt: skip


def test_the_pipeline_refuses_what_it_cannot_write():
    batch = SharedBufferBatch(rows(b"a"), E1)
    with pytest.raises(ValueError, match="forward"):
        pipeline_of(SharedBufferBatchIterator(batch, -1))
    with pytest.raises(ValueError, match="16 bits"):
        pipeline_of(SharedBufferBatchIterator(batch), flush=1 << 16)
    assert pipeline_of(MergeIterator([])) == (0, [])
