"""The CPU clock of threads that run actors, read once a slice: each reading is a system call.

A thread runs one slice after the other, and uses no CPU time between them that matters. So a slice begins at the
reading with which the one before it ended.
"""

from __future__ import annotations

import threading
import time


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
