"""The smallest session: statements run one by one against a store in memory, each change in its own committed epoch.

It has no streams: views are not maintained, changes read the table and write it again. For tests of the SQL front end,
the fluent API and batch queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from hummock.epoch import EpochPair
from hummock.meta.store.memory import MemoryMetaStore
from hummock.store.memory_store import MemoryStateStore
from relational.batch import run_query
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.chunk import Op, StreamChunk
from relational.expr.expression import Expression, InputRef, Literal, conjunction, equality
from relational.plan.logical import Filter, Join, JoinKind, LogicalPlan, Project, Scan
from relational.relation import TableRelation
from relational.sql import bind_sql, describe, show
from relational.sql.statement import CreateTable, Delete, Describe, Drop, Insert, Select, Show, Update
from relational.table.state_table import StateTable
from tests.support.drivers.query_chunks import query_chunks

NOW = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


class BatchSession:
    """A `Runner` with a method `sql`."""

    def __init__(self) -> None:
        self.catalog = CatalogManager(MemoryMetaStore())
        self.store = MemoryStateStore()
        self._epoch = 1
        self._row_id = 0
        self._keys: LogicalPlan | None = None

    @property
    def epoch(self) -> int:
        """The last committed epoch."""
        return self._epoch << 16

    def sql(self, text: str) -> pa.Table | int | None:
        """Runs all statements; the result of the last: rows of a query, number of changed rows, or None."""
        answer = None
        for statement in bind_sql(text, self.catalog, now=NOW):
            answer = self._run(statement)
        return answer

    def table(self, name: str) -> TableRelation:
        return TableRelation.of(self.catalog.resolve(name), self)

    def query(self, plan: LogicalPlan, values: Sequence[Literal] = ()) -> pa.Table:
        return run_query(plan, self.store, self.epoch, values=values)

    def preview(self, plan: LogicalPlan) -> pa.Table:
        return self.query(plan)

    def insert(self, table: TableCatalog, query: LogicalPlan) -> int:
        rows = [row for chunk in query_chunks(query, self.store, self.epoch) for row in chunk.rows()]
        if table.row_id_index is not None:
            rows = [self._with_row_id(row, table.row_id_index) for row in rows]
        return self.write(table, [(Op.INSERT, row) for row in rows])

    def update(
        self,
        table: TableCatalog,
        assignments: Sequence[tuple[int, Expression]],
        predicate: Expression | None,
    ) -> int:
        columns: list[Expression] = [
            InputRef(index, data_type) for index, data_type in enumerate(table.schema.types)
        ]
        for column, value in assignments:
            columns[column] = value
        old = self._rows(self._chosen(table, predicate))
        new = self._rows(Project(self._chosen(table, predicate), tuple(columns), table.schema.names))
        pairs = zip(old, new, strict=True)
        self.write(
            table, [op for before, after in pairs for op in ((Op.DELETE, before), (Op.INSERT, after))]
        )
        return len(old)

    def delete(self, table: TableCatalog, predicate: Expression | None) -> int:
        return self.write(table, [(Op.DELETE, row) for row in self._rows(self._chosen(table, predicate))])

    def _run(self, statement: object) -> pa.Table | int | None:
        if isinstance(statement, CreateTable):
            self.catalog.create(statement.table)
            return None
        if isinstance(statement, Insert):
            return self.insert(statement.table, statement.query)
        if isinstance(statement, Update):
            self._keys = statement.keys
            return self.update(statement.table, statement.assignments, statement.predicate)
        if isinstance(statement, Delete):
            self._keys = statement.keys
            return self.delete(statement.table, statement.predicate)
        if isinstance(statement, Select):
            return self.query(statement.plan)
        if isinstance(statement, Show):
            return show(statement, self.catalog)
        if isinstance(statement, Describe):
            return describe(statement.table)
        assert isinstance(statement, Drop), statement
        if statement.table is not None:
            self.catalog.drop(statement.name, cascade=statement.cascade)
        return None

    def _chosen(self, table: TableCatalog, predicate: Expression | None) -> LogicalPlan:
        rows = Scan(table) if predicate is None else Filter(Scan(table), predicate)
        if self._keys is None:
            return rows
        pairs = [equality(InputRef(one, kind), InputRef(len(table.columns) + at, kind), is_null_safe=True)
                 for at, (one, kind) in enumerate(zip(table.pk_indices, self._keys.schema.types, strict=True))]
        return Join(rows, self._keys, JoinKind.SEMI, conjunction(pairs))

    def _rows(self, plan: LogicalPlan) -> list[tuple]:
        return [row for chunk in query_chunks(plan, self.store, self.epoch) for row in chunk.rows()]

    def _with_row_id(self, row: tuple, index: int) -> tuple:
        self._row_id += 1
        return (*row[:index], self._row_id, *row[index + 1 :])

    def write(self, table: TableCatalog, changes: list[tuple[Op, tuple]]) -> int:
        """Commits changes; how many they are."""
        state = StateTable(table, self.store)
        now, last = self._epoch + 1, self._epoch
        state.init_epoch(EpochPair(now << 16, last << 16))
        if changes:
            state.write_chunk(StreamChunk.from_rows(table.schema, changes))
        state.commit(EpochPair((now + 1) << 16, now << 16))
        self.store.commit(now << 16)
        self._epoch = now
        return len(changes)
