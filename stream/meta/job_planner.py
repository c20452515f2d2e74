"""JobPlanner: the jobs of the catalog: plans new ones, and restores the stored plans of existing ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from relational.catalog.job_record import JobRecord
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.errors import RelationalError
from relational.plan.kernels import view_kernels_changed
from relational.plan.view import renewed_view
from stream.connector.base import CONNECTOR_OPTION
from stream.connector.sink import SinkIdentity, check_target
from stream.errors import ConnectorError, KernelsChanged, StreamError
from stream.meta.schedule import Job
from stream.meta.source_manager import SourceManager
from stream.plan.planner import plan_known, plan_of_one_actor, plan_query, plan_table
from stream.plan.serialize import stream_plan_from_text, stream_plan_to_text
from stream.plan.stream_plan import SinkNode

if TYPE_CHECKING:
    from relational.plan.logical import LogicalPlan
    from stream.plan.stream_plan import StreamPlan


NO_SOURCE_TO_WAIT = "when_full = 'wait' needs a query that reads a source itself: a table does not wait for its readers"


class JobPlanner:
    """One thread plans at a time: a DDL or a recovery."""

    def __init__(self, catalog: CatalogManager, parallelism: int, *, is_divided: bool = False) -> None:
        """`parallelism`: of jobs that have no setting of their own. `is_divided`: all jobs have one actor for each
        fragment, which the worker divides."""
        self._catalog = catalog
        self._is_divided = is_divided
        self._parallelism = parallelism
        self._sources = SourceManager()
        self._unreadable: dict[str, ConnectorError] = {}  # tables whose connector is missing

    def new_table(self, table: TableCatalog) -> Job:
        """The job of a new table. UnknownConnector, ConnectorError."""
        return self._table_job(table, self._new_id)

    def check_source(self, source: TableCatalog) -> None:
        """UnknownConnector; ConnectorError if its connector cannot be opened, or sends more than inserts."""
        described = self._sources.describe(source)
        if described is None or not described.is_append_only:
            name = (source.connector or {}).get(CONNECTOR_OPTION, "")
            raise ConnectorError(name, "it sends updates and deletes, which need stored rows: CREATE TABLE … WITH (…)")

    def new_view(self, view: TableCatalog, parallelism: int | None = None) -> Job:
        """The job of a new materialized view, index or sink, over its inputs as they are now. PlanNotSupported,
        NotFound; CatalogError if a column that it reads was dropped after it was bound; UnknownConnector,
        ConnectorError."""
        job = self._query_job(view, plan_known(view, self._catalog.get, self._new_id))
        job = self.with_parallelism(job, parallelism)
        root = job.plan.root
        if isinstance(root, SinkNode) and root.log is not None:
            identity = SinkIdentity(view.name, view.id)
            limits = check_target(view.sink or {}, identity, root.input.schema)
            if limits.waits and not job.plan.sources:
                raise ConnectorError((view.sink or {}).get(CONNECTOR_OPTION, ""), NO_SOURCE_TO_WAIT)
        return job

    def loaded_view(self, view: TableCatalog, plan: StreamPlan) -> Job:
        """The job of a new view by its plan, over its tables as they are now. NotFound, CatalogError as `new_view`."""
        own = {table.id: table for table in (view, *plan.state_tables)}

        def table_of_id(table_id: int) -> TableCatalog:
            return own[table_id] if table_id in own else self._catalog.get(table_id)

        return self._query_job(view, stream_plan_from_text(stream_plan_to_text(plan), table_of_id))

    def record_of(self, job: Job, parallelism: int | None = None) -> JobRecord | None:
        """What the catalog stores of a job; None for that of a table."""
        if not job.plan.root.table.plan:
            return None
        return JobRecord(job.job_id, stream_plan_to_text(job.plan), parallelism, job.skippable)

    def with_parallelism(self, job: Job, parallelism: int | None) -> Job:
        """The job with another parallelism; None: the session's."""
        return replace(job, parallelism=self._wanted(parallelism))

    def unrecorded(self, jobs: Iterable[Job]) -> tuple[list[JobRecord], list[TableCatalog]]:
        """The records of jobs that an older release created without, and their state tables as planned today."""
        known = self._catalog.snapshot
        found = [(self.record_of(job), job) for job in jobs if known.job_record(job.job_id) is None]
        records = [record for record, _ in found if record is not None]
        return records, [state for record, job in found if record is not None for state in job.plan.state_tables]

    def known_jobs(
        self, skipped: Collection[int] = (), *, may_lack_connectors: bool
    ) -> tuple[list[Job], dict[int, Exception]]:
        """The committed jobs except `skipped`, with the table ids stored in the catalog [C10]; and by id the errors of
        those that cannot be planned. `may_lack_connectors`: sources are paused, so a table whose connector is missing
        runs without it."""
        self._unreadable = {}
        jobs: list[Job] = []
        refused: dict[int, Exception] = {}
        for table in self._catalog.jobs():
            if table.id in skipped:
                continue
            try:
                jobs.append(self._known(table, may_lack_connectors))
            except (StreamError, RelationalError, ValueError, LookupError) as error:
                refused[table.id] = error
        return jobs, refused

    def known_job(self, table: TableCatalog, *, may_lack_connector: bool) -> Job:
        """The job of a committed table. ConnectorError as `known_jobs`; KernelsChanged."""
        return self._known(table, may_lack_connector)

    def renewed(self, closure: Sequence[TableCatalog]) -> tuple[list[TableCatalog], list[Job]]:
        """Views and indexes, each after what it reads, with new ids; and the jobs of those that have one. NotFound,
        CatalogError, PlanNotSupported."""
        ids = dict(zip((table.id for table in closure), self._catalog.allocate_ids(len(closure)), strict=True))
        renewed = {ids[table.id]: renewed_view(table, ids) for table in closure}

        def table_of_id(table_id: int) -> TableCatalog:
            return renewed[table_id] if table_id in renewed else self._catalog.get(table_id)

        views = list(renewed.values())
        old = {ids[table.id]: self._catalog.snapshot.job_record(table.id) for table in closure}
        jobs = []
        for view in views:
            if view.kind.is_job:
                record = old[view.id]
                jobs.append(self._query_job(view, plan_known(view, table_of_id, self._new_id), record))
        return views, jobs

    def check_readable(self) -> None:
        """The ConnectorError of a table that runs without its connector."""
        if self._unreadable:
            raise next(iter(self._unreadable.values()))

    def changed_kernels(self, table: TableCatalog) -> tuple[str, ...]:
        """The expressions of a view for which the current kernels may give other results than those in its rows."""
        return view_kernels_changed(table, self._catalog.get)

    def explained(self, draft: TableCatalog, query: LogicalPlan) -> StreamPlan:
        """The plan of a new view; its state tables have the ids 0, -1, ..., as none is allocated."""
        ids = iter(range(0, -1_000, -1))
        return plan_query(draft, query, lambda _: next(ids))

    def _known(self, table: TableCatalog, may_lack_connector: bool) -> Job:
        if table.plan:
            changed = self.changed_kernels(table)
            if changed:
                raise KernelsChanged(table.name, changed)
            record, plan = self.stored_plan(table)
        try:
            if not table.plan:
                return self._table_job(table, self._ids_of(table))
            return self._query_job(table, plan, record)
        except ConnectorError as error:
            if not may_lack_connector:
                raise
            self._unreadable[table.name] = error
            return Job(table.id, plan if table.plan else plan_table(table, self._ids_of(table)))

    def stored_plan(self, table: TableCatalog) -> tuple[JobRecord | None, StreamPlan]:
        """The record of a committed view, index or sink, None if none was stored when it was created, and its plan."""
        record = self._catalog.snapshot.job_record(table.id)
        if record is None:
            return None, plan_of_one_actor(table, self._catalog.get, self._ids_of(table))
        return record, stream_plan_from_text(record.plan, self._catalog.get)

    def _query_job(self, table: TableCatalog, plan: StreamPlan, record: JobRecord | None = None) -> Job:
        """The job of a view or sink, with the splits of the sources that it reads. UnknownConnector, ConnectorError."""
        record = JobRecord(table.id, "") if record is None else record
        described = {node.table.id: self._sources.describe(node.table) for node in plan.sources}
        splits = {table_id: source.splits for table_id, source in described.items() if source is not None}
        return Job(table.id, plan, splits, self._wanted(record.parallelism), record.skippable)

    def _wanted(self, parallelism: int | None) -> int:
        if self._is_divided:
            return 1
        return self._parallelism if parallelism is None else parallelism

    def _table_job(self, table: TableCatalog, table_ids: Callable[[str], int]) -> Job:
        source = self._sources.describe(table)
        if source is None:
            return Job(table.id, plan_table(table, table_ids))
        plan = plan_table(table, table_ids, is_consistent=source.is_consistent)
        return Job(table.id, plan, {table.id: source.splits})

    def _ids_of(self, table: TableCatalog) -> Callable[[str], int]:
        """The ids of the internal tables of a job by name; KeyError for an unknown name."""
        return {state.name: state.id for state in self._catalog.internal_tables(table.id)}.__getitem__

    def _new_id(self, name: str) -> int:
        return self._catalog.allocate_ids(1)[0]
