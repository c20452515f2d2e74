"""Compaction, files to files, and the merge alone: MB of input rows and rows by CPU second of the whole process.

Two runs of N rows (16 B keys, 100 B values, 64 KB blocks, lz4) become one, with fsync: `2N to N` writes the same
keys twice, of which a watermark above leaves the newer; `2N to 2N` interleaves disjoint keys. RocksDB does the
same with automatic compaction off; LevelDB cannot be kept from merging while it is loaded, so its figure flatters
it. `limit in C` (limits.py) goes from memory to memory, without files. The groups that say "wall" are measured by the
clock on the wall and want a quiet machine.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import limits
from bench.cpus import confined
from bench.datasets import KEY_BYTES, SEED, VALUE_BYTES, keys, values
from bench.peers import Engine, LevelDb, RocksDb
from hummock.columnar.buffer_pool import set_pool_limit
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.subcompaction_planner import boundaries_of
from hummock.compaction.task import CompactTask, OutputOptions, RangeResult, TaskInput, TaskKind
from hummock.epoch import Epoch
from hummock.iterator.entry_collector import EntryCollector
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.local import LocalObjectStore
from hummock.pipeline.merge_loop import run_pipeline
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferBatchIterator
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.info import SstableInfo
from hummock.sstable.multi_builder import MultiSstableBuilder

ROWS, BATCH_ROWS, MERGE_ROWS = 1_000_000, 10_000, 1 << 20
ROUNDS = 5
MEMORY_BYTES = 256 << 20
ROW_BYTES = KEY_BYTES + VALUE_BYTES
SHAPES = ("2N to N", "2N to 2N")
SETTINGS = "files of 64 MB, 64 KB blocks, lz4 (acceleration 4), blocked bloom 10 bits, fsync of file and directory"

by_cpu = pytest.mark.benchmark(timer=time.process_time)
by_wall = pytest.mark.benchmark(timer=time.perf_counter)


def ids_of(shape: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys of the older and the newer run."""
    older = np.arange(rows, dtype=np.uint64) * 2
    return older, older if shape == "2N to N" else older + 1


class Runs:
    """Two runs as files of a local store, and the task that merges them."""

    name, settings = "hummock", SETTINGS

    def __init__(self, folder: Path, shape: str, codec: str = "lz4", rows: int = ROWS):
        self.store = LocalObjectStore(folder)
        self.output = OutputOptions(64 << 20, 64 << 10, codec, "blocked_bloom", 10)
        rng = np.random.default_rng(SEED)
        older, newer = (self.put(ids, values(len(ids), rng), epoch)
                        for epoch, ids in enumerate(ids_of(shape, rows), start=1))
        self.inputs = (TaskInput(0, 2, newer), TaskInput(0, 1, older))
        self.written: list[SstableInfo] = []

    def put(self, ids: np.ndarray, column: pa.BinaryArray, epoch: int) -> tuple[SstableInfo, ...]:
        builder = MultiSstableBuilder(self.output, filter_policy(self.output.filter_policy), mint_name)
        infos: list[SstableInfo] = []

        def take(output: Any) -> None:
            self.store.put(sstable_data_path(output.name), output.data)
            self.store.put(sstable_meta_path(output.name), output.meta)
            infos.append(output.info)

        run_pipeline(SharedBufferBatchIterator(SharedBufferBatch(WriteBatch(keys(ids), column), epoch << 16)),
                     builder, take)
        return tuple(infos)

    def task(self, ranges: int = 1) -> CompactTask:
        files = [info for part in self.inputs for info in part.sstables]
        cuts = boundaries_of(files, self.store, sum(info.data_bytes for info in files) // ranges)
        return CompactTask(1, TaskKind.MANUAL, self.inputs, 6, 0, Epoch(9 << 16), True, self.output, cuts=cuts)

    def compact(self, ranges: int = 1, threads: int = 1) -> list[RangeResult]:
        runner = ThreadRunner(self.store, threads=threads, memory_bytes=MEMORY_BYTES)
        results = runner.run(self.task(ranges).ranges())
        self.written += [info for result in results for info in result.sstables]
        return results

    def remove_outputs(self) -> None:
        self.store.delete([path(info.name) for info in self.written for path in (sstable_data_path, sstable_meta_path)])
        self.written.clear()


def mint_name() -> str:
    return os.urandom(16).hex()


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runs(shape: str, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("hummock"), shape)
    results = made.compact()
    assert sum(info.rows for info in made.written) == (ROWS if shape == "2N to N" else 2 * ROWS)
    assert sum(result.rows_read for result in results) == 2 * ROWS
    made.remove_outputs()
    return made


def describe(benchmark: Any, group: str, engine: str, units: int, settings: str = SETTINGS) -> None:
    benchmark.group = group
    benchmark.extra_info.update(engine=engine, rows=units, settings=settings)


def measure(benchmark: Any, work: Callable[[], object], setup: Callable[[], None]) -> None:
    benchmark.pedantic(work, setup=setup, rounds=ROUNDS, warmup_rounds=2)


@by_cpu
def test_compaction(benchmark: Any, runs: Runs, shape: str) -> None:
    describe(benchmark, f"compact {shape}, MB", "hummock", 2 * ROWS * ROW_BYTES)
    measure(benchmark, runs.compact, runs.remove_outputs)
    runs.remove_outputs()


@by_cpu
def test_compaction_without_compression(benchmark: Any, shape: str, tmp_path: Path) -> None:
    made = Runs(tmp_path, shape, "none")
    describe(benchmark, f"compact {shape}, no codec, MB", "hummock", 2 * ROWS * ROW_BYTES)
    measure(benchmark, made.compact, made.remove_outputs)


@by_cpu
@pytest.mark.parametrize("codec", ["lz4", "none"])
def test_compaction_limit(benchmark: Any, shape: str, codec: str) -> None:
    rng = np.random.default_rng(SEED)
    ids = ids_of(shape, ROWS)[::-1]
    parts = [(keys(part), values(ROWS, rng)) for part in ids]
    compaction = limits.Compaction([limits.stored(part, codec) for part in parts], codec)
    left, newest = np.unique(np.concatenate(ids), return_index=True)
    scan = limits.Scan(compaction.run(), codec, len(left) * KEY_BYTES, len(left) * VALUE_BYTES)
    assert scan.run() == len(left)
    assert scan.out.column("key", len(left)).equals(keys(left))
    assert scan.out.column("value", len(left)).equals(pa.concat_arrays([part[1] for part in parts]).take(newest))
    group = f"compact {shape}, MB" if codec == "lz4" else f"compact {shape}, no codec, MB"
    describe(benchmark, group, limits.Limit.name, 2 * ROWS * ROW_BYTES, limits.Limit.settings)
    measure(benchmark, compaction.run, lambda: None)


@by_cpu
@pytest.mark.parametrize("peer", ["rocksdb", "leveldb"])
def test_compaction_of_peers(benchmark: Any, shape: str, peer: str, tmp_path: Path) -> None:
    kinds: dict[str, type[Engine]] = {"rocksdb": RocksDb, "leveldb": LevelDb}
    kind = kinds[peer]
    pytest.importorskip(kind.module)
    numbers = itertools.count()
    engines: list[Engine] = []
    older, newer = ids_of(shape, ROWS)

    def batches(ids: np.ndarray) -> Iterator[tuple[pa.BinaryArray, pa.BinaryArray]]:
        rng = np.random.default_rng(SEED)
        for start in range(0, len(ids), BATCH_ROWS):
            part = ids[start:start + BATCH_ROWS]
            yield keys(part), values(len(part), rng)

    def load() -> None:
        while engines:
            engines.pop().close()
        more = {"auto_compaction": False} if peer == "rocksdb" else {}
        engines.append(kind(tmp_path / f"db{next(numbers)}", **more))
        for ids in (older, newer):
            engines[0].ingest(batches(ids))

    describe(benchmark, f"compact {shape}, MB", peer, 2 * ROWS * ROW_BYTES, kind.settings)
    benchmark.pedantic(lambda: engines[0].compact(), setup=load, rounds=3)
    engines.pop().close()


@by_wall
@pytest.mark.parametrize("way", ["hummock", "one core", "two threads"])
def test_compaction_on_threads(benchmark: Any, runs: Runs, shape: str, way: str) -> None:
    """The ratio of `two threads` to ours is what a second thread brings: 0.55x says 1.8 times the speed.

    "one core" may use one CPU; one thread has its files leave, and its filters built, beside it. `test_two_processes`
    says in the same run what the machine has to give; `bench_threads` lets all take turns.
    """
    cpus = os.sched_getaffinity(0)
    describe(benchmark, f"wall: {shape} in 2 ranges, MB", way, 2 * ROWS * ROW_BYTES)
    with confined({max(cpus)} if way == "one core" else cpus):
        measure(benchmark, lambda: runs.compact(ranges=2, threads=2 if way == "two threads" else 1),
                runs.remove_outputs)
    runs.remove_outputs()


PROCESS = """
import sys
from pathlib import Path
from bench.bench_compaction import Runs
runs = Runs(Path(sys.argv[1]), sys.argv[2], rows=int(sys.argv[3]))
for _ in sys.stdin:
    runs.compact(int(sys.argv[4]))
    print(flush=True)
    runs.remove_outputs()
"""


@by_wall
@pytest.mark.parametrize("count", [1, 2])
def test_two_processes(benchmark: Any, shape: str, count: int, tmp_path: Path) -> None:
    """Half the rows each, one thread each: what two cores can do that share nothing but memory, disk and system."""
    def answer(process: Any) -> None:
        assert process.stdout.readline() == "\n"

    def compact() -> None:
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            answer(process)

    processes = [subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(tmp_path / f"{number}"), shape, str(ROWS // 2), "1"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for number in range(count)]
    try:
        describe(benchmark, f"wall: {shape}, a process, MB", "hummock" if count == 1 else "two processes",
                 count * ROWS * ROW_BYTES)
        measure(benchmark, compact, lambda: None)
    finally:
        for process in processes:
            process.communicate()


def behind_texts(column: pa.BinaryArray) -> pa.BinaryArray:
    """The keys behind one of eight texts of 32 bytes, in order: as the keys of a view that is grouped by a text."""
    share = -(-len(column) // 8)
    return pa.concat_arrays([
        pc.binary_join_element_wise(b"a text that a thousand keys have" + bytes([65 + number]), part, b"")
        for number in range(8) if len(part := column.slice(number * share, share))])


def parts_of(count: int, kind: str) -> list[tuple[pa.BinaryArray, pa.BinaryArray]]:
    """MERGE_ROWS rows, each in one of `count` sorted parts by chance."""
    rng = np.random.default_rng(SEED)
    owner = rng.integers(0, count, MERGE_ROWS)
    ids = np.arange(MERGE_ROWS, dtype=np.uint64) * 2
    whole = keys(ids) if kind == "keys" else behind_texts(keys(ids))
    return [(whole.filter(pa.array(owner == part)), values(int((owner == part).sum()), rng)) for part in range(count)]


def batches_of(count: int, kind: str) -> list[SharedBufferBatch]:
    """Those parts as batches of the shared buffer."""
    return [SharedBufferBatch(WriteBatch(*part), (count - number) << 16)
            for number, part in enumerate(parts_of(count, kind))]


def collected(batches: list[SharedBufferBatch]) -> tuple[Any, Any, np.ndarray]:
    """All entries as (keys, values, epochs)."""
    merged = MergeIterator([SharedBufferBatchIterator(batch) for batch in batches])
    collector = EntryCollector(merged, MERGE_ROWS * VALUE_BYTES)
    return collector.next_batch(MERGE_ROWS, 2 * MERGE_ROWS * VALUE_BYTES)


@by_cpu
@pytest.mark.parametrize("kind", ["keys", "texts"])
@pytest.mark.parametrize("count", [2, 8, 32])
def test_merge_in_memory(benchmark: Any, count: int, kind: str) -> None:
    """Batches of the shared buffer into one pair of columns, by row."""
    batches = batches_of(count, kind)

    def merge() -> int:
        return len(collected(batches)[0])

    set_pool_limit(0)       # what other benches left there would push this one's columns out
    set_pool_limit(256 << 20)
    assert merge() == MERGE_ROWS
    describe(benchmark, f"merge of {count:2} by {kind}, rows", "hummock", MERGE_ROWS)
    benchmark.pedantic(merge, rounds=ROUNDS, warmup_rounds=2)


@by_cpu
@pytest.mark.parametrize("kind", ["keys", "texts"])
@pytest.mark.parametrize("count", [2, 8, 32])
def test_merge_limit(benchmark: Any, count: int, kind: str) -> None:
    """A loser tree over the same columns."""
    merge = limits.Merge(parts_of(count, kind))
    assert merge.run() == MERGE_ROWS
    found = collected(batches_of(count, kind))
    assert all(merge.out.column(name, MERGE_ROWS).equals(column.to_arrow())
               for name, column in zip(("key", "value"), found[:2], strict=True))
    describe(benchmark, f"merge of {count:2} by {kind}, rows", limits.Limit.name, MERGE_ROWS, limits.Limit.settings)
    benchmark.pedantic(merge.run, rounds=ROUNDS, warmup_rounds=2)


@by_cpu
@pytest.mark.parametrize("kind", ["keys", "texts"])
@pytest.mark.parametrize("count", [2, 8, 32])
def test_sort_by_polars(benchmark: Any, count: int, kind: str) -> None:
    """What a user without a merge does: the same runs, one after the other, sorted."""
    polars = pytest.importorskip("polars")
    parts = parts_of(count, kind)
    table = pa.concat_tables([pa.table({"key": key, "value": value}) for key, value in parts])
    frame = polars.from_arrow(table, rechunk=True)
    describe(benchmark, f"merge of {count:2} by {kind}, rows", "polars sort", MERGE_ROWS,
             f"polars {polars.__version__}, sort")
    benchmark.pedantic(lambda: frame.sort("key"), rounds=ROUNDS, warmup_rounds=1)
