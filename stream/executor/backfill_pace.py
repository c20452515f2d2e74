"""BackfillPace: how many rows a backfill reads within an epoch [R27].

The rows of an epoch are processed before its barrier passes the job, and the flush at the barrier grows with them. So
the time that the barrier takes within the job decides: it is measured from its arrival at the scan until the last actor
of the job has passed it. Above TARGET_SECONDS the number of rows is halved, below half of it doubled. A backfill that
has read its share requests a barrier, so it loses no time, and other jobs wait for no long epoch. A job apart from the
graph has barriers of its own, for which nobody waits: the limit is MOST_ROWS, so that each group is written less often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TARGET_SECONDS = 0.05
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 16_384, 131_072, 1 << 22


class BackfillPace:
    """Of one job; its actors share it. Thread safe."""

    def __init__(
        self,
        request_barrier: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_detached: bool = False,
    ) -> None:
        self._request_barrier = request_barrier
        self._is_detached = is_detached
        self._clock = clock
        self._limit = MOST_ROWS if is_detached else FIRST_ROWS
        self._rows = 0
        self._epoch = 0
        self._began = 0.0  # when the barrier that ends `_epoch` arrived
        self._latency = 0.0
        self._lock = threading.Lock()

    def may_read(self) -> bool:
        """Whether the job may read more rows in this epoch."""
        return self._rows < self._limit

    def read(self, rows: int) -> None:
        """`rows` more rows were read."""
        with self._lock:
            was_below = self._rows < self._limit
            self._rows += rows
            is_reached = was_below and self._rows >= self._limit
        if is_reached:
            self._request_barrier()

    def end(self) -> None:
        """The scan needs the next barrier to continue or to finish."""
        self._request_barrier()

    def begin(self, epoch: int) -> None:
        """The barrier that ends `epoch` has arrived at a scan of the job."""
        with self._lock:
            if epoch <= self._epoch:
                return
            if self._epoch:
                self._adapt()
            self._epoch, self._began, self._latency, self._rows = epoch, self._clock(), 0.0, 0

    def passed(self, epoch: int) -> None:
        """An actor of the job has passed the barrier that ends `epoch`."""
        with self._lock:
            if epoch == self._epoch:
                self._latency = self._clock() - self._began

    def _adapt(self) -> None:
        if self._is_detached:
            return
        if self._latency > TARGET_SECONDS:
            self._limit = max(self._limit // 2, LEAST_ROWS)
        elif self._latency < TARGET_SECONDS / 2 and self._rows >= self._limit:
            self._limit = min(self._limit * 2, MOST_ROWS)
