"""MetaNode: the managers of one store, composed; the interface of the meta side for sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from hummock.epoch import Epoch, EpochGenerator
from hummock.errors import EpochTooOld
from hummock.meta.store.base import NONE, MetaOperations
from relational.catalog.changes import note_changes
from relational.catalog.manager import CatalogManager
from relational.table.store_rules import rule_changes
from stream.message import Add
from stream.meta.barrier_manager import BarrierManager, Committer
from stream.meta.barrier_schedule import Command, JobChange
from stream.meta.barrier_stats import BarrierFigures, BarrierStats
from stream.meta.creations import Creations
from stream.meta.ddl import Ddl
from stream.meta.detached_creations import DetachedCreations, is_detachable
from stream.meta.job_failures import JobFailures
from stream.meta.job_planner import JobPlanner
from stream.meta.job_revival import JobRevival
from stream.meta.kept_history import KeptHistory, Pins
from stream.meta.recovery import RecoveryPolicy
from stream.meta.schedule import Beginning, Job
from stream.meta.stream_manager import StreamManager
from stream.options import StreamOptions
from stream.protocol import CollectedEpoch, DetachedWorker, OpenDetached, Step, StepObserver, Worker, unobserved

if TYPE_CHECKING:
    from hummock.meta.hummock_manager import HummockManager
    from hummock.meta_client import WriterSession
    from relational.catalog.objects import TableCatalog
    from relational.catalog.snapshot import CatalogSnapshot
    from stream.plan.stream_plan import StreamPlan

MULTIPLIED_SHARE = 4_096
"""A view whose joins may give many rows for one takes as long as one over so many times the rows."""


class HummockCommitter:
    """Commits through the HummockManager, as the writer of `session`. `of_statements(epoch)`: the operations that the
    statements of the epoch bring, see `PendingStatements`."""

    def __init__(
        self,
        manager: HummockManager,
        session: WriterSession,
        of_statements: Callable[[int], MetaOperations] = lambda epoch: NONE,
    ) -> None:
        self._manager = manager
        self._session = session
        self._of_statements = of_statements

    @property
    def committed_epoch(self) -> Epoch:
        return self._manager.refresh().max_committed_epoch

    def commit(self, collected: CollectedEpoch, changes: Sequence[JobChange]) -> None:
        operations = sum((change.operations for change in changes), NONE)
        operations += note_changes(operations, collected.epoch)
        self._manager.commit_epoch(
            self._session,
            Epoch(collected.epoch),
            collected.sstables,
            operations=operations + self._of_statements(collected.epoch),
            tables=rule_changes(operations.put),
            watermarks=collected.watermarks,
            dropped_tables=[table for change in changes for table in change.dropped_tables],
            loads=[load for change in changes for load in change.loads],
        )


class NodePins:
    """Pins of a process, held under its lease."""

    def __init__(self, manager: HummockManager, node: str) -> None:
        self._manager = manager
        self._node = node

    def pin(self, epoch: Epoch) -> None:
        self._manager.pin_snapshot(self._node, epoch)

    def unpin(self, epoch: Epoch) -> None:
        self._manager.unpin_snapshot(self._node, epoch)


class MetaNode:
    """Thread safe. `committer` is used by one thread at a time. `stored_since(table)`: of the positions of a scan, see
    `relational.table.scan_positions`; `bytes_of(table_ids)`: the stored bytes of tables. `divides_actors`: the worker
    gets one actor for each fragment and divides it itself."""

    def __init__(
        self,
        catalog: CatalogManager,
        committer: Committer,
        worker: Worker,
        epochs: EpochGenerator,
        options: StreamOptions,
        pins: Pins,
        open_detached: OpenDetached,
        stored_since: Callable[[TableCatalog], Epoch | None],
        bytes_of: Callable[[Collection[int]], int],
        observer: StepObserver = unobserved,
        *,
        divides_actors: bool = False,
    ) -> None:
        self.catalog = catalog
        self.planner = JobPlanner(catalog, options.parallelism or os.cpu_count() or 1, is_divided=divides_actors)
        self._streams = StreamManager(worker, sources_paused=options.sources_paused)
        self._stats = BarrierStats()
        self._observer = observer
        self._committer = committer
        policy = RecoveryPolicy(options)
        self.failures = JobFailures(policy, catalog, self._streams.job_of)
        self._history = KeptHistory(pins, options.failed_job_history_ms)
        self.creations = Creations(catalog, self.failures, self.check_alive)
        self._stored_since = stored_since
        self._detached = DetachedCreations(
            self._streams, pins, open_detached, self._since_of_plan, self._job_of, lambda: catalog.snapshot.creating
        )
        self._was_started = False
        self._unreadable: set[int] = set()  # views whose creation cannot continue from where it was interrupted
        self._barriers = BarrierManager(
            worker,
            _CatalogCommitter(committer, catalog, self.failures, self._history, self._streams, self.creations),
            epochs,
            self._rebuild,
            options,
            self._stats,
            policy,
            self.observe,
        )
        self.ddl = Ddl(
            catalog,
            self.planner,
            self._streams,
            self._barriers,
            self.failures,
            self.creations,
            self._detached,
            lambda table_ids, multiplies: (
                bytes_of(table_ids) >= options.detached_creation_bytes // (MULTIPLIED_SHARE if multiplies else 1)
            ),
        )
        self.revival = JobRevival(self.ddl, catalog, self.planner, self._streams, self.failures, self._history,
                                  self.creations, self._is_behind)

    # -- lifecycle -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all committed jobs except those that are set aside. Raises what recovery raises."""
        self._barriers.start()
        self._was_started = True
        self._detached.start(self._barriers, self.ddl.one)
        self.ddl.forget_loaded()
        for job_id in sorted(self._unreadable):
            self.revival.rebuild_creation(self.catalog.get(job_id))
        self.revival.retry()

    def close(self, timeout: float) -> None:
        """End the barriers and all actors; what is not committed is dropped."""
        try:
            self._detached.close()
        finally:
            self._barriers.close(timeout)

    def fail(self, error: BaseException) -> None:
        """A part of the worker failed: recovery begins."""
        self._barriers.fail(error)

    def request_barrier(self) -> None:
        """Inject a barrier at once."""
        self._barriers.request()

    def announce_barrier(self) -> None:
        """Inject a barrier soon, and prepare for it."""
        self._barriers.announce()

    def observe(self, step: Step, epoch: int) -> None:
        """A step of the checkpoint of `epoch` begins, here or in the worker."""
        self._stats.observe(step, epoch)
        self._observer(step, epoch)
        if step is Step.NOTIFY:
            self._detached.wake()

    def flush(self) -> Future[int]:
        """Completes with a committed epoch that holds everything sent before this call."""
        return self._barriers.flush()

    def detached_workers(self) -> dict[int, DetachedWorker]:
        """The workers of jobs that are being created apart from the graph, by job id."""
        return self._detached.workers()

    def check_alive(self) -> None:
        """Raises what ended the session, if something did."""
        self._barriers.check_alive()

    @property
    def sources_paused(self) -> bool:
        """Whether sources are paused."""
        return self._streams.is_paused

    @property
    def figures(self) -> BarrierFigures:
        """Latencies and counts of barriers."""
        return self._stats.figures()

    def _rebuild(self, cause: BaseException | None) -> Add:
        """Build all committed jobs again [C10], except those that are set aside."""
        known = self.catalog.refresh()
        committed = self._committer.committed_epoch
        self.failures.blame(cause, known, committed)
        paused = self._streams.is_paused
        jobs, refused = self.planner.known_jobs(self.failures.failed(), may_lack_connectors=paused)
        self.failures.refuse(refused, known, committed)
        failed = self.failures.errors()
        for failure in self.failures.failed().values():
            self._history.keep(failure.job_id, self._since_of(failure.job_id, known) or failure.since)
        self._detached.set_aside(failed)
        if not self._was_started:
            self._continue_detached([job for job in jobs if job.job_id not in failed], known)
        records = self.catalog.plan_job_records(*self.planner.unrecorded(jobs))
        if self.failures.unrecorded() or records.put:  # an immediate commit, which records them
            self._barriers.schedule(Command(lambda: None, JobChange(records), False, lambda: True))
        self.creations.notify()
        idle = {job.job_id for job in jobs if self._detached.is_detached(job.job_id)} | self._unreadable | failed.keys()
        return self._streams.rebuild([Beginning(job) for job in jobs if job.job_id not in idle], failed)

    def _job_of(self, job_id: int) -> Job:
        """The job as the catalog knows it now."""
        return self.planner.known_job(self.catalog.get(job_id), may_lack_connector=True)

    def _is_behind(self, job_id: int) -> bool:
        return self._since_of(job_id, self.catalog.snapshot) is not None

    def _since_of(self, job_id: int, known: CatalogSnapshot) -> Epoch | None:
        """The epoch of the committed rows of a job, if that is not the epoch at which it was set aside: it was created
        apart from the graph."""
        if job_id not in known.creating:
            return None
        _, plan = self.planner.stored_plan(known.tables[job_id])
        return (self._since_of_plan(plan) or None) if is_detachable(plan) else None

    def _since_of_plan(self, plan: StreamPlan) -> Epoch | None:
        """As of the first scan: all scans of a job are at one epoch."""
        table = plan.scans[0].progress
        assert table is not None
        return self._stored_since(table)

    def _continue_detached(self, jobs: Sequence[Job], known: CatalogSnapshot) -> None:
        """Creations that an earlier process did apart from the graph continue there. REQUIRES the first start."""
        creating = [job for job in jobs if job.job_id in known.creating]
        read = {table_id for job in creating for table_id in known.tables[job.job_id].inputs}
        for job in creating:
            is_alone = job.job_id not in read and known.creating.isdisjoint(known.tables[job.job_id].inputs)
            if is_alone and is_detachable(job.plan):
                try:
                    if not self._detached.is_detached(job.job_id) and self._detached.register(job):
                        self._detached.begin([job.job_id])
                except EpochTooOld:
                    self._unreadable.add(job.job_id)


class _CatalogCommitter:
    """A committer that also records which jobs were set aside and which are created, and refreshes the catalog in
    memory after the commit of any change [C8]."""

    def __init__(
        self,
        committer: Committer,
        catalog: CatalogManager,
        failures: JobFailures,
        history: KeptHistory,
        streams: StreamManager,
        creations: Creations,
    ) -> None:
        self._committer = committer
        self._catalog = catalog
        self._failures = failures
        self._history = history
        self._streams = streams
        self._creations = creations

    @property
    def committed_epoch(self) -> Epoch:
        return self._committer.committed_epoch

    def commit(self, collected: CollectedEpoch, changes: Sequence[JobChange]) -> None:
        known = self._catalog.snapshot
        unrecorded = self._failures.unrecorded()
        if unrecorded:
            beside = [change.operations for change in changes]
            changes = [*changes, JobChange(self._catalog.plan_failures(unrecorded, beside))]
        created = self._streams.backfilled(collected.backfilled) & known.creating
        if created:
            changes = [*changes, JobChange(self._catalog.plan_created(created))]
        self._committer.commit(collected, changes)
        if changes:
            has_rows = any(change.operations.put for change in changes)
            self._catalog.refresh(is_forced=has_rows)
            self._history.keep_only(self._failures.failed())
            self._creations.notify()
        self._history.expire()
