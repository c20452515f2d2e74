"""JobPlanner: plans jobs from the catalog, new ones or, after a recovery, existing ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.errors import RelationalError
from relational.plan.kernels import view_kernels_changed
from relational.plan.view import renewed_view
from stream.errors import ConnectorError, KernelsChanged, StreamError
from stream.meta.source_manager import SourceManager
from stream.meta.stream_manager import Job
from stream.plan.planner import plan_known_view, plan_table, plan_view

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

    def new_view(self, view: TableCatalog) -> Job:
        """The job of a new materialized view or index, over its tables as they are now. PlanNotSupported, NotFound;
        CatalogError if a column that it reads was dropped after it was bound."""
        return Job(view.id, plan_known_view(view, self._catalog.get, self._new_id))

    def loaded_view(self, view: TableCatalog, table_ids: Mapping[str, int]) -> Job:
        """The job of a new view whose internal tables have the ids `table_ids` by name, over its tables as they are
        now. NotFound, CatalogError as `new_view`."""
        return Job(view.id, plan_known_view(view, self._catalog.get, table_ids.__getitem__))

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
        jobs = [Job(each.id, plan_known_view(each, table_of_id, self._new_id)) for each in views if each.kind.is_job]
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
        return plan_view(draft, query, lambda _: next(ids))

    def _known(self, table: TableCatalog, may_lack_connector: bool) -> Job:
        ids = {state.name: state.id for state in self._catalog.internal_tables(table.id)}
        if table.plan:
            changed = self.changed_kernels(table)
            if changed:
                raise KernelsChanged(table.name, changed)
            return Job(table.id, plan_known_view(table, self._catalog.get, ids.__getitem__))
        try:
            return self._table_job(table, ids.__getitem__)
        except ConnectorError as error:
            if not may_lack_connector:
                raise
            self._unreadable[table.name] = error
            return Job(table.id, plan_table(table, ids.__getitem__))

    def _table_job(self, table: TableCatalog, table_ids: Callable[[str], int]) -> Job:
        source = self._sources.describe(table)
        if source is None:
            return Job(table.id, plan_table(table, table_ids))
        plan = plan_table(table, table_ids, is_consistent=source.is_consistent)
        return Job(table.id, plan, source.splits)

    def _new_id(self, name: str) -> int:
        return self._catalog.allocate_ids(1)[0]
