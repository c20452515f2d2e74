"""How long an epoch takes on Spark: by its rows, beside the same view in process and beside Structured Streaming.

Printed for each engine and size: p50, p99 and best, rows/s by the median, CPU ns per row of all its processes, then the
ratios. An epoch lasts from the moment when its two files are there until the offsets of their ends are committed; its
rows are new. The engines take turns, so that noise of the machine meets all. Hummock reads Arrow IPC files, Structured
Streaming the same rows as Parquet, with state in RocksDB and changelog checkpoints; its answer goes nowhere, where
Hummock's is a table. It has no empty epochs: that of "0 rows" has two.

"local[2]" has the default options, by which the driver runs epochs of few rows itself; with "tasks only" all go to
Spark. "two executors" are those of a standalone cluster, of one core each. The view counts, sums and averages by
300,000 keys, all with state before the measurement; q17 is that of bench_sources, over more and more auctions.

From one executor to two: each is confined to a CPU of its own, and the driver to that of the first.

HUMMOCK_EPOCH_ROWS: the sizes; HUMMOCK_EPOCH_ENGINES: who takes part; both with commas between. HUMMOCK_EPOCH_ROUNDS: a
factor for the numbers of epochs. HUMMOCK_EPOCH_PATIENCE: seconds that an epoch waits for a machine without other work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.bench_sources import COLUMNS, QUERIES, READ
from bench.cpus import wait_for_quiet
from bench.epoch_engines import EngineProcess, EngineSpec, Files
from bench.nexmark import BATCH_ROWS, SEED, batch
from hummock.spark.session import require_spark

SIZES = [int(rows) for rows in os.environ.get("HUMMOCK_EPOCH_ROWS", "0,1000,10000,100000,1000000,5000000").split(",")]
ENGINES = os.environ.get(
    "HUMMOCK_EPOCH_ENGINES", "in process,local[2],tasks only,two executors,structured streaming").split(",")
FACTOR = float(os.environ.get("HUMMOCK_EPOCH_ROUNDS", "1"))
PATIENCE = float(os.environ.get("HUMMOCK_EPOCH_PATIENCE", "0"))
GROUPS, PARTS = 300_000, 2
WARM_UP = (1_000_000, 1_000_000, 0, 1_000, 0, 10_000, 100_000)
OURS, BASE, STREAMING = "local[2]", "in process", "structured streaming"
SIZES_OF = {"tasks only": {0, 1_000, 10_000, 100_000}, STREAMING: {0, 100_000, 1_000_000}}
"""Of engines that do not take part in all sizes."""
COUNTS = "SELECT k, COUNT(*) AS c, SUM(v) AS s, AVG(v) AS a FROM t GROUP BY k"


def counted_rows(first: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(SEED + first)
    return pa.table({"k": rng.integers(0, GROUPS, rows), "v": rng.integers(-1000, 1000, rows).astype(np.int32)})


def bids(first: int, rows: int) -> pa.Table:
    parts = [batch("bid", READ, at, min(BATCH_ROWS, first + rows - at), seed=SEED)
             for at in range(first, first + rows, BATCH_ROWS)]
    return pa.Table.from_batches(parts)


@dataclass(frozen=True, slots=True)
class Feed:
    """A source `table` with the rows that `rows_at(first, rows)` computes, and a query over it."""

    table: str
    columns: str
    query: str
    rows_at: Callable[[int, int], pa.Table]


FEEDS = {"count, sum, avg": Feed("t", "k BIGINT, v INT", COUNTS, counted_rows),
         "q17": Feed("bid", COLUMNS, QUERIES["q17"], bids)}


class FileWriter:
    """Writes the files of epochs, once for all engines, as Arrow and as Parquet."""

    def __init__(self, directory: Path, feed: Feed) -> None:
        directory.mkdir()
        self._directory, self._feed = directory, feed
        self._first = self._count = 0

    def write(self, rows: int) -> Files:
        return [self._write_file(rows // PARTS) for _ in range(PARTS if rows else 0)]

    def _write_file(self, rows: int) -> tuple[Path, int]:
        table = self._feed.rows_at(self._first, rows)
        path = self._directory / f"{self._count:06}"
        self._first, self._count = self._first + rows, self._count + 1
        with pa.OSFile(f"{path}.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH_ROWS)
        pq.write_table(table, f"{path}.parquet")
        return path, -(-rows // BATCH_ROWS)


@dataclass(slots=True)
class Measured:
    """Seconds of each epoch, and the CPU seconds of all."""

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def p50(self) -> float:
        return float(np.median(self.seconds))

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def cpu_seconds(self) -> float:
        """Of an epoch."""
        return self.cpu / len(self.seconds)

    def line(self, rows: int) -> str:
        p99, cpu = np.percentile(self.seconds, 99) * 1e3, self.cpu_seconds
        text = f"p50 {self.p50 * 1e3:6.0f}  p99 {p99:6.0f}  best {self.best * 1e3:6.0f} ms  CPU {cpu * 1e3:6.0f} ms"
        if rows:
            text += f", {cpu / rows * 1e9:8.0f} ns a row  {rows / self.p50 / 1e6:6.3f} M rows/s"
        return f"{text}  ({len(self.seconds)} epochs)"


def rounds_of(rows: int) -> int:
    """How many epochs of a size are measured."""
    return max(1, round(FACTOR * (20 if rows <= 100_000 else 7 if rows <= 1_000_000 else 3)))


def specs_of(feed: Feed, directory: Path) -> dict[str, EngineSpec]:
    def spec(name: str, kind: str, **more: Any) -> EngineSpec:
        return EngineSpec(kind, feed.table, feed.columns, feed.query, directory / name.replace(" ", "-"), **more)

    found: dict[str, dict[str, Any]] = {
        BASE: {"kind": "in process"},
        OURS: {"kind": "local"},
        "tasks only": {"kind": "local", "options": {"driver_rows": 0}},
        "two executors": {"kind": "executors", "executors": 2},
        STREAMING: {"kind": "structured streaming"},
        "one executor, pinned": {"kind": "executors", "executors": 1, "cpus": (0,)},
        "two executors, pinned": {"kind": "executors", "executors": 2, "cpus": (0, 1)},
    }
    return {name: spec(name, **each) for name, each in found.items()}


@contextmanager
def engines(names: Sequence[str], feed: Feed, directory: Path) -> Iterator[dict[str, EngineProcess]]:
    """The engines, started one after the other."""
    specs = specs_of(feed, directory)
    with ExitStack() as undo:
        found = {}
        for name in names:
            found[name] = EngineProcess(specs[name])
            undo.callback(found[name].close)
        yield found


class Comparison:
    """Engines that keep one view, in turns."""

    def __init__(self, feed: Feed, running: dict[str, EngineProcess], directory: Path) -> None:
        self._running, self._files = running, FileWriter(directory, feed)

    def run(self, rows: int, names: Sequence[str], patience: float = PATIENCE) -> dict[str, tuple[float, float]]:
        """Seconds and CPU seconds of an epoch of each engine."""
        files = self._files.write(rows)
        least = files or self._files.write(PARTS if STREAMING in names else 0)
        answers = {}
        for name in names:
            wait_for_quiet(patience)
            answers[name] = self._running[name].epoch(least if name == STREAMING else files)
        return answers

    def measure(self, sizes: Sequence[int]) -> dict[int, dict[str, Measured]]:
        """By size and engine. Prints what it finds."""
        for rows in WARM_UP:
            self.run(rows, list(self._running), 0)
        results = {}
        for rows in sizes:
            names = [name for name in self._running if rows in SIZES_OF.get(name, sizes)]
            found = results[rows] = {name: Measured() for name in names}
            before = os.getloadavg()[0]
            for _ in range(rounds_of(rows)):
                for name, (seconds, cpu) in self.run(rows, names).items():
                    found[name].seconds.append(seconds)
                    found[name].cpu += cpu
            print(f"\n{rows:,} rows; load average {before:.1f} before, {os.getloadavg()[0]:.1f} after")
            for name, each in found.items():
                print(f"  {name:22} {each.line(rows)}\n  {'':22} {ratios(each, found)}", flush=True)
        print({name: engine.ask("state") for name, engine in self._running.items()})
        return results


def ratios(one: Measured, found: dict[str, Measured]) -> str:
    """Of the time and the CPU of an engine to those in process, and of the time of Structured Streaming to its own; by
    the best times too, which noise changes least."""
    texts = []
    if (base := found.get(BASE, one)) is not one:
        texts += [f"{one.p50 / base.p50:.2f}x (best {one.best / base.best:.2f}x) the time {BASE}",
                  f"CPU {one.cpu_seconds / base.cpu_seconds:.2f}x"]
    if (streaming := found.get(STREAMING, one)) is not one:
        texts.append(f"{STREAMING} takes {streaming.p50 / one.p50:.2f}x (best {streaming.best / one.best:.2f}x) of it")
    return "; ".join(texts)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", FEEDS)
def test_epochs(name: str, tmp_path: Path) -> None:
    require_spark()
    feed, sizes = FEEDS[name], SIZES if name != "q17" else [rows for rows in SIZES if rows in SIZES_OF[STREAMING]]
    chosen = [engine for engine in ENGINES if name != "q17" or engine in (BASE, OURS, STREAMING)]
    print(f"\n{name}")
    with engines(chosen, feed, tmp_path) as running:
        Comparison(feed, running, tmp_path / "files").measure(sizes)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", FEEDS)
def test_second_executor(name: str, tmp_path: Path) -> None:
    require_spark()
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two executors cannot have a CPU each")
    rows, names = max(SIZES), ["one executor, pinned", "two executors, pinned"]
    with engines(names, FEEDS[name], tmp_path) as running:
        found = Comparison(FEEDS[name], running, tmp_path / "files").measure([rows])[rows]
    one, two = (found[each] for each in names)
    print(f"{name}, gain of a second pinned executor at {rows:,} rows: {one.p50 / two.p50:.2f}x by the median, "
          f"{one.best / two.best:.2f}x by the best")
