"""Window functions of a SELECT: columns of Rank nodes, one for each window, over the grouped and filtered rows."""

from __future__ import annotations

from collections.abc import Sequence

from relational.errors import BindError
from relational.expr.bind import AGGREGATES, error_span, unknown
from relational.expr.expression import (
    Expression,
    InputRef,
    Literal,
    SubqueryValue,
    WindowValue,
    transform,
    walk,
)
from relational.expr.unbound import TextSpan, UnboundWindow
from relational.expr.window_functions import RANK_TYPE, RankKind
from relational.plan.logical import LogicalPlan, Rank
from relational.plan.unnest import with_columns
from relational.types.ordering import OrderType, SortKey

_Window = tuple[tuple[Expression, ...], tuple[tuple[Expression, OrderType], ...]]


class Windows:
    """Those of one SELECT."""

    def __init__(self) -> None:
        self._calls: list[tuple[_Window, RankKind]] = []

    def __call__(
        self, term: UnboundWindow, groups: Sequence[Expression], keys: Sequence[tuple[Expression, OrderType]]
    ) -> Expression:
        """What stands for the value of a window function. BindError."""
        known = [kind.value for kind in RankKind]
        if term.function in AGGREGATES:
            raise BindError(f"{term.function} OVER (…) is not supported", **error_span(term.span))
        if term.function not in known:
            raise BindError(unknown("window function", term.function, known), **error_span(term.span))
        if term.args:
            raise BindError(f"{term.function} has no arguments", **error_span(term.span))
        _check(groups, keys, term.span)
        window = tuple(each for each in groups if not isinstance(each, Literal)), tuple(keys)
        call = window, RankKind(term.function)
        if call not in self._calls:
            self._calls.append(call)
        return WindowValue(self._calls.index(call), RANK_TYPE)

    def joined(self, plan: LogicalPlan, bound: Sequence[Expression]) -> tuple[LogicalPlan, list[Expression]]:
        """`plan` with a column more for each window function, and `bound` over it."""
        values: dict[int, Expression] = {}
        for window in dict.fromkeys(window for window, _ in self._calls):
            groups, keys = window
            numbers = [number for number, (other, _) in enumerate(self._calls) if other == window]
            source, columns = with_columns(plan, (*groups, *(key for key, _ in keys)))
            kinds = tuple(self._calls[number][1] for number in numbers)
            order = tuple(
                SortKey(column, how) for column, (_, how) in zip(columns[len(groups) :], keys, strict=True)
            )
            values |= {number: InputRef(len(source.schema) + at, RANK_TYPE) for at, number in enumerate(numbers)}
            plan = Rank(source, columns[: len(groups)], order, kinds, tuple(kind.value for kind in kinds))
        self._calls = []

        def replaced(node: Expression) -> Expression:
            return values[node.number] if isinstance(node, WindowValue) else node

        return plan, [transform(each, replaced) for each in bound]


def _check(groups: Sequence[Expression], keys: Sequence[tuple[Expression, OrderType]], span: TextSpan | None) -> None:
    for part in (*groups, *(key for key, _ in keys)):
        if any(isinstance(each, WindowValue | SubqueryValue) for each in walk(part)):
            message = "a subquery or window function within a window is not supported"
            raise BindError(message, **error_span(span))
