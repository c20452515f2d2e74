"""Runners: who does the ranges of a compact task. Threads and processes of this machine here; `spark.py` has Spark.

All call `execute_range`. What comes out is the same but for the names of the files.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

from hummock.compaction.index_cache import SharedIndexes
from hummock.compaction.subcompaction import IsCancelled, Progress, execute_range
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.compaction.worker_task import Assignment, carry_out, decode_result, remember_cancel
from hummock.errors import TaskCancelled, without_frames
from hummock.object_store.base import ObjectStore, mint_sstable_name
from hummock.spark.worker import shared_url

LIMIT_MS = 600_000          # that a range may take
POLL_SECONDS = 0.2
Mint = Callable[[str], str]     # a new object name that begins with what is given
MINT: Mint = partial(mint_sstable_name, os.urandom)
Result = TypeVar("Result")


class Runner(Protocol):
    """Thread safe."""

    @property
    def slots(self) -> int:
        """How many ranges are done at once."""

    def run(self, specs: Sequence[RangeSpec], prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        """The results of `specs`, in their order; they are begun in it too, so the largest had better be the first.

        Names of files begin with `prefix`. `progress` is told the rows read so far, as far as they are known;
        `is_cancelled` is asked every so often; both may be called on several threads. The first error ends the others
        too. Raises `TaskCancelled`, `Corruption` naming the object, or what the store raises.
        """


class ThreadRunner:
    """`threads` of this process, on `memory_bytes` in all.

    So many ranges merge at once. Behind each of them another one gets ready, or the one before becomes durable.
    """

    def __init__(self, store: ObjectStore, *, threads: int, memory_bytes: int,
                 mint: Mint = MINT):
        self.slots = threads
        self._store, self._memory_bytes, self._mint = store, memory_bytes, mint

    def run(self, specs: Sequence[RangeSpec], prefix: str = "", *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        hands = max(1, min(2 * self.slots, len(specs)))
        turns, indexes = threading.Semaphore(self.slots), SharedIndexes()
        rows: dict[int, int] = {}
        failed = threading.Event()

        def run(spec: RangeSpec) -> RangeResult:
            def told(count: int) -> None:
                rows[spec.place] = count
                if progress is not None:
                    progress(sum(rows.copy().values()))

            try:
                return execute_range(
                    spec, self._store, partial(self._mint, prefix), memory_bytes=self._memory_bytes // hands,
                    progress=told, turn=turns, indexes=indexes,
                    is_cancelled=lambda: failed.is_set() or (is_cancelled is not None and is_cancelled()))
            except BaseException as error:
                failed.set()
                without_frames(error)
                raise

        if len(specs) == 1:             # where the caller stands: a thread more would be waited for
            return [run(specs[0])]
        with ThreadPoolExecutor(hands, thread_name_prefix="hummock-compact") as pool:
            futures = [pool.submit(run, spec) for spec in specs]
        return _results_of(futures)


class ProcessRunner:
    """`processes` that are spawned at the first need and kept until `close`; each uses `memory_bytes`.

    They reach the store by its URL, as Spark's executors do.
    """

    def __init__(self, url: str, *, processes: int, memory_bytes: int, limit_ms: int = LIMIT_MS):
        self.slots = processes
        self._url, self._memory_bytes, self._limit_ms = shared_url(url), memory_bytes, limit_ms
        context = multiprocessing.get_context("spawn")
        self._cancel = context.Event()
        self._pool = ProcessPoolExecutor(processes, context, remember_cancel, (self._cancel,))
        self._lock = threading.Lock()       # one cancels all: so one task runs at a time

    def run(self, specs: Sequence[RangeSpec], prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        with self._lock:
            self._cancel.clear()
            futures = [self._pool.submit(carry_out, Assignment(
                spec.narrowed(), self._url, prefix, self._memory_bytes, self._limit_ms).encode()) for spec in specs]
            left: set[Future[bytes]] = set(futures)
            while left:
                ended, left = wait(left, POLL_SECONDS, FIRST_COMPLETED)
                if (is_cancelled is not None and is_cancelled()) or any(one.exception() for one in ended):
                    self._cancel.set()
                elif ended and progress is not None:
                    progress(sum(decode_result(one.result()).rows_read for one in set(futures) - left))
            return list(map(decode_result, _results_of(futures)))

    def close(self) -> None:
        """Ends the processes. Idempotent."""
        self._cancel.set()
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _results_of(futures: Sequence[Future[Result]]) -> list[Result]:
    """REQUIRES: all have ended. Raises the cause, not what ended because of it."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TaskCancelled)):
        raise error
    return [future.result() for future in futures]
