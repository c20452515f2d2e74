"""Moves filters towards the scan: below projections, sorts and unions, and below aggregations if they refer to groups
only. Below a join goes also what an OR over both of its inputs implies about one of them. Below a shared input go the
conditions that all of its readers have.
"""

from __future__ import annotations

from relational.expr.expression import Expression
from relational.plan.descent import Descent
from relational.plan.logical import LogicalPlan
from relational.plan.logical.filter import where

Terms = tuple[Expression, ...]


def push_down_filter(plan: LogicalPlan) -> LogicalPlan:
    """The plan with every conjunct of a filter as low as possible."""
    return _PUSHING.run(plan, ())


def _common(demands: list[Terms]) -> Terms:
    return tuple(term for term in demands[0] if all(term in others for others in demands[1:]))


_PUSHING: Descent[Terms, LogicalPlan] = Descent(
    visit=lambda node, terms, push: node.filtered(terms, push),
    merge=_common,
    adapt=lambda result, terms, merged: where(result, tuple(term for term in terms if term not in merged)),
    keep=where,
)
