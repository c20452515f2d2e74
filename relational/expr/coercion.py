"""Which types turn into which without being asked, and the type that several values have in common."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context

from relational.expr.aggregates import MAX_PRECISION
from relational.types.data_type import DataType, TypeKind

_INTEGER_DIGITS = {TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}
_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
QUOTIENT_SCALE = 10
WIDE = Context(prec=3 * MAX_PRECISION)
"""Python's own 28 digits are too few for a NUMERIC."""
PRODUCT_SCALE = 20


def is_exact(data_type: DataType) -> bool:
    """An integer or NUMERIC."""
    return data_type.is_numeric and not data_type.is_float


def digits(data_type: DataType) -> tuple[int, int]:
    """Digits before and after the point that an exact type can hold."""
    if data_type.kind is TypeKind.NUMERIC:
        assert data_type.precision is not None and data_type.scale is not None
        return data_type.precision - data_type.scale, data_type.scale
    return _INTEGER_DIGITS[data_type.kind], 0


def capped(whole: int, scale: int) -> DataType:
    """NUMERIC of so many digits, the whole part cut where 38 are not enough."""
    return DataType.numeric(min(whole + scale, MAX_PRECISION), scale)


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The narrowest type that values of all `types` (one at least) turn into; None where there is none."""
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
        (whole_a, scale_a), (whole_b, scale_b) = digits(a), digits(b)
        return capped(max(whole_a, whole_b), max(scale_a, scale_b))
    if a.kind in _MOMENTS and b.kind in _MOMENTS:
        return a if a.kind > b.kind else b
    if a.element is not None and b.element is not None:
        element = _common(a.element, b.element)
        return None if element is None else DataType.list_of(element)
    return None


def can_widen(source: DataType, target: DataType) -> bool:
    """Whether a value of `source` is taken for `target` without a cast being written."""
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
    """The result of + - * / % of two numbers; None where one is none. Exact results follow SQL, capped
    at 38 digits.
    """
    if not (a.is_numeric and b.is_numeric):
        return None
    if a.is_float or b.is_float:
        return a if a == b else DataType.DOUBLE
    if a.is_integer and b.is_integer:
        return a if a.kind > b.kind else b
    (whole_a, scale_a), (whole_b, scale_b) = digits(a), digits(b)
    scale = max(scale_a, scale_b)
    if operation == "multiply":
        return capped(whole_a + whole_b, min(scale_a + scale_b, max(scale, PRODUCT_SCALE)))
    if operation == "divide":
        quotient = min(max(scale, QUOTIENT_SCALE), MAX_PRECISION + scale_a - scale_b)
        return DataType.numeric(MAX_PRECISION, quotient)
    return capped(max(whole_a, whole_b) + (operation != "modulo"), scale)
