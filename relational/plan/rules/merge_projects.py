"""Merges two consecutive projections, and removes one that changes nothing."""

from __future__ import annotations

from collections import Counter

from relational.expr.bind import MAX_DEPTH
from relational.expr.expression import Expression, InputRef, Literal, depth_of, substitute, walk
from relational.plan.descent import transformed
from relational.plan.logical import LogicalPlan, Project


def merge_projects(plan: LogicalPlan) -> LogicalPlan:
    """The plan with projections merged into the one above, unless that would compute an expression twice or nest them
    too deeply."""
    return transformed(plan, _merged)


def _merged(plan: LogicalPlan) -> LogicalPlan:
    if not isinstance(plan, Project):
        return plan
    below = plan.input
    if isinstance(below, Project) and _computes_once(plan.expressions, below.expressions):
        merged = tuple(substitute(each, below.expressions) for each in plan.expressions)
        if max(map(depth_of, merged)) <= MAX_DEPTH:
            plan = Project(below.input, merged, plan.names, plan.concealed)
    return plan.input if _changes_nothing(plan) else plan


def _computes_once(upper: tuple[Expression, ...], lower: tuple[Expression, ...]) -> bool:
    """Whether every non-trivial lower expression is used at most once above."""
    uses = Counter(node.index for each in upper for node in walk(each) if isinstance(node, InputRef))
    return all(uses[index] <= 1 or isinstance(each, InputRef | Literal) for index, each in enumerate(lower))


def _changes_nothing(plan: Project) -> bool:
    passes_all = all(
        isinstance(each, InputRef) and each.index == index for index, each in enumerate(plan.expressions)
    )
    return passes_all and plan.schema == plan.input.schema and plan.hidden == plan.input.hidden
