"""KeptHistory: keeps the epochs at which failed jobs stopped readable for a while [C16], so that RESUME continues from
there.

Each epoch is pinned in this process; when the store is opened again it is pinned again if it is still readable. After
`limit_ms` it is released, because tables that continue would otherwise keep every version of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from hummock.epoch import Epoch, monotonic_seconds
from hummock.errors import HummockError


class Pins(Protocol):
    """Keeps epochs readable."""

    def pin(self, epoch: Epoch) -> None:
        """`epoch` stays readable until it is unpinned. EpochTooOld."""
        ...

    def unpin(self, epoch: Epoch) -> None:
        """Releases one pin."""
        ...


class KeptHistory:
    """Not thread safe: used by commits and recoveries, which never overlap."""

    def __init__(self, pins: Pins, limit_ms: int, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._pins = pins
        self._limit = limit_ms / 1_000
        self._clock = clock
        self._kept: dict[int, tuple[Epoch, float]] = {}  # job id -> its epoch, and when to release it
        self._released: set[int] = set()

    def keep(self, job_id: int, epoch: int) -> None:
        """Pin the epoch at which a job stopped, unless that is no longer possible or it was released before."""
        if job_id in self._kept or job_id in self._released:
            return
        try:
            self._pins.pin(Epoch(epoch))
        except HummockError:
            self._released.add(job_id)
            return
        self._kept[job_id] = (Epoch(epoch), self._clock() + self._limit)

    def keep_only(self, job_ids: Collection[int]) -> None:
        """Release the epochs of jobs that are not among `job_ids`."""
        for job_id in [each for each in self._kept if each not in job_ids]:
            self._release(job_id)
        self._released &= set(job_ids)

    def expire(self) -> None:
        """Release epochs that were kept for the limit."""
        now = self._clock() if self._kept else 0.0
        for job_id in [each for each, (_, until) in self._kept.items() if until <= now]:
            self._release(job_id)
            self._released.add(job_id)

    def is_kept(self, job_id: int) -> bool:
        """Whether the changes since the job stopped can be read."""
        return job_id in self._kept

    def _release(self, job_id: int) -> None:
        epoch, _ = self._kept.pop(job_id)
        with suppress(HummockError):  # the lease ends with the process
            self._pins.unpin(epoch)
