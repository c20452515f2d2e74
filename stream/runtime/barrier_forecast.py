"""BarrierForecast: how soon the next barrier is expected.

A barrier is due an interval after the one before was injected, which its epoch tells, unless an earlier one was
announced. One that does not come is no longer expected after a part of the interval. What an actor has begun when its
barrier comes, and what is queued for it, delays the checkpoint; so actors take smaller pieces of work shortly before.
"""

from __future__ import annotations

import math

from hummock.epoch import Clock, Epoch, to_unix_ms, wall_clock_ms

OVERDUE_SHARE = 1 / 8
"""Of the interval, for which a barrier that is late is expected, ..."""
MOST_OVERDUE_MS = 1_000
"""... and no longer."""
WORK_SHARE = 1 / 4
"""Of the time that is left: how long a piece of work may take by what the ones before took. Beside a flush and merges
it takes several times as long."""
NEAR_SHARE = 1 / 8
"""Of the interval, at most, that is near a barrier."""


class BarrierNotice:
    """What the forecasts of a worker share about the next barrier; times of epochs. Any thread may read or change it.
    """

    def __init__(self, clock: Clock = wall_clock_ms) -> None:
        self._clock = clock
        self.announced_ms = 0
        """When a barrier is due that was announced."""
        self.injected_ms = 0
        """When the last barrier was injected."""

    def announce(self, seconds: float) -> None:
        """A barrier is due in `seconds`, earlier than the interval says."""
        self.announced_ms = self._clock() + int(1_000 * seconds)

    def note_injected(self, epoch: Epoch) -> None:
        """The barrier that begins `epoch` is on its way, whether it was announced or not."""
        self.announced_ms, self.injected_ms = 0, to_unix_ms(epoch)


class BarrierForecast:
    """Of the barriers of one actor. `interval_ms`: between two of them, 0: they come at no known times. `notice`: of
    its worker, None: no barrier is announced."""

    def __init__(
        self, interval_ms: int = 0, clock: Clock = wall_clock_ms, notice: BarrierNotice | None = None
    ) -> None:
        self._interval_ms, self._clock = interval_ms, clock
        self._notice = BarrierNotice() if notice is None else notice
        self._passed_ms = 0

    def note_barrier(self, epoch: Epoch) -> None:
        """The barrier that begins `epoch` was passed."""
        self._passed_ms = to_unix_ms(epoch)

    @property
    def seconds_left(self) -> float:
        """Until the next barrier, 0 for one that is late, or on its way; infinite if none is expected."""
        if not self._interval_ms or not self._passed_ms:
            return math.inf
        if self._notice.injected_ms > self._passed_ms:
            return 0.0
        now, late_ms = self._clock(), min(OVERDUE_SHARE * self._interval_ms, MOST_OVERDUE_MS)
        left = (due - now for due in (self._notice.announced_ms, self._passed_ms + self._interval_ms))
        return max(min((each for each in left if each > -late_ms), default=math.inf), 0) / 1_000

    @property
    def work_seconds(self) -> float:
        """How long a piece of work that begins now should take, so that the next barrier does not wait for it."""
        return WORK_SHARE * self.seconds_left

    def is_near(self, seconds: float) -> bool:
        """Whether the next barrier is due within `seconds`, or a small part of the interval if that is less."""
        return self.seconds_left < self.margin(seconds)

    def margin(self, seconds: float) -> float:
        """`seconds`, or a small part of the interval if that is less."""
        return min(seconds, NEAR_SHARE * self._interval_ms / 1_000)

    def share_left(self, seconds: float) -> float:
        """Of the last `seconds` before the next barrier: 1 before they begin, 0 when it is due."""
        return min(self.seconds_left / seconds, 1.0)
