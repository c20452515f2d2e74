"""Kernels of + - * / % and the rounding functions, by type family.

Integers and NUMERIC are checked: an overflow is a failed row, never a wrapped number. Integer division truncates
towards zero. Results of NUMERIC have the precision and scale of [R54] and are rounded half away from zero. Floats
follow IEEE 754, except that division by zero, and infinity from finite operands, are failed rows as in SQL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import EvalContext, Value, from_numbers, null_where, numbers, valid_rows
from relational.expr.kernels.decimal import (
    ADD,
    DIVIDE,
    MODULO,
    MULTIPLY,
    SUBTRACT,
    decimal_arithmetic,
    decimal_rescale,
)
from relational.types.data_type import DataType, TypeKind

OUT_OF_RANGE = "value out of range"
DIVISION_BY_ZERO = "division by zero"
OPERATIONS = {
    "add": ADD,
    "subtract": SUBTRACT,
    "multiply": MULTIPLY,
    "divide": DIVIDE,
    "modulo": MODULO,
}
_CHECKED = {"add": pc.add_checked, "subtract": pc.subtract_checked, "multiply": pc.multiply_checked}
_FLOATING = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "modulo": np.fmod,
}


def arithmetic(operation: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """`operation` of two operands; integers and floats have the result's type, NUMERIC has any scale."""
    if data_type.kind is TypeKind.NUMERIC:
        return _numeric(operation, evaluation, args, data_type)
    if data_type.is_float:
        return _floating(operation, evaluation, args, data_type)
    return _integer(operation, evaluation, args, data_type)


def _integer(operation: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    if operation in ("divide", "modulo"):
        return _integer_division(operation, evaluation, args, data_type)
    try:
        return _CHECKED[operation](*args)
    except pa.ArrowInvalid:
        wide = [evaluation.column(arg).cast(pa.decimal128(19, 0)) for arg in args]
        exact = _numeric(operation, evaluation, wide, DataType.numeric(38, 0))
        return narrow_to_integer(evaluation, exact, data_type)


def _integer_division(
    operation: str, evaluation: EvalContext, args: list[Value], data_type: DataType
) -> Value:
    left, right = (evaluation.column(arg) for arg in args)
    dtype = data_type.arrow.to_pandas_dtype()
    valid = valid_rows(left) & valid_rows(right)
    dividend, divisor = numbers(left, dtype), numbers(right, dtype)
    zero = (divisor == 0) & valid
    evaluation.fail(zero, DIVISION_BY_ZERO)
    overflow = (divisor == -1) & (dividend == np.iinfo(dtype).min)
    safe = np.where((divisor == 0) | overflow, dtype(1), divisor)
    if operation == "modulo":
        return from_numbers(
            np.where(overflow, dtype(0), np.fmod(dividend, safe)), data_type.arrow, valid & ~zero
        )
    evaluation.fail(overflow & valid, OUT_OF_RANGE)
    remainder = np.fmod(dividend, safe)
    quotient = (dividend - remainder) // safe
    return from_numbers(quotient, data_type.arrow, valid & ~zero & ~overflow)


def _floating(operation: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    left, right = (evaluation.column(arg) for arg in args)
    dtype = data_type.arrow.to_pandas_dtype()
    valid = valid_rows(left) & valid_rows(right)
    dividend, divisor = numbers(left, dtype), numbers(right, dtype)
    if operation in ("divide", "modulo"):
        zero = (divisor == 0) & valid
        evaluation.fail(zero, DIVISION_BY_ZERO)
        valid &= ~zero
    with np.errstate(all="ignore"):
        values = _FLOATING[operation](dividend, divisor)
    if not np.isfinite(values).all():
        overflow = np.isinf(values) & np.isfinite(dividend) & np.isfinite(divisor) & valid
        evaluation.fail(overflow, OUT_OF_RANGE)
        valid &= ~overflow
    return from_numbers(values, data_type.arrow, valid)


def _numeric(operation: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> pa.Array:
    left, right = (_decimals(arg) for arg in args)
    data, faults = decimal_arithmetic(
        OPERATIONS[operation],
        left,
        right,
        evaluation.rows,
        left.type.scale,
        right.type.scale,
        data_type.precision,
        data_type.scale,
    )
    return decimal_result(evaluation, data, faults, [left, right], data_type)


def _decimals(value: Value) -> pa.Array:
    """An operand as decimals: an integer becomes NUMERIC of scale 0, a constant an array of one row."""
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
    return array if pa.types.is_decimal(array.type) else array.cast(pa.decimal128(19, 0))


def decimal_result(
    evaluation: EvalContext,
    data: np.ndarray,
    faults: np.ndarray,
    operands: list[pa.Array],
    data_type: DataType,
) -> pa.Array:
    """The NUMERIC array of a kernel's unscaled bytes, with its faults reported and NULL where an operand is NULL."""
    valid = np.ones(evaluation.rows, np.bool_)
    for operand in operands:
        valid &= valid_rows(operand)
    if faults.any():
        evaluation.fail((faults == 2) & valid, DIVISION_BY_ZERO)
        evaluation.fail((faults == 1) & valid, f"{OUT_OF_RANGE} for {data_type}")
        valid &= faults == 0
    return from_numbers(data.view("V16"), data_type.arrow, valid)


def rescale(evaluation: EvalContext, array: pa.Array, data_type: DataType) -> pa.Array:
    """NUMERIC at the precision and scale of `data_type`, rounded half away from zero."""
    if array.type.scale == data_type.scale and array.type.precision <= data_type.precision:
        return array.cast(data_type.arrow)
    data, faults = decimal_rescale(array, array.type.scale, data_type.precision, data_type.scale)
    return decimal_result(evaluation, data, faults, [array], data_type)


def narrow_to_integer(evaluation: EvalContext, array: pa.Array, data_type: DataType) -> pa.Array:
    """NUMERIC rounded to an integer type, half away from zero."""
    whole = rescale(evaluation, array, DataType.numeric(38, 0))
    try:
        return whole.cast(data_type.arrow)
    except pa.ArrowInvalid:
        limits = np.iinfo(data_type.arrow.to_pandas_dtype())
        bounds = (
            pa.scalar(int(bound), pa.int64()).cast(pa.decimal128(38, 0)) for bound in (limits.min, limits.max)
        )
        low, high = bounds
        outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
        rows = outside.fill_null(False).to_numpy(zero_copy_only=False)
        return evaluation.reject(whole, rows, f"{OUT_OF_RANGE} for {data_type}").cast(data_type.arrow)


def negate(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The negative; the smallest integer has none."""
    if data_type.is_integer:
        return _integer("subtract", evaluation, [pa.scalar(0, data_type.arrow), args[0]], data_type)
    return pc.negate(args[0])


def absolute(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The magnitude; the smallest integer has none."""
    array = evaluation.column(args[0])
    if data_type.is_integer:
        smallest = (
            numbers(array, data_type.arrow.to_pandas_dtype())
            == np.iinfo(data_type.arrow.to_pandas_dtype()).min
        )
        array = evaluation.reject(array, smallest & valid_rows(array), OUT_OF_RANGE)
    return pc.abs(array)


def round_half_away(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """Rounded to a number of digits (the scale of a NUMERIC result), half away from zero; floats half to even."""
    array = evaluation.column(args[0])
    if data_type.is_float:
        return pc.round(array, ndigits=0, round_mode="half_to_even")
    if data_type.is_integer:
        return array
    return rescale(evaluation, array, data_type)


def floor(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The largest integer not above the value."""
    return _whole(evaluation, args[0], data_type, pc.floor)


def ceil(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The smallest integer not below the value."""
    return _whole(evaluation, args[0], data_type, pc.ceil)


def truncated(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The value without its fraction."""
    return _whole(evaluation, args[0], data_type, pc.trunc)


def _whole(evaluation: EvalContext, value: Value, data_type: DataType, function) -> Value:
    array = evaluation.column(value)
    if data_type.kind is TypeKind.NUMERIC:
        if array.type.scale == 0:
            return array.cast(data_type.arrow)
        wide = function(array.cast(pa.decimal256(76, array.type.scale)))
        return wide.cast(pa.decimal256(76, 0)).cast(data_type.arrow)
    return array if data_type.is_integer else function(array)


def square_root(evaluation: EvalContext, args: list[Value], data_type: DataType) -> Value:
    """The square root of a DOUBLE; a negative number has none."""
    array = evaluation.column(args[0])
    negative = (numbers(array, "<f8") < 0) & valid_rows(array)
    evaluation.fail(negative, "square root of a negative number")
    return pc.sqrt(null_where(array, negative))
