"""MetaNode: the managers of one store, composed. What a session asks of the meta side, it asks here.

One DDL at a time. A DDL is planned against the catalog, rides on a barrier, and is true with the commit
of its epoch [C7]; this call returns after that, or raises what undid it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hummock.epoch import Epoch, EpochGenerator
from hummock.meta.store import NONE
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.errors import NotFound
from stream.control import Step, StepObserver, Worker, unobserved
from stream.errors import ConnectorError
from stream.message import Add
from stream.meta.barrier_manager import BarrierManager, Committer
from stream.meta.barrier_schedule import Command, JobChange
from stream.meta.barrier_stats import BarrierFigures, BarrierStats
from stream.meta.source_manager import SourceManager
from stream.meta.stream_manager import Job, StreamManager
from stream.options import StreamOptions
from stream.plan.planner import plan_known_view, plan_table, plan_view

if TYPE_CHECKING:
    from hummock.meta.hummock_manager import HummockManager
    from hummock.meta_client import WriterSession
    from relational.plan.logical import LogicalPlan
    from stream.plan.stream_plan import StreamPlan


class HummockCommitter:
    """Commits through the HummockManager, as the writer that `session` says we are."""

    def __init__(self, manager: HummockManager, session: WriterSession) -> None:
        self._manager = manager
        self._session = session

    @property
    def committed_epoch(self) -> Epoch:
        return self._manager.refresh().max_committed_epoch

    def commit(self, epoch: int, sstables: Sequence[Any], changes: Sequence[JobChange]) -> None:
        self._manager.commit_epoch(
            self._session,
            Epoch(epoch),
            sstables,
            operations=sum((change.operations for change in changes), NONE),
            dropped_tables=[table for change in changes for table in change.dropped_tables],
        )


class MetaNode:
    """Thread safe. `committer` is asked by one thread at a time."""

    def __init__(
        self,
        catalog: CatalogManager,
        committer: Committer,
        worker: Worker,
        epochs: EpochGenerator,
        options: StreamOptions,
        observer: StepObserver = unobserved,
    ) -> None:
        self.catalog = catalog
        self._sources = SourceManager()
        self._streams = StreamManager(worker, sources_paused=options.sources_paused)
        self._unreadable: dict[str, ConnectorError] = {}  # tables whose connector is not there
        self._stats = BarrierStats()
        self._observer = observer
        self._ddl = threading.Lock()
        self._barriers = BarrierManager(
            worker,
            _Refreshing(committer, catalog),
            epochs,
            self._rebuild,
            options,
            self._stats,
            self.observe,
        )

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All committed jobs run when this returns. Raises what recovery raises."""
        self._barriers.start()

    def close(self, timeout: float) -> None:
        """End the barriers and all actors; what is not committed is dropped."""
        self._barriers.close(timeout)

    def fail(self, error: BaseException) -> None:
        """A part of the worker failed: recovery begins."""
        self._barriers.fail(error)

    def request_barrier(self) -> None:
        """A barrier soon."""
        self._barriers.request()

    def observe(self, step: Step, epoch: int) -> None:
        """A step of the checkpoint of `epoch` begins, here or in the worker."""
        self._stats.observe(step, epoch)
        self._observer(step, epoch)

    def flush(self) -> Future[int]:
        """Completes with a committed epoch that holds everything sent before this call."""
        return self._barriers.flush()

    def check_alive(self) -> None:
        """Raises what ended the session, if something did."""
        self._barriers.check_alive()

    @property
    def figures(self) -> BarrierFigures:
        """Latencies and counts of barriers."""
        return self._stats.figures()

    # -- DDL -------------------------------------------------------------------------------------------

    def create_table(self, draft: TableCatalog) -> TableCatalog:
        """The table, running and committed. Duplicate, UnknownConnector, ConnectorError."""
        with self._ddl:
            table = self._identified(draft)
            job = self._table_job(table, self._new_id)
            return self._create(table, job)

    def create_view(self, draft: TableCatalog, query: LogicalPlan) -> TableCatalog:
        """The view, holding the rows of `query` as of its first epoch. Duplicate, PlanNotSupported."""
        with self._ddl:
            view = self._identified(draft)
            return self._create(view, Job(view.id, plan_view(view, query, self._new_id)))

    def drop(self, name: str, *, cascade: bool = False) -> tuple[TableCatalog, ...]:
        """What was dropped, readers before what they read. NotFound, DependencyError."""
        with self._ddl:
            dropped, operations = self.catalog.plan_drop(name, cascade=cascade)
            jobs = tuple(table.id for table in dropped)
            states = tuple(state.id for job in jobs for state in self.catalog.internal_tables(job))
            self._carry_out(
                lambda: self._streams.prepare_drop(jobs),
                JobChange(operations, dropped_tables=(*jobs, *states)),
                in_new_epoch=False,
                is_applied=lambda: not self._exists(jobs[-1]),
            )
            return dropped

    def pause(self, is_paused: bool) -> None:
        """All sources stop reading at the next barrier, or read again from it on; barriers and statements
        go on. ConnectorError when a source that is to read again has no connector."""
        with self._ddl:
            if not is_paused and self._unreadable:
                raise next(iter(self._unreadable.values()))
            self._carry_out(
                lambda: self._streams.prepare_pause(is_paused),
                JobChange(NONE),
                in_new_epoch=False,
                is_applied=lambda: True,
            )

    def explain_view(self, draft: TableCatalog, query: LogicalPlan) -> StreamPlan:
        """What `create_view` would run; its state tables have the ids 0, -1, ..., as none is allocated."""
        ids = iter(range(0, -1_000, -1))
        return plan_view(draft, query, lambda _: next(ids))

    # -- inside ----------------------------------------------------------------------------------------

    def _create(self, table: TableCatalog, job: Job) -> TableCatalog:
        table, operations = self.catalog.plan_create(table, job.plan.state_tables)
        self._carry_out(
            lambda: self._streams.prepare_create(job),
            JobChange(operations),
            in_new_epoch=True,
            is_applied=lambda: self._exists(table.id),
        )
        return table

    def _carry_out(
        self, prepare: Callable, change: JobChange, *, in_new_epoch: bool, is_applied: Callable[[], bool]
    ) -> None:
        self._barriers.schedule(Command(prepare, change, in_new_epoch, is_applied)).result()

    def _identified(self, draft: TableCatalog) -> TableCatalog:
        """The draft under an id of its own, after the cheap checks that need none."""
        self._barriers.check_alive()
        self.catalog.plan_create(draft.with_id(draft.id or -1))
        return draft.with_id(self.catalog.allocate_ids(1)[0])

    def _new_id(self, name: str) -> int:
        return self.catalog.allocate_ids(1)[0]

    def _exists(self, table_id: int) -> bool:
        try:
            self.catalog.get(table_id)
        except NotFound:
            return False
        return True

    def _rebuild(self) -> Add:
        """All committed jobs anew, with the table ids that the catalog remembers [C10]."""
        self.catalog.refresh()
        self._unreadable = {}
        return self._streams.rebuild([self._remembered(table) for table in self.catalog.jobs()])

    def _remembered(self, table: TableCatalog) -> Job:
        ids = {state.name: state.id for state in self.catalog.internal_tables(table.id)}
        if table.plan:
            return Job(table.id, plan_known_view(table, self.catalog.get, ids.__getitem__))
        try:
            return self._table_job(table, ids.__getitem__)
        except ConnectorError as error:
            if not self._streams.is_paused:
                raise
            self._unreadable[table.name] = error
            return Job(table.id, plan_table(table, ids.__getitem__))

    def _table_job(self, table: TableCatalog, table_ids: Callable[[str], int]) -> Job:
        source = self._sources.describe(table)
        if source is None:
            return Job(table.id, plan_table(table, table_ids))
        plan = plan_table(table, table_ids, is_consistent=source.is_consistent)
        return Job(table.id, plan, source.splits)


class _Refreshing:
    """A committer after whose commit of a DDL the catalog in memory is the committed one [C8]."""

    def __init__(self, committer: Committer, catalog: CatalogManager) -> None:
        self._committer = committer
        self._catalog = catalog

    @property
    def committed_epoch(self) -> Epoch:
        return self._committer.committed_epoch

    def commit(self, epoch: int, sstables: Sequence[Any], changes: Sequence[JobChange]) -> None:
        self._committer.commit(epoch, sstables, changes)
        if changes:
            self._catalog.refresh()
