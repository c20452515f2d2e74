"""Streaming uploads: complete files, parts in order, bounded memory, and errors raised in the builder."""

import errno
import random
import threading

import pytest

from hummock.errors import ObjectExists, ObjectStoreError, UploadLost
from hummock.metrics import Metrics
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.local import TEMPORARY, LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import RetryOptions, StorageOptions
from hummock.pipeline.streaming_upload import UploadQueue
from hummock.pipeline.thread_group import ThreadGroup
from hummock.sstable.filter.policy import BlockedBloomPolicy, filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder
from tests.hummock.object_store.test_local_disk import Disk
from tests.support.drivers.compaction_files import entries_in, names
from tests.support.servers.file_calls import between
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore

ENTRIES = [(b"%06d" % n, 1 << 16, b"%d" % (n * n) * 9) for n in range(4_000)]


def build(store, parts=2, threads=2, is_served=False, policy=None):
    """The infos of ENTRIES, built into several files of many parts each."""
    queue, group = UploadQueue(store, parts * 12_000), ThreadGroup()
    for _ in range(threads):
        group.start(queue.serve)
    builder = MultiSstableBuilder(
        StorageOptions(sstable_bytes=80_000, block_bytes=1_000, codec="none"), policy or BlockedBloomPolicy(),
        names(), data_bytes=12_000, sink_of=queue.file, is_served=is_served)
    builder.send_outputs_to(queue.finish)
    if is_served:
        group.start(builder.serve)
    try:
        for entry in ENTRIES:
            builder.put(*entry)
        builder.finish()
        return [output.info for output in queue.wait()]
    finally:
        builder.stop()
        queue.stop()
        group.join()
        queue.close()


class UploadParts(MemoryObjectStore):
    """Records the size of each part."""

    def __init__(self):
        super().__init__()
        self.sizes = {}

    def create(self, path, *, if_absent=True):
        writer, sizes = super().create(path, if_absent=if_absent), self.sizes.setdefault(path, [])
        write = writer.write
        writer.write = lambda data: (sizes.append(len(data)), write(data))
        return writer


@pytest.mark.parametrize("is_served", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 50])
def test_files_that_left_in_pieces_are_whole(tmp_path, parts, is_served):
    for store in (UploadParts(), LocalObjectStore(tmp_path)):
        infos = build(store, parts, is_served=is_served)
        assert [entry for info in infos for entry in entries_in(store, info)] == ENTRIES
        assert len(infos) > 3
        assert [store.head(sstable_data_path(info.name)).size_bytes for info in infos] == [
            info.data_bytes for info in infos]
        for sizes in getattr(store, "sizes", {}).values():
            assert len(sizes) > 2 and all(0 < size <= 12_000 and size % 4096 == 0 for size in sizes[:-1])


class SyncFirstPolicy(BlockedBloomPolicy):
    """Builds no filter before a file is synced."""

    def __init__(self, synced):
        super().__init__()
        self.synced = synced

    def build(self, hashes):
        assert self.synced.wait(60), "the data waited for the filter"
        return super().build(hashes)


def test_the_data_of_a_file_is_synced_while_its_meta_is_made(tmp_path):
    store, synced = LocalObjectStore(tmp_path), threading.Event()

    def watch(name, real, *arguments):
        if name == "fsync":
            synced.set()
        return real(*arguments)

    with between(watch):
        infos = build(store, is_served=True, policy=SyncFirstPolicy(synced))
    assert [entry for info in infos for entry in entries_in(store, info)] == ENTRIES


def test_data_that_could_not_be_synced_ahead_are_lost_for_good(tmp_path, monkeypatch):
    store = InstrumentedObjectStore(LocalObjectStore(tmp_path), Metrics(), RetryOptions(first_delay_ms=1),
                                    Pacing(random.Random(1)))
    store.put("sst/other", b"its directory is there")
    with Disk(0, errno.EIO, only="fsync").inserted(monkeypatch) as disk, pytest.raises(UploadLost) as caught:
        build(store, is_served=True, threads=1)
    assert disk.hit == 1
    lost = caught.value.path
    assert lost.endswith(".data")
    assert lost.replace(".data", ".meta") not in {found.path for found in store.list("sst/")}


def test_what_is_appended_to_files_is_counted_as_what_is_written(tmp_path):
    metrics = Metrics()
    store = InstrumentedObjectStore(LocalObjectStore(tmp_path), metrics, RetryOptions(), Pacing(random.Random(1)))
    infos = build(store)
    assert metrics.object_store_bytes.labels("written")._value.get() == sum(
        info.data_bytes + info.meta_bytes for info in infos)


@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=lambda number: errno.errorcode[number])
def test_a_piece_that_a_file_refused_is_written_by_the_store_which_tries_again(tmp_path, monkeypatch, at, number):
    store = InstrumentedObjectStore(LocalObjectStore(tmp_path), Metrics(), RetryOptions(first_delay_ms=1),
                                    Pacing(random.Random(1)))
    with Disk(at, number, only="pwrite").inserted(monkeypatch) as disk:
        infos = build(store)
    assert disk.hit == 1
    assert [entry for info in infos for entry in entries_in(store, info)] == ENTRIES


class CountingStore(LocalObjectStore):
    """Counts the parts written through a Python writer instead of by the compiled upload queue."""

    written = 0

    def create(self, path, *, if_absent=True):
        writer = super().create(path, if_absent=if_absent)
        write = writer.write

        def counted(data):
            self.written += 1
            write(data)

        writer.write = counted
        return writer


def test_only_the_piece_that_a_file_refused_is_written_by_the_store(tmp_path):
    """Queued parts behind it are again written without the GIL, which each call of a Python writer needs."""
    store, calls, built = CountingStore(tmp_path), [], threading.Event()

    def refuse_one(name, real, *arguments):
        if name == "pwrite":
            calls.append(arguments[2])
            if len(calls) == 1:
                assert built.wait(60), "building waited for the first part"
                return -errno.EIO
        return real(*arguments)

    queue, group = UploadQueue(store, 1 << 30), ThreadGroup()
    builder = MultiSstableBuilder(StorageOptions(block_bytes=1_000, codec="none"), BlockedBloomPolicy(), names(),
                                  data_bytes=12_000, sink_of=queue.file)
    builder.send_outputs_to(queue.finish)
    with between(refuse_one):
        group.start(queue.serve)
        try:
            for entry in ENTRIES:
                builder.put(*entry)
            built.set()
            builder.finish()
            info, = (output.info for output in queue.wait())
        finally:
            queue.stop()
            group.join()
            queue.close()
    assert entries_in(store, info) == ENTRIES
    assert len(calls) > 10 and store.written == 1


@pytest.mark.parametrize("is_served", [False, True])
@pytest.mark.parametrize("skip", range(4))
def test_a_store_that_fails_ends_the_building_and_leaves_no_half_file(skip, is_served):
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner, FaultPlan([Fault(FaultKind.BEFORE, "put", skip=skip)]))
    with pytest.raises(ObjectStoreError, match="injected"):
        build(store, is_served=is_served)
    for found in inner.list("sst/"):
        if found.path.endswith(".meta"):
            assert inner.head(found.path.removesuffix(".meta") + ".data").size_bytes > 0


@pytest.mark.parametrize("path_of", [sstable_data_path, sstable_meta_path])
def test_a_name_that_exists_is_refused_and_its_object_stays(tmp_path, path_of):
    for store in (MemoryObjectStore(), LocalObjectStore(tmp_path)):
        path = path_of(names()())
        store.put(path, b"another's")
        with pytest.raises(ObjectExists):
            build(store)
        assert bytes(store.get(path)) == b"another's"


def test_a_file_that_was_not_finished_is_given_up(tmp_path):
    for store in (MemoryObjectStore(), LocalObjectStore(tmp_path)):
        queue, group = UploadQueue(store, 100_000), ThreadGroup()
        builder = MultiSstableBuilder(
            StorageOptions(block_bytes=1_000, codec="none"), filter_policy("blocked_bloom"), names(),
            data_bytes=12_000, sink_of=queue.file)
        group.start(queue.serve)
        for entry in ENTRIES:
            builder.put(*entry)
        queue.stop()
        group.join()
        queue.close()
        assert list(store.list()) == []
    assert list((tmp_path / TEMPORARY).iterdir()) == []
