"""Moves semi and anti joins below the inner joins of their left input, to the input that has the columns they compare.

    (a join b) semi join s ON a.x = s.x         (a semi join s) join b

A semi join is a filter: the earlier it is applied, the fewer rows are joined. One that compares pairs of rows beyond
their equality costs more than the joins, which leave fewer rows for it: it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relational.expr.expression import Expression, InputRef, input_columns, remap
from relational.plan.descent import transformed
from relational.plan.logical import Join, JoinKind, LogicalPlan, Project


def push_down_semi_joins(plan: LogicalPlan) -> LogicalPlan:
    """The plan with each semi and anti join as low as possible."""
    return transformed(plan, _pushed)


def _pushed(plan: LogicalPlan) -> LogicalPlan:
    if not isinstance(plan, Join) or plan.kind.has_pairs or plan.is_keyed or plan.on is None:
        return plan
    pairs, rest = plan.equalities
    if rest or not pairs:
        return plan
    left, width = plan.left, len(plan.left.schema)
    used = {column for column in input_columns(plan.on) if column < width}
    if isinstance(left, Project):
        return _below_project(plan, left, used)
    if not isinstance(left, Join) or left.kind is not JoinKind.INNER or left.is_keyed or not used:
        return plan
    first = len(left.left.schema)
    if max(used) < first:
        return replace(left, left=_over(plan, left.left, range(first)))
    if min(used) >= first:
        return replace(left, right=_over(plan, left.right, range(first, width)))
    return plan


def _over(plan: Join, left: LogicalPlan, columns: Sequence[int]) -> LogicalPlan:
    """The semi join of another left input, which has these columns of the old one."""
    assert plan.on is not None
    moved = {column: at for at, column in enumerate(columns)}
    moved |= {len(plan.left.schema) + at: len(columns) + at for at in range(len(plan.right.schema))}
    on = remap(plan.on, {column: moved[column] for column in input_columns(plan.on)})
    return _pushed(Join(left, plan.right, plan.kind, on))


def _below_project(plan: Join, project: Project, used: set[int]) -> LogicalPlan:
    """Below a projection that passes the columns that are compared, if that is over an inner join."""
    below = project.input
    if not isinstance(below, Join) or below.kind is not JoinKind.INNER:
        return plan
    sources: dict[int, Expression] = {column: project.expressions[column] for column in used}
    if not all(isinstance(source, InputRef) for source in sources.values()):
        return plan
    assert plan.on is not None
    moved = {column: source.index for column, source in sources.items() if isinstance(source, InputRef)}
    width, right = len(plan.left.schema), len(plan.right.schema)
    moved |= {width + at: len(below.schema) + at for at in range(right)}
    on = remap(plan.on, {column: moved[column] for column in input_columns(plan.on)})
    semi = Join(below, plan.right, plan.kind, on)
    found = _pushed(semi)
    return plan if found is semi else project.with_inputs((found,))
