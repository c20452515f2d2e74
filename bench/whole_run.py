"""One engine's whole: rows in random order, synced each 100,000, until no compaction is due; in its own process.

`python -m bench.whole_run ENGINE ROWS FOLDER` prints one JSON object. CPU seconds are of the whole process, less
those that making the rows took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
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


def settle_rocksdb(engine: RocksDb) -> None:
    """Returns when RocksDB has nothing left that it wants to compact."""
    quiet = 0
    while quiet < 3:
        busy = (engine.db.property_int_value("rocksdb.num-running-compactions") or 0) + (
            engine.db.property_int_value("rocksdb.compaction-pending") or 0)
        quiet = 0 if busy else quiet + 1
        time.sleep(POLL_SECONDS)


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
    wall, cpu, made = time.monotonic(), time.process_time(), source.cpu_seconds
    for batches in source.syncs():
        engine.ingest(batches)
    if isinstance(engine, RocksDb):
        settle_rocksdb(engine)
    else:
        engine.store.wait_compacted()
        engine.store.vacuum()
    cpu, wall = time.process_time() - cpu - (source.cpu_seconds - made), time.monotonic() - wall
    written = io_written() - wrote_before
    peak_rss = rss_bytes("VmHWM") - rss_before
    engine.close()
    raw = rows * (KEY_BYTES + VALUE_BYTES)
    space = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"engine": name, "rows": rows, "wall_seconds": wall, "cpu_seconds": cpu, "raw_bytes": raw,
            "written_bytes": written, "space_bytes": space, "peak_rss_bytes": peak_rss}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
