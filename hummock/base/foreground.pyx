"""ForegroundWork: work that somebody waits for. Merges pause while it runs."""

import threading
import time

cimport cython
from libc.stdint cimport int64_t

from hummock.base.posix cimport monotonic_ns

cdef enum:
    LONGEST_NS = 200_000_000
    LONGEST_PAUSE_NS = 400_000_000


@cython.final
cdef class ForegroundWork:
    """Work of one kind, which begins and ends. Thread safe."""

    def __init__(self):
        self.changed = threading.Condition()

    def begin(self):
        """It runs from here on. No effect if it did."""
        with self.changed:
            if not self.is_running:
                self.is_running, self.since = True, time.monotonic_ns()
                self.until = self.since + LONGEST_NS

    def end(self, double next_in=0, double ahead=0):
        """It has ended, or does not run. With `ahead` it begins again in about `next_in` seconds: merges pause from
        `ahead` seconds before that to as long after."""
        cdef int64_t due = time.monotonic_ns() + <int64_t>(next_in * 1e9), margin = <int64_t>(ahead * 1e9)
        with self.changed:
            self.is_running, self.since, self.until = False, 0, 0
            if margin > 0:
                self.since, self.until = due - margin, due + margin
            self.changed.notify_all()

    cdef int64_t pause(self, int64_t work_until) except -1 nogil:
        """`let_pass` if merges pause now, unless the caller is to work on until `work_until`, 0 at first; the new
        value of it."""
        cdef int64_t now = monotonic_ns()
        if self.since <= now < self.until and work_until <= now:
            with gil:
                return self.let_pass()
        return work_until

    def let_pass(self) -> int:
        """Waits until it has ended, or has run so long that others wait no longer. Returns the time, by
        `time.monotonic_ns`, until which the caller is to work on: as long as it has waited."""
        cdef int64_t began = time.monotonic_ns(), now = began, last = began + LONGEST_PAUSE_NS
        with self.changed:
            while self.since <= now < min(self.until, last):
                self.changed.wait((min(self.until, last) - now) / 1e9)
                now = time.monotonic_ns()
        return now + (now - began)
