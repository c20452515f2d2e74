"""KeptHistory: the epochs at which failed jobs stopped stay readable for a while [C16], so that RESUME goes on from
there.

Each is pinned in this process; a store that is opened again pins them anew where they are still readable. After
`limit_ms` they are given back: tables that go on would keep every version of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from hummock.epoch import Epoch, monotonic_seconds
from hummock.errors import HummockError


class Pins(Protocol):
    """Who keeps epochs readable."""

    def pin(self, epoch: Epoch) -> None:
        """`epoch` stays readable until it is unpinned. EpochTooOld."""
        ...

    def unpin(self, epoch: Epoch) -> None:
        """Gives back one pin."""
        ...


class KeptHistory:
    """One thread commits and recovers, one at a time; no other uses it."""

    def __init__(self, pins: Pins, limit_ms: int, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._pins = pins
        self._limit = limit_ms / 1_000
        self._clock = clock
        self._kept: dict[int, tuple[Epoch, float]] = {}  # job id -> its epoch, and when to give it back
        self._given_back: set[int] = set()

    def keep(self, job_id: int, epoch: int) -> None:
        """Pin the epoch at which a job stopped, unless that is no longer possible or was given back."""
        if job_id in self._kept or job_id in self._given_back:
            return
        try:
            self._pins.pin(Epoch(epoch))
        except HummockError:
            self._given_back.add(job_id)
            return
        self._kept[job_id] = (Epoch(epoch), self._clock() + self._limit)

    def keep_only(self, job_ids: Collection[int]) -> None:
        """Give back what jobs need that are no longer among `job_ids`."""
        for job_id in [each for each in self._kept if each not in job_ids]:
            self._give_back(job_id)
        self._given_back &= set(job_ids)

    def expire(self) -> None:
        """Give back what was kept long enough."""
        now = self._clock() if self._kept else 0.0
        for job_id in [each for each, (_, until) in self._kept.items() if until <= now]:
            self._give_back(job_id)
            self._given_back.add(job_id)

    def is_kept(self, job_id: int) -> bool:
        """Whether the changes since the job stopped can be read."""
        return job_id in self._kept

    def _give_back(self, job_id: int) -> None:
        epoch, _ = self._kept.pop(job_id)
        with suppress(HummockError):  # the lease ends with the process
            self._pins.unpin(epoch)
