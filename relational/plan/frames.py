"""Binds the frames of window functions.

The bounds of RANGE with offsets are values: the sort key of a row, minus or plus the offset. They become expressions
over the rows, in one type with the key they are compared with, so that whatever subtracts or adds to the key can bound
a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relational.errors import BindError
from relational.expr.bind import ExprBinder, call, convert, error_span, is_unknown, span_of
from relational.expr.coercion import common_type
from relational.expr.expression import Expression, Literal
from relational.expr.scope import Scope
from relational.expr.unbound import TextSpan, UnboundExpr, UnboundFrame, has_name
from relational.expr.window_functions import (
    UP_TO_PEERS,
    WHOLE_PARTITION,
    Bound,
    BoundKind,
    Frame,
    FrameUnit,
)
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval
from relational.types.ordering import OrderType
from relational.types.schema import Schema

SortKeys: TypeAlias = "Sequence[tuple[Expression, OrderType]]"
_MOMENTS = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class BoundFrame:
    """A frame whose `frame.key`, and offsets of RANGE, are positions in `values`."""

    frame: Frame
    values: tuple[Expression, ...] = ()


def bind_frame(frame: UnboundFrame | None, keys: SortKeys, span: TextSpan | None) -> BoundFrame:
    """The frame of a window with these sort keys. BindError at the offset or at `span`."""
    if frame is None:
        return BoundFrame(UP_TO_PEERS if keys else WHOLE_PARTITION)
    (start, start_offset), (end, end_offset) = frame.start, frame.end
    unit, where = frame.unit, frame.span or span
    _check_bounds(start, end, where)
    if unit is FrameUnit.GROUPS and not keys:
        raise BindError("a frame of GROUPS needs ORDER BY", **error_span(where))
    has_offset = start.has_offset or end.has_offset
    if unit is FrameUnit.RANGE and has_offset:
        if len(keys) != 1:
            raise BindError("a frame of RANGE with an offset needs ORDER BY one value", **error_span(where))
        return _range(frame, keys[0], where)
    if unit is FrameUnit.RANGE and not keys:  # all rows are equal in the order
        return BoundFrame(WHOLE_PARTITION)
    if (start, end) == (BoundKind.UNBOUNDED_PRECEDING, BoundKind.UNBOUNDED_FOLLOWING):
        return BoundFrame(WHOLE_PARTITION)
    first, last = (
        Bound(kind, None if offset is None else _count(offset, where))
        for kind, offset in ((start, start_offset), (end, end_offset))
    )
    return BoundFrame(Frame(unit, first, last))


def _check_bounds(start: BoundKind, end: BoundKind, span: TextSpan | None) -> None:
    if start is BoundKind.UNBOUNDED_FOLLOWING:
        raise BindError("a frame cannot begin at UNBOUNDED FOLLOWING", **error_span(span))
    if end is BoundKind.UNBOUNDED_PRECEDING:
        raise BindError("a frame cannot end at UNBOUNDED PRECEDING", **error_span(span))
    if start > end:
        message = f"a frame that begins with {_named(start)} cannot end with {_named(end)}"
        raise BindError(message, **error_span(span))


def _named(kind: BoundKind) -> str:
    return f"n {kind}" if kind.has_offset else str(kind)


def _constant(term: UnboundExpr, span: TextSpan | None) -> Literal:
    """The value of an offset. BindError if it is no constant, or NULL."""
    found = None if has_name(term) else ExprBinder(Scope(Schema())).bind(term)
    if not isinstance(found, Literal) or found.value is None:
        raise BindError("the offset of a frame is a constant, and not NULL", **error_span(span_of(term) or span))
    return found


def _count(term: UnboundExpr, span: TextSpan | None) -> int:
    """An offset of ROWS or GROUPS."""
    found = _constant(term, span)
    if not found.data_type.is_integer or found.value < 0:
        raise BindError("this offset of a frame is a whole number from 0", **error_span(span_of(term)))
    return int(found.value)


def _range(frame: UnboundFrame, key: tuple[Expression, OrderType], span: TextSpan | None) -> BoundFrame:
    value, order = key
    bounds: list[Expression | None] = [
        None if offset is None else _bound_value(value, kind, order, offset, span)
        for kind, offset in (frame.start, frame.end)
    ]
    base = _widened(value)
    types = [each.data_type for each in (base, *bounds) if each is not None]
    data_type = common_type(types)
    assert data_type is not None, types
    values = [convert(base, data_type, span)]
    made = []
    for (kind, _), bound in zip((frame.start, frame.end), bounds, strict=True):
        made.append(Bound(kind, None if bound is None else len(values)))
        values += [] if bound is None else [convert(bound, data_type, span)]
    return BoundFrame(Frame(FrameUnit.RANGE, made[0], made[1], 0), tuple(values))


def _widened(key: Expression) -> Expression:
    """A sort key in a type in which an offset can be subtracted from all of its values."""
    wider = {TypeKind.SMALLINT: DataType.BIGINT, TypeKind.INT: DataType.BIGINT, TypeKind.REAL: DataType.DOUBLE,
             TypeKind.BIGINT: DataType.numeric(19, 0)}
    return convert(key, wider.get(key.data_type.kind, key.data_type))


def _bound_value(
    key: Expression, kind: BoundKind, order: OrderType, term: UnboundExpr, span: TextSpan | None
) -> Expression:
    offset, is_moment = _constant(term, span), key.data_type.kind in _MOMENTS
    if is_moment and is_unknown(offset):
        offset = _constant_of(convert(offset, DataType.INTERVAL, span_of(term)))
    fits = offset.data_type.kind is TypeKind.INTERVAL if is_moment else (
        key.data_type.is_numeric and offset.data_type.is_numeric)
    if not fits:
        message = f"RANGE with an offset {offset.data_type} is not supported for ORDER BY a {key.data_type}"
        raise BindError(message, **error_span(span_of(term) or span))
    if offset.value < (Interval() if is_moment else 0) or offset.value != offset.value:
        raise BindError("an offset of a frame cannot be negative", **error_span(span_of(term)))
    function = "subtract" if (kind is BoundKind.PRECEDING) != order.descending else "add"
    return call(function, [_widened(key), offset], span)


def _constant_of(expression: Expression) -> Literal:
    assert isinstance(expression, Literal), expression
    return expression
