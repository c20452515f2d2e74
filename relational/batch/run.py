"""A query at one epoch: a batch plan evaluated over committed rows, chunk by chunk, with the kernels of streams.

All tables of a query are read at the same epoch. Rows are ordered by memcomparable keys and grouped by encoded keys, so
a batch result and a view of the same query agree [R4, R15]. A row without a value is an EvaluationError. Sort,
aggregation and kept shared inputs hold their rows in memory. Any thread; a query has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.epoch import Epoch
from hummock.state_store import StateStore
from relational.agg import AggGroups, AggSpec
from relational.batch.access_path import MANY_LOOKUPS
from relational.batch.hash_join import HashJoin
from relational.batch.parallel import Change, mapped, read_in_order
from relational.batch.plan import (
    BatchColumnValues,
    BatchFilter,
    BatchHashAgg,
    BatchHashJoin,
    BatchIndexLookup,
    BatchLimit,
    BatchNode,
    BatchProject,
    BatchRank,
    BatchScan,
    BatchShare,
    BatchSort,
    BatchTopN,
    BatchUnion,
    BatchValues,
    ScanOrder,
)
from relational.batch.planner import plan_query
from relational.batch.top_rows import TopRows
from relational.chunk import Column, DataChunk
from relational.encoding import KeyEncoder
from relational.errors import CatalogError
from relational.expr.eval import Evaluator, constant_value, context_of, masks_of
from relational.expr.expression import Expression
from relational.order.ranking import group_numbers, ranking
from relational.plan.cardinality import TableRows
from relational.plan.logical import LogicalPlan
from relational.table.column_cache import ColumnCache
from relational.table.storage_table import StorageTable
from relational.types.schema import Schema

Chunks = Iterator[DataChunk]
DENSE_SHARE = 0.7
"""Of visible rows below which a chunk is compacted before expressions are evaluated over it."""


def run_query(plan: LogicalPlan, store: StateStore, epoch: Epoch, rows: TableRows | None = None) -> pa.Table:
    """The visible columns of the plan's rows at `epoch`, with the plan's types; two columns may share a name. `rows`:
    estimates of the rows of the tables."""
    return table_of(plan_query(plan, rows=rows), plan.visible, store, epoch)


def table_of(
    plan: BatchNode, shown: Sequence[int], store: StateStore, epoch: Epoch, cache: ColumnCache | None = None
) -> pa.Table:
    """As `run_query`, of the columns `shown` of a batch plan. `cache`: a cache of the store's columns."""
    schema = plan.schema.project(shown)
    chunks = _Query(store, epoch, cache).run(plan)
    batches = [chunk.project(shown).to_arrow(schema) for chunk in chunks if chunk.visible_rows]
    return pa.Table.from_batches(batches, schema=schema.arrow)


def chunks_of(plan: BatchNode, store: StateStore, epoch: Epoch) -> Chunks:
    """All columns of the rows of a batch plan at `epoch`, hidden ones too, as chunks without hidden rows."""
    return (chunk.compact() for chunk in _Query(store, epoch).run(plan) if chunk.visible_rows)


class _Query:
    """Evaluates the nodes of one plan; a node is a generator over its inputs' generators."""

    def __init__(self, store: StateStore, epoch: Epoch, cache: ColumnCache | None = None):
        self._store, self._epoch, self._cache = store, epoch, cache
        self._kept: dict[int, tuple[list[DataChunk], Chunks]] = {}
        """By number of a shared input the chunks computed so far, and those to come."""

    def run(self, plan: BatchNode) -> Chunks:
        """The node's rows."""
        return _RUNNERS[type(plan)](self, plan)

    def scan(self, plan: BatchScan) -> Chunks:
        if not plan.table.kind.has_rows:
            name = plan.table.name
            reason = f"source {name!r} stores no rows: read it through a materialized view or a sink"
            raise CatalogError(reason, name=name)
        table = StorageTable(plan.table, self._store, plan.columns, cache=self._cache)
        is_ordered, is_reverse = plan.order is not None, plan.order is ScanOrder.REVERSE
        if plan.keys is None and plan.order is None and plan.limit is None:
            return table.scan_parts(self._epoch, read_in_order)
        if plan.keys is None:
            return table.scan(self._epoch, ordered=is_ordered, reverse=is_reverse, limit=plan.limit)
        keys = plan.keys.resolve()
        return table.rows_of(keys, self._epoch, ordered=is_ordered, reverse=is_reverse, limit=plan.limit)

    def index_lookup(self, plan: BatchIndexLookup) -> Chunks:
        """Looks up the keys of some chunks; the keys of too many are forgotten, and the whole table is read."""
        table = StorageTable(plan.table, self._store, plan.columns)
        keys: list[DataChunk] = []
        rows = 0
        for chunk in self.run(plan.input):
            keys.append(chunk)
            rows += chunk.visible_rows
            if rows > MANY_LOOKUPS and plan.otherwise is not None:
                yield from self.run(plan.otherwise)
                return
        for chunk in keys:
            found, is_present = table.get_rows(chunk, self._epoch)
            yield found.filter(is_present)

    def values(self, plan: BatchValues) -> Chunks:
        if not plan.rows:
            return
        columns = zip(plan.schema, zip(*plan.rows, strict=True), strict=True)
        values = [Column.from_pylist(_values(cells), field.data_type) for field, cells in columns]
        yield DataChunk(values, capacity=len(plan.rows))

    def column_values(self, plan: BatchColumnValues) -> Chunks:
        yield DataChunk([Column(array) for array in plan.columns], capacity=len(plan.columns[0]))

    def staged(self, plan: BatchFilter | BatchProject) -> Chunks:
        """A sequence of filters and projections, which are applied chunk by chunk."""
        source, change = _stages(plan)
        return _shown(mapped(self.run(source), change))

    def aggregate(self, plan: BatchHashAgg) -> Chunks:
        types = plan.input.schema.types
        specs = [
            AggSpec(
                call.kind.value,
                call.argument,
                None if call.argument is None else types[call.argument],
                call.data_type,
                is_filtered=call.filter is not None,
                is_distinct=call.needs_distinct_values,
            )
            for call in plan.calls
        ]
        groups = AggGroups(plan.group_by, [types[column] for column in plan.group_by], specs, strict=True)
        if not plan.group_by:
            groups.open_global()
        filters = [None if call.filter is None else Evaluator(call.filter) for call in plan.calls]
        for chunk in self.run(plan.input):
            masks = masks_of(filters, chunk, strict=True)
            groups.apply(chunk, groups.locate(chunk).ids, masks)
        yield groups.results()

    def sort(self, plan: BatchSort) -> Chunks:
        rows = _gathered(self.run(plan.input), plan.schema)
        keys = KeyEncoder(
            [plan.schema.types[key.column] for key in plan.keys], [key.order for key in plan.keys]
        )
        encoded = keys.encode([rows.columns[key.column] for key in plan.keys])
        yield rows.take(pc.array_sort_indices(encoded.to_arrow()).to_numpy().astype(np.int32))

    def top_n(self, plan: BatchTopN) -> Chunks:
        """Of each chunk only the rows before the last one that is kept are added to those."""
        most = plan.offset + plan.count
        encoder = KeyEncoder([plan.schema.types[key.column] for key in plan.keys], [key.order for key in plan.keys])
        kept = TopRows(encoder, [key.column for key in plan.keys], most)
        for chunk in self.run(plan.input) if plan.count else ():
            kept.add(chunk)
        rows = kept.rows()
        if rows is not None and rows.capacity > plan.offset:
            yield rows.slice(plan.offset, rows.capacity - plan.offset)

    def rank(self, plan: BatchRank) -> Chunks:
        rows = _gathered(self.run(plan.input), plan.input.schema)
        numbers = group_numbers([rows.columns[column] for column in plan.groups], rows.capacity)
        found = ranking(rows, numbers, plan.keys, plan.ties)
        columns = [Column(pa.array(getattr(found, kind))) for kind in plan.kinds]
        yield DataChunk([*rows.take(found.rows).columns, *columns], capacity=rows.capacity)

    def limit(self, plan: BatchLimit) -> Chunks:
        skip, left = plan.offset, plan.count
        if left == 0:
            return
        for chunk in self.run(plan.input):
            rows = chunk.compact()
            first = min(skip, rows.capacity)
            skip -= first
            last = rows.capacity if left is None else min(rows.capacity, first + left)
            left = None if left is None else left - (last - first)
            if last > first:
                yield rows.slice(first, last - first)
            if left == 0:
                return

    def union(self, plan: BatchUnion) -> Chunks:
        for branch in plan.branches:
            yield from self.run(branch)

    def join(self, plan: BatchHashJoin) -> Chunks:
        lookup = None if plan.lookup is None else lambda rows: self._looked_up(plan, rows)
        return HashJoin(plan).rows(self.run(plan.left), self.run(plan.right), lookup)

    def _looked_up(self, plan: BatchHashJoin, left: DataChunk) -> Chunks:
        """The right rows of a join whose key is that of one of the left rows."""
        assert plan.lookup is not None
        prefixes = left.project(plan.lookup)
        scan, change = _stages(plan.right)
        assert isinstance(scan, BatchScan), scan
        table = StorageTable(scan.table, self._store, scan.columns)
        return _shown(map(change, table.rows_under(prefixes, self._epoch)))

    def share(self, plan: BatchShare) -> Chunks:
        if not plan.is_kept:
            yield from self.run(plan.input)
            return
        if plan.number not in self._kept:
            self._kept[plan.number] = [], self.run(plan.input)
        chunks, coming = self._kept[plan.number]
        at = 0
        while True:
            if at == len(chunks):
                chunk = next(coming, None)
                if chunk is None:
                    return
                chunks.append(chunk)
            yield chunks[at]
            at += 1


_RUNNERS: dict[type[BatchNode], Callable[[_Query, Any], Chunks]] = {
    BatchScan: _Query.scan,
    BatchIndexLookup: _Query.index_lookup,
    BatchValues: _Query.values,
    BatchColumnValues: _Query.column_values,
    BatchFilter: _Query.staged,
    BatchProject: _Query.staged,
    BatchHashAgg: _Query.aggregate,
    BatchSort: _Query.sort,
    BatchTopN: _Query.top_n,
    BatchRank: _Query.rank,
    BatchLimit: _Query.limit,
    BatchUnion: _Query.union,
    BatchHashJoin: _Query.join,
    BatchShare: _Query.share,
}


def _stages(plan: BatchNode) -> tuple[BatchNode, Change]:
    """The input of the filters and projections that begin with `plan`, and what they make of a chunk of it."""
    stages: list[Change] = []
    while isinstance(plan, BatchFilter | BatchProject):
        stages.append(_filtering(plan) if isinstance(plan, BatchFilter) else _projecting(plan))
        plan = plan.input
    stages.reverse()

    def change(chunk: DataChunk) -> DataChunk:
        for stage in stages:
            chunk = stage(chunk)
        return chunk

    return plan, change


def _filtering(plan: BatchFilter) -> Change:
    predicate = Evaluator(plan.predicate)
    return lambda chunk: chunk.filter(predicate(chunk, strict=True))


def _projecting(plan: BatchProject) -> Change:
    evaluators = [Evaluator(each) for each in plan.expressions]

    def change(chunk: DataChunk) -> DataChunk:
        if chunk.visible_rows < chunk.capacity * DENSE_SHARE:
            chunk = chunk.compact()
        context = context_of(chunk, strict=True)
        columns = [evaluator.over(chunk, context) for evaluator in evaluators]
        return DataChunk(columns, chunk.visibility, capacity=chunk.capacity)

    return change


def _shown(chunks: Iterator[DataChunk]) -> Chunks:
    """Those with visible rows."""
    return (chunk for chunk in chunks if chunk.visible_rows)


def _values(cells: tuple[Expression, ...]) -> list[object]:
    """The Python values of expressions without inputs."""
    return list(map(constant_value, cells))


def _gathered(chunks: Chunks, schema: Schema) -> DataChunk:
    """All visible rows as one chunk."""
    compacted = [chunk.compact() for chunk in chunks if chunk.visible_rows]
    return DataChunk.concat(compacted) if compacted else DataChunk.from_rows(schema, [])
