"""The version of the expression kernels, and the differences between versions.

A view stores results of the kernels that computed its rows. A later retraction of a row must reproduce the same
results, else its group is not found; so a view records the version, and is rebuilt if its results may differ.

    0  until catalogs of format 2
    1  a cast of text depends on that text alone: '0x10' is no integer, a number of any digits is read exactly, a
       timestamp is within the years 1 to 9999, an interval fits its 16 bytes; REAL and DOUBLE become NUMERIC by their
       shortest text at any scale; + - % of NUMERIC are exact where an operand needs more than 38 digits at the common
       scale (they were NULL); seconds of an interval and products of intervals that do not fit are NULL. Sums of
       NUMERIC in 192 bits read the previous state format, and need no new version.
    2  the text of an INTERVAL has PostgreSQL's signs and plurals; products and quotients of intervals are rounded as
       its are; asind and acosd are exact in more places; templates of to_char may be in lower case; an empty match
       right after another one does not split a text; escaped quotes of SIMILAR TO match nothing; a text becomes a
       BYTEA in its escaped form too.
"""

from __future__ import annotations

from collections.abc import Iterator

from relational.expr.aggregates import MAX_PRECISION
from relational.expr.expression import Call, Cast, Expression, Literal
from relational.types.data_type import DataType, TypeKind

KERNEL_VERSION = 2
_TEXT_FORMS = (
    TypeKind.SMALLINT,
    TypeKind.INT,
    TypeKind.BIGINT,
    TypeKind.NUMERIC,
    TypeKind.REAL,
    TypeKind.DOUBLE,
    TypeKind.TIMESTAMP,
    TypeKind.TIMESTAMPTZ,
    TypeKind.INTERVAL,
    TypeKind.BYTEA,
)
_SECOND = ("acosd", "asind", "regexp_split_to_array", "similar_to", "to_char", "to_date", "to_timestamp")
"""Functions that version 2 computes otherwise."""
_INTEGER_DIGITS = {TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}


def change_of(expression: Expression, version: int) -> str | None:
    """The cast or call of this node, without its operands, if its result may differ from that of the kernels of
    `version`; None if it is the same.
    """
    if version >= KERNEL_VERSION:
        return None
    if isinstance(expression, Cast):
        source, target = expression.operand.data_type, expression.data_type
        is_changed = any(_is_changed_cast(part, wanted, version) for part, wanted in _parts(source, target))
        return f"CAST({source} AS {target})" if is_changed else None
    if isinstance(expression, Call) and _is_changed_call(expression, version):
        return f"{expression.function}({', '.join(str(arg.data_type) for arg in expression.args)})"
    return None


def _parts(source: DataType, target: DataType) -> Iterator[tuple[DataType, DataType]]:
    """The pairs of types inside `source` and `target` between which a cast converts."""
    if not target.is_nested:
        yield source, target
        return
    inner = source.children if source.is_nested else (source,) * len(target.children)
    for part, wanted in zip(inner, target.children, strict=True):
        yield from _parts(part, wanted)


def _is_changed_cast(source: DataType, target: DataType, version: int) -> bool:
    if source.kind is TypeKind.INTERVAL or version == 1:
        pair = source.kind, target.kind
        return pair in ((TypeKind.INTERVAL, TypeKind.VARCHAR), (TypeKind.VARCHAR, TypeKind.BYTEA))
    if source.kind is TypeKind.VARCHAR:
        return target.kind in _TEXT_FORMS
    return source.is_float and target.kind is TypeKind.NUMERIC


def _is_changed_call(call: Call, version: int) -> bool:
    types = [arg.data_type for arg in call.args]
    is_scaled = call.function in ("multiply", "divide") and call.data_type.kind is TypeKind.INTERVAL
    if is_scaled or call.function in _SECOND:
        return True
    if version == 1:
        return False
    if call.function in ("multiply", "extract_epoch"):
        return any(each.kind is TypeKind.INTERVAL for each in types)
    if call.function not in ("add", "subtract", "modulo") or call.data_type.kind is not TypeKind.NUMERIC:
        return False
    scale = max(each.scale or 0 for each in types)
    return any(_precision(arg) + scale - (arg.data_type.scale or 0) > MAX_PRECISION for arg in call.args)


def _precision(operand: Expression) -> int:
    """The maximum number of digits of an exact number."""
    if isinstance(operand, Literal) and operand.data_type.is_integer:
        return len(str(operand.value))
    return operand.data_type.precision or _INTEGER_DIGITS[operand.data_type.kind]
