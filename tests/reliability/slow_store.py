"""A process that writes ten times its buffer, and compacts it, over a slow object store with outages.

Prints JSON: rows written and read, and its peak memory next to the configured budget."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from queue import SimpleQueue

import numpy as np
import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.base.process import return_freed_memory
from hummock.columnar.buffer_pool import set_pool_limit
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError
from hummock.maintenance import Maintenance
from hummock.meta import MemoryMetaStore, open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.metrics import Metrics
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, RetryOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from tests.support.drivers.slow_store_child import OPTIONS as STORE_OPTIONS
from tests.support.drivers.slow_store_child import POOL_BYTES
from tests.support.servers.slow_object_store import MIB, SlowStore
from tests.support.suites.process_memory import status
from tests.support.worlds.manager_parts import task_answers

OPTIONS = replace(STORE_OPTIONS, shared_buffer_bytes=12 * MIB, sstable_bytes=2 * MIB)
SHAPE = CompactionOptions(l0_runs=4, l0_runs_slowdown=8, l0_runs_limit=24, l0_base_bytes=24 * MIB, history_ms=0,
                          base_level_bytes=64 * MIB, sstable_bytes=2 * MIB, range_bytes=1 << 30, threads=1,
                          memory_bytes=32 * MIB, task_retry_ms=100, codecs=("none",))
OFTEN = VacuumOptions(interval_ms=500, listing_ms=5_000)
BUILDING_BYTES = OPTIONS.uploads_in_flight * 2 * OPTIONS.sstable_bytes
BUDGET = (OPTIONS.shared_buffer_bytes + OPTIONS.upload_bytes + OPTIONS.block_cache_bytes + OPTIONS.meta_cache_bytes
          + POOL_BYTES + BUILDING_BYTES + SHAPE.memory_bytes)
ROWS, VALUE_BYTES, EPOCHS = 2_000, 100, 24
INPUT = 10                      # times the shared buffer


class Writing:
    """Writes `count` batches in EPOCHS epochs; each epoch is committed, with retries, while the next is written."""

    def __init__(self, store: HummockStorage, count: int):
        self.store, self.count = store, count
        self.stalls: list[float] = []
        self.refused: Counter[str] = Counter()
        self._written: SimpleQueue[Epoch | None] = SimpleQueue()
        self._rng = np.random.default_rng(1)

    def run(self) -> None:
        committer = threading.Thread(target=self._commit_all)
        committer.start()
        for number in range(self.count):
            epoch = Epoch((1 + number * EPOCHS // self.count) << 16)
            self._ingest(self._batch(number), epoch)
            if (number + 1) * EPOCHS // self.count >= epoch >> 16:
                self._written.put(epoch)
        self._written.put(None)
        committer.join()

    def _batch(self, number: int) -> WriteBatch:
        keys = pa.array([b"%08d" % (row * self.count + number) for row in range(ROWS)], pa.binary())
        data = self._rng.integers(0, 256, ROWS * VALUE_BYTES, np.uint8)
        offsets = np.arange(ROWS + 1, dtype=np.int32) * VALUE_BYTES
        values = pa.BinaryArray.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        return WriteBatch(keys, values)

    def _ingest(self, batch: WriteBatch, epoch: Epoch) -> None:
        began = time.monotonic()
        while True:
            try:
                self.store.ingest_batch(batch, epoch)
                break
            except HummockError as error:
                self.refused[type(error).__name__] += 1
        self.stalls.append(time.monotonic() - began)

    def _commit_all(self) -> None:
        while (epoch := self._written.get()) is not None:
            while self.store.committed_epoch < epoch:
                try:
                    self.store.commit(epoch)
                except HummockError as error:
                    self.refused[type(error).__name__] += 1
                    time.sleep(0.1)


def opened(objects: InstrumentedObjectStore, manager: HummockManager) -> HummockStorage:
    return HummockStorage(manager, objects, OPTIONS, session=manager.claim_writer(), compaction=SHAPE)


def instrumented(store: SlowStore | MemoryObjectStore) -> InstrumentedObjectStore:
    retry = RetryOptions(attempts=1_000, max_delay_ms=200, deadline_ms=3_000)      # longer than an outage
    return InstrumentedObjectStore(store, Metrics(), retry, Pacing(random.Random(1)))


def warm_up() -> None:
    """Imports, faults in and starts everything once before memory is measured."""
    objects, meta = instrumented(MemoryObjectStore()), MemoryMetaStore()
    manager = HummockManager(meta, objects, compaction=SHAPE)
    with opened(objects, manager) as store, Maintenance(manager, meta, objects, tasks_at_once=1, vacuum=OFTEN) as work:
        Writing(store, EPOCHS).run()
        work.compact(timeout=60)


def main(directory: str) -> None:
    return_freed_memory()
    warm_up()
    set_pool_limit(POOL_BYTES)
    objects, meta = instrumented(SlowStore(directory)), open_meta_store(f"file://{directory}", create=True)
    manager = HummockManager(meta, objects, compaction=SHAPE)
    with opened(objects, manager) as store:
        before, began = status("VmRSS"), time.monotonic()
        maintenance = Maintenance(manager, meta, objects, tasks_at_once=1, vacuum=OFTEN)
        writing = Writing(store, INPUT * OPTIONS.shared_buffer_bytes // (ROWS * (VALUE_BYTES + 24)))
        with maintenance:
            writing.run()
            written_seconds = time.monotonic() - began
            while not maintenance.wait_compacted(timeout=5):
                if time.monotonic() - began > 500:
                    break
        peak, rows = status("VmHWM") - before, 0
        with store.scan(KeyRange(b"", None), store.committed_epoch) as scan:
            while (batch := scan.next_batch()) is not None:
                rows += len(batch)
        debt, answers = manager.compaction_debt(), task_answers(manager)
    meta.close()
    print(json.dumps({
        "rows": rows, "expected_rows": writing.count * ROWS, "peak_bytes": peak, "budget_bytes": BUDGET,
        "longest_stall_seconds": max(writing.stalls), "waited_seconds": sum(writing.stalls), "debt": debt,
        "written_seconds": written_seconds, "seconds": time.monotonic() - began, "tasks": len(answers),
        "refused": dict(writing.refused)}))


if __name__ == "__main__":
    main(sys.argv[1])
