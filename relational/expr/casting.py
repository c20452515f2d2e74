"""CAST: which types convert to which, and the kernel of each pair.

To a narrower number rounds half away from zero (floats half to even) and fails where it does not fit.
From text the whole trimmed text must be a value of the type, else the row fails. Timestamps without a
zone are read as UTC. A list or a struct converts part by part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.json_text import canonical_json
from relational.expr import arithmetic, nested, text_values
from relational.expr.coercion import WIDE, digits
from relational.expr.evaluation import (
    Evaluation,
    Value,
    booleans,
    from_numbers,
    null_where,
    numbers,
    valid_rows,
)
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import MICROSECONDS_PER_DAY

_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")
_INTEGER = r"^[+-]?[0-9]{1,38}$"
_DECIMAL = r"^[+-]?([0-9]{1,37}(\.[0-9]{0,38})?|\.[0-9]{1,38})$"
_FLOAT = r"(?i)^[+-]?([0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_LONG_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.IGNORECASE)


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether CAST(source AS target) has a meaning at all."""
    kinds = (source.kind, target.kind)
    if TypeKind.VARCHAR in kinds:
        return True
    if source.is_nested or target.is_nested:
        is_fitting = source.kind is target.kind and len(source.children) == len(target.children)
        return is_fitting and all(map(can_cast, source.children, target.children))
    if source.kind == target.kind or (source.is_numeric and target.is_numeric):
        return True
    if TypeKind.BOOLEAN in kinds:
        return TypeKind.INT in kinds
    if source.kind in _MOMENTS and target.kind in _MOMENTS:
        return True
    return kinds in (
        (TypeKind.TIMESTAMP, TypeKind.TIME),
        (TypeKind.TIMESTAMPTZ, TypeKind.TIME),
        (TypeKind.TIME, TypeKind.INTERVAL),
    )


def cast(evaluation: Evaluation, value: Value, source: DataType, target: DataType) -> Value:
    """`value` of type `source` as `target`. REQUIRES can_cast."""
    if source == target:
        return value
    array = evaluation.column(value)
    if source.is_nested and target.is_nested:
        kernel = nested.cast_struct if source.kind is TypeKind.STRUCT else nested.cast_list
        return kernel(evaluation, array, source, target, cast)
    if source.kind is TypeKind.VARCHAR:
        return _FROM_TEXT[target.kind](evaluation, pc.utf8_trim_whitespace(array), target)
    if target.kind is TypeKind.VARCHAR:
        return text_values.to_text(array, source)
    if target.kind is TypeKind.NUMERIC:
        return _to_numeric(evaluation, array, target)
    if target.is_integer:
        return _to_integer(evaluation, array, source, target)
    if target.is_float:
        return _to_float(evaluation, array, target)
    if target.kind is TypeKind.INTERVAL:
        return text_values.intervals(np.zeros(len(array)), np.zeros(len(array)), numbers(array, "<i8"), array)
    if target.kind is TypeKind.TIME:
        clock = np.mod(numbers(array, "<i8"), MICROSECONDS_PER_DAY)
        return from_numbers(clock, target.arrow, valid_rows(array))
    if target.kind is TypeKind.DATE:
        days = np.floor_divide(numbers(array, "<i8"), MICROSECONDS_PER_DAY).astype(np.int32)
        return from_numbers(days, target.arrow, valid_rows(array))
    return array.cast(target.arrow)


def _to_numeric(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    if pa.types.is_floating(array.type):
        return _float_to_numeric(evaluation, array, target)
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal128(19, 0))
    return arithmetic.rescale(evaluation, array, target)


def _float_to_numeric(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    """A float by its shortest decimal text, so that 0.1 is 0.1."""
    valid = valid_rows(array)
    values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        unfit = (~np.isfinite(values) | (np.abs(values) >= 10.0 ** digits(target)[0])) & valid
    fitting = evaluation.reject(array, unfit, f"{arithmetic.OUT_OF_RANGE} for {target}")
    texts = pc.replace_substring_regex(fitting.cast(pa.string()), r"^.*e-(3[89]|[4-9][0-9]|[0-9]{3})$", "0")
    return arithmetic.rescale_wide(evaluation, texts.cast(pa.decimal256(76, 38), safe=False), target)


def _to_integer(evaluation: Evaluation, array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if source.kind is TypeKind.NUMERIC:
        return arithmetic.narrow_to_integer(evaluation, array, target)
    if source.is_float:
        rounded = pc.round(array, ndigits=0, round_mode="half_to_even")
        values = rounded.cast(pa.float64()).to_numpy(zero_copy_only=False)
        limits = np.iinfo(target.arrow.to_pandas_dtype())
        with np.errstate(invalid="ignore"):
            fits = (values >= float(limits.min)) & (values < float(limits.max) + 1.0)
        reason = f"{arithmetic.OUT_OF_RANGE} for {target}"
        return evaluation.reject(rounded, ~fits & valid_rows(array), reason).cast(target.arrow, safe=False)
    try:
        return array.cast(target.arrow)
    except pa.ArrowInvalid:
        return arithmetic.narrow_to_integer(evaluation, array.cast(pa.decimal128(19, 0)), target)


def _to_float(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    result = array.cast(target.arrow, safe=False)
    if target.kind is TypeKind.REAL and pa.types.is_floating(array.type):
        source, narrowed = (side.to_numpy(zero_copy_only=False) for side in (array, result))
        return evaluation.reject(
            result, np.isinf(narrowed) & ~np.isinf(source), f"{arithmetic.OUT_OF_RANGE} for REAL"
        )
    return result


def _parsed(
    evaluation: Evaluation,
    array: pa.Array,
    target: DataType,
    pattern: str,
    convert: Callable[[pa.Array], pa.Array],
) -> pa.Array:
    """The texts as Arrow reads them; where it refuses one, `convert` of those that match `pattern`, and the
    others fail.
    """
    try:
        return array.cast(target.arrow)
    except pa.ArrowInvalid:
        matches = booleans(pc.match_substring_regex(array, pattern))
        return convert(evaluation.reject(array, ~matches & valid_rows(array), f"invalid text for {target}"))


def _integer_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    return _parsed(
        evaluation,
        array,
        target,
        _INTEGER,
        lambda texts: arithmetic.narrow_to_integer(evaluation, texts.cast(pa.decimal128(38, 0)), target),
    )


def _numeric_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    try:
        return array.cast(target.arrow)
    except pa.ArrowInvalid:
        plain = booleans(pc.match_substring_regex(array, _DECIMAL)) | ~valid_rows(array)
        if not plain.all():
            array = _spelled_out(evaluation, array, plain, target)
        return arithmetic.rescale_wide(evaluation, array.cast(pa.decimal256(76, 38)), target)


def _spelled_out(evaluation: Evaluation, array: pa.Array, plain: np.ndarray, target: DataType) -> pa.Array:
    """Texts with an exponent or very many digits as plain digits, one by one; what is no number fails."""
    texts = array.to_pylist()
    failed = np.zeros(len(texts), np.bool_)
    for row in np.flatnonzero(~plain):
        value = _decimal_or_none(texts[row])
        if value is None or value.copy_abs() >= Decimal(10) ** digits(target)[0]:
            failed[row], texts[row] = True, None
        else:
            texts[row] = f"{value.quantize(Decimal(1).scaleb(-38), context=WIDE):f}"
    evaluation.fail(failed, f"invalid text for {target}")
    return pa.array(texts, pa.string())


def _decimal_or_none(text: str) -> Decimal | None:
    try:
        return Decimal(text) if _LONG_DECIMAL.fullmatch(text) else None
    except InvalidOperation:
        return None


def _float_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    return _parsed(
        evaluation,
        array,
        target,
        _FLOAT,
        lambda texts: pc.replace_substring_regex(texts, r"^\+", "").cast(target.arrow),
    )


def _boolean_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    lowered = pc.utf8_lower(array)
    truth = booleans(pc.is_in(lowered, value_set=pa.array(_TRUE)))
    falsehood = booleans(pc.is_in(lowered, value_set=pa.array(_FALSE)))
    valid = valid_rows(array)
    evaluation.fail(~(truth | falsehood) & valid, f"invalid text for {target}")
    return null_where(pa.array(truth), ~(truth | falsehood) | ~valid)


def _moment_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    value, bad = text_values.parse_moments(array, target)
    evaluation.fail(bad, f"invalid text for {target}")
    return value


def _json_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    bad = np.zeros(len(array), np.uint8)
    texts = canonical_json(array, bad)
    evaluation.fail(bad.view(np.bool_), f"invalid text for {target}")
    return pa.ExtensionArray.from_storage(target.arrow, texts)


def _bytes_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    good = booleans(pc.match_substring_regex(array, r"^\\x([0-9a-fA-F]{2})*$"))
    evaluation.fail(~good & valid_rows(array), f"invalid text for {target}")
    texts = zip(array.to_pylist(), good, strict=True)
    return pa.array([bytes.fromhex(text[2:]) if fits else None for text, fits in texts], pa.binary())


def _list_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    return nested.list_of_text(evaluation, array, target, cast)


def _struct_of_text(evaluation: Evaluation, array: pa.Array, target: DataType) -> pa.Array:
    return nested.struct_of_text(evaluation, array, target, cast)


_FROM_TEXT: dict[TypeKind, Callable[[Evaluation, pa.Array, DataType], pa.Array]] = {
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
