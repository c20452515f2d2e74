"""BarrierManager: cuts the stream into epochs and makes them durable, one after the other.

One thread injects a barrier when the interval is over, on a flush, when a source has read enough or all, or for a DDL;
another commits collected epochs strictly in order [C6]. At most `in_flight_barriers` are between the two [C3], so
actors process epoch N+1 while N is uploaded; but one at a time is on its way through the actors, behind which a second
one would only wait. Any failure leads to a recovery, which is also how a session starts. Steps
and invariants: CHECKPOINT.md."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

from hummock.base.logs import Event
from hummock.epoch import Epoch, EpochGenerator, EpochPair, monotonic_seconds
from hummock.errors import LoadRefused
from stream.errors import ActorFailed, BarrierTimeout, SessionClosed
from stream.message import Add, Barrier
from stream.meta.barrier_schedule import BarrierPayload, BarrierSchedule, Command, JobChange
from stream.meta.barrier_stats import BarrierStats
from stream.meta.recovery import RecoveryPolicy
from stream.protocol import CollectedEpoch, Step, StepObserver, Worker, unobserved

if TYPE_CHECKING:
    from stream.options import StreamOptions

log = logging.getLogger(__name__)
COMMAND_ATTEMPTS = 2
"""Barriers that may carry one DDL: a DDL that a recovery undid, for whatever cause, is executed once more."""
NOTICE_SECONDS = 0.25
"""Between the announcement of a barrier and the barrier: a flush of what the epoch has written, beside the actors, and
smaller ones of what they write meanwhile."""


class Lifecycle(Enum):
    """The states of a BarrierManager. Every transition is made under its lock."""

    RUNNING = auto()
    """Barriers are injected, epochs are committed. Begins with the Initial barrier of a generation; left for RECOVERING
    by `fail()`, an overdue barrier or a failed Initial barrier."""
    RECOVERING = auto()
    """A part failed, or nothing was started yet: no further commit begins. The injection thread undoes what is in
    flight and rebuilds the actors; left for RUNNING, or for DEAD when no further attempt is made."""
    CLOSED = auto()
    """`close()` was called: both threads end, calls raise SessionClosed. Left for DEAD by a recovery under way that
    would need another attempt."""
    DEAD = auto()
    """Final. An error that no recovery heals: both threads end, calls raise that error."""


class Committer(Protocol):
    """Commits collected epochs."""

    @property
    def committed_epoch(self) -> Epoch:
        """The newest committed epoch, 0 before the first."""
        ...

    def commit(self, collected: CollectedEpoch, changes: Sequence[JobChange]) -> None:
        """Commits the files and watermarks of a checkpoint and all changes in one transaction [C7]. `backfilled` of
        `collected` holds what was reported since the last commit. Reads see the epoch when it returns."""
        ...


@dataclass(slots=True)
class _InFlight:
    """A barrier between injection and commit."""

    barrier: Barrier
    collected: Future[CollectedEpoch]
    injected_at: float
    payload: BarrierPayload
    has_passed: bool = False
    """Whether the next barrier would not only wait behind this one."""


class BarrierManager:
    """Injects barriers, commits their epochs, recovers from failures. Thread safe.

    `rebuild(cause)` builds the actors of all committed jobs in the worker, except those that are set aside because of
    `cause`, the error that ended the previous generation; the actors begin with the mutation that it returns."""

    def __init__(
        self,
        worker: Worker,
        committer: Committer,
        epochs: EpochGenerator,
        rebuild: Callable[[BaseException | None], Add],
        options: StreamOptions,
        stats: BarrierStats,
        policy: RecoveryPolicy,
        observer: StepObserver = unobserved,
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._worker = worker
        self._committer = committer
        self._epochs = epochs
        self._rebuild = rebuild
        self._options = options
        self._policy = policy
        self._stats = stats
        self._observer = observer
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[_InFlight] = deque()
        self._schedule = BarrierSchedule(options)
        self._epoch = Epoch(0)  # the epoch that is open now
        self._backfilled: list[int] = []  # actors, reported since the last commit
        self._is_committing = False  # the commit thread works on the head of the queue; in any state
        self._state = Lifecycle.RECOVERING
        self._error: BaseException | None = None  # the cause of DEAD, or of RECOVERING where `fail()` led to it
        self._threads: list[threading.Thread] = []

    # -- public interface ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start all committed jobs, then the barriers. Raises what recovery raises."""
        self._recover(None)
        with self._changed:
            if self._state is Lifecycle.DEAD:
                self._raise_error()
        for target, name in ((self._run_injections, "barriers"), (self._run_commits, "commits")):
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()

    def request(self) -> None:
        """Inject a barrier at once, before the interval is over."""
        with self._changed:
            self._schedule.request()
            self._changed.notify_all()

    def announce(self) -> None:
        """Inject a barrier soon: if the interval is not over within NOTICE_SECONDS, at once where little is to be done
        for the barrier, otherwise after that time, in which the worker does most of it."""
        with self._changed:
            if self._schedule.next_at - self._clock() <= NOTICE_SECONDS:
                return
        prepares = self._worker.expect(NOTICE_SECONDS)
        with self._changed:
            if prepares:
                self._schedule.bring_forward(self._clock() + NOTICE_SECONDS)
            else:
                self._schedule.request()
            self._changed.notify_all()

    def request_checkpoint(self) -> None:
        """Inject a barrier soon, whose epoch is committed."""
        with self._changed:
            self._schedule.request_checkpoint()
            self._changed.notify_all()

    def flush(self) -> Future[int]:
        """Completes with a committed epoch that holds everything sent before this call."""
        waiter: Future[int] = Future()
        with self._changed:
            self._check_alive()
            self._schedule.flush(waiter)
            self._changed.notify_all()
        return waiter

    def schedule(self, command: Command) -> Future[int]:
        """The command is carried by a barrier of its own. Completes with the epoch that committed it, or with the error
        that undid it."""
        with self._changed:
            self._check_alive()
            self._schedule.schedule(command)
            self._changed.notify_all()
        return command.result

    def fail(self, error: BaseException) -> None:
        """A part failed: recovery begins. Only the first error of a generation counts."""
        with self._changed:
            if self._state is Lifecycle.RUNNING:
                self._state, self._error = Lifecycle.RECOVERING, error
            self._changed.notify_all()

    def check_alive(self) -> None:
        """Raises what ended the session: SessionClosed, RecoveryFailed, Fenced, Corruption ..."""
        with self._changed:
            self._check_alive()

    def close(self, timeout: float) -> None:
        """End both threads; nothing more is committed."""
        with self._changed:
            if self._state is not Lifecycle.DEAD:
                self._state = Lifecycle.CLOSED
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)
        closed = SessionClosed("the session was closed before its commit")
        try:
            if self._state is not Lifecycle.DEAD:
                self._worker.close(closed)
        finally:
            self._abandon(closed)

    # -- injection -----------------------------------------------------------------------------------

    def _run_injections(self) -> None:
        while True:
            with self._changed:
                while not self._has_work():
                    self._changed.wait(self._seconds_to_work())
                if self._has_ended:
                    return
                failure = self._error if self._state is Lifecycle.RECOVERING else self._overdue()
            if failure is not None:
                self._recover(failure)
                continue
            try:
                self.inject()
            except BaseException as error:
                self.fail(error)

    def inject(self) -> None:
        """Inject a barrier that ends the open epoch and opens the next one [C1]."""
        with self._changed:
            command = self._schedule.next_command()
        mutation = None
        if command is not None:
            try:
                mutation = command.prepare()
            except Exception as refusal:
                command.result.set_exception(refusal)
                return
        with self._changed:
            payload = self._schedule.cut(self._clock(), command, mutation)
            pair = EpochPair(self._epochs.next(), self._epoch)
            self._epoch = pair.curr
            barrier = Barrier(pair, payload.is_checkpoint, payload.mutation)
            entry = _InFlight(barrier, Future(), self._clock(), payload)
            self._queue.append(entry)
        self._observer(Step.INJECT, pair.prev)
        entry.collected = self._worker.inject(barrier, partial(self._note_passed, entry))
        entry.collected.add_done_callback(self._wake)

    def _note_passed(self, entry: _InFlight) -> None:
        with self._changed:
            entry.has_passed = True
            self._changed.notify_all()

    def _wake(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _has_work(self) -> bool:
        if self._state is not Lifecycle.RUNNING:
            return True
        is_due = self._schedule.is_requested or self._clock() >= self._schedule.next_at
        return (is_due and self._may_inject()) or self._overdue() is not None

    def _may_inject(self) -> bool:
        is_passing = bool(self._queue) and not (self._queue[-1].has_passed or self._queue[-1].collected.done())
        return len(self._queue) < self._options.in_flight_barriers and not is_passing

    def _seconds_to_work(self) -> float:
        """Seconds until a barrier becomes due or overdue."""
        now = self._clock()
        timeout = self._options.barrier_timeout_ms / 1_000
        is_waited_for = bool(self._queue) and not self._queue[0].collected.done()
        overdue = self._queue[0].injected_at + timeout - now if is_waited_for else timeout
        return max(0.0, min(overdue, self._schedule.next_at - now) if self._may_inject() else overdue)

    def _overdue(self) -> BaseException | None:
        timeout_ms = self._options.barrier_timeout_ms
        if not self._queue or self._is_committing or self._queue[0].collected.done():
            return None
        if self._clock() - self._queue[0].injected_at < timeout_ms / 1_000:
            return None
        epoch = self._queue[0].barrier.epoch.prev
        return BarrierTimeout(epoch, timeout_ms, self._worker.missing(epoch))

    # -- commit --------------------------------------------------------------------------------------

    def _run_commits(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_commit)
                if self._has_ended:
                    return
                self._is_committing = True
                head = self._queue[0]
            try:
                self.complete(head)
            except BaseException as error:
                self.fail(error)
            finally:
                with self._changed:
                    self._is_committing = False
                    self._changed.notify_all()

    def _may_commit(self) -> bool:
        if self._state is Lifecycle.RUNNING:
            return bool(self._queue) and self._queue[0].collected.done()
        return self._has_ended

    def complete(self, head: _InFlight) -> None:
        """Commit the oldest barrier, which is collected, and complete its futures [C6, C7, C8]."""
        epoch = head.barrier.epoch.prev
        collected = head.collected.result()
        commands: list[Command] = []
        self._backfilled += collected.backfilled
        if head.barrier.checkpoint:
            self._observer(Step.COMMIT, epoch)
            commands = self._commit(replace(collected, backfilled=tuple(self._backfilled)), head.payload.commands)
            self._backfilled = []
            self._observer(Step.COMMITTED, epoch)
            self._worker.committed(epoch)
            self._policy.committed()
            self._observer(Step.NOTIFY, epoch)
            self._stats.finished(epoch)
        with self._changed:
            self._queue.popleft()
            self._request_commit_of_backfilled()
        if head.barrier.checkpoint:
            for waiter in (*(each.result for each in commands), *head.payload.flushes):
                waiter.set_result(epoch)

    def _commit(self, collected: CollectedEpoch, commands: Sequence[Command]) -> list[Command]:
        """The commands that were committed. A refused load only fails the command that brought it, provided that no
        actor depends on the command."""
        left = list(commands)
        while True:
            try:
                self._committer.commit(collected, [command.change for command in left])
                return left
            except LoadRefused as refusal:
                refused = [command for command in left if not command.in_new_epoch
                           and refusal.load_id in {load.load_id for load in command.change.loads}]
                if not refused:
                    raise
                left = [command for command in left if command not in refused]
                for command in refused:
                    command.result.set_exception(refusal)

    # -- recovery ------------------------------------------------------------------------------------

    def _recover(self, failure: BaseException | None) -> None:
        """Return to the last committed epoch [C9, C10]; without `failure`: the first start. On return the Initial
        barrier is collected, or the state is DEAD. Whether a command of an undone barrier was committed is part of it:
        while that cannot be read, the recovery has not succeeded."""
        undone = self._take_undone()
        cause, began = failure, monotonic_seconds()
        while True:
            try:
                if cause is not None:
                    log.warning(Event("recovery", epoch=self._committer.committed_epoch, error=cause))
                    self._wait(self._policy.next_attempt(cause))
            except BaseException as fatal:
                self._end(fatal, undone)
                return
            try:
                self._restart(cause)
                self._answer(undone, failure)
                if cause is not None:
                    log.info(Event("recovered", epoch=self._committer.committed_epoch,
                                   seconds=monotonic_seconds() - began))
                return
            except BaseException as error:
                cause = error
                with self._changed:
                    self._begin_recovery()

    def _answer(self, undone: list[Command], failure: BaseException | None) -> None:
        """Complete the commands that were committed, and schedule the others again, or let them fail; those that are
        left when this raises are answered by another call."""
        while undone:
            command = undone[-1]
            epoch = self._committer.committed_epoch if command.is_applied() else None
            undone.pop()
            if epoch is not None:
                command.result.set_result(epoch)
            elif command.attempt < COMMAND_ATTEMPTS:
                with self._changed:
                    self._schedule.put_back_command(replace(command, attempt=command.attempt + 1))
            else:
                if isinstance(failure, ActorFailed):  # most likely one of those that the command began
                    self._policy.progressed()
                command.result.set_exception(failure)

    def _take_undone(self) -> list[Command]:
        """Empty the queue once no commit runs; the commands that its barriers carried. Commands that wait for their
        barrier stay scheduled, and so do flushes, which a later commit completes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_committing)
            self._begin_recovery()
            undone, self._queue = list(self._queue), deque()
            self._backfilled = []
            for each in undone:
                self._schedule.put_back(each.payload.flushes)
            commands = [command for each in undone for command in each.payload.commands]
            commands += self._schedule.take_opening()
        return commands

    def _wait(self, seconds: float) -> None:
        """Wait `seconds`; SessionClosed when the session is closed meanwhile."""
        with self._changed:
            if self._changed.wait_for(lambda: self._state is Lifecycle.CLOSED, seconds):
                raise SessionClosed("the session was closed during a recovery")

    def _restart(self, cause: BaseException | None) -> None:
        if cause is not None:
            self._worker.reset(cause)
            self._stats.discarded()
        begin = self._rebuild(cause)
        with self._changed:
            if self._state is Lifecycle.RECOVERING:
                self._state = Lifecycle.RUNNING
            self._error = None
            pair = EpochPair(self._epochs.next(), self._committer.committed_epoch)
            self._epoch = pair.curr
            self._schedule.begin(self._clock())
        timeout_ms = self._options.barrier_timeout_ms
        collected = self._worker.inject(Barrier(pair, checkpoint=False, mutation=begin))
        try:
            self._backfilled += collected.result(timeout_ms / 1_000).backfilled
            with self._changed:
                self._request_commit_of_backfilled()
        except TimeoutError as error:
            if collected.done():
                raise
            raise BarrierTimeout(pair.prev, timeout_ms, self._worker.missing(pair.prev)) from error

    def _end(self, error: BaseException, undone: list[Command]) -> None:
        """The session ends: every pending future and every later call gets `error`."""
        if not isinstance(error, SessionClosed):
            log.error(Event("session ended", error=error))
        with self._changed:
            self._state, self._error = Lifecycle.DEAD, error
        try:
            self._worker.close(error)
        except Exception as another:
            error.add_note(f"Closing failed too: {another!r}")
        finally:
            self._abandon(error, undone)

    def _abandon(self, error: BaseException, undone: Sequence[Command] = ()) -> None:
        commands = [*undone, *self._take_undone()]
        with self._changed:
            commands += self._schedule.take_commands()
            waiters = self._schedule.take_flushes()
            self._changed.notify_all()
        for waiter in (*(command.result for command in commands), *waiters):
            waiter.set_exception(error)

    # -- lifecycle -----------------------------------------------------------------------------------
    # REQUIRES the lock.

    def _request_commit_of_backfilled(self) -> None:
        """Jobs that have read all existing rows are created with the next commit, which may be far off."""
        if self._backfilled:
            self._schedule.request_checkpoint()
            self._changed.notify_all()

    @property
    def _has_ended(self) -> bool:
        return self._state is Lifecycle.CLOSED or self._state is Lifecycle.DEAD

    def _begin_recovery(self) -> None:
        """A session that has ended stays so."""
        if self._state is Lifecycle.RUNNING:
            self._state, self._error = Lifecycle.RECOVERING, None

    def _check_alive(self) -> None:
        if self._state is Lifecycle.DEAD:
            self._raise_error()
        if self._state is Lifecycle.CLOSED:
            raise SessionClosed("the session is closed")

    def _raise_error(self) -> NoReturn:
        assert self._error is not None
        raise self._error
