"""Planner: translates logical plans into stream plans.

An optimized logical plan is translated node by node; adjacent filters and projections are merged, and each stateful
node gets the catalogs of its tables. Their ids are requested by name from a callback, in a fixed order: planning a
known job with the ids stored in the catalog gives the same plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from relational.catalog.objects import ConflictBehaviour, TableCatalog, TableKind, offset_table_name
from relational.expr.aggregates import AggKind
from relational.expr.comparisons import Comparison, comparisons_of
from relational.expr.expression import Expression, InputRef, conjunction, conjuncts, substitute
from relational.plan.logical import Aggregate, Filter, LogicalPlan, Project, Scan, positions_of, table_schema
from relational.plan.serialize import plan_from_text
from stream.errors import PlanNotSupported
from stream.plan import state_tables
from stream.plan.stream_plan import (
    DmlNode,
    FilterNode,
    HashAggNode,
    KeptInput,
    MaterializeNode,
    ProjectNode,
    RowIdGenNode,
    SinkNode,
    SourceNode,
    StreamNode,
    StreamPlan,
    StreamScanNode,
)

TableIds: TypeAlias = Callable[[str], int]
"""Name of an internal table -> its id: allocated if the job is new, looked up if it is rebuilt. KeyError if a known job
has no such table."""


def plan_table(table: TableCatalog, table_ids: TableIds, *, is_consistent: bool = False) -> StreamPlan:
    """The job of a table: the source of its rows, generated keys, and the conflict rule.

    `is_consistent`: its connector guarantees a legal change stream, so the table does not look rows up.
    """
    schema, key = table.schema, table.stream_key
    node: StreamNode
    errors: TableCatalog | None = None
    if table.connector is None:
        node = DmlNode(schema, key, table)
    else:
        name = offset_table_name(table)
        offsets = state_tables.offset_table(table_ids(name), name, table.id)
        read = table.delivered_columns
        node = SourceNode(table_schema(table, read), positions_of(key, read), table, read, offsets)
        errors = _error_table(table, table_ids)
    conflict: ConflictBehaviour | None = table.conflict
    if table.row_id_index is not None:
        node = RowIdGenNode(schema, key, node, table.row_id_index)
    if table.row_id_index is not None or is_consistent:
        conflict = None
    return StreamPlan(MaterializeNode(schema, key, node, table, conflict, errors))


def plan_view(view: TableCatalog, query: LogicalPlan, table_ids: TableIds) -> StreamPlan:
    """The job that keeps `view` equal to `query`, which has the view's columns. PlanNotSupported names a node that only
    a batch query can have."""
    root = _Planner(view, table_ids).plan(query)
    if root.schema.types != view.schema.types:
        raise PlanNotSupported("Materialize", f"the query gives {root.schema}, the view holds {view.schema}")
    if root.stream_key is None:
        raise PlanNotSupported(root.identity, "its output lacks columns that identify a row")
    errors = _error_table(view, table_ids)
    return StreamPlan(MaterializeNode(view.schema, view.stream_key, root, view, None, errors))


def plan_sink(sink: TableCatalog, query: LogicalPlan, table_ids: TableIds) -> StreamPlan:
    """The job that delivers the changes of `query`. PlanNotSupported as `plan_view`."""
    root = _Planner(sink, table_ids).plan(query)
    errors = _error_table(sink, table_ids)
    has_log = (sink.sink or {}).get("connector") not in state_tables.SINKS_WITHOUT_LOG
    log = state_tables.sink_log_tables(table_ids, sink) if has_log else None
    return StreamPlan(SinkNode(sink.schema, sink.stream_key, root, sink, errors, log))


def plan_known(job: TableCatalog, table_of_id: Callable[[int], TableCatalog], table_ids: TableIds) -> StreamPlan:
    """The job of a view or sink, from the query in its catalog."""
    query = plan_from_text(job.plan, table_of_id)
    return (plan_sink if job.kind is TableKind.SINK else plan_view)(job, query, table_ids)


def _error_table(job: TableCatalog, table_ids: TableIds) -> TableCatalog | None:
    """The table of rows without a value; None for a job that an older release created without one."""
    try:
        return state_tables.error_table(table_ids(state_tables.error_table_name(job)), job)
    except KeyError:
        return None


class _Planner:
    """Plans one job; numbers its aggregations from the root down."""

    def __init__(self, job: TableCatalog, table_ids: TableIds) -> None:
        self._job = job
        self._table_ids = table_ids
        self._aggregations = 0

    def plan(self, query: LogicalPlan) -> StreamNode:
        if isinstance(query, Scan) and query.table.kind is TableKind.SOURCE:
            return self._source(query)
        if isinstance(query, Scan):
            return StreamScanNode(query.schema, query.stream_key, query.table, query.columns or ())
        if isinstance(query, Filter):
            return self._filter(query)
        if isinstance(query, Project):
            return self._project(query)
        if isinstance(query, Aggregate):
            return self._aggregate(query)
        raise PlanNotSupported(type(query).__name__, "only a batch query can have it")

    def _source(self, query: Scan) -> StreamNode:
        """The job's own reader of a source, and the row ids of a query that needs them [R32]."""
        table, name = query.table, offset_table_name(self._job)
        offsets = state_tables.offset_table(self._table_ids(name), name, self._job.id)
        read = tuple(column for column in query.columns if column != table.row_id_index)
        node: StreamNode = SourceNode(table_schema(table, read), None, table, read, offsets)
        if len(read) < len(query.columns):
            row_id = query.columns.index(table.row_id_index)
            node = RowIdGenNode(query.schema, query.stream_key, node, row_id)
        return node

    def _filter(self, query: Filter) -> StreamNode:
        child = self.plan(query.input)
        predicate = query.predicate
        if isinstance(child, FilterNode):
            predicate = conjunction(conjuncts(child.predicate) + conjuncts(predicate))
            child = child.input
        return FilterNode(child.schema, child.stream_key, _with_filters(child, predicate), predicate)

    def _project(self, query: Project) -> StreamNode:
        child = self.plan(query.input)
        expressions = query.expressions
        if isinstance(child, ProjectNode) and _is_cheap_to_repeat(expressions, child.expressions):
            expressions = tuple(substitute(each, child.expressions) for each in expressions)
            child = child.input
        if len(query.schema) == len(child.schema) and _passes_all(expressions):
            return replace(child, schema=query.schema)
        return ProjectNode(query.schema, query.stream_key, child, expressions)

    def _aggregate(self, query: Aggregate) -> StreamNode:
        number = self._aggregations
        self._aggregations += 1
        prefix = f"{self._job.name}.agg{number}"
        child = self.plan(query.input)
        for call in query.calls:
            if call.distinct and call.kind not in (AggKind.MIN, AggKind.MAX):
                raise PlanNotSupported("Aggregate", f"no state for {call.describe(child.schema.names)}")
        name = f"{prefix}.groups"
        state_table = state_tables.group_table(
            self._table_ids(name), name, self._job.id, child.schema, query.group_by, query.calls
        )
        kept = tuple(
            self._kept_input(f"{prefix}.call{call}", call, query, child)
            for call in range(len(query.calls))
            if query.calls[call].keeps_inputs(query.input.is_append_only)
        )
        key = query.stream_key
        return HashAggNode(query.schema, key, child, query.group_by, query.calls, state_table, kept)

    def _kept_input(self, name: str, number: int, query: Aggregate, child: StreamNode) -> KeptInput:
        call, groups = query.calls[number], len(query.group_by)
        if child.stream_key is None:
            raise PlanNotSupported("Aggregate", f"{name} cannot tell its input rows apart")
        columns, argument = state_tables.input_columns(query.group_by, call, child.stream_key)
        table = state_tables.input_table(
            self._table_ids(name), name, self._job.id, child.schema, columns, groups, argument, call.kind
        )
        return KeptInput(number, table, columns, argument)


def _with_filters(node: StreamNode, predicate: Expression) -> StreamNode:
    """A source, possibly below generated row ids, that knows what of the predicate its connector can use."""
    if isinstance(node, RowIdGenNode):
        own = node.row_id_index
        found = [each for each in comparisons_of(predicate) if each.column != own]
        moved = [replace(each, column=each.column - (each.column > own)) for each in found]
        return replace(node, input=_filtered(node.input, moved))
    return _filtered(node, comparisons_of(predicate))


def _filtered(node: StreamNode, comparisons: Sequence[Comparison]) -> StreamNode:
    if not isinstance(node, SourceNode) or node.table.kind is not TableKind.SOURCE:
        return node
    return replace(node, filters=tuple(replace(each, column=node.columns[each.column]) for each in comparisons))


def _passes_all(expressions: tuple[Expression, ...]) -> bool:
    return all(isinstance(each, InputRef) and each.index == position for position, each in enumerate(expressions))


def _is_cheap_to_repeat(upper: tuple[Expression, ...], lower: tuple[Expression, ...]) -> bool:
    """Whether substituting `lower` into `upper` computes nothing twice: one of them only selects columns."""
    return any(all(isinstance(each, InputRef) for each in part) for part in (upper, lower))
