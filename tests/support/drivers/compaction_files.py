"""Compaction tasks over files built from entries, for tests: inputs and outputs as plain tuples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from hummock.base.table_rules import TableRules
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.subcompaction import IsCancelled, Progress
from hummock.compaction.task import CompactTask, OutputOptions, RangeResult, TaskInput, TaskKind
from hummock.epoch import Epoch
from hummock.object_store.base import ObjectStore, sstable_data_path, sstable_meta_path
from hummock.options import StorageOptions
from hummock.sstable.builder import SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.info import SstableInfo
from hummock.sstable.multi_builder import MultiSstableBuilder
from tests.hummock.sstable.test_builder import entries_of

Entry = tuple[bytes, int, bytes | None]
OUTPUT = OutputOptions(1 << 20, 4 << 10, "lz4", "blocked_bloom", 10)


def names(first: str = "a") -> Callable[[], str]:
    """New object names, distinct for each `first`."""
    numbers = itertools.count()
    return lambda: first + f"{next(numbers):031x}"


def put_file(store: ObjectStore, output: SstableOutput) -> None:
    """Stores a built file."""
    store.put(sstable_data_path(output.name), bytes(output.data))
    store.put(sstable_meta_path(output.name), bytes(output.meta))


def put_run(store: ObjectStore, entries: Iterable[Entry], mint_name: Callable[[], str], *,
            sstable_bytes: int = 1 << 20, block_bytes: int = 1 << 10, codec: str = "lz4") -> tuple[SstableInfo, ...]:
    """Builds and stores the files of a sorted run."""
    options = StorageOptions(sstable_bytes=sstable_bytes, block_bytes=block_bytes, codec=codec)
    builder = MultiSstableBuilder(options, filter_policy("blocked_bloom"), mint_name)
    for entry in entries:
        builder.put(*entry)
    outputs = builder.finish()
    for output in outputs:
        put_file(store, output)
    return tuple(output.info for output in outputs)


def task_of(runs: Sequence[tuple[SstableInfo, ...]], *, watermark: int = 0, drop_tombstones: bool = False,
            output: OutputOptions = OUTPUT, dropped_tables: Sequence[int] = (),
            tables: Mapping[int, TableRules] | None = None, cuts: Sequence[bytes] = ()) -> CompactTask:
    """A task over runs, newest first; empty ones are skipped."""
    inputs = tuple(TaskInput(0, len(runs) - index, run) for index, run in enumerate(runs) if run)
    return CompactTask(1, TaskKind.MANUAL, inputs, 6, 0, Epoch(watermark), drop_tombstones, output,
                       tuple(dropped_tables), tables or {}, tuple(cuts))


def entries_in(store: ObjectStore, info: SstableInfo) -> list[Entry]:
    """Every entry of a stored file, checked against its record."""
    data, meta = store.get(sstable_data_path(info.name)), store.get(sstable_meta_path(info.name))
    return entries_of(SstableOutput(info.name, data, meta, info))


def run_ranges(task: CompactTask, store: ObjectStore, mint_name: Callable[[], str], *, threads: int, memory_bytes: int,
               progress: Progress | None = None, is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
    """The results of all ranges of `task`, run on threads, with file names from `mint_name`."""
    runner = ThreadRunner(store, threads=threads, memory_bytes=memory_bytes, mint=lambda prefix: mint_name())
    return runner.run(task.ranges(), progress=progress, is_cancelled=is_cancelled)
