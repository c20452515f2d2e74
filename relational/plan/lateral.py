"""LATERAL: a subquery of a FROM for each row of the relations before it.

It becomes a join with the subquery without its references, as subqueries of expressions do. Columns that are
expressions of both rows are computed above the join. The one row of an aggregation without groups is looked up, as a
value is.
"""

from __future__ import annotations

from collections.abc import Callable

from relational.expr.expression import Expression, InputRef, OuterRef, conjunction, input_refs, substitute, walk
from relational.expr.unbound import TextSpan
from relational.plan.logical import Join, JoinKind, LogicalPlan, Project, Share
from relational.plan.logical.filter import where
from relational.plan.set_functions import ONE_ROW
from relational.plan.subqueries import global_aggregate, looked_up
from relational.plan.unnest import Domain, Unnesting


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
    inside, columns = query, list[Expression](input_refs(query.schema.types))
    while isinstance(inside, Project):
        columns, inside = [substitute(each, inside.expressions) for each in columns], inside.input
    if on is None and inside == ONE_ROW:
        kind = JoinKind.INNER
    refers = any(isinstance(node, OuterRef) and node.depth == depth for each in columns for node in walk(each))
    if kind is JoinKind.LEFT or not (refers or inside == ONE_ROW):
        rows = unnesting.unnested(query)
        terms = (*unnesting.as_join_terms(rows.terms, width), *terms)
        return Join(domain.plan, rows.plan, kind, conjunction(terms) if terms else None)
    rows = unnesting.unnested(inside)
    pairs = unnesting.as_join_terms(rows.terms, width)
    if rows.plan == ONE_ROW:
        join = where(domain.plan, pairs)
    else:
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
