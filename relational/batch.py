"""A query at one epoch: a logical plan evaluated over committed rows, chunk by chunk, with the kernels of streams.

All tables of a query are read at the same epoch. Rows are ordered by memcomparable keys and grouped by encoded keys, so
a batch result and a view of the same query agree [R4, R15]. A row without a value is an EvaluationError. Sort and
aggregation hold their rows in memory. Any thread; a query has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.epoch import Epoch
from hummock.state_store import StateStore
from relational.agg import AggGroups, AggSpec
from relational.chunk import Column, DataChunk, mask_of
from relational.encoding import KeyEncoder
from relational.errors import CatalogError
from relational.expr.eval import evaluate, evaluate_constant
from relational.expr.expression import Expression, Literal
from relational.plan.logical import (
    Aggregate,
    ColumnValues,
    Filter,
    Limit,
    LogicalPlan,
    PointGet,
    Project,
    Scan,
    Sort,
    Values,
    table_schema,
)
from relational.plan.optimizer import optimize
from relational.table.column_cache import ColumnCache
from relational.table.storage_table import StorageTable
from relational.types.schema import Schema

Chunks = Iterator[DataChunk]


def run_query(plan: LogicalPlan, store: StateStore, epoch: Epoch, cache: ColumnCache | None = None) -> pa.Table:
    """The visible columns of the plan's rows at `epoch`, with the plan's types; two columns may share a name. `cache`:
    a cache of the store's columns.
    """
    shown = [position for position in range(len(plan.schema)) if position not in plan.hidden]
    schema = plan.schema.project(shown)
    chunks = _Query(store, epoch, cache).run(optimize(plan))
    batches = [chunk.project(shown).to_arrow(schema) for chunk in chunks if chunk.visible_rows]
    return pa.Table.from_batches(batches, schema=schema.arrow)


def query_chunks(plan: LogicalPlan, store: StateStore, epoch: Epoch) -> Chunks:
    """All columns of the plan's rows at `epoch`, hidden ones too, as chunks without hidden rows."""
    for chunk in _Query(store, epoch).run(optimize(plan)):
        if chunk.visible_rows:
            yield chunk.compact()


class _Query:
    """Evaluates the nodes of one plan; a node is a generator over its inputs' generators."""

    def __init__(self, store: StateStore, epoch: Epoch, cache: ColumnCache | None = None):
        self._store, self._epoch, self._cache = store, epoch, cache

    def run(self, plan: LogicalPlan) -> Chunks:
        """The node's rows."""
        return _RUNNERS[type(plan)](self, plan)

    def scan(self, plan: Scan, limit: int | None = None) -> Chunks:
        if not plan.table.kind.has_rows:
            name = plan.table.name
            reason = f"source {name!r} stores no rows: read it through a materialized view or a sink"
            raise CatalogError(reason, name=name)
        table = StorageTable(plan.table, self._store, plan.columns, cache=self._cache)
        return table.scan(self._epoch, limit=limit)

    def point_get(self, plan: PointGet) -> Chunks:
        table = StorageTable(plan.table, self._store, plan.columns)
        key = DataChunk.from_rows(table_schema(plan.table, plan.table.pk_indices), [tuple(_values(plan.key))])
        rows, found = table.get_rows(key, self._epoch)
        if found[0]:
            yield rows

    def values(self, plan: Values) -> Chunks:
        if not plan.rows:
            return
        columns = zip(plan.fields, zip(*plan.rows, strict=True), strict=True)
        values = [Column.from_pylist(_values(cells), field.data_type) for field, cells in columns]
        yield DataChunk(values, capacity=len(plan.rows))

    def column_values(self, plan: ColumnValues) -> Chunks:
        yield DataChunk([Column(array) for array in plan.columns], capacity=len(plan.columns[0]))

    def filter(self, plan: Filter) -> Chunks:
        for chunk in self.run(plan.input):
            kept = chunk.filter(evaluate(plan.predicate, chunk, strict=True))
            if kept.visible_rows:
                yield kept

    def project(self, plan: Project) -> Chunks:
        for chunk in self.run(plan.input):
            columns = [evaluate(each, chunk, strict=True) for each in plan.expressions]
            yield DataChunk(columns, chunk.visibility, capacity=chunk.capacity)

    def aggregate(self, plan: Aggregate) -> Chunks:
        types = plan.input.schema.types
        specs = [
            AggSpec(
                call.kind.value,
                call.argument,
                None if call.argument is None else types[call.argument],
                call.data_type,
                is_filtered=call.filter is not None,
            )
            for call in plan.calls
        ]
        groups = AggGroups(plan.group_by, [types[column] for column in plan.group_by], specs, strict=True)
        if not plan.group_by:
            groups.open_global()
        for chunk in self.run(plan.input):
            masks = [
                None if call.filter is None else mask_of(evaluate(call.filter, chunk, strict=True))
                for call in plan.calls
            ]
            groups.apply(chunk, groups.locate(chunk).ids, masks)
        yield groups.results()

    def sort(self, plan: Sort) -> Chunks:
        rows = _gathered(self.run(plan.input), plan.schema)
        keys = KeyEncoder(
            [plan.schema.types[key.column] for key in plan.keys], [key.order for key in plan.keys]
        )
        encoded = keys.encode([rows.columns[key.column] for key in plan.keys])
        yield rows.take(pc.array_sort_indices(encoded.to_arrow()).to_numpy().astype(np.int32))

    def limit(self, plan: Limit) -> Chunks:
        skip = plan.offset
        left = plan.count
        wanted = None if left is None else left + skip
        child = plan.input
        source = self.scan(child, wanted) if isinstance(child, Scan) else self.run(child)
        for chunk in source:
            if left == 0:
                return
            rows = chunk.compact()
            first = min(skip, rows.capacity)
            skip -= first
            last = rows.capacity if left is None else min(rows.capacity, first + left)
            left = None if left is None else left - (last - first)
            if last > first:
                yield rows.slice(first, last - first)


_RUNNERS: dict[type[LogicalPlan], Callable[[_Query, Any], Chunks]] = {
    Scan: _Query.scan,
    PointGet: _Query.point_get,
    Values: _Query.values,
    ColumnValues: _Query.column_values,
    Filter: _Query.filter,
    Project: _Query.project,
    Aggregate: _Query.aggregate,
    Sort: _Query.sort,
    Limit: _Query.limit,
}


def _values(cells: tuple[Expression, ...]) -> list[object]:
    """The Python values of expressions without inputs."""
    return [cell.value if isinstance(cell, Literal) else evaluate_constant(cell) for cell in cells]


def _gathered(chunks: Chunks, schema: Schema) -> DataChunk:
    """All visible rows as one chunk."""
    compacted = [chunk.compact() for chunk in chunks if chunk.visible_rows]
    return DataChunk.concat(compacted) if compacted else DataChunk.from_rows(schema, [])
