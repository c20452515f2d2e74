"""Executors of the subcompactions of a compact task: threads of this process here, Spark in `spark.py`.

Both call `run_subcompaction`. Their outputs are equal except for the names of the files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from hummock.base.foreground import ForegroundWork
from hummock.compaction.index_cache import IndexCache
from hummock.compaction.subcompaction import IsCancelled, Progress, run_subcompaction
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.errors import TaskCancelled, without_frames
from hummock.object_store.base import ObjectStore, mint_sstable_name

Mint = Callable[[str], str]     # a new object name with the given prefix
MINT: Mint = partial(mint_sstable_name, os.urandom)
Result = TypeVar("Result")


class ThreadRunner:
    """`threads` threads of this process, with `memory_bytes` in all.

    So many ranges merge at once. While one merges, another one prefetches its input or uploads its last output.
    None merges while there is `foreground` work.
    """

    def __init__(self, store: ObjectStore, *, threads: int, memory_bytes: int,
                 mint: Mint = MINT, foreground: ForegroundWork | None = None):
        self.slots = threads
        self._store, self._memory_bytes, self._mint, self._foreground = store, memory_bytes, mint, foreground

    def run(self, specs: Sequence[RangeSpec], prefix: str = "", *, at_once: int | None = None,
            progress: Progress | None = None, is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        """The results of `specs`, in their order. Specs are started in it too, so put the largest first.

        `at_once` of them merge at once, at most `threads`. File names begin with `prefix`. `progress` is called with
        the rows read so far, as far as known; `is_cancelled` is polled; both may be called on several threads. The
        first error ends the other ranges too. Raises `TaskCancelled`, `Corruption` naming the object, or what the store
        raises.
        """
        slots = min(at_once or self.slots, self.slots)
        workers = max(1, min(2 * slots, len(specs)))
        merge_slots, indexes = threading.Semaphore(slots), IndexCache()
        rows: dict[int, int] = {}
        failed = threading.Event()

        def run(spec: RangeSpec) -> RangeResult:
            def report_rows(count: int) -> None:
                rows[spec.index] = count
                if progress is not None:
                    progress(sum(rows.copy().values()))

            try:
                return run_subcompaction(
                    spec, self._store, partial(self._mint, prefix), memory_bytes=self._memory_bytes // workers,
                    progress=report_rows, merge_slot=merge_slots, indexes=indexes, foreground=self._foreground,
                    is_cancelled=lambda: failed.is_set() or (is_cancelled is not None and is_cancelled()))
            except BaseException as error:
                failed.set()
                without_frames(error)
                raise

        if len(specs) == 1:             # on the caller's thread, to avoid starting and joining another
            return [run(specs[0])]
        with ThreadPoolExecutor(workers, thread_name_prefix="hummock-compact") as pool:
            futures = [pool.submit(run, spec) for spec in specs]
        return _results_of(futures)


def _results_of(futures: Sequence[Future[Result]]) -> list[Result]:
    """REQUIRES that all have ended. Raises the original error, not those of ranges that ended because of it."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TaskCancelled)):
        raise error
    return [future.result() for future in futures]
