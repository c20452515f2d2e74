"""Logical plans as JSON, so that after a restart a view is rebuilt from what was bound when it was created.

Tables and their columns are written by id and resolved in the catalog: ids never change their meaning, so adding or
dropping other columns of a table does not affect the plan. Input is not trusted: an unknown node is a ValueError, the
version of a newer release FormatTooNew.

A record has `version`, `root`, and, from version 2 on, `shared`: the inputs of the Share nodes, each written once; a
`share` node is a position in this list, and an input reads earlier ones only. Version 2 adds the nodes `union` and
`share`; a plan without them is written in version 1, which older releases read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hummock.base.json_fields import check_format
from relational.catalog.objects import TableCatalog
from relational.errors import CatalogError
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.expression import Call, Case, Cast, Expression, InputRef, Literal
from relational.expr.user_call import UserCall, calls_user_function
from relational.expr.window_functions import (
    Bound,
    BoundKind,
    Frame,
    FrameUnit,
    RankKind,
    WindowCall,
    WindowKind,
    number_type,
)
from relational.plan.logical import (
    AggPhases,
    Aggregate,
    EmitOnWindowClose,
    Expand,
    Filter,
    Join,
    JoinKind,
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
from relational.types.data_type import DataType
from relational.types.ordering import OrderType, SortKey
from relational.types.schema import Field, Schema
from relational.types.value_json import value_from_json, value_to_json
from relational.udf.function import RECORD, UserFunction

FORMAT_VERSION, WINDOWS_VERSION, TOP_N_VERSION, JOIN_VERSION, UNION_VERSION, FIRST_VERSION = 6, 5, 4, 3, 2, 1
"""A plan is written as of the first version that has all of its nodes: the second has unions and shared inputs, the
third joins, the fourth semi and anti joins, numbers of rows and top-n, the fifth temporal filters, temporal joins,
EMIT ON WINDOW CLOSE, all window functions, of which those numbers are some, grouping sets, aggregates besides those of
FIRST_AGGREGATES, set-returning functions and recursion, the sixth delta joins and user functions."""
FIRST_AGGREGATES = frozenset((
    "count", "sum", "avg", "min", "max", "bool_and", "bool_or", "var_pop", "var_samp", "stddev_pop", "stddev_samp",
))  # fmt: skip
"""Those that older releases know."""
TableOfId = Callable[[int], TableCatalog]


def plan_to_text(plan: LogicalPlan) -> str:
    """The plan of a view as JSON text. ValueError for a node that a view cannot have."""
    shares = {node.number: node for node in nodes(plan) if isinstance(node, Share)}
    positions = {number: position for position, number in enumerate(sorted(shares))}
    record: dict[str, Any] = {"version": FIRST_VERSION, "root": _plan(plan, positions)}
    version = max(map(_version_of, nodes(plan)))
    if version > FIRST_VERSION:
        shared = [_plan(shares[number].input, positions) for number in positions]
        record |= {"version": version, "shared": shared}
    return json.dumps(record, sort_keys=True)


def _version_of(node: LogicalPlan) -> int:
    """The first version that has a node."""
    is_delta = isinstance(node, Join) and node.is_delta
    if is_delta or any(calls_user_function(each) for each in node.evaluated):
        return FORMAT_VERSION
    if isinstance(node, Join) and node.is_temporal:
        return WINDOWS_VERSION
    if isinstance(node, Join):
        return JOIN_VERSION if node.kind.has_pairs else TOP_N_VERSION
    if isinstance(node, TopN):
        return TOP_N_VERSION
    is_new = isinstance(node, EmitOnWindowClose | Expand | OverWindow | ProjectSet | Recursive)
    if is_new or (isinstance(node, Filter) and node.has_state):
        return WINDOWS_VERSION
    if isinstance(node, Aggregate) and not all(call.kind in FIRST_AGGREGATES for call in node.calls):
        return WINDOWS_VERSION
    return UNION_VERSION if isinstance(node, Union | Share) else FIRST_VERSION


def plan_from_text(text: str, table_of_id: TableOfId) -> LogicalPlan:
    """The plan written by `plan_to_text`, over the tables of `table_of_id`. Its Shares are numbered from 0."""
    record = json.loads(text)
    check_format("the plan of a view", record["version"], FORMAT_VERSION, FIRST_VERSION)
    shares: list[LogicalPlan] = []
    for number, each in enumerate(record.get("shared", ())):
        shares.append(Share(_read_plan(each, table_of_id, shares), number))
    return _read_plan(record["root"], table_of_id, shares)


def plan_with_table_ids(text: str, ids: Mapping[int, int]) -> str:
    """The plan over other tables with the same columns: `ids` maps each table to its replacement."""
    return json.dumps(_with_table_ids(json.loads(text), ids), sort_keys=True)


def _with_table_ids(record: Any, ids: Mapping[int, int]) -> Any:
    if isinstance(record, list):
        return [_with_table_ids(each, ids) for each in record]
    if not isinstance(record, dict):
        return record
    renewed = {key: _with_table_ids(value, ids) for key, value in record.items()}
    if renewed.get("node") == "scan":
        renewed["table"] = ids.get(renewed["table"], renewed["table"])
    return renewed


def _plan(plan: LogicalPlan, positions: Mapping[int, int]) -> dict[str, Any]:
    """The record of a node, in which a Share is its position in the list of shared inputs."""
    if isinstance(plan, Share):
        return {"node": "share", "place": positions[plan.number]}
    if isinstance(plan, Scan):
        ids = plan.table.column_ids
        return {"node": "scan", "table": plan.table.id, "columns": [ids[position] for position in plan.columns]}
    if isinstance(plan, Union):
        key = None if plan.key is None else list(plan.key)
        return {"node": "union", "branches": [_plan(branch, positions) for branch in plan.branches], "key": key}
    if isinstance(plan, Join):
        on = None if plan.on is None else expression_to_json(plan.on)
        left, right = (_plan(each, positions) for each in plan.inputs)
        record = {"node": "join", "kind": plan.kind.value, "on": on, "left": left, "right": right}
        return record | ({"temporal": True} if plan.is_temporal else {}) | ({"delta": True} if plan.is_delta else {})
    if isinstance(plan, Recursive):
        base, step = (_plan(each, positions) for each in plan.inputs)
        return {"node": "recursive", "base": base, "step": step, "number": plan.number, "distinct": plan.is_distinct}
    if isinstance(plan, WorkingTable):
        fields = [[field.name, str(field.data_type)] for field in plan.fields]
        return {"node": "working-table", "number": plan.number, "fields": fields}
    if isinstance(plan, Values):
        fields = [[field.name, str(field.data_type)] for field in plan.fields]
        rows = [[expression_to_json(each) for each in row] for row in plan.rows]
        return {"node": "values", "fields": fields, "rows": rows}
    if len(plan.inputs) != 1:
        raise ValueError(f"{type(plan).__name__} is not part of a view's plan")
    return _unary(plan) | {"input": _plan(plan.inputs[0], positions)}


def _unary(plan: LogicalPlan) -> dict[str, Any]:
    """The record of a node with one input, without the input."""
    if isinstance(plan, Filter):
        return {"node": "filter", "predicate": expression_to_json(plan.predicate)}
    if isinstance(plan, Project):
        return {
            "node": "project",
            "expressions": [expression_to_json(each) for each in plan.expressions],
            "names": list(plan.names),
            "concealed": sorted(plan.concealed),
        }
    if isinstance(plan, Aggregate):
        return {
            "node": "aggregate",
            "group_by": list(plan.group_by),
            "calls": [call_to_json(call) for call in plan.calls],
            "names": list(plan.names),
            **({} if plan.phases is AggPhases.ADAPTIVE else {"phases": plan.phases.value}),
        }
    if isinstance(plan, Expand):
        return {"node": "expand", "columns": list(plan.columns), "sets": list(map(list, plan.sets))}
    if isinstance(plan, Sort):
        return {"node": "sort", "keys": sort_keys_to_json(plan.keys)}
    if isinstance(plan, OverWindow):
        return {"node": "over-window", "groups": list(plan.groups), "keys": sort_keys_to_json(plan.keys),
                "calls": list(map(window_call_to_json, plan.calls)), "names": list(plan.names)}
    if isinstance(plan, TopN):
        return {"node": "top-n", "groups": list(plan.groups), "keys": sort_keys_to_json(plan.keys),
                "kind": plan.kind.value, "limit": plan.limit, "offset": plan.offset, "name": plan.name}
    if isinstance(plan, EmitOnWindowClose):
        return {"node": "emit on window close", "column": plan.column}
    if isinstance(plan, ProjectSet):
        return {"node": "project-set", "passed": list(plan.passed), "names": list(plan.names),
                "functions": [expression_to_json(each) for each in plan.functions], "outer": plan.is_outer}
    if isinstance(plan, Limit):
        return {"node": "limit", "count": plan.count, "offset": plan.offset}
    raise ValueError(f"{type(plan).__name__} is not part of a view's plan")


def sort_keys_to_json(keys: Sequence[SortKey]) -> list[list[Any]]:
    return [[key.column, key.order.descending, key.order.nulls_first] for key in keys]


def sort_keys_from_json(record: Sequence[Any]) -> tuple[SortKey, ...]:
    return tuple(SortKey(column, OrderType(*order)) for column, *order in record)


def _read_plan(record: Mapping[str, Any], table_of_id: TableOfId, shares: Sequence[LogicalPlan]) -> LogicalPlan:
    node = record["node"]
    if node == "scan":
        return _read_scan(record, table_of_id(record["table"]))
    if node == "values":
        fields = Schema(Field(name, DataType.parse(text)) for name, text in record["fields"])
        return Values(fields, tuple(tuple(map(expression_from_json, row)) for row in record["rows"]))
    if node == "share":
        if not 0 <= record["place"] < len(shares):
            raise ValueError(f"no shared input {record['place']!r}")
        return shares[record["place"]]
    if node == "union":
        branches = tuple(_read_plan(each, table_of_id, shares) for each in record["branches"])
        return Union(branches, None if record["key"] is None else tuple(record["key"]))
    if node == "join":
        left, right = (_read_plan(record[side], table_of_id, shares) for side in ("left", "right"))
        on = None if record["on"] is None else expression_from_json(record["on"])
        is_temporal, is_delta = record.get("temporal", False), record.get("delta", False)
        return Join(left, right, JoinKind(record["kind"]), on, is_temporal, is_delta)
    if node == "recursive":
        base, step = (_read_plan(record[each], table_of_id, shares) for each in ("base", "step"))
        return Recursive(base, step, record["number"], record["distinct"])
    if node == "working-table":
        fields = Schema(Field(name, DataType.parse(text)) for name, text in record["fields"])
        return WorkingTable(fields, record["number"])
    return _read_unary(record, _read_plan(record["input"], table_of_id, shares))


def _read_unary(record: Mapping[str, Any], child: LogicalPlan) -> LogicalPlan:
    node = record["node"]
    if node == "sort":
        return Sort(child, sort_keys_from_json(record["keys"]))
    if node == "expand":
        return Expand(child, tuple(record["columns"]), tuple(map(tuple, record["sets"])))
    if node in ("rank", "over-window"):
        windows = map(window_call_from_json, record["calls"]) if node == "over-window" else (
            WindowCall(kind, number_type(kind)) for kind in map(WindowKind, record["kinds"]))
        groups, keys = tuple(record["groups"]), sort_keys_from_json(record["keys"])
        return OverWindow(child, groups, keys, tuple(windows), tuple(record["names"]))
    if node == "top-n":
        groups, keys = tuple(record["groups"]), sort_keys_from_json(record["keys"])
        kind = RankKind(record["kind"])
        return TopN(child, groups, keys, kind, record["limit"], record["offset"], record["name"])
    if node == "project-set":
        functions = tuple(map(expression_from_json, record["functions"]))
        return ProjectSet(child, tuple(record["passed"]), functions, tuple(record["names"]), record["outer"])
    if node == "limit":
        return Limit(child, record["count"], record["offset"])
    if node == "emit on window close":
        return EmitOnWindowClose(child, record["column"])
    if node == "filter":
        return Filter(child, expression_from_json(record["predicate"]))
    if node == "project":
        expressions = tuple(map(expression_from_json, record["expressions"]))
        return Project(child, expressions, tuple(record["names"]), frozenset(record["concealed"]))
    if node == "aggregate":
        calls = tuple(map(call_from_json, record["calls"]))
        phases = AggPhases(record.get("phases", AggPhases.ADAPTIVE))
        return Aggregate(child, tuple(record["group_by"]), calls, tuple(record["names"]), phases)
    raise ValueError(f"unknown plan node {node!r}")


def _read_scan(record: Mapping[str, Any], table: TableCatalog) -> Scan:
    positions = {column_id: position for position, column_id in enumerate(table.column_ids)}
    gone = [column_id for column_id in record["columns"] if column_id not in positions]
    if gone:
        raise CatalogError(f"a column of table {table.name!r} was dropped meanwhile", name=table.name)
    return Scan(table, tuple(positions[column_id] for column_id in record["columns"]))


def call_to_json(call: AggCall) -> dict[str, Any]:
    """An aggregate call as a JSON record."""
    record: dict[str, Any] = {
        "kind": call.kind.value,
        "argument": call.argument,
        "filter": None if call.filter is None else expression_to_json(call.filter),
        "distinct": call.distinct,
        "type": str(call.data_type),
    }
    if call.more:
        record["more"] = list(call.more)
    if call.order:
        record["order"] = sort_keys_to_json(call.order)
    if call.constants:
        record["constants"] = list(map(expression_to_json, call.constants))
    if call.function is not None:
        record[RECORD] = call.function.to_json()
    return record


def call_from_json(record: Mapping[str, Any]) -> AggCall:
    """The inverse of `call_to_json`."""
    condition = record["filter"]
    return AggCall(
        AggKind(record["kind"]),
        record["argument"],
        None if condition is None else expression_from_json(condition),
        record["distinct"],
        DataType.parse(record["type"]),
        tuple(record.get("more", ())),
        sort_keys_from_json(record.get("order", ())),
        tuple(map(_constant_from_json, record.get("constants", ()))),
        UserFunction.from_json(record[RECORD]) if RECORD in record else None,
    )


def window_call_to_json(call: WindowCall) -> dict[str, Any]:
    """A window function as a JSON record."""
    record: dict[str, Any] = {"kind": str(call.kind), "type": str(call.data_type), "argument": call.argument,
                              "number": call.number, "default": call.default, "filter": call.filter}
    frame = call.frame
    if frame is None:
        return record
    bounds = [[each.kind.name, each.offset] for each in (frame.start, frame.end)]
    return record | {"frame": {"unit": frame.unit.value, "bounds": bounds, "key": frame.key}}


def window_call_from_json(record: Mapping[str, Any]) -> WindowCall:
    """The inverse of `window_call_to_json`."""
    frame, kind = record.get("frame"), record["kind"]
    if frame is not None:
        start, end = (Bound(BoundKind[name], offset) for name, offset in frame["bounds"])
        frame = Frame(FrameUnit(frame["unit"]), start, end, frame["key"])
    return WindowCall(
        WindowKind(kind) if kind in tuple(WindowKind) else AggKind(kind),
        DataType.parse(record["type"]),
        record["argument"],
        frame,
        record["number"],
        record["default"],
        record["filter"],
    )


def _constant_from_json(record: Mapping[str, Any]) -> Literal:
    found = expression_from_json(record)
    if not isinstance(found, Literal):
        raise ValueError(f"an aggregate has the constant {record!r}")
    return found


def expression_to_json(expression: Expression) -> dict[str, Any]:
    """A bound expression as a JSON record, recursively."""
    record: dict[str, Any] = {"type": str(expression.data_type)}
    if isinstance(expression, InputRef):
        return record | {"node": "column", "index": expression.index}
    if isinstance(expression, Literal):
        return record | {"node": "literal", "value": value_to_json(expression.value, expression.data_type)}
    record["args"] = [expression_to_json(child) for child in expression.children]
    if isinstance(expression, Call):
        return record | {"node": "call", "function": expression.function}
    if isinstance(expression, Cast):
        return record | {"node": "cast"}
    if isinstance(expression, UserCall):
        return record | {"node": "user call", RECORD: expression.function.to_json()}
    assert isinstance(expression, Case), expression
    return record | {"node": "case"}


def expression_from_json(record: Mapping[str, Any]) -> Expression:
    """The inverse of `expression_to_json`."""
    node, data_type = record["node"], DataType.parse(record["type"])
    if node == "column":
        return InputRef(record["index"], data_type)
    if node == "literal":
        return Literal(value_from_json(record["value"], data_type), data_type)
    args = tuple(map(expression_from_json, record["args"]))
    if node == "call":
        return Call(record["function"], args, data_type)
    if node == "cast":
        return Cast(args[0], data_type)
    if node == "user call":
        return UserCall(UserFunction.from_json(record[RECORD]), args, data_type)
    if node == "case":
        return Case(tuple(zip(args[:-1:2], args[1:-1:2], strict=True)), args[-1], data_type)
    raise ValueError(f"unknown expression node {node!r}")
