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
    3  the digits of a second beyond microseconds are rounded, they were cut off; blanks around a text are bytes of a
       BYTEA; the names of time zones may be in any case, and an interval may end with a colon (they were NULL).
    4  a NUMERIC with a fraction or with more than 15 digits becomes the nearest REAL or DOUBLE; it could become a
       neighbour of that.
    5  a pole of tand and cotd has PostgreSQL's sign; date_trunc to an hour or less, by the clock of a zone, stays in
       the first of two hours that the clock shows alike.
    6  the epoch of an INTERVAL has years of 365.25 days; the text of a REAL or DOUBLE has an exponent from 1e+06 or
       1e+15 on and below 0.0001, of two digits; the zone of a TIMESTAMPTZ is +00 in its text; JSON has no zeros at the
       end of a second's fraction; TM before a pattern of to_char, to_date and to_timestamp belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relational.expr.aggregates import MAX_PRECISION
from relational.expr.expression import Call, Cast, Expression, Literal
from relational.expr.kernels.temporal import zone_names
from relational.types.data_type import DataType, TypeKind

KERNEL_VERSION = 6
_TEXT_FORMS = (
    TypeKind.SMALLINT,
    TypeKind.INT,
    TypeKind.BIGINT,
    TypeKind.NUMERIC,
    TypeKind.REAL,
    TypeKind.DOUBLE,
    TypeKind.TIME,
    TypeKind.TIMESTAMP,
    TypeKind.TIMESTAMPTZ,
    TypeKind.INTERVAL,
    TypeKind.BYTEA,
)
_THIRD_FORMS = (TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ, TypeKind.INTERVAL, TypeKind.BYTEA)
"""Types that version 3 reads from texts otherwise."""
_SECOND = ("acosd", "asind", "regexp_split_to_array", "similar_to", "to_char", "to_date", "to_timestamp")
"""Functions that version 2 computes otherwise."""
_POLES = ("cotd", "tand")
"""Functions that version 5 computes otherwise."""
_CUT_IN_ZONE = ("date_trunc", *(
    f"date_trunc_{unit}" for unit in ("hour", "minute", "second", "millisecond", "microsecond")))
"""And these, where a zone follows the moment."""
_SIXTH_FORMS = (TypeKind.REAL, TypeKind.DOUBLE, TypeKind.TIMESTAMPTZ)
"""Types whose texts version 6 writes otherwise."""
_JSON_FORMS = (TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
_TO_JSON = ("jsonb_build_array", "jsonb_build_object", "to_jsonb")
"""And types whose JSON it writes otherwise, and functions that do."""
_BY_TEMPLATE = ("to_char", "to_date", "to_timestamp")
"""Functions that version 6 computes otherwise where a template has TM."""
_ZONE_AT = {"date_trunc": 1, "make": 6}
"""The argument that is a zone, of functions whose names begin so."""
_DOUBLE_DIGITS = 15
"""Whole numbers of so many digits are exact in a DOUBLE."""
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
    if target.kind is TypeKind.VARCHAR and _has_kind(source, _SIXTH_FORMS):
        return True
    if version >= 4:
        return False
    if source.kind is TypeKind.NUMERIC and target.is_float:
        return bool(source.scale) or (source.precision or MAX_PRECISION) > _DOUBLE_DIGITS
    if version == 3:
        return False
    if source.kind is TypeKind.VARCHAR:
        return target.kind in (_THIRD_FORMS if version else _TEXT_FORMS)
    if source.kind is TypeKind.INTERVAL:
        return version < 2 and target.kind is TypeKind.VARCHAR
    if version:
        return False
    return source.is_float and target.kind is TypeKind.NUMERIC


def _is_changed_call(call: Call, version: int) -> bool:
    types = [arg.data_type for arg in call.args]
    if _is_of_sixth(call, types):
        return True
    if version == 5:
        return False
    if call.function in _POLES or (call.function in _CUT_IN_ZONE and DataType.TIMESTAMPTZ in types[:-1]):
        return True
    if version >= 3:
        return False
    if _has_open_zone(call):
        return True
    if version == 2:
        return False
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


def _is_of_sixth(call: Call, types: Sequence[DataType]) -> bool:
    """Whether version 6 is the first with the results of a call."""
    if call.function in _TO_JSON:
        return any(_has_kind(each, _JSON_FORMS) for each in types)
    if call.function in _BY_TEMPLATE and len(types) == 2:
        template = call.args[1].value if isinstance(call.args[1], Literal) else None
        return template is None or "TM" in template.upper()
    return call.function == "extract_epoch" and types[0].kind is TypeKind.INTERVAL


def _has_kind(data_type: DataType, kinds: Sequence[TypeKind]) -> bool:
    """Whether a type, or one inside it, is of these kinds."""
    return data_type.kind in kinds or any(_has_kind(each, kinds) for each in data_type.children)


def _has_open_zone(call: Call) -> bool:
    """Whether a call depends on a zone that is not a constant with the name of one."""
    at = 0 if call.function == "timezone" else _ZONE_AT.get(call.function.rpartition("_")[0] or call.function)
    zone = None if at is None or at >= len(call.args) else call.args[at]
    if zone is None or zone.data_type.kind is not TypeKind.VARCHAR:
        return False
    written = zone.value if isinstance(zone, Literal) else None
    return written is None or zone_names().get(written.lower(), written) != written


def _precision(operand: Expression) -> int:
    """The maximum number of digits of an exact number."""
    if isinstance(operand, Literal) and operand.data_type.is_integer:
        return len(str(operand.value))
    return operand.data_type.precision or _INTEGER_DIGITS[operand.data_type.kind]
