"""Clocks of threads that run actors.

The CPU clock is read once a slice: each reading is a system call. A thread runs one slice after the other, and uses no
CPU time between them that matters. So a slice begins at the reading with which the one before it ended.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from hummock.base.posix import waited_ns

SCHEDSTAT = "/proc/thread-self/schedstat"
"""Of Linux: ns that the calling thread has run, ns that it was runnable and waited for a core, number of runs."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.cpu_seconds = time.thread_time()


_thread = _Thread()


def slice_began() -> float:
    """CPU seconds of this thread when its current slice began."""
    return _thread.cpu_seconds


def slice_ended() -> float:
    """CPU seconds of this thread now, when its slice ends."""
    _thread.cpu_seconds = now = time.thread_time()
    return now


class BusyClock:
    """Seconds for which the thread that creates it has run or has waited for a core. Any thread may read it.

    A thread that is neither sleeps: it waits for an object, a lock, room. Where the system does not tell how long a
    thread waited for a core these are its CPU seconds, and where other threads cannot read those either it stands
    still.
    """

    def __init__(self) -> None:
        self._clock = (time.pthread_getcpuclockid(threading.get_ident())
                       if hasattr(time, "pthread_getcpuclockid") else None)
        self._schedstat = -1
        with suppress(OSError):
            self._schedstat = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def seconds(self) -> float:
        ran = 0.0 if self._clock is None else time.clock_gettime(self._clock)
        return ran if self._schedstat < 0 else ran + waited_ns(self._schedstat) / 1e9

    def close(self) -> None:
        """REQUIRES that nobody reads it any more."""
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1
