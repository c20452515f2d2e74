"""BarrierForecast: how soon the next barrier is expected.

A barrier is due an interval after the one before was injected, which its epoch tells. One that does not come is no
longer expected after a part of the interval. What an actor has begun when its barrier comes, and what is queued for it,
delays the checkpoint; so actors take smaller pieces of work shortly before.
"""

from __future__ import annotations

import math

from hummock.epoch import Clock, Epoch, to_unix_ms, wall_clock_ms

OVERDUE_SHARE = 1 / 8
"""Of the interval, for which a barrier that is late is expected."""
NEAR_SHARE = 1 / 16
"""Of the interval, at most, that is near a barrier."""


class BarrierForecast:
    """Of the barriers of one actor. `interval_ms`: between two of them, 0: they come at no known times."""

    def __init__(self, interval_ms: int = 0, clock: Clock = wall_clock_ms) -> None:
        self._interval_ms, self._clock = interval_ms, clock
        self._due_ms = 0

    def note_barrier(self, epoch: Epoch) -> None:
        """The barrier that begins `epoch` was passed."""
        self._due_ms = to_unix_ms(epoch) + self._interval_ms

    @property
    def seconds_left(self) -> float:
        """Until the next barrier, 0 for one that is late; infinite if none is expected."""
        left = self._due_ms - self._clock()
        return max(left, 0) / 1_000 if left > -OVERDUE_SHARE * self._interval_ms else math.inf

    def is_near(self, seconds: float) -> bool:
        """Whether the next barrier is due within `seconds`, or a small part of the interval if that is less."""
        return self.seconds_left < min(seconds, NEAR_SHARE * self._interval_ms / 1_000)

    def share_left(self, seconds: float) -> float:
        """Of the last `seconds` before the next barrier: 1 before they begin, 0 when it is due."""
        return min(self.seconds_left / seconds, 1.0)
