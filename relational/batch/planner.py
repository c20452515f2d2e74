"""From a logical plan to a batch plan: which operators evaluate a query.

Conditions on a key read its rows only (see `access_path`); a limit ends the scans below it, and with an order along a
key those in that order; the rows of a shared input are kept if they are fewer or cost more than those that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relational.batch.access_path import Indexes, access, no_indexes
from relational.batch.plan import (
    BatchColumnValues,
    BatchExpand,
    BatchExternalScan,
    BatchFilter,
    BatchHashAgg,
    BatchHashJoin,
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
)
from relational.batch.recursion import depends
from relational.expr.comparisons import comparisons_of
from relational.expr.expression import Call, Expression, InputRef, Literal, conjunction, input_refs
from relational.expr.window_functions import RANK_TYPE, WindowCall, WindowKind
from relational.plan.cardinality import TableRows
from relational.plan.logical import (
    Aggregate,
    ColumnValues,
    Expand,
    ExternalScan,
    Filter,
    Join,
    Limit,
    LogicalPlan,
    OverWindow,
    Project,
    ProjectSet,
    Recursive,
    Scan,
    Share,
    Sort,
    TopN,
    Union,
    Values,
    WorkingTable,
    nodes,
)
from relational.plan.logical.equalities import EVERY_PAIR, key_columns
from relational.plan.optimizer import optimize
from relational.plan.rules.order_joins import order_joins_by
from relational.types.data_type import DataType
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema

MOST_IN_ORDER = 65_536
"""Rows up to which a limit reads along a key that is spread over many vnodes: more are sorted in memory."""


def plan_query(query: LogicalPlan, indexes: Indexes = no_indexes, rows: TableRows | None = None) -> BatchNode:
    """The batch plan of a query, which is optimized first, unless it looks up rows. `indexes`: those that may be read.
    `rows`: estimates, by which joins are ordered; None: in the order of the query, as far as possible. BindError as
    `optimize`."""
    if isinstance(query, Filter) and isinstance(query.input, Scan):
        found, _ = access(query.input, query.predicate)
        if isinstance(found, BatchScan) and found.is_lookup:
            return found
    plan = optimize(query)
    if rows is not None and any(isinstance(node, Join) for node in nodes(plan)):
        plan = optimize(order_joins_by(rows)(plan))
    return _Planner(indexes).plan(plan)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is needed of a node: `limit` rows at most (None: all), and its rows in `order`, which it can have."""

    limit: int | None = None
    order: tuple[SortKey, ...] = ()


_ALL = _Wanted()


class _Planner:
    """Plans one query."""

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes
        self._shares: dict[int, BatchShare] = {}
        self._kept_inputs = 0

    def plan(self, query: LogicalPlan, wanted: _Wanted = _ALL) -> BatchNode:
        return _PLANNERS[type(query)](self, query, wanted)

    def scan(self, query: Scan, wanted: _Wanted) -> BatchNode:
        return access(query, None, self._indexes, order=wanted.order, limit=wanted.limit)[0]

    def external_scan(self, query: ExternalScan, wanted: _Wanted) -> BatchNode:
        return BatchExternalScan(query.schema, query.source, query.columns)

    def _is_along_key(self, query: LogicalPlan, wanted: _Wanted) -> bool:
        """Whether the rows of `query` can be read in the order that is wanted."""
        while isinstance(query, Project):
            order = _before(query, wanted.order)
            if order is None:
                return False
            query, wanted = query.input, _Wanted(wanted.limit, order)
        predicate = None
        if isinstance(query, Filter):
            predicate, query = query.predicate, query.input
        if not isinstance(query, Scan):
            return False
        return access(query, predicate, self._indexes, order=wanted.order, limit=wanted.limit)[1]

    def values(self, query: Values, wanted: _Wanted) -> BatchNode:
        return BatchValues(query.schema, query.rows)

    def column_values(self, query: ColumnValues, wanted: _Wanted) -> BatchNode:
        return BatchColumnValues(query.schema, query.columns)

    def filter(self, query: Filter, wanted: _Wanted) -> BatchNode:
        child = query.input
        if isinstance(child, Scan):
            return access(child, query.predicate, self._indexes, order=wanted.order, limit=wanted.limit)[0]
        if isinstance(child, ExternalScan):
            found = comparisons_of(query.predicate)
            filters = tuple(replace(each, column=child.columns[each.column]) for each in found)
            scan = BatchExternalScan(child.schema, child.source, child.columns, filters)
            return BatchFilter(query.schema, scan, query.predicate)
        return BatchFilter(query.schema, self.plan(child), query.predicate)

    def project(self, query: Project, wanted: _Wanted) -> BatchNode:
        order = _before(query, wanted.order)
        assert order is not None, query
        child = self.plan(query.input, _Wanted(wanted.limit, order))
        return BatchProject(query.schema, child, query.expressions)

    def expand(self, query: Expand, wanted: _Wanted) -> BatchNode:
        return BatchExpand(query.schema, self.plan(query.input), query.columns, query.sets)

    def project_set(self, query: ProjectSet, wanted: _Wanted) -> BatchNode:
        return BatchProjectSet(query.schema, self.plan(query.input), query.passed, query.functions, query.is_outer)

    def aggregate(self, query: Aggregate, wanted: _Wanted) -> BatchNode:
        ties = query.input.stream_key or ()
        calls = tuple(call.with_state(is_append_only=True) for call in query.calls)
        return BatchHashAgg(query.schema, self.plan(query.input), query.group_by, calls, ties)

    def sort(self, query: Sort, wanted: _Wanted) -> BatchNode:
        ordered = _Wanted(wanted.limit, query.keys)
        is_short = wanted.limit is not None and wanted.limit <= MOST_IN_ORDER
        if is_short and self._is_along_key(query.input, ordered):
            return self.plan(query.input, ordered)
        return BatchSort(query.schema, self.plan(query.input), query.keys)

    def limit(self, query: Limit, wanted: _Wanted) -> BatchNode:
        counts = [count for count in (query.count, wanted.limit) if count is not None]
        read = min(counts) + query.offset if counts else None
        child = self.plan(query.input, _Wanted(read))
        if isinstance(child, BatchSort) and query.count is not None:
            return BatchTopN(query.schema, child.input, child.keys, query.count, query.offset)
        return BatchLimit(query.schema, child, query.count, query.offset)

    def over_window(self, query: OverWindow, wanted: _Wanted) -> BatchNode:
        ties = query.input.stream_key or ()
        return BatchOverWindow(query.schema, self.plan(query.input), query.groups, query.keys, ties, query.calls)

    def top_n(self, query: TopN, wanted: _Wanted) -> BatchNode:
        source = query.input
        width, last = len(source.schema), query.offset + query.limit
        schema = Schema((*source.schema, Field(query.name or query.kind, RANK_TYPE)))
        calls = (WindowCall(WindowKind(query.kind), RANK_TYPE),)
        ties = source.stream_key or ()
        ranked = BatchOverWindow(schema, self.plan(source), query.groups, query.keys, ties, calls)
        number = InputRef(width, RANK_TYPE)
        terms = [Call("greater", (number, Literal(query.offset, RANK_TYPE)), DataType.BOOLEAN),
                 Call("less_equal", (number, Literal(last, RANK_TYPE)), DataType.BOOLEAN)]
        kept = BatchFilter(schema, ranked, conjunction(terms))
        if query.name is not None:
            return kept
        return BatchProject(query.schema, kept, input_refs(source.schema.types))

    def union(self, query: Union, wanted: _Wanted) -> BatchNode:
        return BatchUnion(query.schema, tuple(self.plan(branch, _Wanted(wanted.limit)) for branch in query.branches))

    def join(self, query: Join, wanted: _Wanted) -> BatchNode:
        """By the columns or expressions that must be equal; without any, by a constant that all rows have."""
        pairs, rest = query.equalities
        pairs = pairs or (EVERY_PAIR,)
        left, left_keys = _with_keys(self.plan(query.left), [each.left for each in pairs])
        right, right_keys = _with_keys(self.plan(query.right), [each.right for each in pairs])
        keys, null_safe = tuple(zip(left_keys, right_keys, strict=True)), tuple(each.is_null_safe for each in pairs)
        return BatchHashJoin(
            query.schema,
            left,
            right,
            query.kind,
            keys,
            null_safe,
            conjunction(rest) if rest else None,
            (len(query.left.schema), len(query.right.schema)),
            None if query.kind.keeps_right else _lookup(right, keys, null_safe),
        )

    def recursive(self, query: Recursive, wanted: _Wanted) -> BatchNode:
        step = self._keeping(self.plan(query.step), query.number)
        return BatchRecursive(query.schema, self.plan(query.base), step, query.number, query.is_distinct)

    def _keeping(self, node: BatchNode, number: int) -> BatchNode:
        """A node that rounds of a recursion evaluate, whose inputs that do not depend on the round are kept."""
        if isinstance(node, BatchShare | BatchValues | BatchWorkingTable | BatchRecursive):
            return node
        if not depends(node, number):
            self._kept_inputs += 1
            return BatchShare(node.schema, node, -self._kept_inputs, True)
        if isinstance(node, BatchHashJoin):
            left, right = (self._keeping(each, number) for each in node.inputs)
            return replace(node, left=left, right=right, lookup=node.lookup if right is node.right else None)
        if isinstance(node, BatchUnion):
            return replace(node, branches=tuple(self._keeping(each, number) for each in node.branches))
        (child,) = node.inputs
        return replace(node, input=self._keeping(child, number))  # type: ignore[call-arg]

    def working_table(self, query: WorkingTable, wanted: _Wanted) -> BatchNode:
        return BatchWorkingTable(query.schema, query.number)

    def share(self, query: Share, wanted: _Wanted) -> BatchNode:
        if query.number not in self._shares:
            costly = Aggregate | Join | OverWindow | Recursive | Sort | Limit
            is_kept = any(isinstance(node, costly) for node in nodes(query.input))
            self._shares[query.number] = BatchShare(query.schema, self.plan(query.input), query.number, is_kept)
        return self._shares[query.number]


_PLANNERS: dict[type[LogicalPlan], Callable[[_Planner, Any, _Wanted], BatchNode]] = {
    Scan: _Planner.scan,
    ExternalScan: _Planner.external_scan,
    Values: _Planner.values,
    ColumnValues: _Planner.column_values,
    Filter: _Planner.filter,
    Project: _Planner.project,
    Expand: _Planner.expand,
    ProjectSet: _Planner.project_set,
    Aggregate: _Planner.aggregate,
    Sort: _Planner.sort,
    Limit: _Planner.limit,
    Union: _Planner.union,
    OverWindow: _Planner.over_window,
    TopN: _Planner.top_n,
    Join: _Planner.join,
    Share: _Planner.share,
    Recursive: _Planner.recursive,
    WorkingTable: _Planner.working_table,
}


def _with_keys(node: BatchNode, keys: Sequence[Expression]) -> tuple[BatchNode, tuple[int, ...]]:
    """The node with a column more for each key that is not a column, and the positions of the keys."""
    positions, added = key_columns(node.schema, keys)
    return (node if added is None else BatchProject(added[0], node, added[1])), positions


def _lookup(
    right: BatchNode, keys: Sequence[tuple[int, int]], null_safe: Sequence[bool]
) -> tuple[int, ...] | None:
    """The left columns that are the key of the table that `right` reads, or its first columns, of which the vnode is
    known; None if that is no filtered and projected scan of a whole table, or the join is by other columns."""
    sources: list[int | None] = list(range(len(right.schema)))  # the column of the current node that each is
    while not isinstance(right, BatchScan):
        if isinstance(right, BatchProject):
            passed = right.expressions
            sources = [None if source is None else _column_of(passed[source]) for source in sources]
        elif not isinstance(right, BatchFilter):
            return None
        right = right.input
    if right.limit is not None or right.keys is not None or not right.table.kind.has_rows:
        return None
    by_column = {
        right.columns[source]: left
        for (left, column), is_safe in zip(keys, null_safe, strict=True)
        if (source := sources[column]) is not None and not is_safe
    }
    pk = right.table.pk_indices
    width = next((number for number, column in enumerate(pk) if column not in by_column), len(pk))
    if not width or not set(right.table.distribution_key) <= set(pk[:width]):
        return None
    return tuple(by_column[column] for column in pk[:width])


def _column_of(expression: Expression) -> int | None:
    return expression.index if isinstance(expression, InputRef) else None


def _before(project: Project, order: Sequence[SortKey]) -> tuple[SortKey, ...] | None:
    """The order of the input of a projection that makes its rows come in `order`; None if none does."""
    sources = [project.expressions[key.column] for key in order]
    if not all(isinstance(source, InputRef) for source in sources):
        return None
    pairs = zip(sources, order, strict=True)
    return tuple(SortKey(source.index, key.order) for source, key in pairs if isinstance(source, InputRef))
