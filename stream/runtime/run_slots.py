"""Turns: at most so many actors of a process run at once [R12].

Threads that all have work pass the interpreter's lock back and forth: each return from a call that gave
it up waits for its turn there, a switch interval at a time. So actors take turns of their own. One runs
until it waits in a channel, or until its quantum is over and another one waits; then the turn is handed
to whoever has waited longest. Waiting in a channel never holds a turn."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

QUANTUM_SECONDS = 0.02
"""How long an actor keeps its turn while others wait: short beside a barrier interval, long beside a
chunk."""


class Turns:
    """Thread safe. `limit` turns; first come, first served."""

    def __init__(
        self,
        limit: int,
        quantum_seconds: float = QUANTUM_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = limit
        self._quantum = quantum_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._mine = threading.local()

    def take(self) -> None:
        """Wait for a turn. REQUIRES that this thread has none."""
        gate = None
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                gate = threading.Lock()
                gate.acquire()
                self._waiting.append(gate)
        if gate is not None:
            gate.acquire()
        self._mine.since = self._clock()

    def give(self) -> None:
        """End this thread's turn: it goes straight to the one that has waited longest."""
        self._mine.since = None
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def share(self) -> None:
        """Called between two messages: let others go first once the quantum is over."""
        if self._waiting and self._clock() - self._mine.since > self._quantum:
            self.give()
            self.take()

    @contextlib.contextmanager
    def parked(self) -> Iterator[None]:
        """Without a turn while the block runs, if this thread has one; threads that never took one may use it
        as well."""
        if getattr(self._mine, "since", None) is None:
            yield
            return
        self.give()
        try:
            yield
        finally:
            self.take()


@contextlib.contextmanager
def no_turns() -> Iterator[None]:
    """`parked` where nobody takes turns."""
    yield
