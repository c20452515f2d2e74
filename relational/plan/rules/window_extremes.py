"""Rows that equal the extreme of a window of time close to them, as the first ones of their own window [R47].

    Join of L and Aggregate [w] max(x) over L          Union of
      on L.x = max AND L.t BETWEEN w - 10 s AND w          TopN of L, rank 1 by x descending of [window of t]
      where w is the end of the window of L.t              Join of Filter (t begins a window) over L and the Aggregate
                                                             on L.x = max AND w = the window before

The bounds of the time leave a row its own window and, at most, some at whose border it is: here the window that ends
where the row's own begins. Only rows at such a border are joined, if they are a small part of a window.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.bind import call
from relational.expr.distance_bounds import distance_bounds, fixed_distance
from relational.expr.expression import Call, Expression, InputRef, Literal, conjunction, input_refs, substitute
from relational.plan.descent import transformed
from relational.plan.logical import Join, JoinKind, LogicalPlan, Union
from relational.plan.logical.filter import where
from relational.plan.logical.project import over_base
from relational.plan.rules.own_extremes import Extremes, alike, extremes_of, first_rows
from relational.types.data_type import DataType
from relational.types.interval import Interval

BORDER_SHARE = 1_000
"""The rows at a border are those within at most one such part of a window."""
MOST_WINDOWS = 3
"""In whose bounds a row may be."""


def window_extremes(plan: LogicalPlan) -> LogicalPlan:
    """The plan with first rows of windows in place of joins with the extremes of close windows."""
    return transformed(plan, lambda node: _changed(node) if isinstance(node, Join) else node)


@dataclass(frozen=True, slots=True)
class _Window:
    """The window of a row: `start` + `shift`, where `start` is the last multiple of `length` up to the time; in
    microseconds. `time`, `start`: over the columns of the rows."""

    time: Expression
    start: Expression
    length: int
    shift: int


def _changed(plan: Join) -> LogicalPlan:
    if plan.kind is not JoinKind.INNER or plan.is_temporal:
        return plan
    extremes = extremes_of(plan.right)
    if extremes is None or sorted(extremes.columns) != [-1, 0]:
        return plan
    base, shown = over_base(plan.left)
    if not alike(base, extremes.base):
        return plan
    places = {each: InputRef(at, each.data_type) for at, each in reversed(list(enumerate(shown)))}
    window, value = _window(extremes.groups[0], places), places.get(extremes.value)
    if window is None or value is None:
        return plan
    return _parted(plan, extremes, window, value) or plan


def _window(group: Expression, places: dict[Expression, InputRef]) -> _Window | None:
    """The window that is a group, over columns of the rows that show its time."""
    found = window_of(group)
    if found is None:
        return None
    start, shift = found
    stride, moment, origin = start.args
    length, time = fixed_distance(stride, moment.data_type), places.get(moment)
    if length is None or time is None:
        return None
    return _Window(time, call("date_bin", [stride, time, origin]), length, shift)


def window_of(value: Expression) -> tuple[Call, int] | None:
    """The date_bin() of a time by constants, and by how many microseconds `value` is later. None for other values."""
    start, shift = value, 0
    if isinstance(value, Call) and value.function in ("add", "subtract"):
        start, moved = value.args[0], fixed_distance(value.args[1], value.data_type)
        if moved is None:
            return None
        shift = moved if value.function == "add" else -moved
    if not isinstance(start, Call) or start.function != "date_bin":
        return None
    stride, moment, origin = start.args
    length = fixed_distance(stride, moment.data_type)
    return (start, shift) if isinstance(origin, Literal) and length is not None and length > 0 else None


def _parted(plan: Join, extremes: Extremes, window: _Window, value: InputRef) -> LogicalPlan | None:
    width = len(plan.left.schema)
    most, group = (width + extremes.columns.index(number) for number in (-1, 0))
    rest = [term for term in plan.terms if not _equals(term, value.index, most)]
    assert isinstance(window.time, InputRef)
    bounds = distance_bounds(rest, {window.time.index}, {group})
    if len(rest) == len(plan.terms) or bounds is None or bounds.least is None or bounds.most is None:
        return None
    first = -((bounds.most + window.shift) // window.length)
    last = (window.length - 1 - window.shift - bounds.least) // window.length
    if last - first >= MOST_WINDOWS or not first <= 0 <= last:
        return None
    branches = [_own(plan, extremes, window, value, rest)]
    for number in range(first, last + 1):
        moved = window.shift + number * window.length
        low, high = max(bounds.least + moved, 0), min(bounds.most + moved, window.length - 1)
        if number == 0 or low > high:
            continue
        if (high - low + 1) * BORDER_SHARE > window.length:
            return None
        is_at_border = _between(window.time, window.start, low, high)
        is_of_window = call("equal", [after(window.start, moved), InputRef(group, window.time.data_type)])
        terms = conjunction((*plan.terms, is_of_window))
        branches.append(Join(where(plan.left, is_at_border), plan.right, JoinKind.INNER, terms))
    return branches[0] if len(branches) == 1 else Union(tuple(branches))


def _own(
    plan: Join, extremes: Extremes, window: _Window, value: InputRef, rest: list[Expression]
) -> LogicalPlan:
    """The rows with the extreme of their own window, where it fulfils the other terms."""
    own = after(window.start, window.shift)
    of_row = {-1: value, 0: own}
    columns = [*input_refs(plan.left.schema.types), *(of_row[number] for number in extremes.columns)]
    rows = first_rows(plan, extremes, plan.left, of_row, 1)
    return where(rows, tuple(substitute(term, columns) for term in rest))


def _between(time: Expression, start: Expression, low: int, high: int) -> tuple[Expression, ...]:
    """That a time is `low` to `high` microseconds after `start`."""
    if low == high:
        return (call("equal", [time, after(start, low)]),)
    return call("greater_equal", [time, after(start, low)]), call("less_equal", [time, after(start, high)])


def after(start: Expression, microseconds: int) -> Expression:
    """A time so much later."""
    if not microseconds:
        return start
    return call("add", [start, Literal(Interval(0, 0, microseconds), DataType.INTERVAL)])


def _equals(term: Expression, one: int, other: int) -> bool:
    """Whether a term says that two columns are equal."""
    if not isinstance(term, Call) or term.function != "equal":
        return False
    return {part.index for part in term.args if isinstance(part, InputRef)} == {one, other}
