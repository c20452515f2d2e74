"""Snapshot: several reads of one committed epoch, at which tables, views and source offsets are consistent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from hummock.epoch import Epoch
from relational.batch import run_query
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import CatalogError
from relational.expr.expression import Expression, Literal
from relational.plan.logical import LogicalPlan, Scan, nodes
from relational.relation import Relation, TableRelation
from relational.table.storage_table import StorageTable
from stream.errors import InvalidStatement
from stream.message import SKIP_ROW
from stream.meta.creations import check_created
from stream.session.queries import check_not_dropped, estimated_rows_in, recursion_limits

if TYPE_CHECKING:
    from relational.sql.parameters import Given
    from stream.serving import Host


MOST_OFFSETS = 256
"""Jobs whose offsets are kept."""


class CommittedOffsets:
    """The source offsets of jobs, read once for each committed epoch, however often they are polled. Thread safe."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, tuple[Epoch, CatalogSnapshot, dict[str, str]]] = {}

    def of(self, name: str) -> dict[str, str]:
        """As `Snapshot.offsets`, at the newest committed epoch."""
        catalog, found = self._host.catalog.snapshot, self._known.get(name)
        if found is None or found[0] != self._host.storage.committed_epoch or found[1] is not catalog:
            with Snapshot(self._host) as snapshot:
                found = snapshot.epoch, catalog, snapshot.offsets(name)
            if len(self._known) >= MOST_OFFSETS:
                self._known = {}
            self._known[name] = found
        return dict(found[2])


class Snapshot(ClosedAtExit):
    """Pinned from construction until close(). Names are resolved in the current catalog."""

    def __init__(self, host: Host, epoch: int | None = None) -> None:
        self._catalog = host.catalog
        self._storage = host.storage
        self._limits, self._memory = recursion_limits(host), host.query_memory
        self._rows = estimated_rows_in(host)
        self._pin = ExitStack()
        self._is_closed = False
        self.epoch = self._pin.enter_context(self._storage.snapshot(None if epoch is None else Epoch(epoch)))

    def __repr__(self) -> str:
        return f"Snapshot(epoch {self.epoch}{', closed' if self._is_closed else ''})"

    def sql(self, query: str, params: Given = ()) -> Relation:
        """The rows of one SELECT, read at this epoch whenever they are asked for, until close(). `params`: as of
        `Session.sql`. InvalidStatement for any other statement."""
        from relational.sql.binder import bind_sql
        from relational.sql.parameters import Parameters, check_given
        from relational.sql.statement import Select

        check_given(params)
        parameters = Parameters(params, is_by_value=True)
        statements = list(bind_sql(query, self._catalog, parameters=parameters))
        if len(statements) != 1 or not isinstance(statements[0], Select):
            kind = type(statements[0]).__name__ if len(statements) == 1 else f"{len(statements)} statements"
            raise InvalidStatement(kind, "a snapshot answers one query")
        parameters.finish()
        return Relation(statements[0].plan, self, statements[0].views)

    def table(self, name: str) -> TableRelation:
        """The table or materialized view of that name, as of this epoch; it is read-only. NotFound; CatalogError for a
        view: `sql` reads it."""
        table = self._catalog.resolve(ObjectName.parse(name))
        if not table.kind.has_rows:
            hint = ": read it with sql()" if table.plan else ""
            raise CatalogError(f"{name!r} is {table.kind.one}, which has no rows of its own{hint}", name=name)
        return TableRelation.of(table, self)

    def offsets(self, name: str) -> dict[str, str]:
        """The offsets of the connector that a table, view or sink reads: split -> offset; {} without one."""
        return self.offsets_of(self._catalog.resolve(ObjectName.parse(name)))

    def offsets_of(self, table: TableCatalog) -> dict[str, str]:
        """As `offsets`, for a job given by its catalog."""
        stored = self._catalog.offset_table(table)
        if stored is None:
            return {}
        offsets = StorageTable(stored, self._storage).to_arrow(self.epoch)
        rows = zip(offsets["split"].to_pylist(), offsets["offset"].to_pylist(), strict=True)
        return {split: offset for split, offset in rows if split[:1] != SKIP_ROW[:1]}  # which no split begins with

    def progress_of(self, job: TableCatalog) -> float:
        """The share of the existing rows of its tables that a job has read, estimated by their vnodes."""
        stored = [state for state in self._catalog.internal_tables(job.id) if state.name.endswith(".progress")]
        shares = [StorageTable(state, self._storage, (2,)).to_arrow(self.epoch) for state in stored]
        done = sum(rows.column(0).to_pylist().count(True) for rows in shares)
        read = [self._catalog.get(each) for each in job.inputs]
        vnodes = max((table.vnode_count for table in read if table.kind is not TableKind.VIEW), default=1)
        return min(done / (vnodes * len(shares)), 1.0) if shares else 0.0

    # -- what relations ask of their runner ------------------------------------------------------------

    def query(self, plan: LogicalPlan, values: Sequence[Literal] = ()) -> pa.Table:
        check_not_dropped(plan, self._catalog.snapshot)
        check_created(self._catalog.snapshot, (node.table.id for node in nodes(plan) if isinstance(node, Scan)))
        return run_query(plan, self._storage, self.epoch, self._rows, self._limits, values, self._memory)

    def preview(self, plan: LogicalPlan) -> pa.Table:
        return self.query(plan)

    def insert(self, table: TableCatalog, query: LogicalPlan) -> NoReturn:
        raise InvalidStatement(table.name, "a snapshot takes no changes")

    def update(
        self, table: TableCatalog, assignments: Sequence[tuple[int, Expression]], predicate: Expression | None
    ) -> NoReturn:
        raise InvalidStatement(table.name, "a snapshot takes no changes")

    def delete(self, table: TableCatalog, predicate: Expression | None) -> NoReturn:
        raise InvalidStatement(table.name, "a snapshot takes no changes")

    # -- end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unpin the epoch. Idempotent."""
        self._is_closed = True
        self._pin.close()
