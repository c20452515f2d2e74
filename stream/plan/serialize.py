"""Stream plans as text, which the catalog stores with each view, index and sink.

    {"version": 1 to 10, "root": node, "errors": table id or null, "is_single": bool}

Version 2 has watermarks, version 3 overflow tables of MIN and MAX, version 4 joins, version 5 top-n and tables of the
values of DISTINCT calls, version 6 dynamic filters, temporal joins, EMIT ON WINDOW CLOSE, window functions, grouping
sets, set-returning functions and aggregates besides those of FIRST_AGGREGATES, version 7 joins whose state watermarks
clean, delta joins and user functions, version 8 partial aggregations, version 9 distinct inputs of joins and groups
that never change, version 10 hashes of groups in tables of the values of DISTINCT calls. A plan is written in the first
version that has what it needs, which older releases read.

A node is {"node": kind, "schema": [[name, type], ...], "key": stream key or null, ...} with the fields of its class and
its inputs. Tables are named by id, columns of tables that others write by column id, so that a column added to such a
table changes no plan. What a source may leave out follows from the filter above it. What a later release plans for the
same query does not matter to a stored plan [R34].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hummock.base.json_fields import check_format
from relational.catalog.objects import ConflictBehaviour, TableCatalog
from relational.errors import CatalogError
from relational.expr.comparisons import Relation
from relational.expr.distance_bounds import DistanceBounds
from relational.expr.window_functions import RankKind
from relational.plan.logical import JoinKind
from relational.plan.serialize import (
    FIRST_AGGREGATES,
    call_from_json,
    call_to_json,
    expression_from_json,
    expression_to_json,
    sort_keys_from_json,
    sort_keys_to_json,
    window_call_from_json,
    window_call_to_json,
)
from relational.types import DataType, Field, Schema, VnodeRule
from relational.udf.function import stored_functions
from stream.plan.planner import with_source_filters
from stream.plan.stream_plan import (
    DeltaJoinNode,
    DistinctArgument,
    DmlNode,
    DynamicFilterNode,
    EmitOnWindowCloseNode,
    ExchangeNode,
    ExpandNode,
    FilterNode,
    HashAggNode,
    HashJoinNode,
    JoinInterval,
    KeptInput,
    MaterializeNode,
    MergeNode,
    OrderedRows,
    OverWindowNode,
    PartialAggNode,
    ProjectNode,
    ProjectSetNode,
    RowIdGenNode,
    ShareNode,
    SinkNode,
    SourceNode,
    StoredInput,
    StreamNode,
    StreamPlan,
    StreamScanNode,
    TemporalJoinNode,
    TopNNode,
    UnionNode,
    ValueOverflow,
    WatermarkFilterNode,
)

FORMAT_VERSION, DISTINCT_INPUTS_VERSION, PARTIAL_VERSION, FUNCTIONS_VERSION, WINDOWS_VERSION = 10, 9, 8, 7, 6
TOP_N_VERSION, JOINS_VERSION = 5, 4
OVERFLOWS_VERSION, WATERMARKS_VERSION, FIRST_VERSION = 3, 2, 1
SINCE_WINDOWS_VERSION = (
    DynamicFilterNode, EmitOnWindowCloseNode, ExpandNode, OverWindowNode, ProjectSetNode, TemporalJoinNode,
)  # fmt: skip
TableOfId = Callable[[int], TableCatalog]


def stream_plan_to_text(plan: StreamPlan) -> str:
    """The plan of a view, index or sink; `stream_plan_from_text` restores an equal one."""
    errors = None if plan.error_table is None else plan.error_table.id
    version = max(_version_of(node) for node in plan.root.walk())
    root = _node(plan.root)
    if stored_functions(root):
        version = max(version, FUNCTIONS_VERSION)
    record = {"version": version, "root": root, "errors": errors, "is_single": plan.is_single}
    return json.dumps(record, sort_keys=True)


def stream_plan_from_text(text: str, table_of_id: TableOfId) -> StreamPlan:
    """The plan over the tables as they are now. NotFound; CatalogError if a column that it reads was dropped;
    FormatTooNew."""
    record = json.loads(text)
    check_format("a stored stream plan", record["version"], FORMAT_VERSION, FIRST_VERSION)
    root = _Reader(table_of_id).node(record["root"])
    assert isinstance(root, MaterializeNode | SinkNode)
    errors = None if record["errors"] is None else table_of_id(record["errors"])
    return StreamPlan(root, errors, record["is_single"])


def fragment_to_json(root: StreamNode) -> dict[str, Any]:
    """The executors of one fragment, of any job, as JSON values; not stored anywhere. Where it receives rows it has
    Merge nodes."""
    return _node(root)


def fragment_from_json(record: Mapping[str, Any], table_of_id: TableOfId) -> StreamNode:
    """The inverse of `fragment_to_json`, over the same tables."""
    return _Reader(table_of_id).node(record)


def _version_of(node: StreamNode) -> int:
    """The first version that can describe a node."""
    if isinstance(node, HashAggNode) and node.hash_key is not None:
        return FORMAT_VERSION
    if (isinstance(node, HashJoinNode) and any(node.distinct)) or (
        isinstance(node, HashAggNode) and node.is_append_only
    ):
        return DISTINCT_INPUTS_VERSION
    if isinstance(node, PartialAggNode):
        return PARTIAL_VERSION
    if isinstance(node, DeltaJoinNode) or (
        isinstance(node, HashJoinNode) and (node.marked or node.interval is not None)
    ):
        return FUNCTIONS_VERSION
    if isinstance(node, SINCE_WINDOWS_VERSION):
        return WINDOWS_VERSION
    if isinstance(node, HashAggNode) and not all(call.kind in FIRST_AGGREGATES for call in node.calls):
        return WINDOWS_VERSION
    if isinstance(node, TopNNode) or (isinstance(node, HashAggNode) and node.distinct):
        return TOP_N_VERSION
    if isinstance(node, HashJoinNode):
        return JOINS_VERSION
    if isinstance(node, HashAggNode) and node.overflows:
        return OVERFLOWS_VERSION
    if isinstance(node, WatermarkFilterNode) or (isinstance(node, HashAggNode) and node.closing is not None):
        return WATERMARKS_VERSION
    return FIRST_VERSION


def _node(node: StreamNode) -> dict[str, Any]:
    kind, fields = _WRITERS[type(node)]
    record: dict[str, Any] = {"node": kind, "schema": [[each.name, str(each.data_type)] for each in node.schema]}
    record["key"] = None if node.stream_key is None else list(node.stream_key)
    if node.inputs:
        record["inputs"] = [_node(child) for child in node.inputs]
    return record | fields(node)


def _column_ids(table: TableCatalog, columns: tuple[int, ...]) -> list[int]:
    return [table.column_ids[column] for column in columns]


def _interval_to_json(interval: JoinInterval) -> dict[str, Any]:
    bounds = interval.bounds
    return {
        "columns": [bounds.left, bounds.right], "least": bounds.least, "most": bounds.most,
        "times": [None if table is None else table.id for table in interval.times],
        "keys": list(map(list, interval.columns)),
    }


_WRITERS: Mapping[type[StreamNode], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    StreamScanNode: ("scan", lambda node: {
        "table": node.table.id, "columns": _column_ids(node.table, node.columns),
        "progress": None if node.progress is None else node.progress.id}),
    SourceNode: ("source", lambda node: {
        "table": node.table.id, "columns": _column_ids(node.table, node.columns), "offsets": node.offset_table.id,
        **({"split_prefix": node.split_prefix} if node.split_prefix else {})}),
    WatermarkFilterNode: ("watermark", lambda node: {
        "column": node.column, "delay": node.delay, "table": node.table.id}),
    RowIdGenNode: ("row id", lambda node: {"row_id": node.row_id_index}),
    FilterNode: ("filter", lambda node: {"predicate": expression_to_json(node.predicate)}),
    ProjectNode: ("project", lambda node: {"expressions": list(map(expression_to_json, node.expressions))}),
    ExpandNode: ("expand", lambda node: {"columns": list(node.columns), "sets": list(map(list, node.sets))}),
    ProjectSetNode: ("project-set", lambda node: {
        "passed": list(node.passed), "functions": list(map(expression_to_json, node.functions)),
        "outer": node.is_outer}),
    HashAggNode: ("aggregate", lambda node: {
        "group_by": list(node.group_by), "calls": list(map(call_to_json, node.calls)), "table": node.state_table.id,
        "kept": [[each.call, each.table.id, list(each.columns), each.argument] for each in node.kept],
        **({} if node.closing is None else {"closing": node.closing}),
        **({"overflows": [[each.call, each.table.id, list(each.columns)] for each in node.overflows]}
           if node.overflows else {}),
        **({"distinct": [[list(each.calls), each.table.id, list(each.columns), each.has_counts]
                         for each in node.distinct]} if node.distinct else {}),
        **({"ordered": [[list(each.calls), each.table.id, list(each.columns), sort_keys_to_json(each.keys),
                         list(each.stream_key), each.is_append_only] for each in node.ordered]}
           if node.ordered else {}),
        **({"append_only": True} if node.is_append_only else {}),
        **({} if node.hash_key is None else {"hash_key": node.hash_key.hex()})}),
    PartialAggNode: ("partial aggregate", lambda node: {
        "group_by": list(node.group_by), "calls": list(map(call_to_json, node.calls)), "table": node.state_table.id,
        "forced": node.is_forced, **({"sends_rows": True} if node.sends_rows else {})}),
    HashJoinNode: ("join", lambda node: {
        "kind": node.kind.value, "keys": [list(pair) for pair in node.keys], "null_safe": list(node.null_safe),
        "condition": None if node.condition is None else expression_to_json(node.condition),
        "widths": list(node.widths), "append_only": list(node.append_only), "passing": list(node.passing),
        "tables": [table.id for table in node.tables],
        **({"marked": list(node.marked)} if node.marked else {}),
        **({} if node.interval is None else {"interval": _interval_to_json(node.interval)}),
        **({"distinct": list(node.distinct)} if any(node.distinct) else {})}),
    TopNNode: ("top-n", lambda node: {
        "groups": list(node.groups),
        "keys": sort_keys_to_json(node.keys),
        "kind": node.kind.value, "offset": node.offset, "last": node.last, "width": node.width,
        "has_number": node.has_number, "append_only": node.is_append_only, "table": node.table.id}),
    DynamicFilterNode: ("dynamic filter", lambda node: {
        "column": node.column, "relation": node.relation.value, "bound": expression_to_json(node.bound),
        "table": node.table.id}),
    TemporalJoinNode: ("temporal join", lambda node: {
        "kind": node.kind.value, "by": list(node.key), "width": node.width, "table": node.table.id,
        "condition": None if node.condition is None else expression_to_json(node.condition),
        "columns": _column_ids(node.table, node.columns), "vnodes": node.vnode_count}),
    DeltaJoinNode: ("delta join", lambda node: {
        "by": [list(pair) for pair in node.keys], "vnodes": node.vnode_count,
        "condition": None if node.condition is None else expression_to_json(node.condition),
        "stored": [[each.table.id, _column_ids(each.table, each.columns), list(each.prefix),
                    None if each.progress is None else each.progress.id] for each in node.stored]}),
    EmitOnWindowCloseNode: ("emit on window close", lambda node: {"column": node.column, "table": node.table.id}),
    OverWindowNode: ("over-window", lambda node: {
        "groups": list(node.groups), "keys": sort_keys_to_json(node.keys),
        "calls": list(map(window_call_to_json, node.calls)), "width": node.width,
        "append_only": node.is_append_only, "table": node.table.id}),
    ExchangeNode: ("exchange", lambda node: {
        "distribution": None if node.key is None else list(node.key), "vnodes": node.vnode_count,
        **({} if node.rule is VnodeRule.HASH else {"rule": node.rule.value})}),
    ShareNode: ("share", lambda node: {"number": node.number}),
    UnionNode: ("union", lambda node: {}),
    MaterializeNode: ("materialize", lambda node: {
        "table": node.table.id, **({} if node.conflict is None else {"conflict": node.conflict.value})}),
    SinkNode: ("sink", lambda node: {
        "table": node.table.id, "log": None if node.log is None else [table.id for table in node.log]}),
    DmlNode: ("statements", lambda node: {"table": node.table.id}),
    MergeNode: ("merge", lambda node: {
        "fragment": node.fragment, "distribution": None if node.key is None else list(node.key),
        "vnodes": node.vnode_count, "rule": node.rule.value}),
}


class _Reader:
    """Restores nodes; there is one method per kind, in `_READERS`."""

    def __init__(self, table_of_id: TableOfId) -> None:
        self._table = table_of_id

    def node(self, record: Mapping[str, Any]) -> StreamNode:
        schema = Schema(tuple(Field(name, DataType.parse(kind)) for name, kind in record["schema"]))
        key = None if record["key"] is None else tuple(record["key"])
        read = _READERS.get(record["node"])
        if read is None:
            raise ValueError(f"unknown stream node {record['node']!r}")
        return read(self, record, schema, key, *map(self.node, record.get("inputs", ())))

    def scan(self, record: Any, schema: Schema, key: Any) -> StreamNode:
        table = self._table(record["table"])
        progress = None if record["progress"] is None else self._table(record["progress"])
        return StreamScanNode(schema, key, table, _positions(table, record["columns"]), progress)

    def source(self, record: Any, schema: Schema, key: Any) -> StreamNode:
        table = self._table(record["table"])
        columns, offsets = _positions(table, record["columns"]), self._table(record["offsets"])
        return SourceNode(schema, key, table, columns, offsets, split_prefix=record.get("split_prefix", ""))

    def watermark(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return WatermarkFilterNode(schema, key, input, record["column"], record["delay"], self._table(record["table"]))

    def row_id(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return RowIdGenNode(schema, key, input, record["row_id"])

    def filter(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        predicate = expression_from_json(record["predicate"])
        return FilterNode(schema, key, with_source_filters(input, predicate), predicate)

    def project(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return ProjectNode(schema, key, input, tuple(map(expression_from_json, record["expressions"])))

    def expand(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return ExpandNode(schema, key, input, tuple(record["columns"]), tuple(map(tuple, record["sets"])))

    def project_set(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        functions = tuple(map(expression_from_json, record["functions"]))
        return ProjectSetNode(schema, key, input, tuple(record["passed"]), functions, record["outer"])

    def aggregate(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        kept = tuple(
            KeptInput(call, self._table(table), tuple(columns), argument)
            for call, table, columns, argument in record["kept"]
        )
        calls = tuple(map(call_from_json, record["calls"]))
        overflows = tuple(
            ValueOverflow(call, self._table(table), tuple(columns))
            for call, table, columns in record.get("overflows", ())
        )
        distinct = tuple(
            DistinctArgument(tuple(numbers), self._table(table), tuple(columns), has_counts)
            for numbers, table, columns, has_counts in record.get("distinct", ())
        )
        ordered = tuple(
            OrderedRows(tuple(numbers), self._table(table), tuple(columns), sort_keys_from_json(keys),
                        tuple(stream_key), is_append_only)
            for numbers, table, columns, keys, stream_key, is_append_only in record.get("ordered", ())
        )
        groups, table = tuple(record["group_by"]), self._table(record["table"])
        return HashAggNode(
            schema, key, input, groups, calls, table, kept, record.get("closing"), overflows, distinct, ordered,
            record.get("append_only", False), bytes.fromhex(record["hash_key"]) if "hash_key" in record else None,
        )

    def partial_agg(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        calls, table = tuple(map(call_from_json, record["calls"])), self._table(record["table"])
        sends_rows = record.get("sends_rows", False)
        return PartialAggNode(schema, key, input, tuple(record["group_by"]), calls, table, record["forced"], sends_rows)

    def join(self, record: Any, schema: Schema, key: Any, left: StreamNode, right: StreamNode) -> StreamNode:
        condition = None if record["condition"] is None else expression_from_json(record["condition"])
        (width, right_width), (of_left, of_right) = record["widths"], record["append_only"]
        left_passes, right_passes = record["passing"]
        left_distinct, right_distinct = record.get("distinct", (False, False))
        left_table, right_table = map(self._table, record["tables"])
        return HashJoinNode(
            schema,
            key,
            left,
            right,
            JoinKind(record["kind"]),
            tuple((one, other) for one, other in record["keys"]),
            tuple(record["null_safe"]),
            condition,
            (width, right_width),
            (of_left, of_right),
            (left_passes, right_passes),
            (left_table, right_table),
            tuple(record.get("marked", ())),
            self.interval(record["interval"]) if "interval" in record else None,
            (left_distinct, right_distinct),
        )

    def interval(self, record: Mapping[str, Any]) -> JoinInterval:
        left, right = (None if table is None else self._table(table) for table in record["times"])
        left_columns, right_columns = map(tuple, record["keys"])
        of_left, of_right = record["columns"]
        bounds = DistanceBounds(of_left, of_right, record["least"], record["most"])
        return JoinInterval(bounds, (left, right), (left_columns, right_columns))

    def top_n(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return TopNNode(
            schema,
            key,
            input,
            tuple(record["groups"]),
            sort_keys_from_json(record["keys"]),
            RankKind(record["kind"]),
            record["offset"],
            record["last"],
            record["width"],
            record["has_number"],
            record["append_only"],
            self._table(record["table"]),
        )

    def dynamic_filter(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        relation, bound = Relation(record["relation"]), expression_from_json(record["bound"])
        return DynamicFilterNode(schema, key, input, record["column"], relation, bound, self._table(record["table"]))

    def temporal_join(
        self, record: Any, schema: Schema, key: Any, left: StreamNode, right: StreamNode
    ) -> StreamNode:
        table, condition = self._table(record["table"]), record["condition"]
        return TemporalJoinNode(
            schema,
            key,
            left,
            right,
            JoinKind(record["kind"]),
            tuple(record["by"]),
            None if condition is None else expression_from_json(condition),
            record["width"],
            table,
            _positions(table, record["columns"]),
            record["vnodes"],
        )

    def delta_join(self, record: Any, schema: Schema, key: Any, left: StreamNode, right: StreamNode) -> StreamNode:
        condition = None if record["condition"] is None else expression_from_json(record["condition"])
        of_left, of_right = map(self.stored_input, record["stored"])
        pairs = tuple((one, other) for one, other in record["by"])
        return DeltaJoinNode(schema, key, left, right, pairs, condition, (of_left, of_right), record["vnodes"])

    def stored_input(self, record: Any) -> StoredInput:
        table_id, columns, prefix, progress = record
        table = self._table(table_id)
        return StoredInput(table, _positions(table, columns), tuple(prefix),
                           None if progress is None else self._table(progress))

    def emit_on_window_close(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return EmitOnWindowCloseNode(schema, key, input, record["column"], self._table(record["table"]))

    def over_window(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        groups, keys = tuple(record["groups"]), sort_keys_from_json(record["keys"])
        calls = tuple(map(window_call_from_json, record["calls"]))
        table = self._table(record["table"])
        return OverWindowNode(schema, key, input, groups, keys, calls, record["width"], record["append_only"], table)

    def exchange(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        columns = record["distribution"]
        rule = VnodeRule(record.get("rule", VnodeRule.HASH))
        return ExchangeNode(schema, key, input, None if columns is None else tuple(columns), record["vnodes"], rule)

    def share(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        return ShareNode(schema, key, input, record["number"])

    def union(self, record: Any, schema: Schema, key: Any, *branches: StreamNode) -> StreamNode:
        return UnionNode(schema, key, branches)

    def materialize(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        conflict = record.get("conflict")
        rule = None if conflict is None else ConflictBehaviour(conflict)
        return MaterializeNode(schema, key, input, self._table(record["table"]), rule)

    def sink(self, record: Any, schema: Schema, key: Any, input: StreamNode) -> StreamNode:
        log = None if record["log"] is None else (self._table(record["log"][0]), self._table(record["log"][1]))
        return SinkNode(schema, key, input, self._table(record["table"]), log)

    def statements(self, record: Any, schema: Schema, key: Any) -> StreamNode:
        return DmlNode(schema, key, self._table(record["table"]))

    def merge(self, record: Any, schema: Schema, key: Any) -> StreamNode:
        columns = record["distribution"]
        by = None if columns is None else tuple(columns)
        return MergeNode(schema, key, record["fragment"], by, record["vnodes"], VnodeRule(record["rule"]))


_READERS: Mapping[str, Callable[..., StreamNode]] = {
    "scan": _Reader.scan,
    "source": _Reader.source,
    "watermark": _Reader.watermark,
    "row id": _Reader.row_id,
    "filter": _Reader.filter,
    "project": _Reader.project,
    "expand": _Reader.expand,
    "project-set": _Reader.project_set,
    "aggregate": _Reader.aggregate,
    "partial aggregate": _Reader.partial_agg,
    "join": _Reader.join,
    "top-n": _Reader.top_n,
    "dynamic filter": _Reader.dynamic_filter,
    "temporal join": _Reader.temporal_join,
    "delta join": _Reader.delta_join,
    "emit on window close": _Reader.emit_on_window_close,
    "over-window": _Reader.over_window,
    "exchange": _Reader.exchange,
    "share": _Reader.share,
    "union": _Reader.union,
    "materialize": _Reader.materialize,
    "sink": _Reader.sink,
    "statements": _Reader.statements,
    "merge": _Reader.merge,
}


def _positions(table: TableCatalog, column_ids: list[int]) -> tuple[int, ...]:
    positions = {column_id: position for position, column_id in enumerate(table.column_ids)}
    if not positions.keys() >= set(column_ids):
        raise CatalogError(f"a column of table {table.name!r} was dropped meanwhile", name=table.name)
    return tuple(positions[column_id] for column_id in column_ids)
