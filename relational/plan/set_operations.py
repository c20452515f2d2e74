"""UNION, INTERSECT and EXCEPT: columns are matched by position, have the names of the first query and the common types,
and NULL equals NULL.

    UNION ALL                 a Union
    UNION                     an aggregation of it by all columns
    INTERSECT, EXCEPT         an aggregation of the Union of both, which counts the equal rows of each
    INTERSECT ALL, EXCEPT ALL the same, and as many copies of a row as both have, or as the first one has more
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from relational.errors import BindError
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.bind import call, error_span, is_unknown, set_call, unify
from relational.expr.expression import Case, Expression, InputRef, Literal, input_refs
from relational.expr.unbound import TextSpan
from relational.plan.logical import Aggregate, Filter, LogicalPlan, Project, ProjectSet, Union, only
from relational.plan.logical.union import BRANCH, BRANCH_TYPE
from relational.types.data_type import DataType

MAX_BRANCHES = 1_000
"""Inputs of a UNION."""


class SetOperation(StrEnum):
    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"

    @property
    def article(self) -> str:
        return f"{'a' if self is SetOperation.UNION else 'an'} {self}"


def union(plans: Sequence[LogicalPlan], *, distinct: bool, spans: Sequence[TextSpan | None] = ()) -> LogicalPlan:
    """The rows of all plans, each once if `distinct`: columns are matched by position, have the names of the first plan
    and the common types. BindError at the span of a plan that does not fit.
    """
    check_branches(len(plans))
    branches = fitted(SetOperation.UNION, plans, spans)
    flat = [part for plan in branches for part in (plan.branches if isinstance(plan, Union) else (plan,))]
    plan = Union(tuple(flat)) if len(flat) > 1 else flat[0]
    return Aggregate(plan, tuple(range(len(plan.schema))), (), ()) if distinct else plan


def compared(
    operation: SetOperation,
    left: LogicalPlan,
    right: LogicalPlan,
    *,
    distinct: bool,
    spans: Sequence[TextSpan | None] = (),
) -> LogicalPlan:
    """The rows of an INTERSECT or EXCEPT of two plans, each once if `distinct`. BindError as `union`."""
    branches = fitted(operation, (left, right), spans)
    types, names = branches[0].schema.types, branches[0].schema.names
    width, columns = len(types), input_refs(types)
    tagged = [Project(plan, (*columns, Literal(number, BRANCH_TYPE)), (*names, BRANCH))
              for number, plan in enumerate(branches)]
    of_branch = [call("equal", [InputRef(width, BRANCH_TYPE), Literal(number, BRANCH_TYPE)]) for number in (0, 1)]
    counts = tuple(AggCall(AggKind.COUNT, None, each, False, DataType.BIGINT) for each in of_branch)
    whole = Aggregate(Union(tuple(tagged)), tuple(range(width)), counts, ("_left_rows", "_right_rows"))
    lefts, rights = (InputRef(width + number, DataType.BIGINT) for number in (0, 1))
    is_intersect = operation is SetOperation.INTERSECT
    if distinct:
        is_right = call("greater" if is_intersect else "equal", [rights, _ZERO])
        return only(Filter(whole, call("and", [call("greater", [lefts, _ZERO]), is_right])), range(width))
    fewer = Case(((call("less", [lefts, rights]), lefts),), rights, DataType.BIGINT)
    copies = fewer if is_intersect else call("subtract", [lefts, rights])
    numbers = set_call("generate_series", [Literal(1, DataType.BIGINT), copies])
    return only(ProjectSet(whole, tuple(range(width)), (numbers,), ("_copy",)), range(width))


def corresponding(
    left: LogicalPlan, right: LogicalPlan, names: Sequence[str] | None, span: TextSpan | None
) -> tuple[LogicalPlan, LogicalPlan]:
    """CORRESPONDING: the columns called `names` of both plans, None: of the names that both have, in the order of
    `left`. BindError at `span` if there is none, or more than one of a name."""
    plans = [only(plan, plan.visible) for plan in (left, right)]
    known = [plan.schema.names for plan in plans]
    wanted = list(names) if names is not None else [name for name in known[0] if name in known[1]]
    if not wanted:
        raise BindError("CORRESPONDING needs a column with the same name in both queries", **error_span(span))
    for name in wanted:
        if not all(name in each for each in known):
            raise BindError(f"CORRESPONDING names {name!r}, which not both queries have", **error_span(span))
        if wanted.count(name) > 1 or any(each.count(name) > 1 for each in known):
            raise BindError(f"CORRESPONDING: there are several columns {name!r}", **error_span(span))
    first, second = (only(plan, [plan.schema.names.index(name) for name in wanted]) for plan in plans)
    return first, second


_ZERO = Literal(0, DataType.BIGINT)


def fitted(
    operation: SetOperation, plans: Sequence[LogicalPlan], spans: Sequence[TextSpan | None]
) -> list[LogicalPlan]:
    """The visible columns of the plans in their common types, under the names of the first one."""
    branch_spans = list(spans) or [None] * len(plans)
    plans = [only(plan, plan.visible) for plan in plans]
    width = len(plans[0].schema)
    for plan, span in zip(plans, branch_spans, strict=True):
        if len(plan.schema) != width:
            message = f"a branch of {operation.article} has {len(plan.schema)} columns, the first has {width}"
            raise BindError(message, **error_span(span))
    values = [[_output_value(plan, column) for plan in plans] for column in range(width)]
    columns = [_unified(operation, each, column, branch_spans) for column, each in enumerate(values)]
    names = plans[0].schema.names
    return [_selected(plan, values, names) for plan, values in zip(plans, zip(*columns, strict=True), strict=True)]


def check_branches(count: int) -> None:
    """BindError for a UNION of too many branches."""
    if count > MAX_BRANCHES:
        raise BindError(f"a UNION has {MAX_BRANCHES} branches at most, this has {count}")


def _output_value(plan: LogicalPlan, column: int) -> Expression:
    """A column of a plan as an expression over it; a text or NULL without a type as itself."""
    if isinstance(plan, Project) and is_unknown(plan.expressions[column]):
        return plan.expressions[column]
    return InputRef(column, plan.schema.types[column])


def _unified(
    operation: SetOperation, values: Sequence[Expression], column: int, spans: Sequence[TextSpan | None]
) -> list[Expression]:
    """The values of one column in their common type. BindError at the first branch that has none with those before."""
    what = f"the branches of {operation.article}, in column {column + 1},"
    try:
        return unify(values, what, None)[0]
    except BindError:
        for count, span in enumerate(spans, 1):
            unify(values[:count], what, span)
        raise


def _selected(plan: LogicalPlan, values: Sequence[Expression], names: tuple[str, ...]) -> LogicalPlan:
    """The projection of the plan to `values`, called `names`; the plan itself if these are its columns."""
    is_same = all(isinstance(value, InputRef) and value.index == column for column, value in enumerate(values))
    return plan if is_same else Project(plan, tuple(values), names)
