"""How much a writer is slowed down while the shared buffer fills, as a pure function.

Below `EASY_SHARE` of the limit nobody waits. Above it each byte costs a growing multiple of the time in which
uploads take a byte away: 1 in the middle between there and the limit, so that a steady stream settles at about
the pace of the uploads there, and ever more on the way to the limit, which writers approach but do not run into.
"""

from __future__ import annotations

EASY_SHARE = 0.5
LONGEST_SECONDS = 1.0  # one wait; a batch that finds the buffer full waits for room besides


def delay_seconds(held_bytes: int, limit_bytes: int, size_bytes: int, drain_bytes_per_second: float) -> float:
    """How long a batch of `size_bytes` waits before it enters a buffer that holds `held_bytes`.

    0 while nothing is known about the uploads (`drain_bytes_per_second` is 0).
    """
    filled = held_bytes / limit_bytes
    if filled <= EASY_SHARE or drain_bytes_per_second <= 0:
        return 0.0
    over = (filled - EASY_SHARE) / (1 - EASY_SHARE)
    if over >= 1:
        return LONGEST_SECONDS
    return min(size_bytes / drain_bytes_per_second * over / (1 - over), LONGEST_SECONDS)


class DrainRate:
    """Bytes of batches that uploads take away per second: a mean that follows the newest."""

    WEIGHT = 0.3  # of the newest upload

    def __init__(self) -> None:
        self.bytes_per_second = 0.0

    def note(self, size_bytes: int, seconds: float) -> None:
        if seconds <= 0:
            return
        seen = size_bytes / seconds
        known = self.bytes_per_second
        self.bytes_per_second = seen if known == 0 else known + self.WEIGHT * (seen - known)
