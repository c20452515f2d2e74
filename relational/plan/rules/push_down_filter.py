"""Moves filters towards the scan: below projections and sorts, and below aggregations if they refer to groups only."""

from __future__ import annotations

from relational.expr.expression import (
    Expression,
    InputRef,
    conjunction,
    conjuncts,
    input_columns,
    remap,
    substitute,
)
from relational.plan.logical import Aggregate, Filter, LogicalPlan, Project, Sort


def push_down_filter(plan: LogicalPlan) -> LogicalPlan:
    """The plan with every conjunct of a filter as low as possible."""
    if isinstance(plan, Filter):
        return _pushed(plan.input, conjuncts(plan.predicate))
    return plan.with_inputs(tuple(map(push_down_filter, plan.inputs)))


def _pushed(plan: LogicalPlan, terms: tuple[Expression, ...]) -> LogicalPlan:
    """`plan` filtered by all `terms`."""
    if isinstance(plan, Filter):
        return _pushed(plan.input, conjuncts(plan.predicate) + terms)
    if isinstance(plan, Sort):
        return plan.with_inputs((_pushed(plan.input, terms),))
    if isinstance(plan, Project):
        passed = {i for i, each in enumerate(plan.expressions) if isinstance(each, InputRef)}
        low = tuple(term for term in terms if input_columns(term) <= passed)
        below = tuple(substitute(term, plan.expressions) for term in low)
    elif isinstance(plan, Aggregate):
        groups = dict(enumerate(plan.group_by))
        low = tuple(term for term in terms if input_columns(term) and input_columns(term) <= groups.keys())
        below = tuple(remap(term, groups) for term in low)
    else:
        rest = push_down_filter(plan)
        return Filter(rest, conjunction(terms))
    child = _pushed(plan.inputs[0], below) if below else push_down_filter(plan.inputs[0])
    moved = plan.with_inputs((child,))
    above = tuple(term for term in terms if term not in low)
    return Filter(moved, conjunction(above)) if above else moved
