"""TUMBLE, HOP and SESSION: the rows of a relation with the windows of time that they are in, as columns window_start
and window_end.

Windows of a length begin at its multiples since 1970, or so much later as an offset says. With TUMBLE each row is in
one window; with HOP windows begin more often, at the multiples of a slide, of which the length is a multiple: a row is
in as many as fit, and comes once for each. A row whose time is NULL is in none.

A session has the rows of a key of which each is at most a gap after the one before, whatever order they come in. It
begins with its first row, and ends the gap after its last one:

    a row is first      where no row is before it in time, or that one is more than the gap before
    window_start        the time of the last first row up to it, in the order of the time
    window_end          the greatest time of the rows with the same start, and the gap
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from relational.errors import BindError
from relational.expr.aggregates import AggKind
from relational.expr.bind import call, error_span
from relational.expr.expression import Case, Cast, Expression, InputRef, Literal, input_refs
from relational.expr.unbound import TextSpan
from relational.expr.window_functions import UP_TO_PEERS, WHOLE_PARTITION, WindowCall, WindowKind
from relational.plan.logical import Filter, LogicalPlan, OverWindow, Project, Union
from relational.plan.logical.project import hidden_name
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval
from relational.types.ordering import SortKey

START, END = "window_start", "window_end"
MOST_WINDOWS = 1_000
"""Of a row."""
MOST_OFFSET_DAYS = 36_500
NO_OFFSET = Interval()
_DAY_US = 86_400_000_000
_ORIGINS = {TypeKind.TIMESTAMP: datetime(1970, 1, 1), TypeKind.TIMESTAMPTZ: datetime(1970, 1, 1, tzinfo=UTC)}


def tumble(
    plan: LogicalPlan, column: InputRef, size: Interval, span: TextSpan | None, offset: Interval = NO_OFFSET
) -> LogicalPlan:
    """The rows of `plan` with the window of `size` that their `column` is in. BindError at `span`."""
    length = _microseconds(size, "the size of a window", span)
    return _with_window(_timed(plan, column, span), column, length, length, 0, _shift(offset, span))


def window_count(slide: Interval, size: Interval, span: TextSpan | None) -> int:
    """In how many windows of `size` a row is if one begins each `slide`. BindError at `span`."""
    step, length = _microseconds(slide, "the slide of windows", span), _microseconds(size, "the size of a window", span)
    if length % step or length // step > MOST_WINDOWS:
        message = f"the size of a window is a multiple of the slide, at most {MOST_WINDOWS} of them"
        raise BindError(message, **error_span(span))
    return length // step


def hop(
    plan: LogicalPlan,
    column: InputRef,
    slide: Interval,
    size: Interval,
    span: TextSpan | None,
    offset: Interval = NO_OFFSET,
) -> LogicalPlan:
    """The rows of `plan`, which is read once for each of `window_count` windows."""
    rows, count = _timed(plan, column, span), window_count(slide, size, span)
    step = _microseconds(slide, "the slide of windows", span)
    shift = _shift(offset, span)
    windows = tuple(_with_window(rows, column, step, step * count, number * step, shift) for number in range(count))
    return Union(windows) if count > 1 else windows[0]


def session(
    plan: LogicalPlan, column: InputRef, gap: Interval, keys: tuple[int, ...], span: TextSpan | None
) -> LogicalPlan:
    """The rows of `plan` with the session that they are in, of the rows that are equal in the columns `keys`. BindError
    at `span`."""
    length = _interval(_microseconds(gap, "the gap of sessions", span))
    rows, width, order = _timed(plan, column, span), len(plan.schema), (SortKey(column.index),)
    columns, names = input_refs(plan.schema.types), list(plan.schema.names)
    moment = _moment(column)
    before = WindowCall(WindowKind.LAG, column.data_type, column.index, number=1)
    rows = OverWindow(rows, keys, order, (before,), (hidden_name("_before", names),))
    previous = _moment(InputRef(width, column.data_type))
    is_first = call("or", [call("is_null", [previous]), call("greater", [moment, call("add", [previous, length])])])
    first = Case(((is_first, moment),), Literal(None, moment.data_type), moment.data_type)
    more = (hidden_name("_moment", names), hidden_name("_first", names))
    rows = Project(rows, (*columns, moment, first), (*names, *more), plan.hidden | {width, width + 1})
    start = WindowCall(AggKind.MAX, moment.data_type, width + 1, UP_TO_PEERS)
    rows = OverWindow(rows, keys, order, (start,), (START,))
    last = WindowCall(AggKind.MAX, moment.data_type, width, WHOLE_PARTITION)
    rows = OverWindow(rows, (*keys, width + 2), (), (last,), (END,))
    found = InputRef(width + 2, moment.data_type), call("add", [InputRef(width + 3, moment.data_type), length])
    return Project(rows, (*columns, *found), (*names, START, END), plan.hidden)


def _moment(column: InputRef) -> Expression:
    """A time as a timestamp."""
    return Cast(column, DataType.TIMESTAMP) if column.data_type.kind is TypeKind.DATE else column


def _timed(plan: LogicalPlan, column: InputRef, span: TextSpan | None) -> LogicalPlan:
    """The rows that have a time."""
    if column.data_type.kind not in (*_ORIGINS, TypeKind.DATE):
        raise BindError(f"windows are of a time, {column.data_type} is none", **error_span(span))
    return Filter(plan, call("is_not_null", [column]))


def _with_window(
    plan: LogicalPlan, column: InputRef, step: int, length: int, before: int, shift: timedelta
) -> LogicalPlan:
    """The rows with the window that begins `before` microseconds before the last multiple of `step` plus `shift`."""
    moment = _moment(column)
    origin = Literal(_ORIGINS[moment.data_type.kind] + shift, moment.data_type)
    last = call("date_bin", [_interval(step), moment, origin])
    start = call("subtract", [last, _interval(before)]) if before else last
    end = call("add", [last, _interval(length - before)])
    columns = input_refs(plan.schema.types)
    return Project(plan, (*columns, start, end), (*plan.schema.names, START, END), plan.hidden)


def _interval(microseconds: int) -> Literal:
    return Literal(Interval(0, 0, microseconds), DataType.INTERVAL)


def _shift(offset: Interval, span: TextSpan | None) -> timedelta:
    micros = offset.days * _DAY_US + offset.microseconds
    if offset.months or abs(micros) > MOST_OFFSET_DAYS * _DAY_US:
        message = f"the offset of a window is a length without months, of up to {MOST_OFFSET_DAYS} days"
        raise BindError(message, **error_span(span))
    return timedelta(microseconds=micros)


def _microseconds(value: Interval, what: str, span: TextSpan | None) -> int:
    found = value.days * _DAY_US + value.microseconds
    if value.months or found <= 0:
        raise BindError(f"{what} is a length above 0, without months", **error_span(span))
    return found
