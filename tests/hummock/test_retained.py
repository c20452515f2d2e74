"""Committed epochs that stay in memory: read in place of their files, dropped in order, never wrong."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.compactor import Compactor
from hummock.epoch import Epoch
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.faults import FaultPlan, FaultyObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.shared_buffer.retained import RetainedEpochs
from hummock.sstable.info import SstableInfo
from hummock.store.memory_store import MemoryStateStore
from hummock.store.storage import HummockStorage

EVERYTHING = KeyRange(b"", None)


def at(number):
    return Epoch(number << 16)


def info(name):
    return SstableInfo(
        name=name, smallest=b"a", largest=b"b", rows=1, data_bytes=1, uncompressed_bytes=1, table_ids=(),
        min_epoch=at(1), max_epoch=at(1), stale_rows=0, tombstones=0, filter_policy="none", codec="none",
    )  # fmt: skip


def batch(number, size=10):
    return SharedBufferBatch(WriteBatch([(b"%d" % number, b"x" * size)]), at(number))


def names(sources):
    return [source.name for source in sources]


def test_batches_stand_for_their_files_where_all_of_them_are():
    retained = RetainedEpochs(5)
    one, two = batch(1), batch(2)
    retained.keep((one,), [info("a"), info("b")], at(1))
    retained.keep((two,), [info("c")], at(2))
    assert retained.part([info("a")]) == ([], [info("a")])
    batches, rest = retained.part([info("b"), info("x"), info("a")])
    assert (batches, names(rest)) == ([one], ["x"])
    batches, rest = retained.part([info("a"), info("b"), info("c")])
    assert (batches, names(rest)) == ([two, one], [])


def test_a_set_is_forgotten_once_a_version_has_it_in_pieces():
    retained = RetainedEpochs(5)
    retained.keep((batch(1),), [info("a"), info("b")], at(1))
    retained.commit(at(1), [[info("a"), info("b")]])
    assert retained.size_bytes > 0
    retained.commit(at(1), [[info("a")], [info("b")]])
    assert retained.size_bytes == 0


def test_the_newest_epochs_stay_and_the_oldest_leave_first():
    retained = RetainedEpochs(2)
    runs = []
    for number in range(1, 6):
        retained.keep((batch(number),), [info(f"file{number}")], at(number))
        runs.insert(0, [info(f"file{number}")])
        retained.commit(at(number), runs)
        kept = [number for number in range(1, 6) if retained.part([info(f"file{number}")])[0]]
        assert kept == list(range(max(1, number - 1), number + 1))
    each = retained.size_bytes // 2
    assert retained.shrink(each)
    assert retained.part([info("file4")])[0] == []
    assert retained.part([info("file5")])[0] != []
    assert not retained.shrink(each)
    retained.clear(at(4))
    assert retained.size_bytes == 0


def node(objects, **options):
    manager = HummockManager(MemoryMetaStore(), objects)
    return HummockStorage(manager, objects, StorageOptions(**options), session=manager.claim_writer())


def test_reads_of_the_newest_epochs_touch_no_file():
    plan = FaultPlan()
    with node(FaultyObjectStore(MemoryObjectStore(), plan), retained_epochs=2) as store:
        for number in range(1, 5):
            store.ingest_batch(WriteBatch([(b"key%d" % number, b"x")]), at(number))
            store.commit(at(number))
        plan.calls.clear()
        assert [store.get(b"key%d" % number, at(9)) for number in (4, 3)] == [b"x", b"x"]
        assert [key for key, _ in store.scan(KeyRange(b"key3", None), at(9))] == [b"key3", b"key4"]
        assert [path for operation, path in plan.calls if operation == "get"] == []
        assert store.get(b"key1", at(9)) == b"x"


def test_retained_batches_make_room_for_new_writes():
    with node(MemoryObjectStore(), retained_epochs=100, shared_buffer_bytes=2_000) as store:
        for number in range(1, 40):
            store.ingest_batch(WriteBatch([(b"key", b"x" * 400)]), at(number))
            store.commit(at(number))
            assert store.stats().retained_bytes + store.stats().waiting_bytes <= 2_000
        assert store.stats().retained_bytes > 1_000


@pytest.mark.parametrize("seed", range(4))
def test_compaction_between_commits_changes_no_answer(seed):
    rng = random.Random(seed)
    objects, model, oldest = MemoryObjectStore(), MemoryStateStore(), 1
    shape = CompactionOptions(history_ms=rng.choice((0, 3)), l0_runs=2, sstable_bytes=150)
    manager = HummockManager(MemoryMetaStore(), objects, compaction=shape)
    options = StorageOptions(retained_epochs=4, sstable_bytes=150)
    with (
        HummockStorage(manager, objects, options, session=manager.claim_writer()) as store,
        closing(Compactor(manager, objects, shape)) as compactor,
    ):
        for number in range(1, 16):
            for _ in range(rng.randint(1, 3)):
                keys = sorted({b"%02d" % rng.randrange(40) for _ in range(8)})
                rows = WriteBatch([(key, rng.choice((None, b"%d" % number))) for key in keys])
                for one in (store, model):
                    one.ingest_batch(rows, at(number))
            for one in (store, model):
                one.commit(at(number))
            while rng.random() < 0.6 and compactor.run_one():
                oldest = max(oldest, store.version.safe_epoch >> 16)
            for seen in range(oldest, number + 1):
                expected = list(model.scan(EVERYTHING, at(seen)))
                assert list(store.scan(EVERYTHING, at(seen))) == expected
                assert list(store.scan(EVERYTHING, at(seen), reverse=True)) == expected[::-1]
                assert [store.get(b"%02d" % key, at(seen)) for key in range(40)] == [
                    model.get(b"%02d" % key, at(seen)) for key in range(40)
                ]
