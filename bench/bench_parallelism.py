"""Two actors on two cores against one actor on one core, and aggregations by many keys: Arrow IPC files to a digest.

Each round runs both sides of a pair, one after the other, each in a process of its own, whose threads `cpus` pins. The
digests of a pair are equal. HUMMOCK_PARALLEL_ROWS rows in HUMMOCK_PARALLEL_FILES files, each a split: a run should be
longer than a few barrier intervals, since it ends with the commit of its last row.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from bench.bench_sources import COLUMNS, QUERIES, READ
from bench.interpreter_lock import LockShare
from bench.nexmark import write_bids

ROWS = int(os.environ.get("HUMMOCK_PARALLEL_ROWS", "48000000"))
FILES = int(os.environ.get("HUMMOCK_PARALLEL_FILES", "12"))
ROUNDS = int(os.environ.get("HUMMOCK_PARALLEL_ROUNDS", "3"))
POLL_SECONDS = 0.1  # a poll reads the committed offsets, about 1 ms with the lock of the interpreter
KEYS = 1_000_000
BATCH_ROWS = 65_536
KEY_COLUMNS = "k BIGINT, v BIGINT"
SPEEDUPS = {
    "keys": f"SELECT k, count(*) AS n, sum(v) AS s, min(v) AS low, max(v) AS high FROM rows_{KEYS} GROUP BY k",
    "q17": QUERIES["q17"],
}
KEYED = {
    "1000": "SELECT k, count(*) AS n, sum(v) AS s FROM rows_1000 GROUP BY k",
    "1000000": "SELECT k, count(*) AS n, sum(v) AS s FROM rows_1000000 GROUP BY k",
}


def write_keys(directory: Path, keys: int) -> None:
    """Files of ROWS // FILES rows each: uniform keys below `keys`, values of 20 bits."""
    directory.mkdir()
    random = np.random.default_rng(7)
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    for number in range(FILES):
        with pa.OSFile(str(directory / f"{number:04}.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for at in range(0, ROWS // FILES, BATCH_ROWS):
                rows = min(BATCH_ROWS, ROWS // FILES - at)
                parts = [pa.array(random.integers(0, top, rows)) for top in (keys, 1 << 20)]
                writer.write_batch(pa.record_batch(parts, schema=schema))


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """One directory a source, each read once into the page cache."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for keys in (1_000, KEYS):
            write_keys(directory / f"rows_{keys}", keys)
        (directory / "bid").mkdir()
        for number in range(FILES):
            write_bids(directory / "bid" / f"{number:04}.arrow", number * (ROWS // FILES), ROWS // FILES, READ)
        for path in directory.rglob("*.arrow"):
            path.read_bytes()
        yield directory


def main(directory: str, store: str, parallelism: int, query: str) -> None:
    """Run `query` into a digest sink in this process; print seconds, CPU seconds, the digest and the barriers."""
    end = f"{-(-(ROWS // FILES) // BATCH_ROWS)}:0"
    with stream.connect(store, create=True, parallelism=parallelism) as db:
        for path in sorted(Path(directory).iterdir()):
            columns = COLUMNS if path.name == "bid" else KEY_COLUMNS
            db.sql(f"CREATE SOURCE {path.name} ({columns}) WITH (connector = 'arrow', path = '{path}')")
        lock = LockShare()
        wall, cpu = time.perf_counter(), time.process_time()
        db.sql(f"CREATE SINK answer AS {query} WITH (connector = 'digest')")
        with lock:
            while set(db.source_offsets("answer").values()) != {end}:
                time.sleep(POLL_SECONDS)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        (state,) = db.sql("SELECT * FROM answer").rows()
        print(json.dumps({"wall": wall, "cpu": cpu, "p99": db.figures.p99_ms, "state": state,
                          "ticks": lock.ticks, "held": lock.held}))


def run(files: Path, store: Path, parallelism: int, cpus: set[int], query: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.bench_parallelism", str(files), f"file://{store}", str(parallelism), query]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    assert done.returncode == 0, done.stderr[-2_000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", SPEEDUPS)
def test_two_actors_on_two_cores(benchmark: Any, name: str, files: Path, tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("one core")
    ratios, ticks, held = [], 0, 0
    for number in range(ROUNDS):
        one = run(files, tmp_path / f"one{number}", 1, {cores[0]}, SPEEDUPS[name])
        two = run(files, tmp_path / f"two{number}", 2, set(cores), SPEEDUPS[name])
        assert one["state"]["digest"] == two["state"]["digest"]
        ratios.append(one["wall"] / two["wall"])
        ticks, held = ticks + two["ticks"], held + two["held"]
        print(f"\n{name}: {one['wall']:.2f} s ({one['cpu']:.2f} s of CPU) by one, {two['wall']:.2f} s "
              f"({two['cpu']:.2f}) by two: {ratios[-1]:.2f}x")
    benchmark.group, benchmark.extra_info["rows"] = f"two actors, {name}", ROWS
    benchmark.pedantic(run, (files, tmp_path / "last", 2, set(cores), SPEEDUPS[name]), rounds=1)
    print(f"{name}: median {statistics.median(ratios):.2f}x; two actors spend {held / ticks:.1%} of {ticks} ticks of "
          f"CPU time with the lock of the interpreter")


@pytest.mark.parametrize("name", KEYED)
def test_aggregation_of_keys(benchmark: Any, name: str, files: Path, tmp_path: Path) -> None:
    benchmark.group, benchmark.extra_info["rows"] = f"count and sum by {name} keys", ROWS
    done = benchmark.pedantic(run, (files, tmp_path / "store", 2, set(range(os.cpu_count() or 1)), KEYED[name]),
                              rounds=1)
    print(f"\n{name} keys: {ROWS / done['wall'] / 1e6:.2f} M rows/s, {done['cpu'] / ROWS * 1e9:.0f} CPU ns a row, "
          f"barrier p99 {done['p99']:.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
