"""CAST: the allowed conversions, and the kernel of each. The result for a row never depends on other rows.

A cast to a narrower number rounds half away from zero (floats half to even), and an overflow fails the row. A cast from
text requires the whole trimmed text (of a BYTEA the whole text) to be a value of the type, else the row fails: an
integer is a sign and digits, other numbers may have a point and an exponent, and floats may also be inf, infinity and
nan. Timestamps without a zone are read as UTC. A list or a struct converts part by part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.column import Column
from relational.chunk.json import canonical_json
from relational.chunk.nearest_float import floats_of_decimals, rounded_to_real
from relational.expr.eval_context import (
    EvalContext,
    Value,
    bitmap,
    booleans,
    from_numbers,
    null_where,
    numbers,
    valid_rows,
)
from relational.expr.kernels import arithmetic, nested, text_format
from relational.expr.kernels.temporal import interval_parts
from relational.expr.kernels.text_numbers import (
    FAULT_INVALID,
    FAULT_OVERFLOW,
    FAULT_UNDECIDED,
    FAULT_WORD,
    bytes_of_text,
    decimals_of_text,
    doubles_of_text,
    integers_of_text,
)
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import MICROSECONDS_PER_DAY

_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether CAST(source AS target) is defined at all."""
    kinds = (source.kind, target.kind)
    if TypeKind.VARCHAR in kinds:
        return True
    if source.is_nested or target.is_nested:
        is_fitting = source.kind is target.kind and len(source.children) == len(target.children)
        return is_fitting and all(map(can_cast, source.children, target.children))
    if source.kind == target.kind or (source.is_numeric and target.is_numeric):
        return True
    if source.kind is TypeKind.JSONB:
        return target.is_numeric or target.kind is TypeKind.BOOLEAN
    if TypeKind.BOOLEAN in kinds:
        return TypeKind.INT in kinds
    if source.kind in _MOMENTS and target.kind in _MOMENTS:
        return True
    return kinds in (
        (TypeKind.TIMESTAMP, TypeKind.TIME),
        (TypeKind.TIMESTAMPTZ, TypeKind.TIME),
        (TypeKind.TIME, TypeKind.INTERVAL),
        (TypeKind.INTERVAL, TypeKind.TIME),
    )


def cast(evaluation: EvalContext, value: Value, source: DataType, target: DataType) -> Value:
    """`value` of type `source` as `target`. REQUIRES can_cast."""
    if source == target:
        return value
    array = evaluation.column(value)
    if source.is_nested and target.is_nested:
        kernel = nested.cast_struct if source.kind is TypeKind.STRUCT else nested.cast_list
        return kernel(evaluation, array, source, target, cast)
    if source.kind is TypeKind.VARCHAR:
        is_whole = target.is_numeric or target.kind is TypeKind.BYTEA
        return _FROM_TEXT[target.kind](evaluation, array if is_whole else _trimmed(array), target)
    if target.kind is TypeKind.VARCHAR:
        return text_format.to_text(array, source)
    if source.kind is TypeKind.JSONB:
        return _of_json(evaluation, array, target)
    if target.kind is TypeKind.NUMERIC:
        return _to_numeric(evaluation, array, target)
    if target.is_integer:
        return _to_integer(evaluation, array, source, target)
    if target.is_float:
        return _to_float(evaluation, array, target)
    if target.kind is TypeKind.INTERVAL:
        return text_format.intervals(np.zeros(len(array)), np.zeros(len(array)), numbers(array, "<i8"), array)
    if target.kind is TypeKind.TIME:
        micros = interval_parts(array)[2] if source.kind is TypeKind.INTERVAL else numbers(array, "<i8")
        clock = np.mod(micros, MICROSECONDS_PER_DAY)
        return from_numbers(clock, target.arrow, valid_rows(array))
    if target.kind is TypeKind.DATE:
        days = np.floor_divide(numbers(array, "<i8"), MICROSECONDS_PER_DAY).astype(np.int32)
        return from_numbers(days, target.arrow, valid_rows(array))
    return array.cast(target.arrow)


def _of_json(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    """A JSON number, true or false as a number or BOOLEAN; JSON's null is NULL, other values fail."""
    texts = array.storage
    is_boolean = target.kind is TypeKind.BOOLEAN
    fitting = booleans(pc.fill_null(pc.match_substring_regex(texts, "^[tf]" if is_boolean else "^[-0-9]"), False))
    is_null = booleans(pc.fill_null(pc.equal(texts, "null"), False))
    evaluation.fail(valid_rows(texts) & ~fitting & ~is_null, f"this JSON is no {target}")
    texts = null_where(texts, ~fitting)
    if is_boolean or target.is_float or target.kind is TypeKind.NUMERIC:
        return _FROM_TEXT[target.kind](evaluation, texts, target)
    return _to_integer(evaluation, _numeric_of_text(evaluation, texts, DataType.NUMERIC), DataType.NUMERIC, target)


def _to_numeric(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    if pa.types.is_floating(array.type):
        return _float_to_numeric(evaluation, array, target)
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal128(19, 0))
    return arithmetic.rescale(evaluation, array, target)


def _float_to_numeric(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    """Converts a float by its shortest decimal text, so that 0.1 is 0.1."""
    values, faults = _decimals_of_text(Column(array.cast(pa.string())), target)
    evaluation.fail(faults > 0, f"{arithmetic.OUT_OF_RANGE} for {target}")
    return from_numbers(values.view("V16"), target.arrow, valid_rows(array) & (faults == 0))


def _to_integer(evaluation: EvalContext, array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if source.kind is TypeKind.NUMERIC:
        return arithmetic.narrow_to_integer(evaluation, array, target)
    if source.kind is TypeKind.BOOLEAN or (source.is_integer and source.kind < target.kind):
        return array.cast(target.arrow)
    values = numbers(array, source.arrow.to_pandas_dtype())
    dtype = target.arrow.to_pandas_dtype()
    limits = np.iinfo(dtype)
    valid = valid_rows(array)
    with np.errstate(invalid="ignore"):
        if source.is_float:
            values = np.rint(values.astype(np.float64))
            fits = (values >= float(limits.min)) & (values < float(limits.max) + 1.0)
        elif limits.min <= values.min() and values.max() <= limits.max:
            return from_numbers(values.astype(dtype), target.arrow, valid)
        else:
            fits = (values >= limits.min) & (values <= limits.max)
        evaluation.fail(~fits & valid, f"{arithmetic.OUT_OF_RANGE} for {target}")
        return from_numbers(np.where(fits, values, 0).astype(dtype), target.arrow, valid & fits)


def _to_float(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    if pa.types.is_decimal(array.type):
        return floats_of_decimals(array, target.arrow)
    result = array.cast(target.arrow, safe=False)
    if target.kind is TypeKind.REAL and pa.types.is_floating(array.type):
        source, narrowed = (side.to_numpy(zero_copy_only=False) for side in (array, result))
        return evaluation.reject(
            result, np.isinf(narrowed) & ~np.isinf(source), f"{arithmetic.OUT_OF_RANGE} for REAL"
        )
    return result


def _trimmed(array: pa.Array) -> pa.Array:
    """Strips white space from both ends, non-ASCII included."""
    return pc.utf8_trim_whitespace(array)


def _read(
    array: pa.Array, read: Callable[[Column], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """The values and faults of texts, from a parser that recognizes ASCII blanks only."""
    found, faults = read(Column(array))
    if (faults == FAULT_INVALID).any():
        return read(Column(_trimmed(array)))
    return found, faults


def _fail(evaluation: EvalContext, faults: np.ndarray, target: DataType) -> None:
    if faults.any():
        evaluation.fail(faults == FAULT_INVALID, f"invalid text for {target}")
        evaluation.fail(faults == FAULT_OVERFLOW, f"{arithmetic.OUT_OF_RANGE} for {target}")


def _integer_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    dtype = target.arrow.to_pandas_dtype()
    limits = np.iinfo(dtype)
    values, faults = _read(array, lambda texts: integers_of_text(texts, limits.min, limits.max))
    _fail(evaluation, faults, target)
    return from_numbers(values.astype(dtype, copy=False), target.arrow, valid_rows(array) & (faults == 0))


def _decimals_of_text(texts: Column, target: DataType) -> tuple[np.ndarray, np.ndarray]:
    return decimals_of_text(texts, target.precision, target.scale)


def _numeric_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    values, faults = _read(array, lambda texts: _decimals_of_text(texts, target))
    _fail(evaluation, faults, target)
    return from_numbers(values.view("V16"), target.arrow, valid_rows(array) & (faults == 0))


def _float_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    """The nearest float, ties to even. Arrow parses the texts that our parser leaves undecided (words and very many
    digits): the same value, only slower.
    """
    numbers_read, faults = _read(array, doubles_of_text)
    values = numbers_read if target.kind is TypeKind.DOUBLE else _narrowed(numbers_read, faults)
    left = np.flatnonzero(faults >= FAULT_WORD)
    if len(left):
        found = _trimmed(array.take(pa.array(left))).cast(target.arrow).to_numpy(zero_copy_only=False)
        values[left] = found
        faults[left] = np.where(np.isinf(found) & (faults[left] != FAULT_WORD), FAULT_OVERFLOW, 0)
    _fail(evaluation, faults, target)
    return from_numbers(values, target.arrow, valid_rows(array) & (faults == 0))


def _narrowed(doubles: np.ndarray, faults: np.ndarray) -> np.ndarray:
    """Rounds parsed `doubles` to float32[rows]; marks faults."""
    values, is_open = rounded_to_real(doubles)
    faults[is_open & (faults == 0)] = FAULT_UNDECIDED
    faults[np.isinf(values) & (faults == 0)] = FAULT_OVERFLOW
    return values


def _boolean_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    lowered = pc.utf8_lower(array)
    truth = booleans(pc.is_in(lowered, value_set=pa.array(_TRUE)))
    falsehood = booleans(pc.is_in(lowered, value_set=pa.array(_FALSE)))
    valid = valid_rows(array)
    evaluation.fail(~(truth | falsehood) & valid, f"invalid text for {target}")
    return null_where(pa.array(truth), ~(truth | falsehood) | ~valid)


def _moment_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    value, bad = text_format.parse_moments(array, target)
    evaluation.fail(bad, f"invalid text for {target}")
    return value


def _json_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    bad = np.zeros(len(array), np.uint8)
    texts = canonical_json(array, bad)
    evaluation.fail(bad.view(np.bool_), f"invalid text for {target}")
    return pa.ExtensionArray.from_storage(target.arrow, texts)


def _bytes_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    ends, data, faults = bytes_of_text(Column(array))
    _fail(evaluation, faults, target)
    valid = valid_rows(array) & (faults == 0)
    return pa.Array.from_buffers(target.arrow, len(array), [bitmap(valid), pa.py_buffer(ends), pa.py_buffer(data)])


def _list_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    return nested.list_of_text(evaluation, array, target, cast)


def _struct_of_text(evaluation: EvalContext, array: pa.Array, target: DataType) -> pa.Array:
    return nested.struct_of_text(evaluation, array, target, cast)


_FROM_TEXT: dict[TypeKind, Callable[[EvalContext, pa.Array, DataType], pa.Array]] = {
    TypeKind.BOOLEAN: _boolean_of_text,
    TypeKind.SMALLINT: _integer_of_text,
    TypeKind.INT: _integer_of_text,
    TypeKind.BIGINT: _integer_of_text,
    TypeKind.NUMERIC: _numeric_of_text,
    TypeKind.REAL: _float_of_text,
    TypeKind.DOUBLE: _float_of_text,
    TypeKind.DATE: _moment_of_text,
    TypeKind.TIME: _moment_of_text,
    TypeKind.TIMESTAMP: _moment_of_text,
    TypeKind.TIMESTAMPTZ: _moment_of_text,
    TypeKind.INTERVAL: _moment_of_text,
    TypeKind.BYTEA: _bytes_of_text,
    TypeKind.JSONB: _json_of_text,
    TypeKind.LIST: _list_of_text,
    TypeKind.STRUCT: _struct_of_text,
}
