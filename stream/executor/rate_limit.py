"""RateLimit: how many rows a source may read now, so that it reads at most so many per second.

Rows are allowed in bursts: a chunk costs much more than a row, so a source reads a few times a second what it may,
not each row as soon as it may.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BUCKET_SECONDS = 0.5
"""A source that could not read for longer does not make up for it."""
BURST_SHARE = 0.5  # of the bucket is full before any row is allowed


class RateLimit:
    """A token bucket of BUCKET_SECONDS, or of two rows where that is more. `rows_per_second` 0: no limit."""

    def __init__(self, rows_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rows_per_second, clock
        self._most = max(2.0, rows_per_second * BUCKET_SECONDS)
        self._tokens, self._filled_at = self._most, clock()
        self._may_be_short = False  # the next burst

    def refill(self, seconds: float) -> None:
        """Nothing was read for so long: this is what may be read now, however short the burst."""
        self._tokens = min(self._most, self._rate * seconds)
        self._may_be_short = True

    def allowed(self, rows: int) -> int:
        """How many of `rows` rows may be read now: as many as there are tokens for, once they suffice for a burst or
        for all of them."""
        if not self._rate:
            return rows
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        least, self._may_be_short = 1.0 if self._may_be_short else self._most * BURST_SHARE, False
        return min(rows, int(self._tokens)) if self._tokens >= min(rows, least) else 0

    def spend(self, rows: int) -> None:
        """So many rows were read, possibly more than were allowed: later ones wait the longer."""
        self._tokens -= rows

    @property
    def wait_seconds(self) -> float:
        """Time from the last `allowed` until there are tokens for a burst; 0 without a limit."""
        return max(0.0, (self._most * BURST_SHARE - self._tokens) / self._rate) if self._rate else 0.0
