"""JobPlanner: what is in the catalog becomes a job to run, new or anew after a recovery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from stream.errors import ConnectorError
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
        self._unreadable: dict[str, ConnectorError] = {}  # tables whose connector is not there

    def new_table(self, table: TableCatalog) -> Job:
        """The job of a new table. UnknownConnector, ConnectorError."""
        return self._table_job(table, self._new_id)

    def new_view(self, view: TableCatalog) -> Job:
        """The job of a new materialized view or index, over its tables as they are now. PlanNotSupported, NotFound;
        CatalogError if a column that it reads went after it was bound."""
        return Job(view.id, plan_known_view(view, self._catalog.get, self._new_id))

    def loaded_view(self, view: TableCatalog, table_ids: Mapping[str, int]) -> Job:
        """The job of a new view whose internal tables have the ids `table_ids` by name, over its tables as they are
        now. NotFound, CatalogError as `new_view`."""
        return Job(view.id, plan_known_view(view, self._catalog.get, table_ids.__getitem__))

    def known_jobs(self, *, may_lack_connectors: bool) -> list[Job]:
        """All committed jobs, with the table ids that the catalog remembers [C10]. ConnectorError, unless tables
        may lack their connectors: then they run without."""
        self._unreadable = {}
        return [self._known(table, may_lack_connectors) for table in self._catalog.jobs()]

    def check_readable(self) -> None:
        """The ConnectorError of a table that runs without its connector."""
        if self._unreadable:
            raise next(iter(self._unreadable.values()))

    def explained(self, draft: TableCatalog, query: LogicalPlan) -> StreamPlan:
        """What a new view would run; its state tables have the ids 0, -1, ..., as none is allocated."""
        ids = iter(range(0, -1_000, -1))
        return plan_view(draft, query, lambda _: next(ids))

    def _known(self, table: TableCatalog, may_lack_connector: bool) -> Job:
        ids = {state.name: state.id for state in self._catalog.internal_tables(table.id)}
        if table.plan:
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
