"""Comparison, equality and membership in SQL's order, independent of Arrow's [R4].

NaN equals NaN and is greater than every number, -0.0 equals 0.0, NUMERIC compares by value across scales, an interval
by its length with months of 30 days. Text compares by its bytes, nested values part by part. Both operands are already
of one type family.
"""

from __future__ import annotations

import operator
from decimal import ROUND_FLOOR, Context
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.column import Column
from relational.chunk.row_compare import compare_columns
from relational.expr.eval_context import EvalContext, Value, booleans, choose, valid_rows
from relational.expr.kernels.decimal import decimal_compare
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import DAYS_PER_MONTH, MICROSECONDS_PER_DAY

INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
WORD_DIGITS = 18
"""Of NUMERICs whose 128 bits are those of a 64-bit word."""
_MOST = (1 << 63) - 1
_LEAST = -_MOST
_WIDE = Context(prec=120)
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_ARROW = {
    "equal": pc.equal,
    "not_equal": pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}
_SIGNS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def compare(operation: str, evaluation: EvalContext, left: Value, right: Value) -> Value:
    """BOOLEAN of `operation`, NULL where a side is NULL."""
    arrow = left.type
    if pa.types.is_decimal(arrow) and isinstance(left, pa.Scalar) != isinstance(right, pa.Scalar):
        found = _with_decimal(operation, left, right)
        if found is not None:
            return found
    is_special = pa.types.is_decimal(arrow) or pa.types.is_interval(arrow) or _is_composed(arrow)
    if is_special or _has_nan(left) or _has_nan(right):
        left, right = evaluation.column(left), evaluation.column(right)
        valid = valid_rows(left) & valid_rows(right)
        return pa.array(_SIGNS[operation](_signs(left, right), 0), mask=~valid)
    return _ARROW[operation](left, right)


def _with_decimal(operation: str, left: Value, right: Value) -> pa.Array | None:
    """A column of NUMERICs of up to 18 digits compared with a constant, by 64-bit words; None for other operands."""
    if isinstance(left, pa.Scalar):
        return _with_decimal(_MIRRORED.get(operation, operation), right, left)
    if left.type.precision > WORD_DIGITS or not right.is_valid:
        return None
    value = right.as_py().scaleb(left.type.scale, context=_WIDE)
    bound = int(value.to_integral_value(ROUND_FLOOR, context=_WIDE))
    words = np.frombuffer(left.buffers()[1], np.int64, 2 * len(left), 16 * left.offset)[::2]
    if bound == value:
        holds = _SIGNS[operation](words, min(max(bound, _LEAST), _MOST))
    elif operation in ("equal", "not_equal"):
        holds = np.full(len(left), operation == "not_equal")
    else:  # between two values of the column
        bound = min(max(bound, _LEAST), _MOST)
        holds = words <= bound if operation in ("less", "less_equal") else words > bound
    return pa.array(holds, mask=None if left.null_count == 0 else ~valid_rows(left))


def _is_composed(arrow: pa.DataType) -> bool:
    return pa.types.is_nested(arrow) or isinstance(arrow, pa.BaseExtensionType)


def _has_nan(value: Value) -> bool:
    return pa.types.is_floating(value.type) and pc.any(pc.is_nan(_as_array(value))).as_py() is True


def _as_array(value: Value) -> pa.Array:
    return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value


def _signs(left: pa.Array, right: pa.Array) -> np.ndarray:
    """int8[rows]: -1, 0 or 1; unspecified where a side is NULL."""
    if _is_composed(left.type):
        return compare_columns(Column(left), Column(right))
    if pa.types.is_decimal(left.type):
        return decimal_compare(left, right, len(left), left.type.scale, right.type.scale)
    if pa.types.is_interval(left.type):
        left_days, left_rest = interval_length(left)
        right_days, right_rest = interval_length(right)
        days = np.sign(left_days - right_days)
        return np.where(days != 0, days, np.sign(left_rest - right_rest)).astype(np.int8)
    x, y = (side.to_numpy(zero_copy_only=False) for side in (left, right))
    x_nan, y_nan = np.isnan(x), np.isnan(y)
    above = (x > y) | (x_nan & ~y_nan)
    below = (x < y) | (y_nan & ~x_nan)
    return above.astype(np.int8) - below.astype(np.int8)


def interval_length(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """An interval's length as days and microseconds within a day, both int64[rows]; equal iff SQL-equal."""
    parts = np.frombuffer(
        array.buffers()[1], INTERVAL_LAYOUT, len(array), array.offset * INTERVAL_LAYOUT.itemsize
    )
    whole, rest = np.divmod(parts["nanoseconds"] // 1000, MICROSECONDS_PER_DAY)
    return parts["months"].astype(np.int64) * DAYS_PER_MONTH + parts["days"] + whole, rest


def is_distinct(evaluation: EvalContext, left: Value, right: Value) -> pa.Array:
    """Null-safe inequality: never NULL."""
    left, right = evaluation.column(left), evaluation.column(right)
    left_valid, right_valid = valid_rows(left), valid_rows(right)
    differs = booleans(compare("not_equal", evaluation, left, right))
    return pa.array((left_valid != right_valid) | (differs & left_valid & right_valid))


def is_member(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """x IN (…): true on a match; else NULL where x or any of the values is NULL; else false."""
    needle, *values = args
    if all(isinstance(value, pa.Scalar) for value in values) and _arrow_equality(needle.type):
        known = [value for value in values if value.is_valid]
        found = pc.is_in(
            evaluation.column(needle), value_set=pa.array([v.as_py() for v in known], needle.type)
        )
        unknown = booleans(pc.is_null(evaluation.column(needle)))
        if len(known) < len(values):
            unknown = unknown | ~booleans(found)
        return pc.if_else(pa.array(unknown), pa.scalar(None, pa.bool_()), found)
    return reduce(pc.or_kleene, (compare("equal", evaluation, needle, value) for value in values))


def is_listable(data_type: DataType) -> bool:
    """Whether `is_listed` compares values of the type as SQL does."""
    return not (data_type.is_nested or data_type.kind in (TypeKind.INTERVAL, TypeKind.JSONB))


def is_listed(evaluation: EvalContext, args: list[Value]) -> Value:
    """x IN a constant list of plain values of its type: one lookup in a set, whatever its size."""
    needle, members = evaluation.column(args[0]), args[1]
    assert isinstance(members, pa.Scalar)
    listed = members.values if members.is_valid else pa.nulls(1, needle.type)
    if pa.types.is_floating(needle.type):
        needle, listed = (pc.add(side, pa.scalar(0.0, side.type)) for side in (needle, listed))  # -0.0 is 0.0
    found = pc.is_in(needle, value_set=listed, skip_nulls=True)
    unknown = ~valid_rows(needle)
    if listed.null_count:
        unknown = unknown | ~booleans(found)
    return pc.if_else(pa.array(unknown), pa.scalar(None, pa.bool_()), found) if unknown.any() else found


def _arrow_equality(arrow: pa.DataType) -> bool:
    """Whether Arrow's equality is SQL's for the type."""
    special = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_interval, _is_composed)
    return not any(is_it(arrow) for is_it in special)


def extreme(operation: str, evaluation: EvalContext, args: list[Value]) -> pa.Array:
    """GREATEST ("greater") or LEAST ("less"): NULLs are ignored; NULL only where all are."""
    best = evaluation.column(args[0])
    for arg in args[1:]:
        candidate = evaluation.column(arg)
        better = booleans(compare(operation, evaluation, candidate, best)) | ~valid_rows(best)
        best = choose(better & valid_rows(candidate), candidate, best)
    return best


def single_value(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The value of a query that has `args[1]` rows; none if it has more than one."""
    has_several = evaluation.column(args[1]).fill_null(0).to_numpy(zero_copy_only=False) > 1
    if not has_several.any():
        return args[0]
    evaluation.fail(has_several, "a subquery that is used as a value has more than one row")
    value = evaluation.column(args[0])
    return value.take(pa.array(np.arange(len(value)), mask=has_several))
