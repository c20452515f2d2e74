"""SyncForecast: when the next sync is expected, from the time between the last two.

Somebody waits for a sync while it builds and uploads what no flush has taken, up to `flush_bytes`. Where syncs come at
regular times, one flush begins shortly before the next is due: what was written since is all that is left for it. Syncs
that follow each other closely have little to upload anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from hummock.epoch import Epoch, monotonic_seconds
from hummock.options import MIB

AHEAD_SECONDS = 0.15
"""Before the sync: a flush of `flush_bytes` takes about as long beside writers."""
AHEAD_BYTES = 6 * MIB
"""That are not in a flush, at least: tens of milliseconds of the sync, and a file that is worth its own."""
LEAST_INTERVAL_SECONDS = 3 * AHEAD_SECONDS


class SyncForecast:
    """`clock` returns seconds. Not thread safe: its owner's lock guards it."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._epoch: Epoch | None = None  # of the last sync
        self._began = self._interval = 0.0
        self._is_used = False  # a flush began since the next sync is near

    def note_sync(self, epoch: Epoch) -> None:
        """A sync of `epoch` begins; several of one epoch count once."""
        if epoch == self._epoch:
            return
        now = self._clock()
        if self._epoch is not None:
            self._interval = now - self._began
        self._epoch, self._began, self._is_used = epoch, now, False

    def note_flush(self) -> None:
        """A flush begins, for whatever reason."""
        self._is_used = self._is_used or self._is_near

    def wants_flush(self, uncut_bytes: int) -> bool:
        """Whether `uncut_bytes`, which are in no flush, should be uploaded before the next sync."""
        return uncut_bytes > AHEAD_BYTES and not self._is_used and self._is_near

    @property
    def _is_near(self) -> bool:
        is_regular = self._interval >= LEAST_INTERVAL_SECONDS
        return is_regular and self._clock() >= self._began + self._interval - AHEAD_SECONDS
