"""Fault injection is effective: every path to an object, compiled or not, sees the faults of a wrapped store.

Compiled modules read and write files directly if the store is a local directory; a wrapper around such a store offers
no files, so that every byte must pass through the wrapper.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import ObjectStoreError
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.metrics import Metrics
from hummock.object_store.base import mint_sstable_name, sstable_data_path
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, RetryOptions, StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from hummock.tools.verify import verify_version
from tests.reliability.store_harness import EVERYTHING, at
from tests.support.drivers.compaction_files import run_ranges
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.servers.slow_object_store import SlowStore

EVER = 1 << 30
ROWS, EPOCHS = 400, 3
COLD = StorageOptions(inline_bytes=0, block_bytes=500, sstable_bytes=6_000, block_cache_bytes=1, meta_cache_bytes=1)
SHAPE = CompactionOptions(history_ms=0, l0_runs=2, l0_base_bytes=1, block_bytes=500, sstable_bytes=6_000)
KEYS = [b"%05d" % row for row in range(ROWS)]
READS = {                       # each from a given row on
    "get": lambda store, row: store.get(KEYS[row], at(EPOCHS)),
    "get_many": lambda store, row: store.get_many(pa.array(KEYS[row:row + 40], pa.binary()), at(EPOCHS)),
    "scan": lambda store, row: list(store.scan(KeyRange(KEYS[row], None), at(EPOCHS))),
    "scan to Arrow": lambda store, row: store.scan(EVERYTHING, at(EPOCHS)).to_arrow(),
    "reverse scan": lambda store, row: list(store.scan(EVERYTHING, at(EPOCHS), reverse=True)),
    "short scan": lambda store, row: list(store.scan(KeyRange(KEYS[row], None), at(EPOCHS), limit=2)),
    "scan_prefixes": lambda store, row: store.scan_prefixes(pa.array([KEYS[row][:4]], pa.binary()), at(EPOCHS)),
    "scan_many": lambda store, row: store.scan_many(pa.array(KEYS[row::50], pa.binary()), at(EPOCHS), limit=3),
}


class RecordingSlowStore(SlowStore):
    """Records the paths of all transfers and never waits."""

    def __init__(self, directory):
        super().__init__(directory)
        self.carried = []

    def carry(self, path, size):
        self.carried.append(path)


class Wrapped:
    """A store over objects that fail according to `plan`, with two attempts each."""

    def __init__(self, inner):
        self.inner, self.plan, self.rng = inner, FaultPlan(), random.Random(5)
        pacing = Pacing(random.Random(1), sleep=lambda seconds: None)
        self.objects = InstrumentedObjectStore(FaultyObjectStore(inner, self.plan), Metrics(),
                                               RetryOptions(attempts=2), pacing)
        self.meta = MemoryMetaStore()
        self.manager = HummockManager(self.meta, self.objects, compaction=SHAPE)
        self.store = HummockStorage(self.manager, self.objects, COLD, session=self.manager.claim_writer())

    def write(self, number):
        rows = [(key, b"%d" % number * 20) for key in KEYS[number % 2::2]]
        self.store.ingest_batch(WriteBatch(rows), at(number))
        self.store.commit(at(number))

    def task(self):
        self.manager.compact_range(EVERYTHING)
        return self.manager.get_compact_task("compactor")

    def attempt(self, task, token):
        return run_ranges(task, self.objects, lambda: mint_sstable_name(self.rng.randbytes, token[:16]), threads=1,
                          memory_bytes=1 << 20)

    def fail(self, operation):
        self.plan.hits = 0
        self.plan.add(Fault(FaultKind.BEFORE, operation, "sst/", times=EVER))

    def paths(self, operation):
        """The paths for which the wrapper was called."""
        return {path for done, path in self.plan.calls if done == operation}

    def stored(self):
        return {found.path for found in self.inner.list("sst/")}


@pytest.fixture(params=["memory", "file"])
def wrapped(request, tmp_path):
    made = Wrapped(MemoryObjectStore() if request.param == "memory" else LocalObjectStore(tmp_path / "store"))
    for number in range(1, EPOCHS + 1):
        made.write(number)
    yield made
    made.store.close()


def test_every_object_is_written_and_read_through_the_wrapper(wrapped):
    task, token = wrapped.task()
    wrapped.manager.report_compact_task(task.id, token, wrapped.attempt(task, token))
    assert len(wrapped.stored()) > 4 and wrapped.paths("put") == wrapped.stored()
    wrapped.store._local.refresh()
    wrapped.plan.calls.clear()
    assert len(list(wrapped.store.scan(EVERYTHING, at(EPOCHS)))) == ROWS
    assert wrapped.paths("get") >= {sstable_data_path(info.name) for info in wrapped.store.version.sstables}


@pytest.mark.parametrize("name", READS)
def test_a_read_sees_the_fault_also_where_it_went_well_before(wrapped, name):
    for row in (250, 7):            # the last block read may be cached
        assert READS[name](wrapped.store, row)
    wrapped.fail("get")
    with pytest.raises(ObjectStoreError):
        READS[name](wrapped.store, 250)
    assert wrapped.plan.hits >= 2
    wrapped.plan.clear()
    assert READS[name](wrapped.store, 250)


@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_compaction_sees_the_fault_of_its_inputs_and_of_its_outputs(wrapped, operation):
    given = wrapped.task()
    wrapped.fail(operation)
    with pytest.raises(ObjectStoreError):
        wrapped.attempt(*given)
    assert wrapped.plan.hits >= 2
    wrapped.plan.clear()
    assert wrapped.manager.report_compact_task(given[0].id, given[1], wrapped.attempt(*given))


def test_a_sync_sees_the_fault_and_is_repeated(wrapped):
    wrapped.fail("put")
    with pytest.raises(ObjectStoreError):
        wrapped.write(EPOCHS + 1)
    assert wrapped.plan.hits >= 2 and wrapped.store.committed_epoch == at(EPOCHS)
    wrapped.plan.clear()
    wrapped.store.commit(at(EPOCHS + 1))
    assert len(list(wrapped.store.scan(EVERYTHING, at(EPOCHS + 1)))) == ROWS


def test_verifying_and_vacuum_see_the_fault(wrapped):
    wrapped.fail("get")
    found = list(verify_version(wrapped.store.version, wrapped.objects))
    assert found and all(file.damages for file in found)
    wrapped.fail("list")
    with pytest.raises(ObjectStoreError):
        Vacuum(wrapped.meta, wrapped.objects, options=VacuumOptions(grace_ms=0)).run()
    assert wrapped.plan.hits >= 2


def test_a_slow_store_carries_every_object_in_both_directions(tmp_path):
    slow = RecordingSlowStore(str(tmp_path / "store"))
    rng = random.Random(1)
    pacing = Pacing(rng)
    objects = InstrumentedObjectStore(slow, Metrics(), RetryOptions(), pacing)
    manager = HummockManager(MemoryMetaStore(), objects, compaction=SHAPE)
    with HummockStorage(manager, objects, COLD, session=manager.claim_writer()) as store:
        store.ingest_batch(WriteBatch([(key, rng.randbytes(60)) for key in KEYS]), at(1))
        store.commit(at(1))
        stored = {found.path for found in slow.list("sst/")}
        assert len(stored) > 4 and set(slow.carried) == stored
        for number, task in enumerate((lambda: list(store.scan(EVERYTHING, at(1))), lambda: compact(manager, objects))):
            slow.carried.clear()
            task()
            assert set(slow.carried) >= {path for path in stored if path.endswith(".data")}, number


def compact(manager, objects):
    manager.compact_range(EVERYTHING)
    task, token = manager.get_compact_task("compactor")
    run_ranges(task, objects, lambda: mint_sstable_name(random.randbytes, token[:16]), threads=1, memory_bytes=1 << 20)
