"""JobPlanner: plans jobs from the catalog, new ones or, after a recovery, existing ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import RelationalError
from relational.plan.kernels import view_kernels_changed
from relational.plan.view import renewed_view
from stream.connector.base import CONNECTOR_OPTION
from stream.errors import ConnectorError, KernelsChanged, StreamError
from stream.meta.source_manager import SourceManager
from stream.meta.stream_manager import Job
from stream.plan.planner import plan_known, plan_sink, plan_table, plan_view

if TYPE_CHECKING:
    from relational.plan.logical import LogicalPlan
    from stream.plan.stream_plan import StreamPlan


class JobPlanner:
    """One thread plans at a time: a DDL or a recovery."""

    def __init__(self, catalog: CatalogManager) -> None:
        self._catalog = catalog
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

    def new_view(self, view: TableCatalog) -> Job:
        """The job of a new materialized view, index or sink, over its inputs as they are now. PlanNotSupported,
        NotFound; CatalogError if a column that it reads was dropped after it was bound; UnknownConnector,
        ConnectorError."""
        return self._query_job(view, self._new_id)

    def loaded_view(self, view: TableCatalog, table_ids: Mapping[str, int]) -> Job:
        """The job of a new view whose internal tables have the ids `table_ids` by name, over its tables as they are
        now. NotFound, CatalogError as `new_view`."""
        return self._query_job(view, table_ids.__getitem__)

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
        jobs = [self._planned(each, plan_known(each, table_of_id, self._new_id)) for each in views if each.kind.is_job]
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
        return (plan_sink if draft.kind is TableKind.SINK else plan_view)(draft, query, lambda _: next(ids))

    def _known(self, table: TableCatalog, may_lack_connector: bool) -> Job:
        ids = {state.name: state.id for state in self._catalog.internal_tables(table.id)}
        if table.plan:
            changed = self.changed_kernels(table)
            if changed:
                raise KernelsChanged(table.name, changed)
        try:
            plan_job = self._query_job if table.plan else self._table_job
            return plan_job(table, ids.__getitem__)
        except ConnectorError as error:
            if not may_lack_connector:
                raise
            self._unreadable[table.name] = error
            plan = plan_known(table, self._catalog.get, ids.__getitem__) if table.plan else plan_table(
                table, ids.__getitem__)
            return Job(table.id, plan)

    def _query_job(self, table: TableCatalog, table_ids: Callable[[str], int]) -> Job:
        return self._planned(table, plan_known(table, self._catalog.get, table_ids))

    def _planned(self, table: TableCatalog, plan: StreamPlan) -> Job:
        """The job of a view or sink, with the splits of the source that it reads. UnknownConnector, ConnectorError."""
        source = None if plan.source is None else self._sources.describe(plan.source.table)
        return Job(table.id, plan, None if source is None else source.splits)

    def _table_job(self, table: TableCatalog, table_ids: Callable[[str], int]) -> Job:
        source = self._sources.describe(table)
        if source is None:
            return Job(table.id, plan_table(table, table_ids))
        plan = plan_table(table, table_ids, is_consistent=source.is_consistent)
        return Job(table.id, plan, source.splits)

    def _new_id(self, name: str) -> int:
        return self._catalog.allocate_ids(1)[0]
