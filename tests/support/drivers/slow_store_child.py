"""A process that writes ten times its memory budget to a slow store with outages; prints JSON."""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import numpy as np
import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.base.process import return_freed_memory
from hummock.columnar.buffer_pool import set_pool_limit
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import ObjectStoreError
from hummock.meta import MemoryMetaStore, open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.metrics import Metrics
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import RetryOptions, StorageOptions
from hummock.store.storage import HummockStorage
from tests.support.servers.slow_object_store import MIB, SlowStore
from tests.support.suites.process_memory import status

OPTIONS = StorageOptions(
    shared_buffer_bytes=24 * MIB, upload_bytes=4 * MIB, sstable_bytes=4 * MIB, block_cache_bytes=MIB,
    meta_cache_bytes=MIB, codec="none",
)  # fmt: skip
POOL_BYTES = 4 * MIB
# per upload in flight: a file under construction, whose buffer may be half empty, and the first block of the next
BUILDING_BYTES = OPTIONS.uploads_in_flight * 2 * OPTIONS.sstable_bytes
BUDGET = (OPTIONS.shared_buffer_bytes + OPTIONS.upload_bytes + OPTIONS.block_cache_bytes + OPTIONS.meta_cache_bytes
          + POOL_BYTES + BUILDING_BYTES)  # fmt: skip
ROWS, VALUE_BYTES = 2_000, 100
BATCHES = 10 * OPTIONS.shared_buffer_bytes // (ROWS * (VALUE_BYTES + 24))


def write(store: HummockStorage, writer: int, writers: int, stalls: list[float]) -> None:
    rng = np.random.default_rng(writer)
    for number in range(writer, BATCHES, writers):
        stalls.append(write_batch(store, rng, number))


def write_batch(store: HummockStorage, rng: np.random.Generator, number: int) -> float:
    """Seconds until the store accepted the batch."""
    keys = pa.array([b"%08d" % ((row * BATCHES + number) * 7) for row in range(ROWS)], pa.binary())
    data = rng.integers(0, 256, ROWS * VALUE_BYTES, np.uint8)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * VALUE_BYTES
    values = pa.BinaryArray.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    batch = WriteBatch(keys, values)
    began = time.monotonic()
    store.ingest_batch(batch, Epoch((1 + number * 4 // BATCHES) << 16))
    return time.monotonic() - began


def warm_up() -> None:
    """Imports, faults in and starts everything once before memory is measured."""
    manager = HummockManager(MemoryMetaStore(), MemoryObjectStore())
    with HummockStorage(manager, MemoryObjectStore(), OPTIONS, session=manager.claim_writer()) as store:
        for number in range(20):
            write_batch(store, np.random.default_rng(1), number)
        store.commit(Epoch(9 << 16))
        assert store.get(b"no such key", Epoch(9 << 16)) is None


def main(directory: str, writers: int) -> None:
    return_freed_memory()
    warm_up()
    set_pool_limit(POOL_BYTES)
    retry, pacing = RetryOptions(deadline_ms=1_000), Pacing(random.Random(1))
    slow = SlowStore(directory)
    objects = InstrumentedObjectStore(slow, Metrics(), retry, pacing)
    meta = open_meta_store(f"file://{directory}", create=True)
    manager = HummockManager(meta, objects)
    stalls: list[float] = []
    with HummockStorage(manager, objects, OPTIONS, session=manager.claim_writer()) as store:
        before = status("VmRSS")
        threads = [
            threading.Thread(target=write, args=(store, writer, writers, stalls)) for writer in range(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while store.committed_epoch == 0:
            try:
                store.commit(Epoch(9 << 16))
            except ObjectStoreError:
                time.sleep(0.1)
        peak = status("VmHWM") - before
        slow.has_outages = False        # a read is not retried after its deadline
        rows = 0
        with store.scan(KeyRange(b"", None), Epoch(9 << 16)) as scan:
            while (batch := scan.next_batch()) is not None:
                rows += len(batch)
    meta.close()
    print(json.dumps({
        "rows": rows, "expected_rows": BATCHES * ROWS, "peak_bytes": peak, "budget_bytes": BUDGET,
        "longest_stall_seconds": max(stalls), "waited_seconds": sum(stalls),
    }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
