"""A subcompaction: merges one key range of a compact task's inputs into files. Threads and Spark tasks call this.

Reader threads prefetch stored blocks, one thread merges, retains, cuts, builds and compresses without the GIL, one
begins files and finishes them, and others upload files in parts while they are built. Three subcompactions overlap: one
prefetches, one merges, one uploads. A result does not depend on the store's version: its reporter decides whether it
counts. After an error all objects are left to vacuum.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from hummock.base.foreground import ForegroundWork
from hummock.base.json_fields import U64
from hummock.compaction.index_cache import IndexCache
from hummock.compaction.input_iterator import run_iterators
from hummock.compaction.read_ahead import ReadAhead
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.errors import RowCountMismatch, TaskCancelled
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import ObjectStore
from hummock.pipeline.merge_loop import run_pipeline
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.streaming_upload import PART_BYTES, UploadQueue
from hummock.pipeline.thread_group import ThreadGroup
from hummock.sstable.builder import SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder

MintName = Callable[[], str]            # a new object name each time
Progress = Callable[[int], None]        # rows read so far
IsCancelled = Callable[[], bool]
MergeSlot = AbstractContextManager[Any]

PUT_THREADS = 2
SMALLEST_PART = 256 << 10      # if memory is short
PARTS = 5                      # being uploaded, in addition to those of the builders:
BUILDERS = 3                    # one being built, one waiting to be finished, one being finished


def run_subcompaction(
    spec: RangeSpec,
    store: ObjectStore,
    mint_name: MintName,
    *,
    memory_bytes: int,
    progress: Progress | None = None,
    is_cancelled: IsCancelled | None = None,
    merge_slot: MergeSlot | None = None,
    indexes: IndexCache | None = None,
    foreground: ForegroundWork | None = None,
) -> RangeResult:
    """Merges one range into durable files and accounts for its rows.

    Uses about `memory_bytes`, more only if one output and one block of each run need it. `progress` and `is_cancelled`
    are called every few megabytes, on threads of the attempt, one at a time; an exception from them ends it.
    `merge_slot` is held while rows are merged: not while the first blocks are read, nor while the last files are
    uploaded. `indexes` are shared by all ranges over the same files. While there is `foreground` work no rows are
    merged and no filters built. Raises `TaskCancelled`, `Corruption` naming the object, `RowCountMismatch`, or what the
    store raises.
    """
    work = _RangeWork(spec, store, mint_name, memory_bytes, progress, is_cancelled, merge_slot or nullcontext(),
                      indexes, foreground)
    return work.run()


class _RangeWork:
    """One attempt at one range."""

    def __init__(self, spec: RangeSpec, store: ObjectStore, mint_name: MintName, memory_bytes: int,
                 progress: Progress | None, is_cancelled: IsCancelled | None, merge_slot: MergeSlot,
                 indexes: IndexCache | None, foreground: ForegroundWork | None):
        task = spec.task
        self._spec, self._store, self._merge_slot = spec, store, merge_slot
        self._progress, self._is_cancelled, self._foreground = progress, is_cancelled, foreground
        part_bytes = max(min(PART_BYTES, memory_bytes // 16), SMALLEST_PART, 4 * task.output.block_bytes)
        ahead_bytes = max(memory_bytes // 4, memory_bytes - (PARTS + BUILDERS) * part_bytes)
        self._ahead = ReadAhead(store, [part.sstables for part in task.inputs], spec.start, spec.end, ahead_bytes,
                                indexes)
        self._runs = run_iterators(self._ahead)
        self._kept = RetentionIterator(
            MergeIterator(list(self._runs)), task.watermark, task.drop_tombstones, task.dropped_tables, task.tables)
        prefixes = {table_id: rules.prefix for table_id, rules in task.tables.items() if rules.prefix}
        policy = filter_policy(task.output.filter_policy, task.output.filter_bits_per_key, foreground)
        self._upload_queue = UploadQueue(store, PARTS * part_bytes)
        self._builder = MultiSstableBuilder(
            task.output, policy, mint_name, prefixes, task.borders, part_bytes, self._upload_queue.file, is_served=True)
        self._threads = ThreadGroup(f"compact-{spec.index}")
        self._lock = threading.Lock()
        self._cpu_seconds = 0.0

    def run(self) -> RangeResult:
        self._check_cancelled()
        try:
            for _ in range(self._ahead.readers):
                self._threads.start(partial(self._timed, self._ahead.serve, self._tick))
            self._builder.prepare()
            self._threads.start(partial(self._timed, self._builder.serve))
            for _ in range(PUT_THREADS):
                self._threads.start(partial(self._timed, self._upload_queue.serve))
            with self._merge_slot:
                self._check_cancelled()
                self._timed(run_pipeline, self._kept, self._builder, self._finish_file, None, self._foreground)
            sstables = tuple(output.info for output in self._upload_queue.wait())
        finally:
            self._ahead.stop()
            self._builder.stop()
            self._upload_queue.stop()
            self._threads.join()
            self._upload_queue.close()
            self._ahead.close()
            del self._builder, self._upload_queue      # they refer to this attempt; free their memory now
        self._tick()
        result = RangeResult(
            self._spec.index, sstables, sum(run.rows_read for run in self._runs), self._kept.dropped_rows,
            sum(run.hash_read for run in self._runs) % U64, self._kept.dropped_hash, self._ahead.bytes_read,
            self._cpu_seconds)
        if why := result.mismatch():
            raise RowCountMismatch(self._spec.task.id, self._spec.index, why)
        return result

    def _tick(self) -> None:
        with self._lock:
            self._check_cancelled()
            if self._progress is not None:
                self._progress(self._ahead.rows)

    def _check_cancelled(self) -> None:
        if self._is_cancelled is not None and self._is_cancelled():
            raise TaskCancelled(self._spec.task.id)

    def _finish_file(self, output: SstableOutput) -> None:
        """Uploads the rest of a finished file."""
        self._tick()
        self._upload_queue.finish(output)

    def _timed(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """`work(*arguments)`, its CPU time added to the attempt's."""
        began = time.thread_time()
        try:
            return work(*arguments)
        finally:
            with self._lock:
                self._cpu_seconds += time.thread_time() - began
