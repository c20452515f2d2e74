"""One engine's whole: rows in random order, synced each 100,000, until no compaction is due; in its own process.

`python -m bench.whole_run ENGINE ROWS FOLDER` prints one JSON object. The clock stops when the engine owes no
compaction (`debt` is what it says is still due, in bytes or tasks) and has removed the files that it replaced. CPU
seconds are of the whole process, less those that making the rows and looking at the folder took. Space is of the
files in the folder: the most that was seen, and what was left when the clock stopped.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.datasets import KEY_BYTES, SEED, VALUE_BYTES, keys, values
from bench.peers import Hummock, RocksDb
from hummock.options import CompactionOptions

BATCH_ROWS, SYNC_ROWS = 10_000, 100_000
ENGINES = ("hummock", "rocksdb")
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.25


class Rows:
    """Sorted batches of a random permutation of even ids; `cpu_seconds` is what making them took."""

    def __init__(self, rows: int):
        began = time.thread_time()
        self.rng = np.random.default_rng(SEED)
        self.order = self.rng.permutation(np.arange(rows, dtype=np.uint64) * 2)
        self.cpu_seconds = time.thread_time() - began

    def syncs(self) -> Iterator[list[tuple[pa.BinaryArray, pa.BinaryArray]]]:
        for start in range(0, len(self.order), SYNC_ROWS):
            began = time.thread_time()
            part = self.order[start : start + SYNC_ROWS]
            batches = [self.batch(part[at : at + BATCH_ROWS]) for at in range(0, len(part), BATCH_ROWS)]
            self.cpu_seconds += time.thread_time() - began
            yield batches

    def batch(self, ids: np.ndarray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        return keys(np.sort(ids)), values(len(ids), self.rng)


class Folder:
    """Looks from time to time how large the files in a folder are."""

    def __init__(self, path: Path):
        self.path, self.most_bytes, self.cpu_seconds = path, 0, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stored_bytes(self) -> int:
        size = 0
        for path in self.path.rglob("*"):
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.most_bytes = max(self.most_bytes, self.stored_bytes())
            self.cpu_seconds = time.thread_time()


def settle_rocksdb(engine: RocksDb) -> int:
    """Waits until RocksDB has nothing that it wants to compact, nor files to delete; the bytes that it still owes."""
    quiet = 0
    while quiet < 3:
        busy = sum(engine.db.property_int_value(f"rocksdb.{name}") or 0 for name in (
            "num-running-compactions", "compaction-pending", "num-running-flushes", "mem-table-flush-pending"))
        quiet = 0 if busy else quiet + 1
        time.sleep(POLL_SECONDS)
    return engine.db.property_int_value("rocksdb.estimate-pending-compaction-bytes") or 0


def settle_hummock(engine: Hummock) -> int:
    """Waits until nothing is due, and removes what was replaced; the tasks that are still due."""
    engine.store.wait_compacted()
    engine.store.vacuum()
    return engine.store.meta_client.compaction_debt()


def io_written() -> int:
    """Bytes that this process has handed to write calls."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def rss_bytes(field: str) -> int:
    """`VmRSS`, the memory in use, or `VmHWM`, its peak since `forget_peak`."""
    return next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith(field))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def run(name: str, rows: int, folder: Path) -> dict[str, Any]:
    source = Rows(rows)
    forget_peak()
    rss_before, wrote_before = rss_bytes("VmRSS"), io_written()
    engine = Hummock(folder, compaction=CompactionOptions(history_ms=0)) if name == "hummock" else RocksDb(folder)
    files = Folder(folder)
    wall, cpu, made = time.monotonic(), time.process_time(), source.cpu_seconds
    for batches in source.syncs():
        engine.ingest(batches)
    ingested = time.monotonic() - wall
    debt = settle_rocksdb(engine) if isinstance(engine, RocksDb) else settle_hummock(engine)
    wall = time.monotonic() - wall
    files.close()
    cpu = time.process_time() - cpu - (source.cpu_seconds - made) - files.cpu_seconds
    space = files.stored_bytes()
    written = io_written() - wrote_before
    peak_rss = rss_bytes("VmHWM") - rss_before
    engine.close()
    raw = rows * (KEY_BYTES + VALUE_BYTES)
    return {"engine": name, "rows": rows, "ingest_seconds": ingested, "wall_seconds": wall, "cpu_seconds": cpu,
            "debt": debt, "raw_bytes": raw, "written_bytes": written, "amplification": written / raw,
            "space_bytes": space, "most_space_bytes": max(files.most_bytes, space), "peak_rss_bytes": peak_rss}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
