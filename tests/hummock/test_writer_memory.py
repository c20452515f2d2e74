"""[P10]: backpressure slows writes down to a slow or absent store; memory is bounded, and nothing is lost."""

from __future__ import annotations

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
from hummock.errors import ObjectStoreError, SharedBufferFull
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.store.storage import HummockStorage

ROOT = Path(__file__).resolve().parents[2]
E1 = Epoch(1 << 16)
EVERYTHING = KeyRange(b"", None)
BATCH = 1_000  # approximate bytes of a batch


class WatchedStore(MemoryObjectStore):
    """The first `outage` of every 100 puts fail; `on_put` is called at every put."""

    def __init__(self, outage, on_put):
        super().__init__()
        self._outage, self._on_put = outage, on_put
        self._calls, self._lock = count(), threading.Lock()

    def put(self, path, data, *, if_absent=False):
        self._on_put()
        with self._lock:
            fails = next(self._calls) % 100 < self._outage
        if fails:
            raise ObjectStoreError(path, "the store is unavailable")
        super().put(path, data, if_absent=if_absent)


@pytest.mark.parametrize("flush_threads", [0, 1])
@pytest.mark.parametrize("writers", [1, 4])
def test_ten_times_the_budget_goes_through_it(monkeypatch, flush_threads, writers):
    monkeypatch.setattr("hummock.store.write_path.FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr("hummock.store.write_path.LAST_RETRY_SECONDS", 0.002)
    limit, waiting, stores = 20 * BATCH, [], []

    def sample():
        stats = stores[0].stats()
        waiting.append(stats.waiting_bytes)

    # without flush threads the writer raises the store's errors at once
    objects = WatchedStore(0 if flush_threads == 0 else 7, sample)
    manager = HummockManager(MemoryMetaStore(), objects)
    options = StorageOptions(
        shared_buffer_bytes=limit, upload_bytes=4 * BATCH, sstable_bytes=4 * BATCH,
        flush_threads=flush_threads,
    )  # fmt: skip
    with HummockStorage(manager, objects, options, session=manager.claim_writer()) as store:
        stores.append(store)

        def write(writer):
            for number in range(200 // writers):
                rows = [(b"%d-%04d-%d" % (writer, number, row), b"x" * (BATCH // 10)) for row in range(8)]
                store.ingest_batch(WriteBatch(rows), E1)
                sample()

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert max(waiting) <= limit
        objects._outage = 0
        store.commit(E1)
        assert sum(1 for _ in store.scan(EVERYTHING, E1)) == 8 * 200
        assert store.stats().waiting_bytes == 0


def test_writers_go_on_once_the_store_is_back(monkeypatch):
    monkeypatch.setattr("hummock.store.write_path.ROOM_WAIT_SECONDS", 0.02)
    monkeypatch.setattr("hummock.store.write_path.FIRST_RETRY_SECONDS", 0.001)
    objects = WatchedStore(100, lambda: None)
    manager = HummockManager(MemoryMetaStore(), objects)
    options = StorageOptions(shared_buffer_bytes=2 * BATCH, inline_bytes=0)
    with HummockStorage(manager, objects, options, session=manager.claim_writer()) as store:
        accepted = []
        with pytest.raises(SharedBufferFull):
            for number in range(100):
                store.ingest_batch(WriteBatch([(b"%03d" % number, b"x" * 400)]), E1)
                accepted.append(number)
        assert store.stats().waiting_bytes <= 2 * BATCH
        objects._outage = 0
        store.ingest_batch(WriteBatch([(b"999", b"x")]), E1)
        store.commit(E1)
        assert [key for key, _ in store.scan(EVERYTHING, E1)] == [*(b"%03d" % number for number in accepted), b"999"]


@pytest.mark.slow
@pytest.mark.parametrize("writers", [1, 3])
def test_a_store_at_a_hundredth_of_its_speed_with_outages_costs_no_memory(tmp_path, writers):
    """Writes ten times the budget; `peak_bytes` is peak RSS minus RSS after the imports."""
    command = [sys.executable, "-m", "tests.support.drivers.slow_store_child", str(tmp_path), str(writers)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    print(report)
    assert report["rows"] == report["expected_rows"]
    assert report["peak_bytes"] <= 1.25 * report["budget_bytes"], report
    assert report["longest_stall_seconds"] < 30
