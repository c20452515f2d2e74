"""Filters below a join of rows that wait for their only partner, as a flag of the partner [R46].

    Join of L and Filter f over R      Join on the condition AND flag of L and Project R, f AS flag

A row of L that waits for the only row of R with its key is dropped when that row comes. Where the row of R does not
satisfy f, and is filtered before the join, rows of L wait for it for ever. With the flag it comes, and no pair with it
is emitted. Of its columns only keys are kept, the others are NULL.

The flag is a condition on one side: `push_down_filter` would move it back below the join. So this rule is applied once,
behind all others.
"""

from __future__ import annotations

from dataclasses import replace

from relational.expr.expression import (
    Case,
    Expression,
    InputRef,
    Literal,
    conjunction,
    input_columns,
    input_refs,
    remap,
)
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Join, LogicalPlan, Project
from relational.plan.logical.project import hidden_name
from relational.types.data_type import DataType


def flag_filters(plan: LogicalPlan) -> LogicalPlan:
    """The plan with flags where rows wait for a partner that a filter may drop."""
    return transformed(plan, lambda node: _changed(node) if isinstance(node, Join) else node)


def _changed(plan: Join) -> LogicalPlan:
    if True not in plan.passing:
        return plan
    side = 1 - plan.passing.index(True)
    flagged = _flagged(plan.inputs[side], _kept(plan, side))
    if flagged is None:
        return plan
    inputs = [plan.left, plan.right]
    inputs[side] = flagged
    left, right = inputs
    width, flag = len(plan.left.schema), len(left.schema) - 1 if side == 0 else len(left.schema) + len(right.schema) - 1
    moved = [column + (side == 0 and column >= width) for column in range(width + len(plan.right.schema))]
    terms = (remap(term, dict(enumerate(moved))) for term in plan.terms)
    made = replace(plan, left=left, right=right, on=conjunction((*terms, InputRef(flag, DataType.BOOLEAN))))
    if made.passing != plan.passing:
        return plan  # unique only among the rows that satisfy the filter
    schema = plan.schema
    columns = tuple(InputRef(new, each) for new, each in zip(moved, schema.types, strict=True))
    return Project(made, columns, schema.names, plan.hidden)


def _kept(plan: Join, side: int) -> frozenset[int]:
    """The columns of an input that are needed to find its rows."""
    keys = ((each.left, each.right)[side] for each in plan.equalities[0])
    return frozenset(plan.inputs[side].stream_key or ()).union(*map(input_columns, keys))


def _flagged(plan: LogicalPlan, kept: frozenset[int]) -> Project | None:
    """The rows of `plan`, and those that its filter drops, with the flag as their last column. None without a filter,
    or where a column of `kept` is computed from rows that satisfy it."""
    above = plan if isinstance(plan, Project) else None
    below = plan.input if isinstance(plan, Project) else plan
    if not isinstance(below, Filter) or below.has_state:
        return None
    base = below.input
    shown = input_refs(base.schema.types) if above is None else above.expressions
    if not all(isinstance(shown[column], InputRef) for column in kept):
        return None
    name = hidden_name("_flag", (*base.schema.names, *plan.schema.names))
    width = len(base.schema)
    whole = Project(
        base, (*input_refs(base.schema.types), below.predicate), (*base.schema.names, name), base.hidden | {width}
    )
    flag = InputRef(width, DataType.BOOLEAN)
    columns = (each if at in kept else _where(flag, each) for at, each in enumerate(shown))
    return Project(whole, (*columns, flag), (*plan.schema.names, name), plan.hidden | {len(shown)})


def _where(flag: Expression, value: Expression) -> Expression:
    return value if isinstance(value, Literal) else Case(((flag, value),), Literal(None, value.data_type),
                                                         value.data_type)
