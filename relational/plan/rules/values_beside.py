"""Rows written in a view, as functions and conditions of the rows that they are joined with: a view has no other rows.

    Join inner of a plan and VALUES      the lists of its columns unnested beside each row, and the condition
    Join inner of a plan and functions   their rows beside each row, and the condition
    Join semi, anti                      the condition for one of the written rows, or for none of them
"""

from __future__ import annotations

from relational.expr.bind import call, set_call
from relational.expr.expression import Expression, InputRef, Literal, conjunction, input_refs, substitute
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Join, JoinKind, LogicalPlan, Project, ProjectSet, Values, only
from relational.plan.logical.filter import where
from relational.plan.set_functions import ONE_ROW, rows_beside
from relational.types.data_type import DataType

MAX_ROWS = 100
"""Written rows: each row of the other side is compared with all of them."""


def values_beside(plan: LogicalPlan) -> LogicalPlan:
    """The plan of a view without joins of a few rows of constants, or of rows that functions give."""
    return transformed(plan, _changed)


def _changed(plan: LogicalPlan) -> LogicalPlan:
    if not isinstance(plan, Join) or plan.is_temporal:
        return plan
    rows = _written(plan.right)
    if rows is not None and not plan.kind.has_pairs:
        return _matching(plan, rows)
    if plan.kind is not JoinKind.INNER:
        return plan
    beside = rows_beside(plan.left, plan.right)
    if beside is not None:
        return where(beside, plan.terms)
    if rows is not None:
        return where(_beside(plan.left, plan.right, rows), plan.terms)
    rows = _written(plan.left)
    if rows is None:
        return plan
    width, whole = len(plan.right.schema), _beside(plan.right, plan.left, rows)
    return where(only(whole, [*range(width, len(whole.schema)), *range(width)]), plan.terms)


def _written(plan: LogicalPlan) -> list[tuple[Literal, ...]] | None:
    """The rows of a plan that are constants; None for other plans, and for too many."""
    if isinstance(plan, Values) and plan != ONE_ROW and 0 < len(plan.rows) <= MAX_ROWS:
        rows = [tuple(cell for cell in row if isinstance(cell, Literal)) for row in plan.rows]
        return rows if all(len(row) == len(plan.fields) for row in rows) else None
    below = _written(plan.input) if isinstance(plan, Project) else None
    if below is None or not isinstance(plan, Project):
        return None
    made = [tuple(substitute(each, row) for each in plan.expressions) for row in below]
    known = [tuple(cell for cell in row if isinstance(cell, Literal)) for row in made]
    return known if all(len(row) == len(plan.expressions) for row in known) else None


def _beside(base: LogicalPlan, written: LogicalPlan, rows: list[tuple[Literal, ...]]) -> LogicalPlan:
    """The columns of `base`, and those of the written rows for each of its rows."""
    lists = []
    for column, data_type in enumerate(written.schema.types):
        values = Literal([row[column].value for row in rows], DataType.list_of(data_type))
        lists.append(set_call("unnest", [values]))
    width = len(base.schema)
    whole = ProjectSet(base, tuple(range(width)), tuple(lists), written.schema.names)
    columns = input_refs(whole.schema.types)[:-1]
    concealed = base.hidden | {width + column for column in written.hidden}
    return Project(whole, columns, (*base.schema.names, *written.schema.names), concealed)


def _matching(plan: Join, rows: list[tuple[Literal, ...]]) -> LogicalPlan:
    """The rows of the left side with a written row, or without any."""
    columns: list[Expression] = [InputRef(at, each) for at, each in enumerate(plan.left.schema.types)]
    whole = conjunction(plan.terms) if plan.terms else Literal(True, DataType.BOOLEAN)
    holds = [substitute(whole, [*columns, *row]) for row in rows]
    found = holds[0] if len(holds) == 1 else call("or", holds)
    if plan.kind is JoinKind.ANTI:
        found = call("not", [call("coalesce", [found, Literal(False, DataType.BOOLEAN)])])
    return Filter(plan.left, found)
