"""JobRevival: resumes jobs that were set aside, from where they stopped or, if that is not possible, from scratch.

A job continues from its own state at the epoch at which it stopped. A table with a source continues at its stored
offset, after skipping the requested rows. A view whose upstream continued meanwhile first reads the upstream's changes
since then, like a view whose history was loaded [C14]. If these can no longer be read the view is rebuilt, with all its
readers, under new ids. Jobs that were set aside because they read this one are resumed in the same commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from hummock.base.logs import Event
from hummock.epoch import Epoch
from hummock.errors import HummockError
from relational.catalog.job_failure import JobFailure
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.catalog.snapshot import CatalogSnapshot
from stream.errors import InvalidStatement, JobNotRunning, StreamError
from stream.message import SkippedRows
from stream.meta.creations import Creations
from stream.meta.ddl import Ddl
from stream.meta.job_failures import JobFailures
from stream.meta.job_planner import JobPlanner
from stream.meta.kept_history import KeptHistory
from stream.meta.schedule import Beginning
from stream.meta.stream_manager import StreamManager

NO_REBUILD = "it cannot be built anew, because the rows that it wrote stay in the table"

log = logging.getLogger(__name__)


class JobRevival:
    """Thread safe: one DDL at a time."""

    def __init__(
        self,
        ddl: Ddl,
        catalog: CatalogManager,
        planner: JobPlanner,
        streams: StreamManager,
        failures: JobFailures,
        history: KeptHistory,
        creations: Creations,
        is_behind: Callable[[int], bool],
    ) -> None:
        """`is_behind(job_id)`: whether the rows of a job are of an earlier epoch than the one at which it was set
        aside."""
        self._ddl = ddl
        self._catalog = catalog
        self._planner = planner
        self._streams = streams
        self._failures = failures
        self._history = history
        self._creations = creations
        self._is_behind = is_behind

    def rebuild_creation(self, view: TableCatalog) -> None:
        """A creation that was interrupted begins anew, since the changes since its rows cannot be read any more."""
        gone = "the changes since it was interrupted are gone"
        log.warning(Event("creation begins anew", job=view.name, reason=gone))
        with self._ddl.one:
            self._ddl.rebuild([view])

    def resume(self, table: TableCatalog, skip: int = 0) -> bool:
        """Resume the job of `table`, with those that were set aside because they read it; whether it was rebuilt.
        `skip`: how many rows its source skips: the next ones after its last commit, or the next malformed ones if such
        a record failed the job; one that is rebuilt reads its source from the beginning, and also skips the malformed
        rows that it was allowed to skip before. InvalidStatement for a job that runs, JobNotRunning if it reads one
        that does not; JobFailed if it is rebuilt and fails before it is complete: then it is set aside."""
        with self._ddl.one:
            known = self._catalog.snapshot
            failures = self._failures.failed()
            failure = failures.get(table.id)
            if failure is None:
                raise InvalidStatement(table.name, "its job was not set aside: there is nothing to resume")
            upstream = [known.tables[each].name for each in table.dependencies if each in failures]
            if upstream:
                raise JobNotRunning(upstream[0])
            skipped = _skipped(known, table, failure, skip)
            jobs = _with_followers(known, failures, table)
            rebuilt = known.with_dependents(self._to_rebuild(jobs, failures))
            for each in rebuilt:
                if each.sink_table is not None:
                    raise InvalidStatement(each.name, f"{NO_REBUILD}: drop the sink, and create it again after RESUME")
            continued = [each for each in jobs if each not in rebuilt]
            if continued:
                self._continue_jobs(continued, failures, skipped)
            skips = skipped is not None and skipped.is_malformed and table in rebuilt
            renewed = self._ddl.rebuild(rebuilt, skipped if skips else None) if rebuilt else []
        for view in renewed:
            if view.kind.is_job:
                self._creations.wait(view.id, view.name)
        return bool(rebuilt)

    def retry(self) -> None:
        """Resume jobs that were set aside for a cause outside the store, such as a missing connector. Jobs that still
        cannot run stay set aside."""
        known = self._catalog.snapshot
        failed = self._failures.failed()
        for failure in sorted(failed.values(), key=lambda each: each.job_id):
            if failure.is_retried and failure.follows not in failed and failure.job_id in known.tables:
                with suppress(StreamError, HummockError):
                    self.resume(known.tables[failure.job_id])

    def _to_rebuild(self, jobs: Sequence[TableCatalog], failures: dict[int, JobFailure]) -> list[TableCatalog]:
        """The jobs that cannot continue from their stored state."""
        found = []
        for each in jobs:
            changed = self._planner.changed_kernels(each)
            if changed:
                log.warning(Event("job built anew", job=each.name, computed_otherwise=", ".join(changed)))
                found.append(each)
            elif self._needs_history(each, failures) and not self._history.claim(each.id):
                gone = "the changes since it was set aside are gone"
                log.warning(Event("job built anew", job=each.name, reason=gone))
                found.append(each)
        return found

    def _needs_history(self, table: TableCatalog, failures: dict[int, JobFailure]) -> bool:
        """Whether the job's upstream continued, and may have changed, since the job stopped, or before."""
        if self._is_behind(table.id):
            return True
        known = self._catalog.snapshot
        read = (each for each in table.inputs if known.tables[each].kind.is_job)
        return bool(table.plan) and any(each not in failures for each in read)

    def _continue_jobs(
        self, jobs: Sequence[TableCatalog], failures: dict[int, JobFailure], skipped: SkippedRows | None
    ) -> None:
        paused = self._streams.is_paused
        beginnings: list[Beginning] = []
        for table in jobs:
            job = self._planner.known_job(table, may_lack_connector=paused)
            needs_history = self._needs_history(table, failures)
            since = Epoch(failures[table.id].since) if needs_history else None
            is_first = not beginnings
            beginnings.append(Beginning(job, since, skip=skipped if is_first else None, is_resumed=True))
        self._ddl.begin(beginnings)


def _skipped(known: CatalogSnapshot, table: TableCatalog, failure: JobFailure, rows: int) -> SkippedRows | None:
    """The rows that the source skips. InvalidStatement if there is no source, or no split is known."""
    if not rows:
        return None
    if known.offset_table(table) is None:
        raise InvalidStatement(table.name, "SKIP is for jobs that a connector feeds: this one has none")
    if failure.split is None:
        raise InvalidStatement(table.name, "it did not fail at a row of its source: there is none to skip")
    return SkippedRows(failure.split, rows, failure.is_malformed)


def _with_followers(
    known: CatalogSnapshot, failures: dict[int, JobFailure], table: TableCatalog
) -> list[TableCatalog]:
    """The job and those that were set aside because they read it, each after the jobs that it reads."""
    followers = [known.tables[each.job_id] for each in failures.values() if each.follows == table.id]
    return sorted([table, *followers], key=lambda each: each.id)
