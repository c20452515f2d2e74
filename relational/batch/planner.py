"""From a logical plan to a batch plan: which operators evaluate a query.

Filters that fix a whole primary key read one row; a limit ends the scans below it; the rows of a shared input are kept
if they are fewer or cost more than those that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from relational.batch.plan import (
    BatchColumnValues,
    BatchExpand,
    BatchFilter,
    BatchHashAgg,
    BatchHashJoin,
    BatchLimit,
    BatchNode,
    BatchOverWindow,
    BatchPointGet,
    BatchProject,
    BatchProjectSet,
    BatchRecursive,
    BatchScan,
    BatchShare,
    BatchSort,
    BatchUnion,
    BatchValues,
    BatchWorkingTable,
)
from relational.batch.recursion import depends
from relational.expr.coercion import WIDE, digits
from relational.expr.expression import Call, Expression, InputRef, Literal, conjunction, conjuncts, input_refs
from relational.expr.window_functions import RANK_TYPE, WindowCall, WindowKind
from relational.plan.logical import (
    Aggregate,
    ColumnValues,
    Expand,
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
from relational.types.data_type import DataType, TypeKind
from relational.types.schema import Field, Schema


def plan_query(query: LogicalPlan) -> BatchNode:
    """The batch plan of a query, which is optimized first, unless it reads one row. BindError as `optimize`."""
    if isinstance(query, Filter) and isinstance(query.input, Scan):
        found = point_get(query.input, query.predicate)
        if found is not None:
            return found
    return _Planner().plan(optimize(query))


class _Planner:
    """Plans one query. `limit`: no more rows than that are read of a node (None: all)."""

    def __init__(self) -> None:
        self._shares: dict[int, BatchShare] = {}
        self._kept_inputs = 0

    def plan(self, query: LogicalPlan, limit: int | None = None) -> BatchNode:
        return _PLANNERS[type(query)](self, query, limit)

    def scan(self, query: Scan, limit: int | None) -> BatchNode:
        return BatchScan(query.schema, query.table, query.columns, limit)

    def values(self, query: Values, limit: int | None) -> BatchNode:
        return BatchValues(query.schema, query.rows)

    def column_values(self, query: ColumnValues, limit: int | None) -> BatchNode:
        return BatchColumnValues(query.schema, query.columns)

    def filter(self, query: Filter, limit: int | None) -> BatchNode:
        child = query.input
        found = point_get(child, query.predicate) if isinstance(child, Scan) else None
        if found is not None:
            return found
        return BatchFilter(query.schema, self.plan(child), query.predicate)

    def project(self, query: Project, limit: int | None) -> BatchNode:
        return BatchProject(query.schema, self.plan(query.input, limit), query.expressions)

    def expand(self, query: Expand, limit: int | None) -> BatchNode:
        return BatchExpand(query.schema, self.plan(query.input), query.columns, query.sets)

    def project_set(self, query: ProjectSet, limit: int | None) -> BatchNode:
        return BatchProjectSet(query.schema, self.plan(query.input), query.passed, query.functions, query.is_outer)

    def aggregate(self, query: Aggregate, limit: int | None) -> BatchNode:
        ties = query.input.stream_key or ()
        return BatchHashAgg(query.schema, self.plan(query.input), query.group_by, query.calls, ties)

    def sort(self, query: Sort, limit: int | None) -> BatchNode:
        return BatchSort(query.schema, self.plan(query.input), query.keys)

    def limit(self, query: Limit, limit: int | None) -> BatchNode:
        counts = [count for count in (query.count, limit) if count is not None]
        read = min(counts) + query.offset if counts else None
        return BatchLimit(query.schema, self.plan(query.input, read), query.count, query.offset)

    def over_window(self, query: OverWindow, limit: int | None) -> BatchNode:
        ties = query.input.stream_key or ()
        return BatchOverWindow(query.schema, self.plan(query.input), query.groups, query.keys, ties, query.calls)

    def top_n(self, query: TopN, limit: int | None) -> BatchNode:
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

    def union(self, query: Union, limit: int | None) -> BatchNode:
        return BatchUnion(query.schema, tuple(self.plan(branch, limit) for branch in query.branches))

    def join(self, query: Join, limit: int | None) -> BatchNode:
        """By the columns or expressions that must be equal; without any, by a constant that all rows have."""
        pairs, rest = query.equalities
        pairs = pairs or (EVERY_PAIR,)
        left, left_keys = _with_keys(self.plan(query.left), [each.left for each in pairs])
        right, right_keys = _with_keys(self.plan(query.right), [each.right for each in pairs])
        return BatchHashJoin(
            query.schema,
            left,
            right,
            query.kind,
            tuple(zip(left_keys, right_keys, strict=True)),
            tuple(each.is_null_safe for each in pairs),
            conjunction(rest) if rest else None,
            (len(query.left.schema), len(query.right.schema)),
        )

    def recursive(self, query: Recursive, limit: int | None) -> BatchNode:
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
            return replace(node, left=left, right=right)
        if isinstance(node, BatchUnion):
            return replace(node, branches=tuple(self._keeping(each, number) for each in node.branches))
        (child,) = node.inputs
        return replace(node, input=self._keeping(child, number))  # type: ignore[call-arg]

    def working_table(self, query: WorkingTable, limit: int | None) -> BatchNode:
        return BatchWorkingTable(query.schema, query.number)

    def share(self, query: Share, limit: int | None) -> BatchNode:
        if query.number not in self._shares:
            costly = Aggregate | Join | OverWindow | Recursive | Sort | Limit
            is_kept = any(isinstance(node, costly) for node in nodes(query.input))
            self._shares[query.number] = BatchShare(query.schema, self.plan(query.input), query.number, is_kept)
        return self._shares[query.number]


_PLANNERS: dict[type[LogicalPlan], Callable[[_Planner, Any, int | None], BatchNode]] = {
    Scan: _Planner.scan,
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


def point_get(scan: Scan, predicate: Expression) -> BatchNode | None:
    """The rows of `scan` for which `predicate` is true, by a point get if it fixes every primary key column; else None.
    Conditions not implied by the key remain as a filter above."""
    if not scan.table.pk:
        return None
    fixed: dict[int, tuple[Literal, Expression]] = {}
    terms = conjuncts(predicate)
    for term in terms:
        found = _fixed_column(term, scan)
        if found is not None:
            fixed.setdefault(found[0], (found[1], term))
    key = scan.table.pk_indices
    if not all(column in fixed for column in key):
        return None
    get = BatchPointGet(scan.schema, scan.table, scan.columns, tuple(fixed[column][0] for column in key))
    used = [fixed[column][1] for column in key]
    rest = tuple(term for term in terms if not any(term is each for each in used))
    return BatchFilter(scan.schema, get, conjunction(rest)) if rest else get


def _fixed_column(term: Expression, scan: Scan) -> tuple[int, Literal] | None:
    """The table column and constant of `column = constant`, `column IS NOT DISTINCT FROM constant`, `column IS NULL`;
    None for any other term."""
    if not isinstance(term, Call) or term.function not in ("equal", "is_not_distinct", "is_null"):
        return None
    if term.function == "is_null":
        (column,) = term.args
        return (scan.columns[column.index], Literal(None, column.data_type)) if isinstance(column, InputRef) else None
    for column, value in (term.args, term.args[::-1]):
        if isinstance(column, InputRef) and isinstance(value, Literal):
            if value.value is None and term.function == "equal":
                return None
            exact = _as_type(value, column.data_type)
            return None if exact is None else (scan.columns[column.index], exact)
    return None


def _as_type(value: Literal, data_type: DataType) -> Literal | None:
    """The same constant in the column's own type; None if the column cannot represent it."""
    if value.data_type == data_type:
        return value
    if value.data_type.kind is not TypeKind.NUMERIC or data_type.kind is not TypeKind.NUMERIC:
        return None
    if value.value is None:
        return Literal(None, data_type)
    whole, scale = digits(data_type)
    scaled = value.value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    fits = scaled == value.value and scaled.copy_abs() < Decimal(10) ** whole
    return Literal(scaled, data_type) if fits else None
