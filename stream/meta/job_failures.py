"""JobFailures: which jobs are set aside because they fail, so that the others continue [R22].

A job whose actor fails is tried again once, by a recovery. If it fails again in the same way it is set aside with all
its readers: that is, with the same error (for a source: an error of the same type in the same split, since its chunks
have other boundaries) within FORGOTTEN_AFTER_SECONDS, or with any error if nothing was committed in between. Errors of
the store and of memory are not attributed to a job: they count as attempts of the recovery (`RecoveryPolicy`). A job
that cannot even be planned or built is set aside at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from hummock.base.logs import Event
from hummock.epoch import monotonic_seconds, wall_clock_ms
from hummock.errors import HummockError
from relational.catalog.job_failure import JobFailure
from relational.errors import shortened
from stream.errors import (
    REASON_BYTES,
    ActorFailed,
    ChannelClosed,
    ConnectorError,
    JobFailed,
    KernelsChanged,
    MalformedRows,
    SourcePosition,
)

if TYPE_CHECKING:
    from relational.catalog.manager import CatalogManager
    from relational.catalog.snapshot import CatalogSnapshot
    from stream.meta.recovery import RecoveryPolicy

log = logging.getLogger(__name__)
FORGOTTEN_AFTER_SECONDS = 600.0
"""How long a job that failed once must run before the same failure counts as a first one again."""
NOT_OF_A_JOB = (HummockError, MemoryError, ChannelClosed)
"""Errors of resources that all jobs share: the store, the machine, the other end of a channel."""


class JobFailures:
    """Thread safe. A new failure is kept here until it is recorded in the catalog, by the next commit, which precedes
    any that resumes the job."""

    def __init__(
        self,
        policy: RecoveryPolicy,
        catalog: CatalogManager,
        job_of: Callable[[int], int | None],
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._policy = policy
        self._catalog = catalog
        self._job_of = job_of
        self._clock = clock
        self._last: dict[int, tuple[str, float]] = {}  # job id -> signature and time of its last failure
        self._new: dict[int, JobFailure] = {}  # not yet in the catalog
        self._lock = threading.RLock()

    def failed(self) -> dict[int, JobFailure]:
        """All jobs that are set aside, by id."""
        return self._now()[1]

    def unrecorded(self) -> list[JobFailure]:
        """Failures that are not yet recorded in the catalog."""
        with self._lock:
            self.failed()
            return list(self._new.values())

    def blame(self, cause: BaseException | None, known: CatalogSnapshot, committed_epoch: int) -> None:
        """A recovery for `cause` begins: the job that failed is set aside if it failed before."""
        if not isinstance(cause, ActorFailed) or isinstance(cause.__cause__, NOT_OF_A_JOB):
            return
        job_id = self._job_of(cause.actor_id)
        if job_id is None or job_id not in known.tables or job_id in self.failed():
            return
        error = cause.__cause__
        reason = shortened(f"{type(error).__name__}: {error}", REASON_BYTES)
        signature = reason if cause.position is None else f"{type(error).__name__} {cause.position.split}"
        last, self._last[job_id] = self._last.get(job_id), (signature, self._clock())
        if last is None:
            return
        is_same = last[0] == signature and self._clock() - last[1] < FORGOTTEN_AFTER_SECONDS
        if is_same or not self._policy.has_committed:
            is_malformed = isinstance(error, MalformedRows)
            self._set_aside(
                job_id,
                reason,
                known,
                committed_epoch,
                cause.position,
                is_malformed=is_malformed,
                is_retried=isinstance(error, ConnectorError) and not is_malformed,
            )

    def refuse(self, errors: Mapping[int, Exception], known: CatalogSnapshot, committed_epoch: int) -> None:
        """Jobs that could not be planned are set aside, with their readers."""
        for job_id, error in errors.items():
            if job_id not in self.failed():
                reason = shortened(f"{type(error).__name__}: {error}", REASON_BYTES)
                is_retried = isinstance(error, ConnectorError | KernelsChanged)
                level = logging.INFO if isinstance(error, KernelsChanged) else logging.WARNING  # it is built anew
                self._set_aside(job_id, reason, known, committed_epoch, is_retried=is_retried, level=level)

    def forget_attempts(self, job_ids: Iterable[int]) -> None:
        """These jobs are resumed: their earlier failures are forgotten."""
        with self._lock:
            for job_id in job_ids:
                self._last.pop(job_id, None)

    def errors(self) -> dict[int, Exception]:
        """The error to raise when one of them is used, by job id."""
        known, failed = self._now()
        return {job_id: job_error(failure, known) for job_id, failure in failed.items()}

    def _now(self) -> tuple[CatalogSnapshot, dict[int, JobFailure]]:
        """The catalog, and the jobs of it that are set aside. Its snapshot is read here, since an older one may lack a
        failure that was recorded meanwhile."""
        with self._lock:
            known = self._catalog.snapshot
            for job_id in self._new.keys() & known.failed.keys() | self._new.keys() - known.tables.keys():
                del self._new[job_id]
            return known, {**self._new, **known.failed}

    def _set_aside(
        self,
        job_id: int,
        reason: str,
        known: CatalogSnapshot,
        committed_epoch: int,
        position: SourcePosition | None = None,
        *,
        is_malformed: bool = False,
        is_retried: bool = False,
        level: int = logging.WARNING,
    ) -> None:
        now, failed = wall_clock_ms(), self.failed()
        name = known.tables[job_id].name
        split, offset = position or (None, None)
        new = {
            job_id: JobFailure(job_id, committed_epoch, now, reason, None, split, offset, is_retried, is_malformed)
        }
        for table in known.with_dependents((known.tables[job_id],)):
            if table.kind.is_job and table.id != job_id and table.id not in failed:
                follows = f"it reads {name!r}, which was set aside"
                new[table.id] = JobFailure(
                    table.id, committed_epoch, now, follows, job_id, is_retried=is_retried
                )
        log.log(level, Event("job failed", job=known.name_of(known.tables[job_id]), epoch=committed_epoch, split=split,
                             offset=offset, followers=len(new) - 1, reason=reason))
        with self._lock:
            self._new.update(new)
            self._last.pop(job_id, None)
        self._policy.progressed()


def job_error(failure: JobFailure, known: CatalogSnapshot) -> JobFailed:
    """The error that is raised when a job which was set aside is used."""
    return JobFailed(str(known.name_of(known.tables[failure.job_id])), failure.since, failure.reason)
