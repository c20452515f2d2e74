"""Files that leave in pieces: whole and in order, bounded on their way, and an error is told to whoever builds."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hummock.compaction.departure import Departure
from hummock.errors import ObjectNotFound, ObjectStoreError
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.sstable.filter_policy import filter_policy
from hummock.sstable.split_builder import SplitSstableBuilder
from tests.suites.compaction_files import entries_in, names

ENTRIES = [(b"%06d" % n, 1 << 16, b"%d" % (n * n) * 9) for n in range(4_000)]


def build(store, pieces=2):
    """Infos of ENTRIES in several files of many pieces each, and the sizes of the pieces."""
    sizes = []
    with ThreadPoolExecutor(2) as pool:
        departure = Departure(store, pool.submit, pieces)

        def leave(name, piece):
            sizes.append(len(piece))
            departure.leave(name, piece)

        builder = SplitSstableBuilder(
            StorageOptions(sstable_bytes=80_000, block_bytes=1_000, codec="none"), filter_policy("blocked_bloom"),
            names(), data_bytes=12_000, leave=leave)
        puts = []
        builder.hand_over_to(lambda output: puts.append(departure.finish(output)))
        try:
            for entry in ENTRIES:
                builder.put(*entry)
            builder.finish()
            return [put.result() for put in puts], sizes
        finally:
            pool.shutdown(cancel_futures=True)
            departure.abort()


@pytest.mark.parametrize("pieces", [1, 2, 50])
def test_files_that_left_in_pieces_are_whole(tmp_path, pieces):
    for store in (MemoryObjectStore(), LocalObjectStore(tmp_path)):
        infos, sizes = build(store, pieces)
        assert [entry for info in infos for entry in entries_in(store, info)] == ENTRIES
        assert len(infos) > 3 and len(sizes) > 2 * len(infos)
        assert all(0 < size <= 12_000 and size % 4096 == 0 for size in sizes)
        assert [store.head(sstable_data_path(info.name)).size_bytes for info in infos] == [
            info.data_bytes for info in infos]


@pytest.mark.parametrize("skip", range(4))
def test_a_store_that_fails_ends_the_building_and_leaves_no_half_file(skip):
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner, FaultPlan([Fault(FaultKind.BEFORE, "put", skip=skip)]))
    with pytest.raises(ObjectStoreError, match="injected"):
        build(store)
    for found in inner.list("sst/"):
        if found.path.endswith(".meta"):
            assert inner.head(found.path.removesuffix(".meta") + ".data").size_bytes > 0


def test_a_file_that_was_not_finished_is_given_up():
    store = MemoryObjectStore()
    with ThreadPoolExecutor(1) as pool:
        departure = Departure(store, pool.submit, 2)
        departure.leave("a" * 32, b"piece")
    departure.abort()
    for path in (sstable_data_path, sstable_meta_path):
        with pytest.raises(ObjectNotFound):
            store.head(path("a" * 32))
