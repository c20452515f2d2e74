"""A query at one epoch: a batch plan evaluated over committed rows, chunk by chunk, with the kernels of streams.

All tables of a query are read at the same epoch. Rows are ordered by memcomparable keys and grouped by encoded keys, so
a batch result and a view of the same query agree [R4, R15]. A row without a value is an EvaluationError. Sorts, joins,
aggregations, window functions and kept shared inputs hold rows: in memory, or on disk where that is not enough. Any
thread; a query has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from hummock.epoch import Epoch, pure_epoch
from hummock.state_store import StateStore
from relational.batch.access_path import MANY_LOOKUPS
from relational.batch.hash_agg import aggregated
from relational.batch.hash_join import BATCH_ROWS, HashJoin
from relational.batch.parallel import Change, mapped, read_in_order
from relational.batch.plan import (
    BatchColumnValues,
    BatchExpand,
    BatchExternalScan,
    BatchFilter,
    BatchHashAgg,
    BatchHashJoin,
    BatchIndexLookup,
    BatchLimit,
    BatchNode,
    BatchOverWindow,
    BatchProject,
    BatchProjectSet,
    BatchRecursive,
    BatchScan,
    BatchShare,
    BatchSort,
    BatchTopN,
    BatchUnion,
    BatchValues,
    BatchWorkingTable,
    ScanOrder,
)
from relational.batch.query_memory import QueryMemory
from relational.batch.recursion import RecursionLimits, dependent_shares, recursive_rows
from relational.batch.shared_rows import SharedRows
from relational.batch.sorted_runs import SortedRuns
from relational.batch.top_rows import TopRows
from relational.batch.windows import windows_of
from relational.chunk import Column, DataChunk
from relational.chunk.expanded import expanded
from relational.encoding import KeyEncoder
from relational.errors import CatalogError
from relational.expr.eval import Evaluator, constant_value, context_of
from relational.expr.expression import Expression
from relational.expr.set_rows import SetRows
from relational.table.column_cache import ColumnCache
from relational.table.storage_table import StorageTable
from relational.types.ordering import SortKey

Chunks = Iterator[DataChunk]
DEFAULT_LIMITS = RecursionLimits()
MOST_TOP_ROWS = 1 << 20
"""First rows in an order up to which only these are held; more are sorted with all others."""
DENSE_SHARE = 0.7
"""Of visible rows below which a chunk is compacted before expressions are evaluated over it."""


def table_of(
    plan: BatchNode,
    shown: Sequence[int],
    store: StateStore,
    epoch: Epoch,
    cache: ColumnCache | None = None,
    limits: RecursionLimits = DEFAULT_LIMITS,
    memory: QueryMemory | None = None,
) -> pa.Table:
    """The columns `shown` of the plan's rows at `epoch`, with the plan's types; two columns may share a name. `cache`:
    of the store's columns. `memory`: for the rows that are held, and those of the result; None: as its default is.
    QueryTooLarge beyond `limits` or what the memory allows, SpillFailed."""
    schema, memory = plan.schema.project(shown), memory or QueryMemory()
    user, size = memory.use(), 0
    batches = []
    for chunk in _Query(store, epoch, cache, limits, memory).run(plan):
        if chunk.visible_rows:
            batches.append(chunk.project(shown).to_arrow(schema))
            size += batches[-1].nbytes
            user.require(size, "the result of a query")
    return pa.Table.from_batches(batches, schema=schema.arrow)


def chunks_of(
    plan: BatchNode,
    store: StateStore,
    epoch: Epoch,
    limits: RecursionLimits = DEFAULT_LIMITS,
    memory: QueryMemory | None = None,
) -> Chunks:
    """All columns of the rows of a batch plan at `epoch`, hidden ones too, as chunks without hidden rows. `memory` and
    errors as `table_of`."""
    query = _Query(store, epoch, None, limits, memory or QueryMemory())
    return (chunk.compact() for chunk in query.run(plan) if chunk.visible_rows)


class _Query:
    """Evaluates the nodes of one plan; a node is a generator over its inputs' generators."""

    def __init__(
        self,
        store: StateStore,
        epoch: Epoch,
        cache: ColumnCache | None,
        limits: RecursionLimits,
        memory: QueryMemory,
    ) -> None:
        self._store, self._epoch, self._cache, self._limits, self._memory = store, epoch, cache, limits, memory
        self._working: dict[int, list[DataChunk]] = {}  # by number of a recursion
        self._shared: dict[int, SharedRows] = {}  # by number of a shared input

    def run(self, plan: BatchNode) -> Chunks:
        """The node's rows."""
        return _RUNNERS[type(plan)](self, plan)

    def scan(self, plan: BatchScan) -> Chunks:
        if not plan.table.kind.has_rows:
            name = plan.table.name
            reason = f"source {name!r} stores no rows: read it through a materialized view or a sink"
            raise CatalogError(reason, name=name)
        cache, epoch = (self._cache, self._epoch) if plan.epoch is None else (None, pure_epoch(plan.epoch))
        table = StorageTable(plan.table, self._store, plan.columns, cache=cache)
        is_ordered, is_reverse = plan.order is not None, plan.order is ScanOrder.REVERSE
        if plan.keys is None and plan.order is None and plan.limit is None:
            return table.scan_parts(epoch, read_in_order)
        if plan.keys is None:
            return table.scan(epoch, ordered=is_ordered, reverse=is_reverse, limit=plan.limit)
        keys = plan.keys.resolve()
        return table.rows_of(keys, epoch, ordered=is_ordered, reverse=is_reverse, limit=plan.limit)

    def external_scan(self, plan: BatchExternalScan) -> Chunks:
        for batch in plan.source.read(plan.columns, plan.filters):
            yield DataChunk([Column(array) for array in batch.columns], capacity=batch.num_rows)

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

    def project_set(self, plan: BatchProjectSet) -> Chunks:
        rows = SetRows(plan.passed, plan.functions, is_outer=plan.is_outer)
        for chunk in self.run(plan.input):
            yield from rows(chunk, BATCH_ROWS, strict=True)

    def expand(self, plan: BatchExpand) -> Chunks:
        for chunk in self.run(plan.input):
            yield from expanded(chunk, plan.columns, plan.sets)

    def aggregate(self, plan: BatchHashAgg) -> Chunks:
        return aggregated(plan, lambda: self.run(plan.input), self._memory)

    def sort(self, plan: BatchSort) -> Chunks:
        return self._sorted(plan.input, plan.keys)

    def _sorted(self, plan: BatchNode, keys: Sequence[SortKey]) -> Chunks:
        runs = SortedRuns(plan.schema.types, keys, self._memory)
        for chunk in self.run(plan):
            runs.add(chunk)
        yield from runs.chunks()

    def top_n(self, plan: BatchTopN) -> Chunks:
        """Of each chunk only the rows before the last one that is kept are added to those."""
        most = plan.offset + plan.count
        if most > MOST_TOP_ROWS:
            yield from _limited(self._sorted(plan.input, plan.keys), plan.offset, plan.count)
            return
        encoder = KeyEncoder([plan.schema.types[key.column] for key in plan.keys], [key.order for key in plan.keys])
        kept = TopRows(encoder, [key.column for key in plan.keys], most)
        for chunk in self.run(plan.input) if plan.count else ():
            kept.add(chunk)
        rows = kept.rows()
        if rows is not None and rows.capacity > plan.offset:
            yield rows.slice(plan.offset, rows.capacity - plan.offset)

    def over_window(self, plan: BatchOverWindow) -> Chunks:
        return windows_of(plan, self.run(plan.input), self._memory)

    def limit(self, plan: BatchLimit) -> Chunks:
        if plan.count != 0:
            yield from _limited(self.run(plan.input), plan.offset, plan.count)

    def union(self, plan: BatchUnion) -> Chunks:
        for branch in plan.branches:
            yield from self.run(branch)

    def join(self, plan: BatchHashJoin) -> Chunks:
        lookup = None if plan.lookup is None else lambda rows: self._looked_up(plan, rows)
        return HashJoin(plan, self._memory).rows(self.run(plan.left), self.run(plan.right), lookup)

    def _looked_up(self, plan: BatchHashJoin, left: DataChunk) -> Chunks:
        """The right rows of a join whose key is that of one of the left rows."""
        assert plan.lookup is not None
        prefixes = left.project(plan.lookup)
        scan, change = _stages(plan.right)
        assert isinstance(scan, BatchScan), scan
        table = StorageTable(scan.table, self._store, scan.columns)
        epoch = self._epoch if scan.epoch is None else pure_epoch(scan.epoch)
        return _shown(map(change, table.rows_under(prefixes, epoch)))

    def recursive(self, plan: BatchRecursive) -> Chunks:
        """All rows before the first one is passed on: no other reader of the working table runs meanwhile."""
        changing, around = dependent_shares(plan.step, plan.number), self._working.get(plan.number)

        def step(rows: list[DataChunk]) -> list[DataChunk]:
            for number in changing:
                self._shared.pop(number, None)
            self._working[plan.number] = rows
            return list(self.run(plan.step))

        found = list(recursive_rows(plan, list(self.run(plan.base)), step, self._limits))
        if around is not None:
            self._working[plan.number] = around
        yield from found

    def working_table(self, plan: BatchWorkingTable) -> Chunks:
        yield from self._working[plan.number]

    def share(self, plan: BatchShare) -> Chunks:
        if not plan.is_kept:
            yield from self.run(plan.input)
            return
        if plan.number not in self._shared:
            self._shared[plan.number] = SharedRows(self.run(plan.input), self._memory)
        yield from self._shared[plan.number]


_RUNNERS: dict[type[BatchNode], Callable[[_Query, Any], Chunks]] = {
    BatchScan: _Query.scan,
    BatchExternalScan: _Query.external_scan,
    BatchIndexLookup: _Query.index_lookup,
    BatchValues: _Query.values,
    BatchColumnValues: _Query.column_values,
    BatchFilter: _Query.staged,
    BatchProject: _Query.staged,
    BatchExpand: _Query.expand,
    BatchProjectSet: _Query.project_set,
    BatchHashAgg: _Query.aggregate,
    BatchSort: _Query.sort,
    BatchTopN: _Query.top_n,
    BatchOverWindow: _Query.over_window,
    BatchLimit: _Query.limit,
    BatchUnion: _Query.union,
    BatchHashJoin: _Query.join,
    BatchShare: _Query.share,
    BatchRecursive: _Query.recursive,
    BatchWorkingTable: _Query.working_table,
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


def _limited(chunks: Chunks, offset: int, count: int | None) -> Chunks:
    """Of the rows after the first `offset` ones the first `count`, None: all. REQUIRES that it is not 0."""
    skip, left = offset, count
    for chunk in chunks:
        rows = chunk.compact()
        first = min(skip, rows.capacity)
        skip -= first
        last = rows.capacity if left is None else min(rows.capacity, first + left)
        left = None if left is None else left - (last - first)
        if last > first:
            yield rows.slice(first, last - first)
        if left == 0:
            return
