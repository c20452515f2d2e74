"""Compactor: gets tasks from the manager, runs them on threads of this process and reports them.

Any number of compactors, in any processes, may work on one store: the manager assigns a task to one at a time. A task
is reported once. Failures are reported to the manager, which assigns the task again a few times, after growing delays;
the error stays visible in the compactor and in the task. Damaged input is no reason to try again: the task has ended,
and who waits gets the Corruption. An attempt that was reassigned or cancelled ends within a few
megabytes of work and leaves its files to vacuum.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from hummock.base.foreground import ForegroundWork
from hummock.base.key import KeyRange
from hummock.base.logs import Event
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.picker.early import EARLY_BYTES
from hummock.compaction.subcompaction import IsCancelled, Progress
from hummock.compaction.subcompaction_planner import boundaries_of
from hummock.compaction.task import CompactTask, RangeResult, TaskKind
from hummock.epoch import monotonic_seconds
from hummock.errors import Corruption, HummockError, MetaStoreError, TaskCancelled, TaskRefused, without_frames
from hummock.meta_client import HummockMetaClient
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore, RandomBytes, mint_sstable_name, name_prefix
from hummock.options import MIB, CompactionOptions
from hummock.version import HummockVersion

IDLE_POLL_SECONDS = 10.0        # upper bound of the growing polling interval
POLL_SECONDS = 1.0              # polling interval for versions of other processes and for tasks to be retried
EARLY_GAP_SECONDS = 0.05        # at least that long after a merge that is not due the next one begins, ...
EARLY_GAPS = 19                 # ... and that multiple of its duration: such merges take a twentieth of a core
REST_BYTES_PER_SECOND = 400 * MIB   # larger ones wait for rest as long as they take, ...
REST_GAPS, REST_SECONDS = 3, 5.0    # ... and for that multiple of the pauses between commits, up to so long
WRITES_SECONDS = 1.0            # so long after a commit there is a writer beside compaction
CALM_KINDS = frozenset((TaskKind.INTRA_L0, TaskKind.L0_TO_BASE, TaskKind.LEVEL))    # of tasks that may take their time
SMALL_RANGE_BYTES = 32 * MIB    # a task is not divided further for the sake of more threads
REPORT_TRIES = 8
log = logging.getLogger(__name__)
OnProgress = Callable[[CompactTask, int], None]     # a task and its number of rows read so far


class LargeTasks(Protocol):
    """Runs whole tasks that are too large for one machine, as `hummock.compaction.spark.SparkTasks` does."""

    def run(self, task: CompactTask, prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        """The results of all ranges, in files whose names begin with `prefix` or with that of an earlier attempt."""

    def forget(self, task: CompactTask) -> None:
        """Called when the task was reported."""


class CompactorState(Enum):
    """States only advance."""

    RUNNING = auto()
    DRAINING = auto()       # no new task is started
    ABORTING = auto()       # and running ones end early


@dataclass(slots=True, eq=False)
class _Attempt:
    """One running attempt at a task."""

    task: CompactTask
    token: str
    rows: int = 0
    is_lost: threading.Event = field(default_factory=threading.Event)       # its token is no longer valid


@dataclass(slots=True, eq=False)
class CompactionWatch:
    """What became of the attempts of one compactor at tasks that may hold keys of `key_range`, since the watch began.

    `error`: the first Corruption of one; else the error of the latest one, None after a success.
    """

    key_range: KeyRange
    error: Exception | None = None

    def note(self, task: CompactTask, error: Exception | None) -> None:
        """Records how an attempt ended, before others can see that it did."""
        if not isinstance(self.error, Corruption) and task.touches(self.key_range):
            self.error = error


class Compactor:
    """Runs up to `tasks_at_once` tasks, each on `options.threads` threads; tasks of `large_task_bytes` and more by
    `large`. Where that is None they are left to compactors that have it, while there are any. The threads pause for
    `foreground` work. Thread safe.

    `error`: of the latest attempt or request that failed; None again after a success.
    """

    def __init__(self, client: HummockMetaClient, object_store: ObjectStore, options: CompactionOptions, *,
                 node: str | None = None, tasks_at_once: int = 2, metrics: Metrics | None = None,
                 random_bytes: RandomBytes = os.urandom, on_progress: OnProgress | None = None,
                 large: LargeTasks | None = None, foreground: ForegroundWork | None = None):
        self.options, self.metrics = options, metrics or Metrics()
        self.node = node or f"compactor-{random_bytes(8).hex()}"
        self.error: Exception | None = None
        self._client, self._object_store, self._random_bytes = client, object_store, random_bytes
        self._on_progress, self._tasks_at_once, self._large = on_progress, tasks_at_once, large
        self._threads_runner = ThreadRunner(object_store, threads=options.threads,
                                            memory_bytes=options.memory_bytes // tasks_at_once,
                                            mint=partial(mint_sstable_name, random_bytes), foreground=foreground)
        lock = threading.Lock()
        self._changed, self._due = threading.Condition(lock), threading.Condition(lock)
        self._news = 0                          # incremented by every version, request, new and ended attempt
        self._work = 0                          # ... after which there may be a task to get
        self._early_bytes = 0                   # of what may be merged before it is due, ...
        self._early_at = 0.0                    # ... from then on, monotonic seconds
        self._gap_until = 0.0                   # end of the gap behind the latest of those merges
        self._rests_since = 0.0                 # the latest version's arrival
        self._written_at = 0.0                  # that of the latest one with another epoch
        self._commit_gap = 0.0                  # longest time between two of those; halved by each
        self._written_epoch = client.version.max_committed_epoch
        self._attempts: set[_Attempt] = set()
        self._watches: set[CompactionWatch] = set()
        self._pause = POLL_SECONDS              # until the next poll; doubles while nothing changes
        self._is_watched = False                # one idle thread polls: the others sleep
        self._state = CompactorState.RUNNING
        self._beats_ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._subscriptions = (client.subscribe(self._on_news), client.subscribe_requests(self._on_news))

    def start(self) -> Self:
        """Starts the background threads."""
        self._on_news(self._client.version)
        works = [(self._run, f"{self.node}-{number}") for number in range(self._tasks_at_once)]
        for target, name in (*works, (self._beat, f"{self.node}-heartbeat")):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def run_one(self, *, early_bytes: int = 0) -> bool:
        """Gets one task and runs it on this thread; whether there was one. `early_bytes`: also one that is not due yet
        and reads at most that. Raises what the attempt raised.
        """
        got = self._client.get_compact_task(self.node, does_large=self._large is not None, early_bytes=early_bytes)
        if got is None:
            return False
        self._wake()                            # there may be more
        self._attempt(*got, is_at_rest=early_bytes > EARLY_BYTES)
        return True

    @contextmanager
    def watch(self, key_range: KeyRange) -> Iterator[CompactionWatch]:
        """Watches the attempts at tasks of the range until the block ends."""
        watch = CompactionWatch(key_range)
        with self._changed:
            self._watches.add(watch)
        try:
            yield watch
        finally:
            with self._changed:
                self._watches.discard(watch)

    def wait_idle(self, timeout: float | None = None, watch: CompactionWatch | None = None) -> bool:
        """Waits until nothing is left to compact in any process; False after `timeout` seconds.

        Tasks that wait for their next try count as left. What is left because of damage does not, and raises the
        Corruption in the end; with a `watch`, that of its range alone. REQUIRES a running compactor.
        """
        if watch is None:
            with self.watch(KeyRange()) as watch:
                return self.wait_idle(timeout, watch)
        deadline = None if timeout is None else monotonic_seconds() + timeout
        while True:
            seen = self._news
            if self._client.compaction_debt() == 0:
                damage = watch.error if isinstance(watch.error, Corruption) else self._client.damage_in(watch.key_range)
                if damage is not None:
                    raise without_frames(damage)
                return True
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - monotonic_seconds())
            if left <= 0 or not self._is_running():
                return False
            self._wait(seen, left)

    def close(self, *, drain: bool = True) -> None:
        """Starts no further task, and returns when the running ones have ended. Idempotent.

        Without `drain` they are abandoned, and other compactors may take them at once.
        """
        with self._changed:
            if self._state is not CompactorState.ABORTING:
                self._state = CompactorState.DRAINING if drain else CompactorState.ABORTING
            self._changed.notify_all()
            self._due.notify_all()
        for subscription in self._subscriptions:
            subscription.close()
        for thread in self._threads[:self._tasks_at_once]:
            thread.join()
        self._beats_ended.set()
        for thread in self._threads[self._tasks_at_once:]:
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(drain=error is None)

    # -- the loop ------------------------------------------------------------------------------------------

    def _is_running(self) -> bool:
        return self._state is CompactorState.RUNNING

    def _run(self) -> None:
        while self._is_running():
            seen, began = self._work, monotonic_seconds()
            early_bytes = self._take_early(began)
            try:
                self._client.refresh()
                busy = self.run_one(early_bytes=early_bytes)
            except Exception as error:      # of the attempt or of the meta store: reported in `error`, then retried
                if repr(error) != repr(self.error):
                    log.warning(Event("compactor failed", node=self.node, error=error))
                self.error, busy = error, False
            if 0 < early_bytes <= EARLY_BYTES:
                seconds = monotonic_seconds() - began
                gap = min(max(EARLY_GAPS * seconds, EARLY_GAP_SECONDS), IDLE_POLL_SECONDS)  # it may have been a due one
                self._begin_gap(began + seconds + gap)
            if not busy:
                self._idle(seen)

    def _take_early(self, now: float) -> int:
        """Bytes that this thread is to merge before that is due, if it can; the next version tells what is left."""
        with self._changed:
            is_time = self._early_bytes and now >= self._early_at
            taken, self._early_bytes = (self._early_bytes, 0) if is_time else (0, self._early_bytes)
            return taken

    def _begin_gap(self, until: float) -> None:
        with self._changed:
            self._gap_until = until
            if self._early_bytes <= EARLY_BYTES:
                self._early_at = max(self._early_at, until)

    def _idle(self, seen: int) -> None:
        """Returns when there may be a task to request; only one of all idle threads polls."""
        with self._due:
            self._due.wait_for(lambda: self._work != seen or not self._is_running() or not self._is_watched)
            if self._work != seen or not self._is_running():
                self._pause = POLL_SECONDS
                return
            self._is_watched = True
            has_work = self._watch(seen)
            self._is_watched = False
            if has_work:
                self._due.notify()              # another one polls while this one works
            self._pause = POLL_SECONDS if has_work else min(2 * self._pause, IDLE_POLL_SECONDS)

    def _watch(self, seen: int) -> bool:
        """Waits for work, for the time of an early merge, or for the next poll; False for that. REQUIRES the lock."""
        until = monotonic_seconds() + self._pause
        while self._work == seen and self._is_running():
            now = monotonic_seconds()
            if self._early_bytes and now >= self._early_at:
                return True
            if now >= until:
                return False
            self._due.wait((min(until, self._early_at) if self._early_bytes else until) - now)
        return True

    def _on_news(self, news: HummockVersion | int) -> None:
        """Called with a version, or with the number of a request."""
        if isinstance(news, int):
            self._wake()
            return
        is_work = self._client.is_compaction_due(news, self._running_tasks())
        self._wake(is_work)
        self._rests_since = monotonic_seconds()
        if news.max_committed_epoch != self._written_epoch:     # else it is compaction's own
            gap = self._rests_since - self._written_at if self._written_at else 0.0
            self._commit_gap = max(gap, self._commit_gap / 2)
            self._written_epoch, self._written_at = news.max_committed_epoch, self._rests_since
        self._plan_early(news, is_work)

    def _running_tasks(self) -> list[CompactTask]:
        return [attempt.task for attempt in tuple(self._attempts)]

    def _plan_early(self, version: HummockVersion, is_work: bool = False) -> None:
        """Notes what may be merged early: soon, or if that is large, once the store has rested."""
        early_bytes = 0 if is_work else self._client.early_bytes(version, self._running_tasks())
        with self._changed:
            rest = max(early_bytes / REST_BYTES_PER_SECOND, min(REST_GAPS * self._commit_gap, REST_SECONDS))
            early_at = self._rests_since + rest if early_bytes > EARLY_BYTES else self._gap_until
            is_earlier = early_bytes and (not self._early_bytes or early_at < self._early_at)
            self._early_bytes, self._early_at = early_bytes, early_at
            if is_earlier:
                self._due.notify_all()          # the one that polls looks earlier

    def _wake(self, is_work: bool = True) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()
            if is_work:
                self._work += 1
                self._due.notify()              # which wakes the next one if it gets a task

    def _wait(self, seen: int, seconds: float) -> None:
        """Returns when `_news` differs from `seen`, on close, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._news != seen or not self._is_running(), seconds)

    # -- one attempt ---------------------------------------------------------------------------------------

    def _attempt(self, task: CompactTask, token: str, *, is_at_rest: bool) -> None:
        attempt, began = _Attempt(task, token), monotonic_seconds()
        with self._changed:
            self._attempts.add(attempt)
        outcome = "failed"
        try:
            leaves_cores = not is_at_rest and self._leaves_cores(task)
            results = self._results(attempt, 1 if leaves_cores else self.options.threads)
            self._note(task, None)
            self._report(attempt, results)
            outcome, self.error = "done", None
            self._count(task, results)
            log.info(Event("compaction done", task=task.id, kind=task.kind.value, level=task.target_level,
                           bytes=task.input_bytes, rows=task.input_rows, seconds=monotonic_seconds() - began))
        except TaskCancelled as error:
            outcome = "cancelled"
            self._report_end(attempt, error)
        except Exception as error:
            log.info(Event("compaction failed", task=task.id, kind=task.kind.value, error=error))
            self._note(task, error)
            self._report_end(attempt, error)
            raise
        finally:
            self.metrics.compact_tasks.labels(task.kind.value, outcome).inc()
            self.metrics.compact_seconds.observe(monotonic_seconds() - began)
            with self._changed:
                self._attempts.discard(attempt)
            self._wake()
            self._plan_early(self._client.version)      # the one of its report came while it ran

    def _note(self, task: CompactTask, error: Exception | None) -> None:
        with self._changed:
            for watch in self._watches:
                watch.note(task, error)

    def _leaves_cores(self, task: CompactTask) -> bool:
        """Whether the cores that one thread does not use are left to a writer: level 0 is shallow. As in RocksDB,
        compaction speeds up once it falls behind."""
        is_beside_writer = monotonic_seconds() - self._written_at < WRITES_SECONDS
        is_shallow = len(self._client.version.levels[0].runs) < 2 * self.options.l0_runs
        return task.kind in CALM_KINDS and is_beside_writer and is_shallow

    def _results(self, attempt: _Attempt, threads: int) -> list[RangeResult]:
        task, options, prefix = attempt.task, self.options, name_prefix(attempt.token)

        def progress(rows: int) -> None:
            attempt.rows = rows
            if self._on_progress is not None:
                self._on_progress(task, rows)

        def is_cancelled() -> bool:
            return self._state is CompactorState.ABORTING or attempt.is_lost.is_set()

        if self._large is not None and task.input_bytes >= options.large_task_bytes:
            return self._large.run(task, prefix, progress=progress, is_cancelled=is_cancelled)
        share = max(SMALL_RANGE_BYTES, task.input_bytes // threads)
        cuts = boundaries_of(task.input_files, self._object_store, min(options.range_bytes, share))
        return self._threads_runner.run(replace(task, cuts=cuts).ranges(), prefix, at_once=threads, progress=progress,
                                        is_cancelled=is_cancelled)

    def _report(self, attempt: _Attempt, results: list[RangeResult]) -> None:
        """Retries while the meta store does not answer: a report counts once."""
        for number in range(REPORT_TRIES):
            try:
                self._client.report_compact_task(attempt.task.id, attempt.token, results)
                break
            except MetaStoreError:
                if number == REPORT_TRIES - 1 or self._state is CompactorState.ABORTING:
                    raise
                self._wait(self._news, POLL_SECONDS)
        if self._large is not None:
            with suppress(HummockError):        # vacuum removes what is left
                self._large.forget(attempt.task)

    def _report_end(self, attempt: _Attempt, error: Exception) -> None:
        """Reports the end to the manager; if that fails too, the attempt's lease expires."""
        try:
            if isinstance(error, TaskCancelled):
                self._client.hand_back_task(attempt.task.id, attempt.token)
            else:
                damage = error if isinstance(error, Corruption) and not isinstance(error, MetaStoreError) else None
                self._client.fail_task(attempt.task.id, attempt.token, f"{type(error).__name__}: {error}", damage)
        except HummockError as failure:
            self.error = failure

    def _beat(self) -> None:
        """Renews the attempts' leases, and marks attempts whose lease was lost."""
        while not self._beats_ended.wait(self.options.task_lease_ms / 3000):
            for attempt in tuple(self._attempts):
                try:
                    self._client.heartbeat_task(attempt.task.id, attempt.token, attempt.rows)
                except TaskRefused:
                    attempt.is_lost.set()
                except HummockError as error:
                    self.error = error

    def _count(self, task: CompactTask, results: list[RangeResult]) -> None:
        metrics = self.metrics
        kept = [info for result in results for info in result.sstables]
        metrics.compact_bytes.labels("read").inc(sum(result.bytes_read for result in results))
        metrics.compact_bytes.labels("written").inc(sum(info.stored_bytes for info in kept))
        metrics.compact_rows.labels("kept").inc(sum(info.rows for info in kept))
        metrics.compact_rows.labels("dropped").inc(sum(result.rows_dropped for result in results))
