"""Window functions of a SELECT: columns of OverWindow nodes, one for each window, over the grouped and filtered rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.aggregates import AggKind
from relational.expr.bind import AGGREGATES, ExprBinder, convert, error_span, is_unknown, span_of, unify, unknown
from relational.expr.expression import (
    Expression,
    InputRef,
    Literal,
    SubqueryValue,
    WindowValue,
    transform,
    walk,
)
from relational.expr.unbound import TextSpan, UnboundAggregate, UnboundExpr, UnboundWindow
from relational.expr.window_functions import (
    WINDOW_AGGREGATES,
    Bound,
    Frame,
    WindowCall,
    WindowKind,
    number_type,
)
from relational.plan.aggregate_calls import bound_call
from relational.plan.frames import BoundFrame, bind_frame
from relational.plan.logical import LogicalPlan, OverWindow
from relational.plan.unnest import with_columns
from relational.types.data_type import DataType
from relational.types.ordering import OrderType, SortKey

_Window = tuple[tuple[Expression, ...], tuple[tuple[Expression, OrderType], ...]]
_MOST_SHIFT = 1 << 62


@dataclass(frozen=True, slots=True)
class _Call:
    """A window function whose argument, default, filter and frame are expressions over the rows."""

    kind: WindowKind | AggKind
    data_type: DataType
    argument: Expression | None = None
    frame: BoundFrame | None = None
    number: int = 0
    default: Expression | None = None
    condition: Expression | None = None

    @property
    def values(self) -> tuple[Expression, ...]:
        """All of these expressions."""
        own = (each for each in (self.argument, self.default, self.condition) if each is not None)
        return (*own, *(() if self.frame is None else self.frame.values))

    def over(self, columns: Sequence[int]) -> WindowCall:
        """The call over the columns of `values`."""
        at = iter(columns)
        argument, default, condition = (
            None if each is None else next(at) for each in (self.argument, self.default, self.condition)
        )
        frame = None if self.frame is None else _with_columns(self.frame.frame, tuple(at))
        return WindowCall(self.kind, self.data_type, argument, frame, self.number, default, condition)


class Windows:
    """Those of one SELECT."""

    def __init__(self) -> None:
        self._calls: list[tuple[_Window, _Call]] = []

    def __call__(self, term: UnboundWindow, binder: ExprBinder) -> Expression:
        """What stands for the value of a window function. BindError."""
        groups = tuple(binder.bind(each) for each in term.window.groups)
        keys = tuple((binder.bind(key.term), key.order) for key in term.window.order)
        own = _bound_call(term, binder, keys)
        _check((*groups, *(key for key, _ in keys), *own.values), term.span)
        call = (tuple(each for each in groups if not isinstance(each, Literal)), keys), own
        if call not in self._calls:
            self._calls.append(call)
        return WindowValue(self._calls.index(call), own.data_type)

    def joined(self, plan: LogicalPlan, bound: Sequence[Expression]) -> tuple[LogicalPlan, list[Expression]]:
        """`plan` with a column more for each window function, and `bound` over it."""
        values: dict[int, Expression] = {}
        for window in dict.fromkeys(window for window, _ in self._calls):
            groups, keys = window
            calls = {number: call for number, (other, call) in enumerate(self._calls) if other == window}
            arguments = [each for call in calls.values() for each in call.values]
            source, columns = with_columns(plan, (*groups, *(key for key, _ in keys), *arguments), "_of_window")
            order = tuple(
                SortKey(column, how) for column, (_, how) in zip(columns[len(groups) :], keys, strict=False)
            )
            made, names, first = [], list[str](), len(groups) + len(keys)
            for at, (number, call) in enumerate(calls.items()):
                made.append(call.over(columns[first : first + len(call.values)]))
                names.append(_name(call, names))
                first += len(call.values)
                values[number] = InputRef(len(source.schema) + at, call.data_type)
            plan = OverWindow(source, columns[: len(groups)], order, tuple(made), tuple(names))
        self._calls = []

        def replaced(node: Expression) -> Expression:
            return values[node.number] if isinstance(node, WindowValue) else node

        return plan, [transform(each, replaced) for each in bound]


def has_window(expression: Expression) -> bool:
    """Whether the value of a window function is part of it."""
    return any(isinstance(each, WindowValue) for each in walk(expression))


def _with_columns(frame: Frame, columns: tuple[int, ...]) -> Frame:
    """The frame whose positions in values are now those of columns."""
    if frame.key is None:
        return frame
    start, end = (
        Bound(each.kind, None if each.offset is None else columns[each.offset]) for each in (frame.start, frame.end)
    )
    return Frame(frame.unit, start, end, columns[frame.key])


def _name(call: _Call, names: Sequence[str]) -> str:
    """A column name that no other call of the node has."""
    name = str(call.kind)
    return name if name not in names else f"{name}_{len(names) + 1}"


def _bound_call(term: UnboundWindow, binder: ExprBinder, keys: Sequence[tuple[Expression, OrderType]]) -> _Call:
    kinds = [kind.value for kind in WindowKind]
    if isinstance(term.call, UnboundAggregate):
        if term.call.distinct:
            raise BindError(f"{term.function}(DISTINCT …) OVER is not supported", **error_span(term.span))
        found = bound_call(term.call, binder)
        if found.kind not in WINDOW_AGGREGATES or term.call.order:
            raise BindError(f"{term.function} OVER (…) is not supported", **error_span(term.span))
        frame = bind_frame(term.window.frame, keys, term.span)
        argument = found.arguments[0] if found.arguments else None
        return _Call(found.kind, found.data_type, argument, frame, condition=found.condition)
    if term.function not in kinds:
        raise BindError(unknown("window function", term.function, [*kinds, *AGGREGATES]), **error_span(term.span))
    frame = bind_frame(term.window.frame, keys, term.span)  # its errors are errors also where it has no effect
    return _FUNCTIONS[WindowKind(term.function)](term, WindowKind(term.function), binder, frame)


def _number(term: UnboundWindow, kind: WindowKind, binder: ExprBinder, frame: BoundFrame) -> _Call:
    if term.call.children:
        raise BindError(f"{term.function} has no arguments", **error_span(term.span))
    return _Call(kind, number_type(kind))


def _ntile(term: UnboundWindow, kind: WindowKind, binder: ExprBinder, frame: BoundFrame) -> _Call:
    (count,) = _arguments(term, 1, 1)
    return _Call(kind, number_type(kind), number=_constant(count, term, binder, "the argument", 1))


def _value(term: UnboundWindow, kind: WindowKind, binder: ExprBinder, frame: BoundFrame) -> _Call:
    is_nth = kind is WindowKind.NTH_VALUE
    value, *more = _arguments(term, 1 + is_nth, 1 + is_nth)
    argument = _known(binder.bind(value))
    number = _constant(more[0], term, binder, "the second argument", 1) if is_nth else 1
    return _Call(kind, argument.data_type, argument, frame, number)


def _shifted(term: UnboundWindow, kind: WindowKind, binder: ExprBinder, frame: BoundFrame) -> _Call:
    value, *more = _arguments(term, 1, 3)
    argument, default = binder.bind(value), None
    number = 1 if not more else _constant(more[0], term, binder, "the offset", -_MOST_SHIFT)
    if len(more) > 1:
        (argument, default), _ = unify([argument, binder.bind(more[1])], f"the values of {term.function}", term.span)
    argument = _known(argument)
    if isinstance(default, Literal) and default.value is None:
        default = None
    return _Call(kind, argument.data_type, argument, number=number, default=default)


_FUNCTIONS: dict[WindowKind, Callable[[UnboundWindow, WindowKind, ExprBinder, BoundFrame], _Call]] = {
    **dict.fromkeys([kind for kind in WindowKind if kind.is_number], _number),
    WindowKind.NTILE: _ntile,
    WindowKind.LAG: _shifted,
    WindowKind.LEAD: _shifted,
    **dict.fromkeys([kind for kind in WindowKind if kind.has_frame], _value),
}


def _arguments(term: UnboundWindow, least: int, most: int) -> tuple[UnboundExpr, ...]:
    args = term.call.children
    if not least <= len(args) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        plural = "" if most == 1 else "s"
        raise BindError(f"{term.function} takes {count} argument{plural}, not {len(args)}", **error_span(term.span))
    return args


def _constant(value: UnboundExpr, term: UnboundWindow, binder: ExprBinder, what: str, least: int) -> int:
    found = binder.bind(value)
    is_whole = isinstance(found, Literal) and found.data_type.is_integer and found.value is not None
    if not is_whole or not least <= found.value <= _MOST_SHIFT:  # type: ignore[attr-defined]
        suffix = f" from {least}" if least > 0 else ""
        message = f"{what} of {term.function} is a constant whole number{suffix}"
        raise BindError(message, **error_span(span_of(value) or term.span))
    return int(found.value)  # type: ignore[attr-defined]


def _known(value: Expression) -> Expression:
    """A value with a type of its own: a text or NULL literal is a text."""
    return convert(value, DataType.VARCHAR) if is_unknown(value) else value


def _check(parts: Sequence[Expression], span: TextSpan | None) -> None:
    for part in parts:
        if any(isinstance(each, WindowValue | SubqueryValue) for each in walk(part)):
            message = "a subquery or window function within a window is not supported"
            raise BindError(message, **error_span(span))
