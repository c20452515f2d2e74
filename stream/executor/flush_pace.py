"""FlushPace: from how many changed groups on an aggregation emits them ahead of the barrier.

All changes of an epoch at its barrier are work that begins when the barrier has come, for every operator below: where
most groups change once, as those of a window that moves on do, the barrier waits for seconds. Emitted ahead of it they
are processed while the epoch runs. But a group that changes again is emitted again. So a flush emits the
groups that changed first, half of all: a window that is still open is among the others. And the groups that it has
emitted before in the same epoch are counted: where they are many, flushes become rarer, to the point where every group
is emitted once, at the barrier. Shortly before a barrier is due fewer groups are enough, so that it finds few.
"""

from __future__ import annotations

from stream.runtime.barrier_forecast import BarrierForecast

EARLY_GROUPS = 32_768
"""Dirty groups, half of which are flushed ahead of the barrier: tens of milliseconds for it and the operators below."""
AGAIN_SHARE = 0.25
"""Of the groups of a flush, above which flushes become rarer; they become more frequent below a quarter of it."""
NEAR_SECONDS = 0.15
"""Before a barrier is due, in which the number of dirty groups falls in proportion to the time that is left, ..."""
NEAR_GROUPS = 4_096
"""... to this: milliseconds."""
QUIET_BARRIERS = 32
"""Without a flush ahead of them, after which it is tried again whether groups change once."""


def near_barrier(groups: int, forecast: BarrierForecast) -> int:
    """As many groups, or fewer if a barrier is due soon."""
    return max(int(groups * forecast.share_left(NEAR_SECONDS)), min(groups, NEAR_GROUPS))


class FlushPace:
    """Between `least` and `most` dirty groups, beginning with `least`; fewer shortly before a barrier that `forecast`
    expects."""

    def __init__(self, least: int, most: int, forecast: BarrierForecast | None = None) -> None:
        self._least, self._most = min(least, most), most
        self._forecast = BarrierForecast() if forecast is None else forecast
        self._limit = self._least  # when no barrier is due
        self._is_early = False  # a flush came ahead of the next barrier
        self._quiet = 0  # barriers since the last flush ahead of one

    @property
    def limit(self) -> int:
        """Dirty groups from which on they are flushed."""
        return near_barrier(self._limit, self._forecast)

    def note_flush(self, groups: int, again: int) -> None:
        """`groups` are about to be flushed ahead of the barrier, `again` of them not for the first time in the epoch.
        """
        self._is_early = True
        if again > AGAIN_SHARE * groups:
            self._limit = min(2 * self._limit, self._most)
        elif again < AGAIN_SHARE / 4 * groups:
            self._lower()

    def note_barrier(self) -> None:
        """All dirty groups were flushed, for a barrier."""
        self._quiet = 0 if self._is_early else self._quiet + 1
        self._is_early = False
        if self._quiet == QUIET_BARRIERS:
            self._quiet = 0
            self._lower()

    def _lower(self) -> None:
        self._limit = max(self._limit // 2, self._least)
