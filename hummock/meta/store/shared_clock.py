"""The clock by which leases expire: that of one server, extrapolated by this machine's monotonic clock between answers.

A process whose clock is ahead of the server's takes the leases of others for expired too early; one whose clock is
behind writes leases that are too short. The server reads its clock somewhere between request and answer, so its time
counts as that of the answer: then the clock is never ahead, and it is behind by at most the round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hummock.epoch import monotonic_seconds
from hummock.errors import MetaStoreError

PROMPT_SECONDS = 1.0        # a slower answer is replaced soon
AGAIN_SECONDS = 10.0        # after a slow answer or none


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's time in milliseconds since 1970, and the monotonic seconds before the request and after the answer.

    What preceded the request does not count: a wait for a lock or a new connection.
    """

    server_ms: int
    asked: float
    answered: float

    def at(self, now: float) -> int:
        """The server's time at `now`, or a little earlier, in milliseconds."""
        return self.server_ms + int((now - self.answered) * 1000)


class SharedClock:
    """Reads the server's time by `read`: once in `kept_seconds`, sooner after a slow answer, and twice if the first one
    is slow. Thread safe.
    """

    def __init__(self, read: Callable[[], Reading], kept_seconds: float,
                 monotonic: Callable[[], float] = monotonic_seconds):
        self._read, self._kept_seconds, self._monotonic = read, kept_seconds, monotonic
        self._state: tuple[Reading, float] | None = None        # and when to ask again

    def now_ms(self) -> int:
        """Milliseconds since 1970. Raises the `MetaStoreError` of `read` if the server has never answered."""
        state = self._state
        if state is None or self._monotonic() > state[1]:
            self._state = state = self._renewed(None if state is None else state[0])
        return state[0].at(self._monotonic())

    def _renewed(self, former: Reading | None) -> tuple[Reading, float]:
        """A new reading and when to ask again; the former reading if no answer came, or a slow one that says less."""
        try:
            reading = self._read()
        except MetaStoreError:
            if former is None:
                raise
            return former, self._monotonic() + AGAIN_SECONDS
        now = self._monotonic()
        if reading.answered - reading.asked <= PROMPT_SECONDS:
            return reading, now + self._kept_seconds
        if former is None:
            return self._renewed(reading)
        return max(reading, former, key=lambda each: each.at(now)), now + AGAIN_SECONDS
