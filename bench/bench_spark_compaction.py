"""Compaction on Spark beside the same ranges on threads, and beside rows that are shuffled through Spark. Wall clock.

HUMMOCK_BENCH_GB of input rows (1 by default; 8 is the full size) lie in two runs with the same keys, which become one,
in ranges of 1 GB, of 256 MB by default. Every session is warm: two rounds go before those that count. What a session
costs to start is no part of it. Executors are processes of their own, with a task at a time; an executor of one core
is confined to one CPU by most clusters, and by none on one machine, so a second one's gain is measured both ways, as a
second thread's is. The rows that are shuffled are read, sorted by Spark and written by the same compiled code; they are
1/8 of the others, since they take that long.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.bench_compaction import ROW_BYTES, mint_name
from bench.cpus import confine_executors, confined
from bench.datasets import SEED, keys, values
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.executors import Runner, ThreadRunner
from hummock.compaction.spark import SparkRunner
from hummock.compaction.subcompaction_planner import boundaries_of
from hummock.compaction.task import CompactTask, OutputOptions, RangeResult, TaskInput, TaskKind
from hummock.epoch import Epoch
from hummock.iterator.entry_collector import EntryCollector
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore, sstable_data_path, sstable_meta_path
from hummock.options import StorageOptions
from hummock.pipeline.merge_loop import run_pipeline
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferBatchIterator
from hummock.spark import run_job, spark_session
from hummock.spark.session import require_spark
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.info import SstableInfo
from hummock.sstable.multi_builder import MultiSstableBuilder
from hummock.sstable.sstable_iterator import SstableIterator
from hummock.sstable.store import SstableStore

GIGABYTES = float(os.environ.get("HUMMOCK_BENCH_GB", "1"))
CHUNK_ROWS = 1 << 20
WARM_UP, ROUNDS = 2, 3
MEMORY_BYTES = 256 << 20            # of a range at work
OUTPUT = OutputOptions(64 << 20, 64 << 10, "lz4", "blocked_bloom", 10)
NEW, OLD = 2 << 16, 1 << 16
SETTINGS = "files of 64 MB, 64 KB blocks, lz4, blocked bloom 10 bits, fsync; 256 MB for each range at work"


class LargeRuns:
    """Two runs over the same keys, `rows` each, and the task that merges them."""

    def __init__(self, folder: Path, rows: int):
        self.url = f"file://{folder}"
        self.store = open_object_store(self.url)
        self.rows = 2 * rows
        column = values(CHUNK_ROWS, np.random.default_rng(SEED))
        self.inputs = tuple(TaskInput(0, epoch >> 16, tuple(
            info for start in range(0, rows, CHUNK_ROWS)
            for info in write_run(self.store, keys(np.arange(start, start + CHUNK_ROWS, dtype=np.uint64)), column,
                                  epoch))) for epoch in (NEW, OLD))

    def task(self, ranges: int) -> CompactTask:
        files = [info for part in self.inputs for info in part.sstables]
        cuts = boundaries_of(files, self.store, sum(info.data_bytes for info in files) // ranges)
        return CompactTask(1, TaskKind.MANUAL, self.inputs, 6, 0, Epoch(9 << 16), True, OUTPUT, cuts=cuts)

    def remove(self, results: Iterable[RangeResult]) -> None:
        self.store.delete([path(info.name) for result in results for info in result.sstables
                           for path in (sstable_data_path, sstable_meta_path)])


def write_run(store: ObjectStore, key_column: pa.Array, value_column: pa.Array, epoch: int) -> list[SstableInfo]:
    builder = MultiSstableBuilder(OUTPUT, filter_policy(OUTPUT.filter_policy), mint_name)
    infos: list[SstableInfo] = []

    def take(output: Any) -> None:
        store.put(sstable_data_path(output.name), output.data)
        store.put(sstable_meta_path(output.name), output.meta)
        infos.append(output.info)

    batch = SharedBufferBatch(WriteBatch(key_column, value_column), epoch)
    run_pipeline(SharedBufferBatchIterator(batch), builder, take)
    return infos


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> LargeRuns:
    rows = int(GIGABYTES * 1e9 / ROW_BYTES / 2) // CHUNK_ROWS * CHUNK_ROWS
    return LargeRuns(tmp_path_factory.mktemp("runs"), max(rows, CHUNK_ROWS))


def ranges() -> int:
    return max(4, round(GIGABYTES))


def measure(benchmark: Any, group: str, engine: str, runs: LargeRuns, runner: Runner) -> None:
    specs, done, cpu = runs.task(ranges()).ranges(), [], []

    def clean() -> None:
        while done:
            results = done.pop()
            assert sum(result.rows_read for result in results) == runs.rows
            cpu.append(sum(result.cpu_seconds for result in results))
            runs.remove(results)

    benchmark.group = group
    benchmark.pedantic(lambda: done.append(runner.run(specs, "")), setup=clean, rounds=ROUNDS, warmup_rounds=WARM_UP)
    clean()
    benchmark.extra_info.update(engine=engine, rows=runs.rows * ROW_BYTES, settings=(
        f"{len(specs)} ranges, CPU of the ranges {statistics.median(cpu[WARM_UP:]):.2f} s; {SETTINGS}"))


@contextmanager
def session_on(master: str) -> Iterator[Any]:
    require_spark(master)
    made = spark_session(master, name="bench", settings={"spark.ui.enabled": "false"})
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def session() -> Iterator[Any]:
    with session_on("local[2]") as made:
        yield made


def test_two_threads(benchmark: Any, runs: LargeRuns) -> None:
    runner = ThreadRunner(runs.store, threads=2, memory_bytes=2 * MEMORY_BYTES)
    measure(benchmark, "compact in ranges, MB", "2 threads", runs, runner)


def test_spark(benchmark: Any, runs: LargeRuns, session: Any) -> None:
    measure(benchmark, "compact in ranges, MB", "hummock", runs,
            SparkRunner(session, runs.url, memory_bytes=MEMORY_BYTES))


# -- from one to two -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["threads", "executors"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("where", ["anywhere", "on_own_cpus"])
def test_gain(benchmark: Any, runs: LargeRuns, who: str, count: int, where: str) -> None:
    """Of a second thread, and of a second executor of one core, confined to a CPU each or not."""
    benchmark.extra_info["gain"] = f"a second of {who}, {where}", count
    group, engine = f"{where}, MB", f"{count} {who}"
    with ExitStack() as stack:
        if who == "threads":
            runner: Runner = ThreadRunner(runs.store, threads=count, memory_bytes=count * MEMORY_BYTES)
            if where == "on_own_cpus":
                stack.enter_context(confined(set(sorted(os.sched_getaffinity(0))[:count])))
        else:
            spark = stack.enter_context(session_on(f"local-cluster[{count},1,1024]"))
            runner = SparkRunner(spark, runs.url, memory_bytes=MEMORY_BYTES)
            if where == "on_own_cpus":
                confine_executors(spark, count)
        measure(benchmark, group, engine, runs, runner)


# -- rows through Spark --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["hummock", "rows through Spark"])
def test_rows_are_not_shuffled(benchmark: Any, session: Any, way: str, tmp_path: Path) -> None:
    runs = LargeRuns(tmp_path, max(CHUNK_ROWS, int(GIGABYTES * 1e9 / 8 / ROW_BYTES / 2) // CHUNK_ROWS * CHUNK_ROWS))
    specs, runner = runs.task(2).ranges(), SparkRunner(session, runs.url, memory_bytes=MEMORY_BYTES)

    def work() -> None:
        if way == "hummock":
            assert sum(result.rows_read for result in runner.run(specs, "")) == runs.rows
        else:
            rows = shuffled(session, runs)
            assert run_job(session, rows.collect, name=way)[0][0] * 2 == runs.rows

    benchmark.group = "beside a shuffle, MB"
    benchmark.extra_info.update(engine=way, rows=runs.rows * ROW_BYTES)
    benchmark.pedantic(work, rounds=2, warmup_rounds=1)


def shuffled(spark: Any, runs: LargeRuns) -> Any:
    """A frame of one number: of the rows that were read, sorted, rid of older versions and written."""
    infos = [info for part in runs.inputs for info in part.sstables]
    url = runs.url
    read: Callable[..., Any] = lambda batches: read_files(url, infos, batches)  # noqa: E731
    write: Callable[..., Any] = lambda batches: write_sorted(url, batches)  # noqa: E731
    frame = spark.range(0, len(infos), 1, len(infos)).mapInArrow(read, "key binary, epoch long, value binary")
    ordered = frame.repartitionByRange(4, "key").sortWithinPartitions("key", frame.epoch.desc())
    return ordered.mapInArrow(write, "rows long").groupBy().sum("rows")


def read_files(url: str, infos: list[SstableInfo], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    store = SstableStore(open_object_store(url), StorageOptions())
    for batch in batches:
        for position in batch.column(0).to_pylist():
            collector = EntryCollector(SstableIterator(store, infos[position]))
            while (entries := collector.next_batch(50_000)) is not None:
                found, column, epochs = entries
                yield pa.record_batch({"key": pa.array(found), "epoch": pa.array(epochs.astype(np.int64)),
                                       "value": pa.array(column)})


def write_sorted(url: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(batches)).combine_chunks()
    found = table["key"].combine_chunks()
    newest = np.concatenate([[True], pa.compute.not_equal(found[1:], found[:-1]).to_numpy(zero_copy_only=False)])
    kept = table.filter(pa.array(newest))
    write_run(open_object_store(url), kept["key"].combine_chunks(), kept["value"].combine_chunks(), NEW)
    yield pa.record_batch({"rows": pa.array([len(kept)], pa.int64())})
