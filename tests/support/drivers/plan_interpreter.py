"""A naive interpreter of logical plans over lists of rows: what a query means, whoever executes it.

Every operator is a few lines over Python lists, without keys, states, changes or order of execution. Only scalar
expressions are evaluated by the product, column at a time; DuckDB and PostgreSQL's answers are their oracles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any, TypeAlias

from relational.chunk import DataChunk
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.eval import Evaluator
from relational.expr.expression import Expression
from relational.plan.logical import (
    Aggregate,
    ColumnValues,
    Filter,
    Join,
    Limit,
    LogicalPlan,
    Project,
    ProjectSet,
    Rank,
    Recursive,
    Scan,
    Share,
    Sort,
    TopN,
    Union,
    Values,
    WorkingTable,
)
from relational.plan.logical.rank import OrderedGroups
from relational.types import DataType, Schema
from relational.types.ordering import SortKey

Rows: TypeAlias = "list[tuple[Any, ...]]"
MOST_DIGITS = 38
MOST_PAIRS = 1_000_000
"""Of rows that a join looks at."""


class TooManyPairs(Exception):
    """A join of so many rows that looking at all pairs is no test any more."""


def interpret(plan: LogicalPlan, tables: Mapping[int, Rows]) -> Rows:
    """The rows of `plan`, hidden columns included, in its order if it has one. `tables`: by id the rows of each table,
    with all of its columns. An expression without a value is NULL, as in a view."""
    return _INTERPRETERS[type(plan)](plan, tables)


def visible(plan: LogicalPlan, rows: Rows) -> Rows:
    """The rows without the hidden columns of `plan`."""
    return [tuple(row[column] for column in plan.visible) for row in rows]


def evaluated(expression: Expression, schema: Schema, rows: Rows) -> list[Any]:
    """The value of an expression for each row."""
    if not rows:
        return []
    chunk = DataChunk.from_rows(schema, rows) if len(schema) else DataChunk([], capacity=len(rows))
    return Evaluator(expression)(chunk).to_pylist()


def _scan(plan: Scan, tables: Mapping[int, Rows]) -> Rows:
    return [tuple(row[column] for column in plan.columns) for row in tables[plan.table.id]]


def _filter(plan: Filter, tables: Mapping[int, Rows]) -> Rows:
    rows = interpret(plan.input, tables)
    keeps = evaluated(plan.predicate, plan.input.schema, rows)
    return [row for row, keep in zip(rows, keeps, strict=True) if keep]


def _project(plan: Project, tables: Mapping[int, Rows]) -> Rows:
    rows = interpret(plan.input, tables)
    columns = [evaluated(each, plan.input.schema, rows) for each in plan.expressions]
    return [tuple(column[row] for column in columns) for row in range(len(rows))]


def _project_set(plan: ProjectSet, tables: Mapping[int, Rows]) -> Rows:
    rows = interpret(plan.input, tables)
    found = []
    columns = [evaluated(each, plan.input.schema, rows) for each in plan.functions]
    for number, lists in enumerate(zip(*columns, strict=True)):
        passed = tuple(rows[number][column] for column in plan.passed)
        made = list(zip_longest(*(each or [] for each in lists)))
        found += [(*passed, *row, at) for at, row in enumerate(made, 1)]
        if plan.is_outer and not made:
            found.append((*passed, *(None for _ in lists), None))
    return found


def _aggregate(plan: Aggregate, tables: Mapping[int, Rows]) -> Rows:
    rows = interpret(plan.input, tables)
    schema = plan.input.schema
    filters = [None if call.filter is None else evaluated(call.filter, schema, rows) for call in plan.calls]
    groups: dict[Any, list[int]] = {} if plan.group_by else {(): []}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(_key(row[column]) for column in plan.group_by), []).append(number)
    found = []
    for numbers in groups.values():
        key = tuple(rows[numbers[0]][column] for column in plan.group_by) if plan.group_by else ()
        values = [
            _aggregated(call, [rows[number] for number in numbers if kept is None or kept[number]])
            for call, kept in zip(plan.calls, filters, strict=True)
        ]
        found.append((*key, *values))
    return found


def _aggregated(call: AggCall, rows: Rows) -> Any:
    if call.argument is None:
        return len(rows)
    values = [row[call.argument] for row in rows if row[call.argument] is not None]
    if call.distinct:
        values = list({_key(value): value for value in values}.values())
    if call.kind is AggKind.COUNT:
        return len(values)
    if not values:
        return None
    if call.kind in (AggKind.BOOL_AND, AggKind.BOOL_OR):
        return all(values) if call.kind is AggKind.BOOL_AND else any(values)
    if call.kind in (AggKind.MIN, AggKind.MAX):
        return (min if call.kind is AggKind.MIN else max)(values, key=cmp_to_key(_compare))
    if call.kind.is_variance:
        return _variance(call.kind, values)
    if isinstance(values[0], float):
        total = math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
        return total if call.kind is AggKind.SUM else total / len(values)
    exact = sum(map(Fraction, values)) / (1 if call.kind is AggKind.SUM else len(values))
    return _fitted(exact, call.data_type)


def _variance(kind: AggKind, values: list[Any]) -> float | None:
    divisor = len(values) - (kind in (AggKind.VAR_SAMP, AggKind.STDDEV_SAMP))
    if divisor == 0:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = list(map(Fraction, values))
    variance = float(sum((value - sum(exact) / len(exact)) ** 2 for value in exact) / divisor)
    return math.sqrt(variance) if kind in (AggKind.STDDEV_POP, AggKind.STDDEV_SAMP) else variance


def _fitted(exact: Fraction, data_type: DataType) -> int | Decimal | None:
    """A number of the type, rounded half away from zero; None if it does not fit."""
    if data_type == DataType.BIGINT:
        return int(exact) if -(1 << 63) <= exact < 1 << 63 else None
    scale = data_type.scale or 0
    unscaled = math.floor(abs(exact) * 10**scale + Fraction(1, 2))
    if unscaled >= 10 ** (data_type.precision or MOST_DIGITS):
        return None
    return Decimal((exact < 0, tuple(map(int, str(unscaled))), -scale))


def _sort(plan: Sort, tables: Mapping[int, Rows]) -> Rows:
    return sorted(interpret(plan.input, tables), key=cmp_to_key(lambda one, other: _in_order(plan.keys, one, other)))


def _in_order(keys: Sequence[SortKey], one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    for key in keys:
        a, b = one[key.column], other[key.column]
        if a is None or b is None:
            found = (b is None) - (a is None)
            found = found if key.order.nulls_first else -found
        else:
            found = -_compare(a, b) if key.order.descending else _compare(a, b)
        if found:
            return found
    return 0


def _numbered(plan: OrderedGroups, tables: Mapping[int, Rows]) -> list[tuple[tuple[Any, ...], dict[str, int]]]:
    """The rows with their numbers by name; equal ones in the order of the stream key."""
    rows = interpret(plan.input, tables)
    ties = tuple(SortKey(column) for column in plan.input.stream_key or ())
    rows.sort(key=cmp_to_key(lambda one, other: _in_order((*plan.keys, *ties), one, other)))
    last: dict[Any, tuple[tuple[Any, ...], dict[str, int]]] = {}
    found = []
    for row in rows:
        group = tuple(_key(row[column]) for column in plan.groups)
        before, numbers = last.get(group, (row, {"row_number": 0, "rank": 0, "dense_rank": 0}))
        number = numbers["row_number"] + 1
        is_tie = number > 1 and _in_order(plan.keys, before, row) == 0
        numbers = {"row_number": number, "rank": numbers["rank"] if is_tie else number,
                   "dense_rank": numbers["dense_rank"] + (not is_tie)}
        last[group] = row, numbers
        found.append((row, numbers))
    return found


def _rank(plan: Rank, tables: Mapping[int, Rows]) -> Rows:
    return [(*row, *(numbers[kind] for kind in plan.kinds)) for row, numbers in _numbered(plan, tables)]


def _top_n(plan: TopN, tables: Mapping[int, Rows]) -> Rows:
    return [
        (*row, *((numbers[plan.kind],) if plan.name is not None else ()))
        for row, numbers in _numbered(plan, tables)
        if plan.offset < numbers[plan.kind] <= plan.offset + plan.limit
    ]


def _limit(plan: Limit, tables: Mapping[int, Rows]) -> Rows:
    rows = interpret(plan.input, tables)[plan.offset :]
    return rows if plan.count is None else rows[: plan.count]


def _union(plan: Union, tables: Mapping[int, Rows]) -> Rows:
    return [row for branch in plan.branches for row in interpret(branch, tables)]


def _join(plan: Join, tables: Mapping[int, Rows]) -> Rows:
    left, right = (interpret(each, tables) for each in plan.inputs)
    if len(left) * len(right) > MOST_PAIRS:
        raise TooManyPairs
    pairs = [(one, other) for one in range(len(left)) for other in range(len(right))]
    rows = [left[one] + right[other] for one, other in pairs]
    if plan.on is not None:
        holds = evaluated(plan.on, Schema((*plan.left.schema, *plan.right.schema)), rows)
        pairs = [pair for pair, kept in zip(pairs, holds, strict=True) if kept]
        rows = [row for row, kept in zip(rows, holds, strict=True) if kept]
    found = [{pair[side] for pair in pairs} for side in (0, 1)]
    if not plan.kind.has_pairs:
        return [row for number, row in enumerate(left) if (number in found[0]) != plan.kind.keeps_left]
    if plan.kind.keeps_left:
        none = (None,) * len(plan.right.schema)
        rows += [row + none for number, row in enumerate(left) if number not in found[0]]
    if plan.kind.keeps_right:
        none = (None,) * len(plan.left.schema)
        rows += [none + row for number, row in enumerate(right) if number not in found[1]]
    return rows


def _recursive(plan: Recursive, tables: Mapping[int, Rows]) -> Rows:
    """The working table is the table of a negative id."""
    found: Rows = []
    working = interpret(plan.base, tables)
    while working:
        if plan.is_distinct:
            seen = {tuple(map(_key, row)): row for row in found}
            fresh = {tuple(map(_key, row)): row for row in working}
            working = [row for key, row in fresh.items() if key not in seen]
        found += working
        working = interpret(plan.step, {**tables, -1 - plan.number: working})
    return found


def _working_table(plan: WorkingTable, tables: Mapping[int, Rows]) -> Rows:
    return tables[-1 - plan.number]


def _share(plan: Share, tables: Mapping[int, Rows]) -> Rows:
    return interpret(plan.input, tables)


def _values(plan: Values, tables: Mapping[int, Rows]) -> Rows:
    return [tuple(evaluated(cell, Schema(()), [()])[0] for cell in row) for row in plan.rows]


def _column_values(plan: ColumnValues, tables: Mapping[int, Rows]) -> Rows:
    return list(zip(*(column.to_pylist() for column in plan.columns), strict=True))


_INTERPRETERS: dict[type[LogicalPlan], Callable[[Any, Mapping[int, Rows]], Rows]] = {
    Scan: _scan,
    Filter: _filter,
    Project: _project,
    ProjectSet: _project_set,
    Aggregate: _aggregate,
    Sort: _sort,
    Rank: _rank,
    TopN: _top_n,
    Limit: _limit,
    Union: _union,
    Join: _join,
    Share: _share,
    Recursive: _recursive,
    WorkingTable: _working_table,
    Values: _values,
    ColumnValues: _column_values,
}


def _key(value: Any) -> Any:
    """Equal for values that are one group: NULLs, NaNs, zeros of either sign."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _compare(one: Any, other: Any) -> int:
    """SQL's order of two values: texts by code points, NaN above all numbers."""
    if isinstance(one, float) and isinstance(other, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) - math.isnan(other)
    return (one > other) - (one < other)
