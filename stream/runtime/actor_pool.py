"""ActorPool: runs the actors of a process on a bounded number of threads [R12, R23].

An actor runs in slices: until it has nothing to process, until a channel has no room for its output, or until its
quantum is over. Then it is parked, or queued behind the other ready actors, first come, first served. So the number of
threads does not grow with the number of actors, and few of them compete for the interpreter's lock.

Actors that have yet to pass a barrier go first, and others yield to them after the message that they process. So an
epoch takes as long as what precedes its barrier, however much follows it: sources pass the barrier before they read
more, and the actors below them process up to it, and emit what they keep till then, before the sources go on. An actor
that has passed its barriers is one of the others again.

No actor waits within a slice for another actor, but it may read objects, or wait for room in the shared buffer. Spare
threads make up for that: one of them runs a ready actor that has waited for OVERDUE_SECONDS while a regular thread
sleeps. Where all of them compute, or wait for a core, a further thread would only compete with them. A slice that waits
for the store does not depend on other slices, so no pool size can deadlock. While actors are ready one spare thread
looks at them, each OVERDUE_SECONDS at most; the others are not woken.

Thread safety: the state of an actor is changed under the lock. A wake-up that arrives while the actor runs is noted, so
that it is not lost when the actor then has nothing to process.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import Protocol

from hummock.base.logs import Event
from stream.message import Wait
from stream.runtime.thread_clock import BusyClock
from stream.runtime.thread_priority import lower_priority

QUANTUM_SECONDS = 0.01
"""How long a slice may last while other actors are ready: short compared to a barrier interval, long compared to the
processing of one chunk."""
OVERDUE_SECONDS = 0.02
YIELD_SECONDS = 0.05
"""How long an actor of a pool that yields to other work waits for it."""
LEAVE_SECONDS = 0.1
"""How long a thread leaves its core to other work at most: that work may wait for something else than the core."""
LOOK_SECONDS = 0.002
"""How soon the end of that work is seen."""
BUSY_SHARE = 0.5
"""A slice whose thread was busy for less than this share of its duration is one that waits."""
SPARE_THREADS = 4

log = logging.getLogger(__name__)


class Runnable(Protocol):
    """What the pool runs; one slice at a time, on any of its threads."""

    name: str

    def run(self, until: Callable[[], bool]) -> Wait | bool:
        """Process messages until `until()` is true. A Wait: there is nothing to do before a wake-up, or before its
        seconds have passed. True: there is more to do. False: the actor has ended. It reports its errors itself: what
        it raises is logged, and it has ended."""
        ...


class _State(Enum):
    PARKED = auto()
    """Waits for a wake-up or its timer."""
    READY = auto()
    """Is in the queue."""
    RUNNING = auto()
    """A thread executes a slice."""
    ENDED = auto()
    """Final."""


class _Entry:
    """An actor in the pool. `timer` is the number of its latest timer: earlier ones are obsolete. `due`: when it has to
    be ready at the latest, the time of that timer once it is parked."""

    __slots__ = ("actor", "due", "has_barrier", "is_woken", "since", "state", "timer")

    def __init__(self, actor: Runnable, has_barrier: Callable[[], bool]) -> None:
        self.actor = actor
        self.has_barrier = has_barrier
        self.state = _State.PARKED
        self.is_woken = False
        self.since = 0.0
        self.timer = 0
        self.due = math.inf


class _Slice:
    """What a regular thread executes."""

    def __init__(self) -> None:
        self._busy = BusyClock()
        self._began: float | None = None  # monotonic seconds; None between two slices
        self._busy_began = 0.0

    def begin(self) -> None:
        self._busy_began, self._began = self._busy.seconds, time.monotonic()

    def end(self) -> None:
        self._began = None

    def close(self) -> None:
        self._busy.close()

    @property
    def is_waiting(self) -> bool:
        """Whether it has mostly slept, so far, for at least OVERDUE_SECONDS."""
        began, busy_began = self._began, self._busy_began
        if began is None:
            return False
        seconds = time.monotonic() - began
        return seconds >= OVERDUE_SECONDS and self._busy.seconds - busy_began < BUSY_SHARE * seconds


class ActorPool:
    """`threads` regular threads and `spare` ones, which begin with the first actor. `niceness`: by how much their
    priority is lower than that of the process, where threads have one. While `yields_to()`, no slice begins of an actor
    that has been ready for less than YIELD_SECONDS. Thread safe."""

    def __init__(
        self,
        threads: int,
        spare: int = SPARE_THREADS,
        clock: Callable[[], float] = time.monotonic,
        niceness: int = 0,
        yields_to: Callable[[], bool] = lambda: False,
    ) -> None:
        self._threads_wanted = threads, spare
        self.niceness = niceness
        self._yields_to = yields_to
        self._clock = clock
        lock = threading.Lock()
        self._work = threading.Condition(lock)  # regular threads
        self._overdue = threading.Condition(lock)  # spare threads
        self._returns = threading.Condition(lock)  # the regular thread that left its core
        self._ends = threading.Condition(lock)
        self._lock = lock
        self._idle = 0  # regular threads that wait
        self._is_watched = False  # a spare thread looks at the ready actors again soon
        self._entries: dict[int, _Entry] = {}  # id(actor) -> entry of an actor that has not ended
        self._ready: deque[_Entry] = deque()
        self._urgent: deque[_Entry] = deque()  # the ready ones that have yet to pass a barrier
        self._timers: list[tuple[float, int, _Entry]] = []
        self._timer_numbers = 0
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._slices: list[_Slice] = []  # of the regular threads
        self._left_until = 0.0  # the last regular thread begins no slice until then

    def start(self, actor: Runnable, has_barrier: Callable[[], bool] = lambda: False) -> None:
        """The actor is ready for its first slice. `has_barrier()`: whether it has yet to pass a barrier that was sent
        to it; it takes no lock."""
        with self._lock:
            self._begin_threads()
            entry = self._entries[id(actor)] = _Entry(actor, has_barrier)
            self._enqueue(entry)

    def wake(self, actor: Runnable, within: float = 0.0) -> None:
        """Something that the actor may wait for has happened, and it should be ready `within` so many seconds. No
        effect on an actor that has ended."""
        with self._lock:
            entry = self._entries.get(id(actor))
            if entry is None:
                return
            if within > 0:
                self._wake_later(entry, self._clock() + within)
            elif entry.state is _State.PARKED:
                self._enqueue(entry)
            elif entry.state is _State.RUNNING:
                entry.is_woken = True
            elif entry.state is _State.READY and entry.has_barrier() and entry not in self._urgent:
                self._ready.remove(entry)
                self._urgent.append(entry)

    @contextmanager
    def left_core(self) -> Iterator[None]:
        """While it is entered one regular thread, of several, begins no slice, for LEAVE_SECONDS at most: somebody
        waits for other work of this process, which needs a core."""
        with self._lock:
            self._left_until = self._clock() + LEAVE_SECONDS
        try:
            yield
        finally:
            with self._lock:
                self._left_until = 0.0
                self._returns.notify()

    def join(self, actors: Iterable[Runnable], timeout: float) -> list[Runnable]:
        """Wait until the actors have ended; those that have not within `timeout` seconds."""
        wanted = list(actors)
        with self._lock:
            self._ends.wait_for(lambda: not any(id(each) in self._entries for each in wanted), timeout)
            return [each for each in wanted if id(each) in self._entries]

    def close(self) -> None:
        """The threads end after their current slices."""
        with self._lock:
            self._is_closed = True
            self._work.notify_all()
            self._overdue.notify_all()
            self._returns.notify_all()

    @property
    def ready_actors(self) -> int:
        """The number of actors that wait for a thread."""
        return len(self._ready) + len(self._urgent)

    # -- threads ---------------------------------------------------------------------------------------

    def _begin_threads(self) -> None:
        if self._threads:
            return
        regular, spare = self._threads_wanted
        for number in range(regular + spare):
            name = f"actors-{number}" if number < regular else f"actors-spare-{number - regular}"
            target = partial(self._run_regular, 0 < number == regular - 1) if number < regular else self._run_spare
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()

    def _run_regular(self, leaves: bool) -> None:
        """`leaves`: it is the thread that leaves its core to other work."""
        lower_priority(self.niceness)
        current = _Slice()
        with self._lock:
            self._slices.append(current)
        while True:
            with self._lock:
                entry = self._next(leaves)
                if entry is None:
                    self._slices.remove(current)
                    current.close()
                    return
            current.begin()
            self._run(entry, leaves)
            current.end()

    def _run_spare(self) -> None:
        while True:
            with self._lock:
                entry = self._next_overdue()
            if entry is None:
                return
            self._run(entry, False)

    def _run(self, entry: _Entry, leaves: bool) -> None:
        ends_at = self._clock() + QUANTUM_SECONDS

        def until() -> bool:
            if self._urgent and not entry.has_barrier():
                return True
            now = self._clock()
            return (bool(self._urgent or self._ready) and now >= ends_at) or (leaves and now < self._left_until)

        outcome: Wait | bool = False
        try:
            outcome = entry.actor.run(until)
        except BaseException:
            log.exception(Event("actor ended by an error", actor=entry.actor.name))
        with self._lock:
            if outcome is False:
                entry.state = _State.ENDED
                del self._entries[id(entry.actor)]
                self._ends.notify_all()
            elif outcome is True or entry.is_woken:
                self._enqueue(entry)
            else:
                assert isinstance(outcome, Wait)
                self._park(entry, outcome.seconds)

    # -- REQUIRES the lock -----------------------------------------------------------------------------

    def _next(self, leaves: bool) -> _Entry | None:
        """The actor whose turn it is; waits for one. None after `close`."""
        while not self._is_closed:
            if leaves and (away := self._left_until - self._clock()) > 0:
                self._returns.wait(away)
                continue
            self._fire_timers()
            queue = self._urgent or self._ready
            if queue and not self._must_yield(queue[0]):
                entry = self._taken(queue)
                self._watch()
                return entry
            if queue:
                self._work.wait(LOOK_SECONDS)
                continue
            left = self._timers[0][0] - self._clock() if self._timers else None
            self._idle += 1
            self._work.wait(left)
            self._idle -= 1
        return None

    def _must_yield(self, entry: _Entry) -> bool:
        return self._yields_to() and self._clock() - entry.since < YIELD_SECONDS

    def _next_overdue(self) -> _Entry | None:
        """An actor that is overdue while a regular thread waits; waits for one. None after `close`."""
        while not self._is_closed:
            queue = self._longest_waiting()
            if queue is None or self._is_watched:
                self._overdue.wait()
                continue
            late = self._clock() - queue[0].since - OVERDUE_SECONDS
            if late >= 0 and any(each.is_waiting for each in self._slices):
                entry = self._taken(queue)
                self._watch()
                return entry
            self._is_watched = True
            self._overdue.wait(-late if late < 0 else OVERDUE_SECONDS)
            self._is_watched = False
        return None

    def _watch(self) -> None:
        """A spare thread looks at the ready actors, if there are any."""
        if (self._urgent or self._ready) and not self._is_watched:
            self._overdue.notify()

    def _taken(self, queue: deque[_Entry]) -> _Entry:
        entry = queue.popleft()
        entry.state, entry.is_woken = _State.RUNNING, False
        return entry

    def _enqueue(self, entry: _Entry) -> None:
        entry.state, entry.since = _State.READY, self._clock()
        entry.timer, entry.due = 0, math.inf
        (self._urgent if entry.has_barrier() else self._ready).append(entry)
        if self._idle:
            self._work.notify()
        else:
            self._watch()

    def _park(self, entry: _Entry, seconds: float | None) -> None:
        entry.state = _State.PARKED
        if seconds is not None:
            entry.due = min(entry.due, self._clock() + seconds)
        if entry.due < math.inf:
            self._set_timer(entry)

    def _wake_later(self, entry: _Entry, due: float) -> None:
        """Whatever the actor does until then: what it was woken for may have come too late for its current slice."""
        if entry.state in (_State.PARKED, _State.RUNNING) and due < entry.due:
            entry.due = due
            if entry.state is _State.PARKED:
                self._set_timer(entry)

    def _set_timer(self, entry: _Entry) -> None:
        """The timer of a parked actor, at the time at which it is due."""
        self._timer_numbers += 1
        entry.timer = self._timer_numbers
        heapq.heappush(self._timers, (entry.due, entry.timer, entry))
        if self._idle and self._timers[0][2] is entry:
            self._work.notify()

    def _fire_timers(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, number, entry = heapq.heappop(self._timers)
            if entry.state is _State.PARKED and entry.timer == number:
                self._enqueue(entry)

    def _longest_waiting(self) -> deque[_Entry] | None:
        """The queue whose head has waited longest; None if no actor is ready."""
        return min((queue for queue in (self._urgent, self._ready) if queue),
                   key=lambda queue: queue[0].since, default=None)
