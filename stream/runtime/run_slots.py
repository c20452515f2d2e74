"""RunSlots: a fair counting semaphore that bounds how many actors of a process run at once [R12].

Threads that all have work pass the interpreter's lock back and forth: each return from a call that released it waits
for it again, one switch interval at a time. A run slot avoids that. An actor holds its slot until it waits in a
channel, or until its quantum is over and another actor waits; the slot then passes to the actor that has waited
longest. A thread that waits in a channel never holds a slot."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

QUANTUM_SECONDS = 0.02
"""How long an actor keeps its slot while others wait: short compared to a barrier interval, long compared to the
processing of one chunk."""


class RunSlots:
    """`limit` slots; first come, first served. Thread safe."""

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
        self._held = threading.local()  # `since`: when this thread acquired its slot, None without one

    def acquire(self) -> None:
        """Wait for a slot. REQUIRES that this thread holds none."""
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
        self._held.since = self._clock()

    def release(self) -> None:
        """Release this thread's slot, directly to the thread that has waited longest."""
        self._held.since = None
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def yield_if_due(self) -> None:
        """Called between two messages: lets waiting threads run first once the quantum is over."""
        if self._waiting and self._clock() - self._held.since > self._quantum:
            self.release()
            self.acquire()

    @contextlib.contextmanager
    def parked(self) -> Iterator[None]:
        """Releases this thread's slot while the block runs. A no-op for threads that hold none."""
        if getattr(self._held, "since", None) is None:
            yield
            return
        self.release()
        try:
            yield
        finally:
            self.acquire()


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """`parked` of threads that run without slots."""
    yield
