"""[P10] with concurrent compaction and vacuum: memory stays within the configured budget, and all work completes."""

import json
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError, ObjectStoreError
from hummock.maintenance import Maintenance
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from tests.support.worlds.manager_parts import task_answers

ROOT = Path(__file__).resolve().parents[2]
LIMIT, BATCHES, ROWS = 20_000, 300, 8
SHAPE = CompactionOptions(l0_runs=3, l0_runs_slowdown=6, l0_runs_limit=12, l0_base_bytes=20_000, history_ms=0,
                          base_level_bytes=20_000, sstable_bytes=8_000, block_bytes=1_000, threads=1,
                          memory_bytes=1 << 20, task_retry_ms=1)


class UnavailableStore(MemoryObjectStore):
    """Fails `outage` of every twenty reads and writes, and calls `look` at each."""

    def __init__(self, look):
        super().__init__()
        self.outage, self._look, self._calls, self._lock = 3, look, count(), threading.Lock()

    def _call(self, path):
        self._look()
        with self._lock:
            if next(self._calls) % 20 < self.outage:
                raise ObjectStoreError(path, "the store is away")

    def put(self, path, data, *, if_absent=False):
        self._call(path)
        super().put(path, data, if_absent=if_absent)

    def get(self, path, byte_range=None):
        self._call(path)
        return super().get(path, byte_range)


def test_writers_and_compaction_together_keep_to_the_buffers_limit(monkeypatch):
    monkeypatch.setattr("hummock.store.write_path.FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr("hummock.store.write_path.LAST_RETRY_SECONDS", 0.002)
    held, stores = [], []

    def look():
        if stores:
            stats = stores[0].stats()
            held.append(stats.waiting_bytes)

    objects, meta = UnavailableStore(look), MemoryMetaStore()
    manager = HummockManager(meta, objects, compaction=SHAPE)
    options = StorageOptions(shared_buffer_bytes=LIMIT, upload_bytes=4_000, sstable_bytes=4_000)

    def commit(store, epoch):
        while store.committed_epoch < epoch:
            try:
                store.commit(epoch)
            except HummockError:
                continue

    with (HummockStorage(manager, objects, options, session=manager.claim_writer(), compaction=SHAPE) as store,
          Maintenance(manager, meta, objects, vacuum=VacuumOptions(interval_ms=5, listing_ms=20)) as maintenance):
        stores.append(store)
        for number in range(BATCHES):
            rows = [(b"%05d" % (row * BATCHES + number), b"x" * 100) for row in range(ROWS)]
            store.ingest_batch(WriteBatch(rows), Epoch((1 + number // 10) << 16))
            look()
            if number % 10 == 9:
                commit(store, Epoch((1 + number // 10) << 16))
        objects.outage = 0
        assert maintenance.wait_compacted(timeout=60)
        assert max(held) <= LIMIT and len(held) > BATCHES
        assert sum(1 for _ in store.scan(KeyRange(b"", None), store.committed_epoch)) == BATCHES * ROWS
        assert task_answers(manager)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_slow_store_that_is_away_now_and_then_costs_no_memory(tmp_path):
    """Compares peak resident memory, minus that after imports, with the sum of all budgets."""
    done = subprocess.run([sys.executable, "-m", "tests.reliability.slow_store", str(tmp_path)], check=False,
                          capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found["rows"] == found["expected_rows"]
    assert found["peak_bytes"] <= 1.25 * found["budget_bytes"], found
    assert found["debt"] == 0 and found["tasks"] >= 3
    assert found["longest_stall_seconds"] < 30
