"""WITH RECURSIVE: a query joined by UNION with one that reads the rows of the last round.

The columns have the names and types of the first query. The second one reads the working table once, and not where its
rows would have to be all there are: below an aggregation, an order or a limit, EXCEPT, or an optional side of a join.
"""

from __future__ import annotations

from collections.abc import Sequence

from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.unbound import TextSpan
from relational.plan.logical import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    LogicalPlan,
    Project,
    ProjectSet,
    Recursive,
    Share,
    Union,
    WorkingTable,
    nodes,
    only,
)
from relational.plan.set_operations import SetOperation, fitted

_LINEAR = (Filter, Project, ProjectSet, Share, Union)
"""Operations whose rows of a union are those of its parts."""


def recursive(
    base: LogicalPlan, step: LogicalPlan, working: WorkingTable, *, distinct: bool, spans: Sequence[TextSpan | None]
) -> LogicalPlan:
    """The rows of `base`, and of `step` over each round, which reads `working`. `spans`: of both. BindError."""
    base = only(base, base.visible)
    made = fitted(SetOperation.UNION, (base, step), spans)
    for number, (one, other) in enumerate(zip(base.schema, made[0].schema, strict=True), 1):
        if one.data_type != other.data_type:
            message = (f"column {number} of a recursive query is {one.data_type} in its first query, and "
                       f"{other.data_type} with the second one: cast it in both")
            raise BindError(message, **error_span(spans[1]))
    reads = [node for node in nodes(made[1]) if node == working]
    if len(reads) != 1 or not _is_linear(made[1], working):
        message = ("a recursive query reads itself once, and not in an aggregation, ORDER BY, LIMIT, EXCEPT, "
                   "INTERSECT, a subquery of an expression, or an optional side of a join")
        raise BindError(message, **error_span(spans[1]))
    return Recursive(base, made[1], working.number, distinct)


def _is_linear(plan: LogicalPlan, working: WorkingTable) -> bool:
    """Whether all that is above the working table has for more of its rows more rows."""
    if plan == working or not any(node == working for node in nodes(plan)):
        return True
    if isinstance(plan, Join):
        left, right = (any(node == working for node in nodes(each)) for each in plan.inputs)
        allowed = {JoinKind.INNER: True, JoinKind.LEFT: not right, JoinKind.SEMI: not right, JoinKind.ANTI: not right,
                   JoinKind.RIGHT: not left, JoinKind.FULL: False}
        return allowed[plan.kind] and all(_is_linear(each, working) for each in plan.inputs)
    is_distinct = isinstance(plan, Aggregate) and bool(plan.group_by) and not plan.calls
    return (is_distinct or isinstance(plan, _LINEAR)) and all(_is_linear(each, working) for each in plan.inputs)
