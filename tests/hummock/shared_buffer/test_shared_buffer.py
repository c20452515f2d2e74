"""SharedBuffer, Flusher and pipeline: order within an epoch, runs, flushes, and output files."""

from __future__ import annotations

from itertools import count

import pytest

from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch, ObjectExists
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import sstable_data_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.merge_loop import run_pipeline
from hummock.pipeline.retention import RetentionIterator
from hummock.shared_buffer.batch import (
    SharedBufferBatch,
    SharedBufferBatchIterator,
    SharedBufferChainIterator,
)
from hummock.shared_buffer.buffer import SharedBuffer, StagedRun
from hummock.shared_buffer.flush import Flusher, chains_of
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder
from hummock.sstable.store import SstableStore
from tests.support.drivers.compaction_files import put_file

E1, E2, E3 = (Epoch(number << 16) for number in (1, 2, 3))


def rows(*keys, value=b"1"):
    return WriteBatch([(key, value) for key in keys])


def buffer_of(*batches, limit=1 << 20):
    buffer = SharedBuffer(limit, Epoch(0))
    for batch, epoch in batches:
        buffer.add(batch, epoch, False)
    return buffer


def upload_all(buffer, uploader, epoch):
    """Runs every task at or below `epoch` in order; returns the (newest epoch, flush) of each."""
    done = []
    while (task := buffer.start(epoch)) is not None:
        buffer.finish(task, tuple(reader.info for reader in uploader.upload(task)))
        done.append((task.max_epoch, task.flush))
    return done


def batches_of(buffer):
    return [source for source in buffer.sources if isinstance(source, SharedBufferBatch)]


@pytest.fixture
def store():
    return SstableStore(MemoryObjectStore(), StorageOptions())


@pytest.fixture
def uploader(store):
    names = count(1)
    return Flusher(store, StorageOptions(), lambda: f"{next(names):032x}")


def content(store, infos):
    return [(key, epoch >> 16, epoch & 0xFFFF, value) for key, epoch, value in
            ConcatIterator(store, infos).entries()]  # fmt: skip


def test_sources_are_newest_first_however_they_came():
    batches = [(rows(b"a", value=b"%d" % number), epoch) for number, epoch in enumerate((E2, E1, E2, E3, E1))]
    assert [source.rows.values[0] for source in buffer_of(*batches).sources] == [b"3", b"2", b"0", b"4", b"1"]


def test_a_batch_carries_the_number_of_the_flush_that_it_comes_after():
    buffer = buffer_of((rows(b"a"), E1), (rows(b"a"), E1))
    buffer.cut_oldest()
    buffer.add(rows(b"a"), E1, False)
    assert [source.epoch - E1 for source in buffer.sources] == [1, 0, 0]
    buffer._flushes[E1] = 1 << 16
    with pytest.raises(InvalidEpoch, match="16 bits"):
        buffer.add(rows(b"a"), E1, False)
    assert len(buffer.sources) == 3


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
    buffer.cut_through(E2)
    assert upload_all(buffer, uploader, E2) == [(E2, 0)]
    assert [type(source) for source in buffer.sources] == [SharedBufferBatch, StagedRun]
    assert content(store, buffer.files_of_sync(E2)) == [
        (b"a", 1, 0, b"1"), (b"b", 2, 0, b"2"), (b"b", 1, 0, b"1"),
    ]  # fmt: skip
    assert buffer.files_of_sync(E3) == ()
    assert buffer.files_of_sync(E2) == buffer.staged_through(E3)
    with pytest.raises(InvalidEpoch, match="synced together"):
        buffer.staged_through(E1)
    buffer.cut_through(E2)
    assert buffer.start(E2) is None


@pytest.mark.parametrize("count_of_rows", [1, 3_000])
@pytest.mark.parametrize("fails", [False, True])
def test_names_that_no_file_of_an_upload_took_are_given_up(store, count_of_rows, fails):
    """A large upload mints the name of its next file before it knows whether it needs one."""
    names, minted, given_up = count(1), [], []

    def mint():
        minted.append(f"{next(names):032x}")
        return minted[-1]

    options = StorageOptions(sstable_bytes=20_000, block_bytes=1_000, codec="none")
    uploader = Flusher(store, options, mint, given_up.extend)
    buffer = buffer_of((rows(*(b"%06d" % n for n in range(count_of_rows)), value=b"v" * 100), E1), limit=1 << 24)
    buffer.seal(E1)
    buffer.cut_through(E1)
    if fails:
        store.object_store.put(sstable_data_path(f"{1:032x}"), b"another's")
        with pytest.raises(ObjectExists):
            uploader.upload(buffer.start(E1))
        assert sorted(given_up) == minted
    else:
        written = [reader.info.name for reader in uploader.upload(buffer.start(E1))]
        assert len(written) == 1 if count_of_rows == 1 else len(written) > 3
        assert sorted(written + given_up) == minted


def test_of_one_epoch_only_the_last_operation_on_a_key_is_written(store, uploader):
    second = WriteBatch([(b"a", None), (b"b", b"2")])
    buffer = buffer_of((rows(b"a", b"b"), E1), (second, E1), (rows(b"a"), E1))
    buffer.cut_through(E1)
    upload_all(buffer, uploader, E1)
    assert content(store, buffer.files_of_sync(E1)) == [(b"a", 1, 0, b"1"), (b"b", 1, 0, b"2")]


def test_each_flush_of_an_epoch_is_stored_under_its_number(store, uploader):
    buffer = SharedBuffer(1, Epoch(0))
    for value in (b"1", b"2", b"3"):
        buffer.add(rows(b"a", value=value), E1, False)
        buffer.add(rows(b"a", value=value), E2, False)
        buffer.cut_oldest()
        upload_all(buffer, uploader, E1)
    spilled = [source for source in buffer.sources if isinstance(source, StagedRun)]
    assert [content(store, run.sstables) for run in spilled] == [
        [(b"a", 1, flush, value)] for flush, value in ((2, b"3"), (1, b"2"), (0, b"1"))
    ]
    buffer.cut_through(E1)
    assert len(buffer.files_of_sync(E1)) == 3
    buffer.add(rows(b"a", value=b"4"), E1, False)
    buffer.cut_through(E2)
    assert upload_all(buffer, uploader, E2) == [(E2, 3)]
    assert content(store, buffer.files_of_sync(E2)) == [(b"a", 2, 3, b"3"), (b"a", 1, 3, b"4")]


def test_a_failed_task_stays_before_a_later_flush(store, uploader):
    buffer = buffer_of((rows(b"a", value=b"old"), E1))
    buffer.cut_oldest()
    failed = buffer.start()
    buffer.add(rows(b"a", value=b"new"), E1, False)
    buffer.fail(failed)
    buffer.cut_through(E1)
    assert upload_all(buffer, uploader, E1) == [(E1, 0), (E1, 1)]
    assert [row[3] for run in buffer.sources for row in content(store, run.sstables)] == [b"new", b"old"]


def test_a_task_takes_no_batches_from_both_sides_of_another(uploader):
    buffer = buffer_of((rows(b"a"), E1), (rows(b"a"), E2))
    buffer._cut_task([batches_of(buffer)[0]])
    running = buffer.start()
    buffer.add(rows(b"a"), E3, False)
    buffer.cut_through(E3)
    assert [(task.min_epoch, task.max_epoch) for task in buffer._tasks] == [(E2, E2), (E1, E1), (E3, E3)]
    buffer.finish(running, ())
    upload_all(buffer, uploader, E3)
    assert [source.max_epoch for source in buffer.sources] == [E3, E1]


def test_what_a_sync_was_given_no_other_hands_out_unless_it_fails(uploader):
    buffer = buffer_of((rows(b"a"), E1), (rows(b"b"), E2))
    buffer.cut_through(E1)
    buffer.cut_through(E2)
    upload_all(buffer, uploader, E2)
    assert [len(buffer.files_of_sync(epoch)) for epoch in (E1, E2)] == [1, 1]
    buffer.unassign(E1)
    buffer.cut_through(E2)
    assert [len(buffer.files_of_sync(epoch)) for epoch in (E1, E2)] == [0, 2]


def test_local_rows_are_never_uploaded_and_have_a_limit_of_their_own():
    buffer = SharedBuffer(10, Epoch(0))
    buffer.add(rows(b"aaaaaaaaaaa"), E1, True)
    buffer.cut_oldest()
    buffer.cut_through(E1)
    assert buffer.start() is None
    assert buffer.has_room(1, False)
    assert not buffer.has_room(1, True)


def test_a_later_local_batch_of_an_epoch_is_above_an_earlier_one():
    buffer = SharedBuffer(1 << 20, Epoch(0))
    for value in (b"1", b"2", b"3"):
        buffer.add(rows(b"a", value=value), E2, True)
        buffer.add(rows(b"b", value=value), E2, False)
        buffer.add(rows(b"c", value=value), E1, True)
    shown = [(batch.epoch, batch.is_local, next(iter(batch.rows))[1]) for batch in batches_of(buffer)]
    assert [value for epoch, is_local, value in shown if is_local and epoch == E2] == [b"3", b"2", b"1"]
    assert [value for epoch, is_local, value in shown if epoch == E1] == [b"3", b"2", b"1"]
    order = [(epoch, is_local) for epoch, is_local, _ in shown]
    assert order == [(E2, False)] * 3 + [(E2, True)] * 3 + [(E1, True)] * 3


def test_local_rows_part_no_task_within_their_epoch():
    buffer = SharedBuffer(1 << 20, Epoch(0))
    for is_local in (False, True, False, True):
        buffer.add(rows(b"a"), E1, is_local)
        buffer.add(rows(b"a"), E2, is_local)
    buffer.cut_through(E2)
    assert [(task.min_epoch, len(task.batches)) for task in buffer._tasks] == [(E1, 2), (E2, 2)]


def test_a_write_at_an_epoch_that_was_committed_elsewhere_is_refused():
    buffer = buffer_of((rows(b"a"), E1))
    buffer.drop_through(E2)
    with pytest.raises(InvalidEpoch, match="above the sealed epoch"):
        buffer.add(rows(b"a"), E2, False)


def chain_keys(*batches):
    buffer = buffer_of(*batches)
    return [[batch.smallest_key for batch in chain] for chain in chains_of(buffer.sources)]


def test_neighbours_without_a_common_range_form_a_chain():
    assert chain_keys((rows(b"a", b"b"), E1), (rows(b"e"), E1), (rows(b"c", b"d"), E1)) == [[b"a", b"c", b"e"]]
    assert chain_keys((rows(b"a"), E1), (rows(b"b"), E1), (rows(b"a"), E1)) == [[b"a", b"b"], [b"a"]]
    assert chain_keys((rows(b"a", b"c"), E1), (rows(b"b"), E1)) == [[b"b"], [b"a"]]
    assert chain_keys((rows(b"b"), E1), (rows(b"a", b"c"), E1)) == [[b"a"], [b"b"]]
    with pytest.raises(ValueError, match="does not begin after"):
        SharedBufferChainIterator(buffer_of((rows(b"a"), E1), (rows(b"a"), E2)).sources)


def test_a_chain_seeks_in_the_order_of_its_entries():
    buffer = buffer_of(*[(rows(*keys), epoch) for keys, epoch in (
        ((b"a", b"c"), E1), ((b"d",), E2), ((b"f", b"g"), E1))])  # fmt: skip
    (chain,) = chains_of(buffer.sources)
    entries = list(SharedBufferChainIterator(chain).entries())
    assert [entry[0] for entry in entries] == [b"a", b"c", b"d", b"f", b"g"]
    for target in [bytes([byte]) for byte in b"`abcdefgh"]:
        for epoch in (0, E1, E2, E3):
            expected = [entry for entry in entries if (entry[0], -entry[1]) >= (target, -epoch)]
            assert list(SharedBufferChainIterator(chain).entries(target, epoch)) == expected


def pipeline_of(source, **options):
    names = count(1)
    builder = MultiSstableBuilder(StorageOptions(), filter_policy("none"), lambda: f"{next(names):032x}")
    outputs = []
    return run_pipeline(source, builder, outputs.append, **options), outputs


def test_the_seeds_two_epochs_after_compaction_with_watermark_zero(store):
    newer = SharedBufferBatch(WriteBatch([(b"a", None), (b"b", b"3")]), E2)
    older = SharedBufferBatch(WriteBatch([(b"a", b"1"), (b"b", b"2")]), E1)
    merged = MergeIterator([SharedBufferBatchIterator(batch) for batch in (newer, older)])
    written, outputs = pipeline_of(RetentionIterator(merged, 0))
    for output in outputs:
        put_file(store.object_store, output)
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
