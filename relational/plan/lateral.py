"""LATERAL: a subquery of a FROM for each row of the relations before it.

It becomes a join with the subquery without its references, as subqueries of expressions do. Columns that are
expressions of both rows are computed above the join. The one row of an aggregation without groups is looked up, as a
value is. What has rows of its own only, written ones or those of functions, needs no join: they come beside each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relational.expr.bind import call, set_call
from relational.expr.expression import (
    Call,
    Case,
    Expression,
    InputRef,
    Literal,
    OuterRef,
    conjunction,
    input_refs,
    substitute,
    transform,
    walk,
)
from relational.expr.unbound import TextSpan
from relational.plan.logical import Filter, Join, JoinKind, LogicalPlan, Project, ProjectSet, Share, Values
from relational.plan.logical.filter import where
from relational.plan.set_functions import ONE_ROW, rows_beside
from relational.plan.subqueries import global_aggregate, looked_up
from relational.plan.unnest import Domain, Unnesting
from relational.types.data_type import DataType, TypeKind
from relational.types.schema import Field, Schema


def lateral_join(
    left: LogicalPlan,
    query: LogicalPlan,
    kind: JoinKind,
    on: Expression | None,
    depth: int,
    share: Callable[[LogicalPlan], Share],
    span: TextSpan | None,
) -> LogicalPlan:
    """The rows of `left`, each with those of `query` for it for which `on` is true; of a left join also those without
    any. The columns of `left` come first, then those of `query`, possibly hidden ones behind them. `on` is over the
    columns of both, and `query` refers to those of `left` as to the row at `depth`. REQUIRES an inner or left join."""
    domain = Domain(left, share)
    unnesting = Unnesting(depth, domain, span)
    width, terms = len(left.schema), () if on is None else (on,)
    found = global_aggregate(query)
    if found is not None and (kind is JoinKind.INNER or on is None):
        aggregate, values = found
        plan, columns = looked_up(domain, unnesting, aggregate.input, (), aggregate.calls, values)
        return where(_beside(plan, left, query, columns), terms)
    if on is None and _always_has_a_row(query):
        kind = JoinKind.INNER
    if kind is JoinKind.INNER and _has_own_rows(query):
        return where(_rows_of(query, left, depth), terms)
    inside, columns = query, list[Expression](input_refs(query.schema.types))
    while isinstance(inside, Project):
        columns, inside = [substitute(each, inside.expressions) for each in columns], inside.input
    refers = any(isinstance(node, OuterRef) and node.depth == depth for each in columns for node in walk(each))
    if kind is JoinKind.LEFT or not refers:
        rows = unnesting.unnested(query)
        terms = (*unnesting.as_join_terms(rows.terms, width), *terms)
        return Join(domain.plan, rows.plan, kind, conjunction(terms) if terms else None)
    rows = unnesting.unnested(inside)
    pairs = unnesting.as_join_terms(rows.terms, width)
    join = Join(domain.plan, rows.plan, kind, conjunction(pairs) if pairs else None)
    made = unnesting.as_join_terms(columns, width)
    return where(_beside(join, left, query, made), terms)


def _beside(
    plan: LogicalPlan, left: LogicalPlan, query: LogicalPlan, columns: list[Expression] | tuple[Expression, ...]
) -> LogicalPlan:
    """The columns of `left`, which come first in `plan`, and `columns` as those of `query`."""
    width = len(left.schema)
    own = tuple(InputRef(column, kind) for column, kind in enumerate(left.schema.types))
    hidden = left.hidden | {width + column for column in query.hidden}
    return Project(plan, (*own, *columns), (*left.schema.names, *query.schema.names), hidden)


def written_rows(names: Sequence[str], columns: Sequence[Sequence[Expression]]) -> LogicalPlan:
    """The rows of a VALUES, column by column, of one type each. Cells that refer to an outer row are computed for it,
    each for its own row only [R6]."""
    fields = Schema(Field(name, cells[0].data_type) for name, cells in zip(names, columns, strict=True))
    rows = tuple(zip(*columns, strict=True))
    if not any(isinstance(node, OuterRef) for cells in columns for each in cells for node in walk(each)):
        return Values(fields, rows)
    if len(rows) == 1:
        return Project(ONE_ROW, rows[0], fields.names)
    lists = [_list_of(range(1, len(rows) + 1), DataType.INT)]
    made: list[Expression] = []
    for cells in columns:
        known = [each.value for each in cells if isinstance(each, Literal)]
        if len(known) == len(cells) and cells[0].data_type.kind is not TypeKind.LIST:  # of which unnest takes the inner
            made.append(InputRef(len(lists), cells[0].data_type))
            lists.append(_list_of(known, cells[0].data_type))
        else:
            made.append(_cell_of_row(cells))
    whole = ProjectSet(ONE_ROW, (), tuple(set_call("unnest", [each]) for each in lists), ("unnest",) * len(lists))
    number = whole.schema.fields[whole.number]
    return Project(whole, (*made, InputRef(whole.number, number.data_type)), (*fields.names, number.name),
                   frozenset((len(made),)))


def _list_of(values: Sequence[object], data_type: DataType) -> Literal:
    return Literal(list(values), DataType.list_of(data_type))


def _cell_of_row(cells: Sequence[Expression]) -> Expression:
    """The cell whose number, from 1 on, is in column 0."""
    number = InputRef(0, DataType.INT)
    branches = tuple((call("equal", [number, Literal(at, DataType.INT)]), each) for at, each in enumerate(cells, 1))
    return Case(branches[:-1], cells[-1], cells[-1].data_type)


def _has_own_rows(plan: LogicalPlan) -> bool:
    """Whether the rows are one, or those of functions, without a table."""
    while isinstance(plan, Project | ProjectSet | Filter):
        plan = plan.input
    return plan == ONE_ROW


def _always_has_a_row(plan: LogicalPlan) -> bool:
    while isinstance(plan, Project | ProjectSet):
        if isinstance(plan, ProjectSet) and not any(map(_is_written, plan.functions)):
            return False
        plan = plan.input
    return plan == ONE_ROW


def _is_written(function: Expression) -> bool:
    """Whether rows are those of a list of constants, and there are some."""
    parts = function.args if isinstance(function, Call) and function.function == "unnest" else ()
    return any(isinstance(each, Literal) and bool(each.value) for each in parts)


def _rows_of(query: LogicalPlan, left: LogicalPlan, depth: int) -> LogicalPlan:
    """The columns of `left` and those of `query` for each row. REQUIRES that `query` has rows of its own only."""

    def of_row(expression: Expression) -> Expression:
        return transform(expression, lambda node: InputRef(node.index, node.data_type)
                         if isinstance(node, OuterRef) and node.depth == depth else node)

    def over_left(plan: LogicalPlan) -> LogicalPlan:
        if isinstance(plan, Filter) and plan is not left:
            return Filter(over_left(plan.input), of_row(plan.predicate))
        if isinstance(plan, Project) and plan is not left:
            return replace(plan, input=over_left(plan.input), expressions=tuple(map(of_row, plan.expressions)))
        if isinstance(plan, ProjectSet) and plan is not left:
            return replace(plan, input=over_left(plan.input), functions=tuple(map(of_row, plan.functions)))
        return plan

    beside = rows_beside(left, query)
    assert beside is not None
    return over_left(beside)
