"""LocalBarrierManager: a worker's part of the checkpoint: inject, collect, seal, sync.

Barriers are sent into every root channel. An epoch is collected when every actor that it waits for has passed its
barrier, and every epoch before it is collected: a barrier that stops an actor still waits for it, the next one does
not, so without the second condition a later epoch could be sealed first. Then a dedicated thread, in epoch order [C4],
seals the epoch and at a checkpoint uploads it, while the actors process the next epochs [C5]. The first failure of an
actor or an upload fails every barrier in flight [C9]; all further events are ignored until reset()."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stream.errors import ActorFailed, SourcePosition
from stream.message import Barrier
from stream.protocol import CollectedEpoch, Step, StepObserver, unobserved
from stream.runtime.barrier_forecast import BarrierForecast
from stream.runtime.channel import Channel
from stream.runtime.thread_priority import lower_priority

if TYPE_CHECKING:
    from hummock.base.foreground import ForegroundWork
    from hummock.state_store import StateStore

PAUSE_SECONDS = 0.1
"""Of merges, before a barrier is due: what they have begun then is done, and actors have the cores to themselves."""


@dataclass(slots=True)
class _InFlight:
    """An injected barrier: the actors that have not passed it yet, and the future of its collection."""

    barrier: Barrier
    missing: set[int]
    then: Callable[[], None]
    """Called once all actors that end with this barrier have passed it."""
    on_passed: Callable[[], None]
    """Called once all actors have passed this barrier and those before it."""
    ending: set[int]
    finished: list[int] = field(default_factory=list)
    """Actors that have read all existing rows of the tables that they scan."""
    result: Future[CollectedEpoch] = field(default_factory=Future)


class LocalBarrierManager:
    """Thread safe. `on_failure(error)` is called once per generation of actors, by the thread that failed. `niceness`:
    by how much the priority of uploads is lower than that of the process. `foreground` is what `is_busy` says, and is
    expected when a barrier is, by `forecast`. `left_core()` is entered while files are written."""

    def __init__(
        self,
        store: StateStore,
        on_failure: Callable[[BaseException], None],
        observer: StepObserver = unobserved,
        niceness: int = 0,
        foreground: ForegroundWork | None = None,
        forecast: BarrierForecast | None = None,
        left_core: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._niceness, self._foreground, self._left_core = niceness, foreground, left_core
        self._forecast = BarrierForecast() if forecast is None else forecast
        self._store = store
        self._on_failure = on_failure
        self._observer = observer
        self._lock = threading.Lock()
        self._in_flight: dict[int, _InFlight] = {}  # by the epoch that ends, ascending
        self._finished: set[int] = set()  # actors that report it with their next barrier
        self._failure: BaseException | None = None
        self._unfinished: list[int] = []  # collected epochs that are not yet synced, or not committed; ascending
        self._syncer = self._new_syncer()

    def inject(
        self,
        barrier: Barrier,
        roots: Iterable[Channel],
        actors: Iterable[int],
        then: Callable[[], None] = lambda: None,
        on_passed: Callable[[], None] = lambda: None,
    ) -> Future[CollectedEpoch]:
        """Send the barrier into `roots`; completes when `actors` have passed it and it is synced. `then` is called once
        those that end with it have passed it, if any; `on_passed` once all actors have passed it and those before."""
        waiting = _InFlight(barrier, set(actors), then, on_passed, set(barrier.stopped))
        with self._lock:
            if self._failure is not None:
                waiting.result.set_exception(self._failure)
                return waiting.result
            self._in_flight[barrier.epoch.prev] = waiting
            self._forecast.note_barrier(barrier.epoch.curr)
            passed = self._complete_collected()
            self._note_busy()
        for channel in roots:
            channel.send(barrier)
        for each in passed:
            each.on_passed()
        return waiting.result

    def collect(self, actor_id: int, barrier: Barrier) -> None:
        """`actor_id` has passed `barrier`; the last actor of the oldest epoch starts seal and sync."""
        with self._lock:
            waiting = self._in_flight.get(barrier.epoch.prev)
            if waiting is None:
                return
            waiting.missing.discard(actor_id)
            if actor_id in self._finished:
                self._finished.discard(actor_id)
                waiting.finished.append(actor_id)
            is_last = actor_id in waiting.ending and len(waiting.ending) == 1
            waiting.ending.discard(actor_id)
            passed = self._complete_collected()
        if is_last:
            waiting.then()
        for each in passed:
            each.on_passed()

    def finish_backfill(self, actor_id: int) -> None:
        """`actor_id` has read all existing rows: those of the last one belong to the epoch that its next barrier
        ends."""
        with self._lock:
            self._finished.add(actor_id)

    @property
    def is_busy(self) -> bool:
        """Whether actors have yet to pass a barrier, or an epoch that they have passed is not yet synced, or committed.
        Takes no lock."""
        return bool(self._in_flight) or bool(self._unfinished)

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is committed."""
        self._leave([each for each in self._unfinished if each <= epoch])

    def expect(self) -> None:
        """The forecast has changed."""
        with self._lock:
            self._note_busy()

    def missing(self, epoch: int) -> tuple[int, ...]:
        """Actors that have not passed the barrier that ends `epoch`, for error messages."""
        with self._lock:
            waiting = self._in_flight.get(epoch)
            return tuple(sorted(waiting.missing)) if waiting else ()

    def fail(self, actor_id: int, error: BaseException, position: SourcePosition | None = None) -> None:
        """`actor_id` has ended with `error`, its source at `position`."""
        self._fail(ActorFailed(actor_id, error, position))

    def quiesce(self) -> None:
        """Ignore failures from now on: they are expected while the actors are being ended."""
        with self._lock:
            if self._failure is None:
                self._failure = RuntimeError("the worker is being reset")
            self._in_flight.clear()
            self._note_busy()

    def reset(self) -> None:
        """Wait for an upload under way, then begin a new generation. REQUIRES that no actor runs."""
        self._syncer.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._in_flight.clear()
            self._finished.clear()
            self._failure, self._unfinished = None, []
            self._note_busy()
            self._syncer = self._new_syncer()

    def close(self) -> None:
        """Wait for an upload under way; no use after this."""
        self._syncer.shutdown(wait=True, cancel_futures=True)
        if self._foreground is not None:
            self._foreground.end()

    def _complete_collected(self) -> list[_InFlight]:
        """Seal and sync the collected epochs at the head of the queue, the oldest first [C4]; those."""
        passed = []
        for epoch, waiting in list(self._in_flight.items()):
            if waiting.missing:
                break
            del self._in_flight[epoch]
            self._unfinished.append(epoch)
            self._syncer.submit(self._seal_and_sync, waiting)
            passed.append(waiting)
        return passed

    def _seal_and_sync(self, waiting: _InFlight) -> None:
        barrier, epoch = waiting.barrier, waiting.barrier.epoch.prev
        try:
            if self._failure is not None:
                raise self._failure
            self._observer(Step.COLLECT, epoch)
            if epoch > self._store.committed_epoch:
                self._store.seal_epoch(epoch)
            collected = CollectedEpoch(epoch, backfilled=tuple(waiting.finished))
            if barrier.checkpoint:
                self._observer(Step.SYNC, epoch)
                with self._left_core():
                    synced = self._store.sync(epoch)
                collected = replace(collected, sstables=tuple(synced.sstables), watermarks=synced.watermarks)
        except BaseException as error:
            self._leave([epoch])
            waiting.result.set_exception(error)
            self._fail(error)
        else:
            if not barrier.checkpoint:
                self._leave([epoch])
            waiting.result.set_result(collected)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            waiting = list(self._in_flight.values())
            self._in_flight.clear()
            self._note_busy()
        for each in waiting:
            each.result.set_exception(error)
        self._on_failure(error)

    def _leave(self, epochs: Sequence[int]) -> None:
        """Nobody waits for the checkpoints of `epochs` any more."""
        with self._lock:
            self._unfinished = [each for each in self._unfinished if each not in epochs]
            self._note_busy()

    def _note_busy(self) -> None:
        """REQUIRES the lock."""
        if self._foreground is not None:
            left = self._forecast.seconds_left
            if self.is_busy:
                self._foreground.begin()
            elif left < math.inf and self._failure is None:
                self._foreground.end(left, self._forecast.margin(PAUSE_SECONDS))
            else:
                self._foreground.end()

    def _new_syncer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "checkpoint-sync", lower_priority, (self._niceness,))
