"""ForegroundWork: work that somebody waits for. Merges pause while it runs."""

import threading
import time

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    LONGEST_NS = 200_000_000


@cython.final
cdef class ForegroundWork:
    """Work of one kind, which begins and ends. Thread safe."""

    def __init__(self):
        self.changed = threading.Condition()

    def begin(self):
        """It runs from here on. No effect if it did."""
        with self.changed:
            if not self.until:
                self.until = time.monotonic_ns() + LONGEST_NS

    def end(self):
        """It has ended. No effect if it had."""
        with self.changed:
            self.until = 0
            self.changed.notify_all()

    def let_pass(self) -> int:
        """Waits until it has ended, or has run so long that others wait no longer. Returns the time, by
        `time.monotonic_ns`, until which the caller is to work on: as long as it has waited."""
        cdef int64_t began = time.monotonic_ns(), now
        with self.changed:
            self.changed.wait_for(lambda: not self.until, max(self.until - began, 0) / 1e9)
        now = time.monotonic_ns()
        return now + (now - began)
