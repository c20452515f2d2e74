"""KeptHistory: keeps the epochs at which failed jobs stopped readable for a while [C16], so that RESUME continues from
there.

Each epoch is pinned in this process; when the store is opened again it is pinned again if it is still readable. An
epoch that could not be pinned for another reason than that it is not readable is tried again after each commit. After
`limit_ms` it is released, because tables that continue would otherwise keep every version of their rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from hummock.base.logs import Event
from hummock.epoch import Epoch, monotonic_seconds
from hummock.errors import EpochTooOld, HummockError, InvalidEpoch

log = logging.getLogger(__name__)


class Pins(Protocol):
    """Keeps epochs readable."""

    def pin(self, epoch: Epoch) -> None:
        """`epoch` stays readable until it is unpinned. EpochTooOld or InvalidEpoch if it cannot be read; any other
        HummockError says nothing of that."""
        ...

    def unpin(self, epoch: Epoch) -> None:
        """Releases one pin."""
        ...


CLAIMED_SECONDS = 60.0
"""So long at least an epoch is kept for a job that is about to be resumed."""


class KeptHistory:
    """Used by commits and recoveries, which never overlap; `claim` by any thread."""

    def __init__(self, pins: Pins, limit_ms: int, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._pins = pins
        self._limit = limit_ms / 1_000
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[Epoch, float]] = {}  # job id -> its epoch, and when to release it
        self._unpinned: dict[int, int] = {}  # job id -> its epoch, which is to be pinned
        self._released: set[int] = set()

    def keep(self, job_id: int, epoch: int) -> None:
        """Pin the epoch at which a job stopped, unless it can no longer be read or was released before."""
        if job_id in self._kept or job_id in self._released:
            return
        try:
            self._pins.pin(Epoch(epoch))
        except (EpochTooOld, InvalidEpoch):
            self._unpinned.pop(job_id, None)
            self._released.add(job_id)
            return
        except HummockError as error:
            if job_id not in self._unpinned:
                log.warning(Event("history of a failed job not pinned yet", job=job_id, epoch=epoch, error=error))
            self._unpinned[job_id] = epoch
            return
        self._unpinned.pop(job_id, None)
        with self._lock:
            self._kept[job_id] = (Epoch(epoch), self._clock() + self._limit)

    def keep_only(self, job_ids: Collection[int]) -> None:
        """Release the epochs of jobs that are not among `job_ids`."""
        self._release(lambda job_id, until: job_id not in job_ids)
        self._released &= set(job_ids)
        self._unpinned = {each: epoch for each, epoch in self._unpinned.items() if each in job_ids}

    def expire(self) -> None:
        """Release epochs that were kept for the limit, and try again to pin those that could not be pinned."""
        for job_id, epoch in list(self._unpinned.items()):
            self.keep(job_id, epoch)
        now = self._clock() if self._kept else 0.0
        self._released |= self._release(lambda job_id, until: until <= now)

    def claim(self, job_id: int) -> bool:
        """Whether the changes since the job stopped can be read; then they are for CLAIMED_SECONDS more at least."""
        with self._lock:
            epoch, until = self._kept.get(job_id, (None, 0.0))
            if epoch is not None:
                self._kept[job_id] = epoch, max(until, self._clock() + CLAIMED_SECONDS)
            return epoch is not None

    def _release(self, is_over: Callable[[int, float], bool]) -> set[int]:
        """The jobs whose epochs are released: those of which `is_over(job id, when to release it)` is true."""
        with self._lock:
            found = {each: epoch for each, (epoch, until) in self._kept.items() if is_over(each, until)}
            for each in found:
                del self._kept[each]
        for epoch in found.values():
            with suppress(HummockError):  # the lease ends with the process
                self._pins.unpin(epoch)
        return set(found)
