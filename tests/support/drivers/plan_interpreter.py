"""A naive interpreter of logical plans over lists of rows: what a query means, whoever executes it.

Every operator is a few lines over Python lists, without keys, states, changes or order of execution. Only scalar
expressions are evaluated by the product, column at a time; DuckDB and PostgreSQL's answers are their oracles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key, reduce
from itertools import zip_longest
from operator import and_, or_, xor
from typing import Any, TypeAlias

import pyarrow as pa

from relational.chunk import DataChunk
from relational.chunk.json import canonical_json
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.eval import Evaluator
from relational.expr.expression import Expression
from relational.expr.window_functions import BoundKind, Frame, FrameUnit, WindowCall
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
)
from relational.plan.logical.over_window import OrderedGroups
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


def _expand(plan: Expand, tables: Mapping[int, Rows]) -> Rows:
    return [
        (*row, *(row[column] if at in each else None for at, column in enumerate(plan.columns)), number)
        for row in interpret(plan.input, tables) for number, each in enumerate(plan.sets, 1)
    ]


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
    found, ties = [], plan.input.stream_key or ()
    for numbers in groups.values():
        key = tuple(rows[numbers[0]][column] for column in plan.group_by) if plan.group_by else ()
        values = [
            _aggregated(call, [rows[number] for number in numbers if kept is None or kept[number]], ties)
            for call, kept in zip(plan.calls, filters, strict=True)
        ]
        found.append((*key, *values))
    return found


def _aggregated(call: AggCall, rows: Rows, key: tuple[int, ...] = ()) -> Any:
    """`key` decides the order of rows that are equal in that of the call."""
    if call.argument is None:
        return len(rows)
    if call.kind.collects:
        ties = tuple(map(SortKey, key))
        order = cmp_to_key(lambda one, other: _in_order((*call.order, *ties), one, other))
        return _collected(call, sorted(rows, key=order))
    if call.kind.is_of_pairs:
        pairs = [(row[call.argument], row[call.more[0]]) for row in rows]
        return _of_pairs(call.kind, [pair for pair in pairs if None not in pair])
    values = [row[call.argument] for row in rows if row[call.argument] is not None]
    if call.distinct:
        values = list({_key(value): value for value in values}.values())
    if call.kind is AggKind.COUNT:
        return len(values)
    if call.kind is AggKind.APPROX_COUNT_DISTINCT:
        return len(set(map(_key, values)))
    if not values:
        return None
    if call.kind.is_bitwise:
        return reduce({"bit_and": and_, "bit_or": or_, "bit_xor": xor}[call.kind], values)
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


def _collected(call: AggCall, rows: Rows) -> Any:
    """The result of a call over rows in their order."""
    kind = call.kind
    if call.distinct:
        keyed = {tuple(_key(row[column]) for column in call.arguments): row for row in reversed(rows)}
        rows = list(reversed(keyed.values()))
    values = [tuple(row[column] for column in call.arguments) for row in rows]
    if kind in (AggKind.ARG_MIN, AggKind.ARG_MAX):
        values = [each for each in values if None not in each]
    if kind is AggKind.STRING_AGG or kind.is_ordered_set:
        values = [each for each in values if each[0] is not None]
    if not values:
        return None
    first = [each[0] for each in values]
    if kind is AggKind.STRING_AGG:
        return (call.constants[0].value or type(first[0])()).join(first)
    if kind is AggKind.ARRAY_AGG:
        return first
    if kind is AggKind.JSONB_AGG:
        return _canonical("[" + ",".join(each or "null" for each in first) + "]")
    if kind is AggKind.JSONB_OBJECT_AGG:
        members = {key: value or "null" for key, value in values}
        if None in members:
            return None
        return _canonical("{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in members.items()) + "}")
    if kind.takes_first:
        return first[-1 if kind is AggKind.LAST_VALUE else 0]
    if kind is AggKind.MODE:
        keys = list(map(_key, first))
        return max(first, key=lambda value: (keys.count(_key(value)), -keys.index(_key(value))))
    (fraction,) = (each.value for each in call.constants)
    if isinstance(fraction, list):
        return [_percentile(kind, first, each) for each in fraction]
    return _percentile(kind, first, fraction)


def _percentile(kind: AggKind, values: list[Any], fraction: float | None) -> Any:
    if fraction is None:
        return None
    if kind is AggKind.PERCENTILE_DISC:
        return values[max(math.ceil(fraction * len(values)), 1) - 1]
    way = fraction * (len(values) - 1)
    low, high = values[math.floor(way)], values[math.ceil(way)]
    return low if math.floor(way) == math.ceil(way) else low + (way - math.floor(way)) * (high - low)


def _canonical(text: str) -> str:
    return canonical_json(pa.array([text]))[0].as_py()


def _of_pairs(kind: AggKind, pairs: list[tuple[float, float]]) -> float | int | None:
    """Of pairs (y, x), from exact sums."""
    n = len(pairs)
    if kind is AggKind.REGR_COUNT:
        return n
    if n < (2 if kind is AggKind.COVAR_SAMP else 1):
        return None
    if not all(math.isfinite(value) for pair in pairs for value in pair):
        return math.nan
    y, x = ([Fraction(pair[at]) for pair in pairs] for at in (0, 1))
    mean_y, mean_x = sum(y) / n, sum(x) / n
    sxx, syy = sum((each - mean_x) ** 2 for each in x), sum((each - mean_y) ** 2 for each in y)
    sxy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    plain = {"regr_avgx": mean_x, "regr_avgy": mean_y, "regr_sxx": sxx, "regr_syy": syy, "regr_sxy": sxy,
             "covar_pop": sxy / n, "covar_samp": sxy / max(n - 1, 1)}
    if kind in plain:
        return float(plain[kind])
    if sxx == 0 or (kind is AggKind.CORR and syy == 0):
        return None
    if kind is AggKind.CORR:
        return float(sxy) / math.sqrt(sxx * syy)
    slope = sxy / sxx
    fit = 1 if syy == 0 else sxy**2 / (sxx * syy)
    return float({"regr_slope": slope, "regr_intercept": mean_y - slope * mean_x, "regr_r2": fit}[kind])


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


def _over_window(plan: OverWindow, tables: Mapping[int, Rows]) -> Rows:
    """Row by row, looking at all rows of its partition."""
    partitions: dict[Any, list[tuple[Any, ...]]] = {}
    numbered = _numbered(plan, tables)
    numbers: dict[Any, list[dict[str, int]]] = {}
    for row, found in numbered:
        group = tuple(_key(row[column]) for column in plan.groups)
        partitions.setdefault(group, []).append(row)
        numbers.setdefault(group, []).append(found)
    return [
        (*row, *(_window_value(call, plan.keys, partition, numbers[group], at) for call in plan.calls))
        for group, partition in partitions.items()
        for at, row in enumerate(partition)
    ]


def _window_value(call: WindowCall, keys: Sequence[SortKey], rows: Rows, numbers: list[dict[str, int]], at: int) -> Any:
    """The value for row `at` of a partition in order, whose rows have these numbers."""
    kind = str(call.kind)
    if kind in numbers[at]:
        return numbers[at][kind]
    if kind == "percent_rank":
        return (numbers[at]["rank"] - 1) / (len(rows) - 1) if len(rows) > 1 else 0.0
    if kind == "cume_dist":
        return sum(other["rank"] <= numbers[at]["rank"] for other in numbers) / len(rows)
    if kind == "ntile":
        sizes = [len(rows) // call.number + (bucket < len(rows) % call.number) for bucket in range(call.number)]
        return next(bucket for bucket in range(call.number) if at < sum(sizes[: bucket + 1])) + 1
    if kind in ("lag", "lead"):
        other = at - call.number if kind == "lag" else at + call.number
        if 0 <= other < len(rows):
            return rows[other][call.argument]
        return None if call.default is None else rows[at][call.default]
    frame = [row for other, row in enumerate(rows) if _in_frame(call.frame, keys, rows, numbers, at, other)]
    if isinstance(call.kind, AggKind):
        kept = [row for row in frame if call.filter is None or row[call.filter]]
        return _aggregated(AggCall(call.kind, call.argument, None, False, call.data_type), kept)
    position = {"first_value": 0, "last_value": len(frame) - 1, "nth_value": call.number - 1}[kind]
    return frame[position][call.argument] if 0 <= position < len(frame) else None


def _in_frame(
    frame: Frame, keys: Sequence[SortKey], rows: Rows, numbers: list[dict[str, int]], at: int, other: int
) -> bool:
    """Whether row `other` is in the frame of row `at`."""
    for bound, sign in ((frame.start, 1), (frame.end, -1)):
        if bound.kind in (BoundKind.UNBOUNDED_PRECEDING, BoundKind.UNBOUNDED_FOLLOWING):
            continue
        if frame.unit is FrameUnit.RANGE and bound.offset is not None:
            order = keys[0].order
            both = ((rows[other][frame.key],), (rows[at][bound.offset],))
            distance = _in_order([SortKey(0, order)], *both)
        else:
            count = bound.offset or 0
            count = -count if bound.kind is BoundKind.PRECEDING else count
            unit = "row_number" if frame.unit is FrameUnit.ROWS else "dense_rank"
            distance = numbers[other][unit] - numbers[at][unit] - count
        if distance * sign < 0:
            return False
    return True


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
    Expand: _expand,
    ProjectSet: _project_set,
    Aggregate: _aggregate,
    Sort: _sort,
    OverWindow: _over_window,
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
