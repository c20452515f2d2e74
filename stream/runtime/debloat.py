"""Buffer debloating: as many rows are queued for a receiver as it processes in a given time [Flink's term].

A barrier passes an actor when everything before it was processed. So what is queued in front of a slow actor delays
each checkpoint; a fixed number of rows that keeps a filter busy takes a join a second. The time that the receiver takes
for a row is measured, of the last chunks above all, and the limit of its channels follows. Shortly before a barrier is
due the limit falls, so that little is left in front of it; the senders, which have nothing to do then, leave their core
to the receivers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stream.runtime.barrier_forecast import BarrierForecast
from stream.runtime.channel import Channel

QUEUED_SECONDS = 0.03
"""A receiver waits for no sender longer than the pool takes to run one: a few slices of other actors."""
LEAST_SECONDS = 0.005
"""The same when a barrier is due. Before that it is a part of the time that is left."""
REMEMBERED = 0.7
"""Weight of the chunks before, relative to the last one."""
LEAST_ROWS = 4_096
"""Queued at least, by all channels of a receiver."""
FIRST_ROWS = 32_768
"""Queued before the first chunk was processed."""


class BufferDebloater:
    """Limits the rows queued in `channels`, all those of one input of a receiver, whose barriers `forecast` expects.
    `clock` returns seconds."""

    def __init__(
        self, channels: Sequence[Channel], forecast: BarrierForecast, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channels = tuple(channels)
        self._forecast, self._clock = forecast, clock
        self._rows = self._seconds = 0.0
        self._began = 0.0
        self.limit_rows = 0
        """Of all channels together."""
        self._set_limit(FIRST_ROWS)

    def begin(self) -> None:
        """The receiver begins to process a chunk."""
        self._began = self._clock()

    def end(self, rows: int) -> None:
        """It has processed the chunk, of so many rows, and sent what follows from it."""
        self._rows = REMEMBERED * self._rows + rows
        self._seconds = REMEMBERED * self._seconds + (self._clock() - self._began)
        if self._seconds > 0:
            seconds = min(QUEUED_SECONDS, max(self._forecast.work_seconds, LEAST_SECONDS))
            self._set_limit(int(seconds * self._rows / self._seconds))

    def _set_limit(self, rows: int) -> None:
        self.limit_rows = max(rows, LEAST_ROWS)
        for channel in self._channels:
            channel.limit_rows = max(self.limit_rows // len(self._channels), 1)
