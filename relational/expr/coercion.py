"""Implicit conversions between types, and the common type of several values.

Between declared NUMERIC(p, s), integers and literals the result types are Spark's (with allowPrecisionLoss): the digits
that the exact result may have; beyond 38, the scale is reduced, but not below 6. NUMERIC without (p, s), which is
NUMERIC(38, 10), has no informative bounds: with it the result is NUMERIC(38, 10) too.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context

from relational.expr.aggregates import MAX_PRECISION
from relational.types.data_type import DataType, Field, TypeKind

_INTEGER_DIGITS = {TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 20}
_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
UNBOUNDED = DataType.NUMERIC
"""NUMERIC without (p, s)."""
MIN_SCALE = 6
"""Minimum digits after the point of a result, however many precede it."""
WIDE = Context(prec=3 * MAX_PRECISION)
"""Python's default of 28 digits is too few for a NUMERIC."""


def is_exact(data_type: DataType) -> bool:
    """Whether the type is an integer or NUMERIC."""
    return data_type.is_numeric and not data_type.is_float


def digits(data_type: DataType) -> tuple[int, int]:
    """Digits before and after the point of an exact type, for the types of results."""
    if data_type.kind is TypeKind.NUMERIC:
        assert data_type.precision is not None and data_type.scale is not None
        return data_type.precision - data_type.scale, data_type.scale
    return _INTEGER_DIGITS[data_type.kind], 0


def adjusted(whole: int, scale: int, least_scale: int = MIN_SCALE) -> DataType:
    """NUMERIC with so many digits before and after the point; beyond 38 in total, the scale is reduced, but not below
    `least_scale`.
    """
    if whole + scale > MAX_PRECISION:
        scale = max(MAX_PRECISION - whole, min(scale, least_scale))
    return DataType.numeric(min(whole + scale, MAX_PRECISION), scale)


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The narrowest type that values of all `types` (at least one) convert to; None if there is none."""
    found: DataType | None = types[0]
    for data_type in types[1:]:
        found = None if found is None else _common(found, data_type)
    return found


def _common(a: DataType, b: DataType) -> DataType | None:
    if a == b:
        return a
    if a.is_numeric and b.is_numeric:
        if a.is_float or b.is_float:
            return DataType.DOUBLE
        if a.is_integer and b.is_integer:
            return a if a.kind > b.kind else b
        if UNBOUNDED in (a, b):
            return UNBOUNDED
        (whole_a, scale_a), (whole_b, scale_b) = digits(a), digits(b)
        return adjusted(max(whole_a, whole_b), max(scale_a, scale_b), least_scale=0)
    if a.kind in _MOMENTS and b.kind in _MOMENTS:
        return a if a.kind > b.kind else b
    if a.element is not None and b.element is not None:
        element = _common(a.element, b.element)
        return None if element is None else DataType.list_of(element)
    if len(a.fields) == len(b.fields) > 0:
        return _common_row(a, b)
    return None


def _common_row(a: DataType, b: DataType) -> DataType | None:
    """Field by field, by position; names of ROW (…) give way to those of a declared type."""
    fields = []
    for at, (left, right) in enumerate(zip(a.fields, b.fields, strict=True), 1):
        data_type = _common(left.data_type, right.data_type)
        if data_type is None:
            return None
        fields.append(Field(right.name if left.name == f"f{at}" else left.name, data_type))
    return DataType.struct(fields)


def can_widen(source: DataType, target: DataType) -> bool:
    """Whether a value of `source` converts to `target` implicitly."""
    if source == target or source.kind is target.kind is TypeKind.NUMERIC:
        return True
    if target.kind is TypeKind.NUMERIC:
        return source.is_integer
    return _common(source, target) == target


def can_assign(source: DataType, target: DataType) -> bool:
    """Whether a value of `source` may be stored in a column of `target`: widening, narrowing with a
    check, or as text.
    """
    if (target.kind is TypeKind.VARCHAR and not source.is_nested) or (source.is_numeric and target.is_numeric):
        return True
    if source.is_nested and source.kind is target.kind and len(source.children) == len(target.children):
        return all(map(can_assign, source.children, target.children))
    return can_widen(source, target) or (source.kind in _MOMENTS and target.kind in _MOMENTS)


def arithmetic_type(operation: str, a: DataType, b: DataType) -> DataType | None:
    """The result type of + - * / % on two numbers; None if an operand is not a number."""
    if not (a.is_numeric and b.is_numeric):
        return None
    if a.is_float or b.is_float:
        return a if a == b else DataType.DOUBLE
    if a.is_integer and b.is_integer:
        return a if a.kind > b.kind else b
    if UNBOUNDED in (a, b):
        return UNBOUNDED
    (whole_a, scale_a), (whole_b, scale_b) = digits(a), digits(b)
    scale = max(scale_a, scale_b)
    if operation == "multiply":
        return adjusted(whole_a + whole_b + 1, scale_a + scale_b)
    if operation == "divide":
        return adjusted(whole_a + scale_b, max(MIN_SCALE, scale_a + whole_b + scale_b + 1))
    if operation == "modulo":
        return adjusted(min(whole_a, whole_b), scale)
    return adjusted(max(whole_a, whole_b) + 1, scale)
