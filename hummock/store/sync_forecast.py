"""SyncForecast: when the next sync is expected: from the time between the last two, unless it was announced.

Somebody waits for a sync while it builds and uploads what no flush has taken, and while a flush that runs then ends; so
both should be little. Where syncs come at regular times, flushes become smaller while the next one comes nearer, each
about half of the one before. Not too small ones: many small files cost merges within level 0.
Syncs that follow each other closely have little to upload anyway, and tell nothing about the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hummock.epoch import Epoch, monotonic_seconds
from hummock.options import MIB

LEFT_BYTES_PER_SECOND = 64 * MIB
"""Bytes that may be in no flush, for each second until the sync: a flush of them takes about half of that time beside
writers."""
LEAST_BYTES = 4 * MIB
"""Of such a flush: tens of milliseconds of the sync, and a file that is worth its own."""
LEAST_INTERVAL_SECONDS = 0.45
"""Syncs that follow each other more closely are not regular ones."""
LATE_SECONDS = 0.5
"""For which a sync that is late is expected."""
USUAL_INTERVAL_SECONDS = 1.0
"""Assumed after a sync that follows another one closely, or none."""


class SyncForecast:
    """`clock` returns seconds. Not thread safe: its owner's lock guards it."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._epoch: Epoch | None = None  # of the last sync
        self._began = 0.0
        self._due = math.inf  # when the next one is expected; infinite: none is
        self._announced: tuple[Epoch, float] | None = None  # an earlier one, and when it is due

    def note_sync(self, epoch: Epoch) -> None:
        """A sync of `epoch` begins; several of one epoch count once."""
        if epoch == self._epoch:
            return
        now = self._clock()
        seen = 0.0 if self._epoch is None else now - self._began
        self._due = now + (seen if seen >= LEAST_INTERVAL_SECONDS else USUAL_INTERVAL_SECONDS)
        self._epoch, self._began = epoch, now
        if self._announced is not None and epoch >= self._announced[0]:
            self._announced = None

    def expect(self, epoch: Epoch, seconds: float) -> None:
        """The sync of `epoch` begins in about `seconds`."""
        self._announced = epoch, self._clock() + seconds

    def wants_flush(self, uncut_bytes: int) -> bool:
        """Whether `uncut_bytes`, which are in no flush, should be flushed now, ahead of the next sync."""
        return uncut_bytes > max(LEAST_BYTES, self._seconds_left * LEFT_BYTES_PER_SECOND)

    @property
    def _seconds_left(self) -> float:
        """Until the next sync, below 0 for one that is late; infinite if none is expected, or no longer."""
        now = self._clock()
        dues = [self._due] if self._announced is None else [self._due, self._announced[1]]
        return min((due - now for due in dues if due - now > -LATE_SECONDS), default=math.inf)
