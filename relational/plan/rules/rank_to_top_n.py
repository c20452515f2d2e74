"""Rows whose number is bounded, and LIMIT, as TopN, which a view can keep.

    Filter (number <= k) over OverWindow    TopN 1 to k; also number < k, number = 1, number BETWEEN …
    Limit over Sort, or over anything       TopN of the only group

A number above k depends on all rows before it, so that one change may change all of them; TopN keeps the first ones
only. A Sort that nothing limits has no effect, and is removed: the rows of a view have no order.
"""

from __future__ import annotations

from collections.abc import Sequence

from relational.expr.expression import Call, Expression, InputRef, Literal, conjuncts
from relational.expr.window_functions import RankKind
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Limit, LogicalPlan, OverWindow, Sort, TopN
from relational.plan.logical.filter import where
from relational.plan.logical.over_window import NO_LIMIT
from relational.types.data_type import TypeKind

_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
             "equal": "equal"}


def rank_to_top_n(plan: LogicalPlan) -> LogicalPlan:
    """The plan without numbers and limits that TopN stands for."""
    return transformed(transformed(plan, _changed), lambda node: node.input if isinstance(node, Sort) else node)


def _changed(plan: LogicalPlan) -> LogicalPlan:
    if isinstance(plan, Limit):
        return _limited(plan)
    if isinstance(plan, Filter) and isinstance(plan.input, OverWindow):
        return _bounded(plan.input, conjuncts(plan.predicate)) or plan
    return plan


def _limited(plan: Limit) -> LogicalPlan:
    limit = NO_LIMIT - plan.offset if plan.count is None else plan.count
    child, keys = (plan.input.input, plan.input.keys) if isinstance(plan.input, Sort) else (plan.input, ())
    return TopN(child, (), keys, RankKind.ROW_NUMBER, limit, plan.offset)


def _bounded(window: OverWindow, terms: Sequence[Expression]) -> LogicalPlan | None:
    """The rows of `window` for which all terms are true; None if it does more than number them, or if none is an upper
    bound of the number."""
    kind = window.numbers
    if kind is None:
        return None
    number = len(window.input.schema)
    low, high = 0, NO_LIMIT
    rest = []
    for term in terms:
        bounds = _bounds(term, number)
        if bounds is None:
            rest.append(term)
        else:
            low, high = max(low, bounds[0]), min(high, bounds[1])
    if high == NO_LIMIT:
        return None
    limit = max(high - low, 0)
    top = TopN(window.input, window.groups, window.keys, kind, limit, min(low, high), window.names[0])
    return where(top, tuple(rest))


def _bounds(term: Expression, number: int) -> tuple[int, int] | None:
    """The greatest number that does not fulfil the term, from 0, and the greatest that does; None for other terms."""
    if not isinstance(term, Call) or term.function not in _MIRRORED or len(term.args) != 2:
        return None
    function, (one, other) = term.function, term.args
    if isinstance(one, Literal):
        function, one, other = _MIRRORED[function], other, one
    if not isinstance(one, InputRef) or one.index != number or not isinstance(other, Literal):
        return None
    if other.value is None or not (other.data_type.is_integer or other.data_type.kind is TypeKind.NUMERIC):
        return None
    if other.value != int(other.value):
        return None
    value = max(int(other.value), 0)
    return {
        "less": (0, max(value - 1, 0)),
        "less_equal": (0, value),
        "greater": (value, NO_LIMIT),
        "greater_equal": (max(value - 1, 0), NO_LIMIT),
        "equal": (max(value - 1, 0), value),
    }[function]
