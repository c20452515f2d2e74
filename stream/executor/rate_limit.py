"""RateLimit: how many rows a source may read now, so that it reads at most so many per second."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_SECONDS = 0.1
"""A source that could not read for longer does not make up for it."""


class RateLimit:
    """A token bucket of one tenth of a second, or of two rows where that is more. `rows_per_second` 0: no limit."""

    def __init__(self, rows_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rows_per_second, clock
        self._most = max(2.0, rows_per_second * BURST_SECONDS)
        self._tokens, self._filled_at = self._most, clock()

    def allowed(self, rows: int) -> int:
        """How many of `rows` rows may be read now."""
        if not self._rate:
            return rows
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return max(0, min(rows, int(self._tokens)))

    def spend(self, rows: int) -> None:
        """So many rows were read, possibly more than were allowed: later ones wait the longer."""
        self._tokens -= rows
