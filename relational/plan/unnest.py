"""Unnesting: a subquery that refers to columns of the query around it, as one that does not, and the terms that say
which of its rows belong to a row of that query.

What refers to the outer row goes up through the plan until it is a condition of the join of both queries: a term of a
filter, or of a join, becomes one of these terms; what is above it keeps the columns of the term. Terms go through an
aggregation if they are equalities of an outer expression and one of the group: the rows of all outer rows are then
grouped by it too (the simple unnesting of Neumann and Kemper, "Unnesting Arbitrary Queries").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.expression import (
    Expression,
    InputRef,
    OuterRef,
    conjunction,
    conjuncts,
    equality,
    input_columns,
    input_refs,
    is_equality,
    remap,
    transform,
    walk,
)
from relational.expr.unbound import TextSpan
from relational.plan.logical import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    LogicalPlan,
    Project,
    Share,
    Sort,
    Union,
    Values,
    nodes,
)
from relational.plan.logical.filter import where
from relational.plan.logical.project import hidden_name

_NAMES: dict[type[LogicalPlan], str] = {
    Aggregate: "an aggregate", Limit: "LIMIT", Union: "UNION", Values: "VALUES",
}
"""In messages."""


@dataclass(frozen=True, slots=True)
class Unnested:
    """`plan` has the columns of the subquery first. Its rows for an outer row are those for which all `terms` are true,
    over the columns of the plan (InputRef) and of the outer row (OuterRef)."""

    plan: LogicalPlan
    terms: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """A term `outer` = `inner`: an expression over the outer row alone, and one over the plan alone."""

    outer: Expression
    inner: Expression
    is_null_safe: bool


def is_correlated(plan: LogicalPlan) -> bool:
    """Whether a plan refers to the row of a query around it."""
    return any(_is_outer(each) for node in nodes(plan) for each in node.evaluated)


def unnested(plan: LogicalPlan, span: TextSpan | None) -> Unnested:
    """The plan of a subquery. BindError, at `span`, names an operation that no reference to the outer row can pass."""
    if not is_correlated(plan):
        return Unnested(plan)
    if isinstance(plan, Share | Sort):
        return unnested(plan.input, span)
    if isinstance(plan, Filter):
        return _filter(plan, span)
    if isinstance(plan, Project):
        return _project(plan, span)
    if isinstance(plan, Aggregate) and plan.group_by:
        return _aggregate(plan, span)
    if isinstance(plan, Join):
        return _join(plan, span)
    raise _unsupported(f"{_NAMES.get(type(plan), 'this operation')} above what", span)


def bindings(terms: Sequence[Expression]) -> list[Binding] | None:
    """The terms as equalities; None if one is something else."""
    found = []
    for term in terms:
        if not is_equality(term):
            return None
        sides = [each for each in (term.args, term.args[::-1]) if _is_only_outer(each[0]) and not _is_outer(each[1])]
        if not sides:
            return None
        outer, inner = sides[0]
        found.append(Binding(outer, inner, term.function != "equal"))
    return found


def with_columns(
    plan: LogicalPlan, expressions: Sequence[Expression], name: str = "_of_subquery"
) -> tuple[LogicalPlan, tuple[int, ...]]:
    """The plan with a hidden column more for each of `expressions` that is no column of it, called `name`; the
    positions of all."""
    added: list[Expression] = []
    positions = []
    for each in expressions:
        if isinstance(each, InputRef):
            positions.append(each.index)
            continue
        if each not in added:
            added.append(each)
        positions.append(len(plan.schema) + added.index(each))
    if not added:
        return plan, tuple(positions)
    names = list(plan.schema.names)
    for _ in added:
        names.append(hidden_name(name, names))
    columns = input_refs(plan.schema.types)
    concealed = plan.hidden | frozenset(range(len(columns), len(names)))
    return Project(plan, (*columns, *added), tuple(names), concealed), tuple(positions)


def _filter(plan: Filter, span: TextSpan | None) -> Unnested:
    below = unnested(plan.input, span)
    inner, outer = _parted(conjuncts(plan.predicate))
    return Unnested(where(below.plan, inner), (*below.terms, *outer))


def _project(plan: Project, span: TextSpan | None) -> Unnested:
    if any(map(_is_outer, plan.expressions)):
        raise _unsupported("an expression of its SELECT that", span)
    below = unnested(plan.input, span)
    passed = {each.index: at for at, each in reversed(list(enumerate(plan.expressions))) if isinstance(each, InputRef)}
    needed = [column for column in _inner_columns(below.terms) if column not in passed]
    names = list(plan.names)
    for column in needed:
        names.append(hidden_name(below.plan.schema.names[column], names))
    added = tuple(InputRef(column, below.plan.schema.types[column]) for column in needed)
    width = len(plan.expressions)
    concealed = plan.concealed | frozenset(range(width, width + len(added)))
    moved = passed | {column: width + at for at, column in enumerate(needed)}
    above = Project(below.plan, (*plan.expressions, *added), tuple(names), concealed)
    return Unnested(above, tuple(remap(term, moved) for term in below.terms))


def _aggregate(plan: Aggregate, span: TextSpan | None) -> Unnested:
    """With groups: those of the subquery, and the inner sides of the terms."""
    below = unnested(plan.input, span)
    known = bindings(below.terms)
    if known is None:
        raise _unsupported("GROUP BY above a comparison that is no equality and", span)
    source, keys = with_columns(below.plan, [each.inner for each in known])
    added = [key for key in dict.fromkeys(keys) if key not in plan.group_by]
    groups = (*plan.group_by, *added)
    whole = Aggregate(source, groups, plan.calls, plan.names)
    count, more = len(plan.group_by), len(added)
    shown = [*range(count), *range(count + more, len(whole.schema)), *range(count, count + more)]
    expressions = tuple(InputRef(column, whole.schema.types[column]) for column in shown)
    names = tuple(whole.schema.names[column] for column in shown)
    width = len(plan.schema)
    above = Project(whole, expressions, names, frozenset(range(width, len(shown))))
    position = {column: groups.index(column) for column in keys}
    final = {key: shown.index(position[key]) for key in keys}
    terms = [_equality(each, InputRef(final[key], each.inner.data_type)) for each, key in zip(known, keys, strict=True)]
    return Unnested(above, tuple(terms))


def _join(plan: Join, span: TextSpan | None) -> Unnested:
    """References may be on both sides of an inner join, and on the left side of others."""
    if plan.kind is not JoinKind.INNER and (is_correlated(plan.right) or any(map(_is_outer, plan.terms))):
        raise _unsupported(f"the right side of a {plan.kind} join that", span)
    if plan.kind in (JoinKind.RIGHT, JoinKind.FULL):
        raise _unsupported(f"a {plan.kind} join above what", span)
    left, right = unnested(plan.left, span), unnested(plan.right, span)
    width, left_width, right_width = len(plan.left.schema), len(left.plan.schema), len(plan.right.schema)
    moved = dict(enumerate(range(width))) | {width + column: left_width + column for column in range(right_width)}
    inner, outer = _parted(tuple(remap(term, moved) for term in plan.terms))
    shifted = {column: left_width + column for column in range(len(right.plan.schema))}
    terms = (*left.terms, *(remap(term, shifted) for term in right.terms), *outer)
    join = Join(left.plan, right.plan, plan.kind, conjunction(inner) if inner else None)
    if not plan.kind.has_pairs or left_width == width:
        return Unnested(join, terms)
    first = [*range(width), *range(left_width, left_width + right_width)]
    shown = first + [column for column in range(len(join.schema)) if column not in first]
    expressions = tuple(InputRef(column, join.schema.types[column]) for column in shown)
    names = tuple(join.schema.names[column] for column in shown)
    hidden = frozenset(new for new, old in enumerate(shown) if old in join.hidden or old not in first)
    position = {old: new for new, old in enumerate(shown)}
    return Unnested(Project(join, expressions, names, hidden), tuple(remap(term, position) for term in terms))


def _equality(binding: Binding, inner: Expression) -> Expression:
    return equality(binding.outer, inner, is_null_safe=binding.is_null_safe)


def _parted(terms: Sequence[Expression]) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Those without and those with a reference to the outer row."""
    return (tuple(term for term in terms if not _is_outer(term)), tuple(term for term in terms if _is_outer(term)))


def _inner_columns(terms: Sequence[Expression]) -> list[int]:
    return sorted(frozenset().union(*map(input_columns, terms)))


def _is_outer(expression: Expression) -> bool:
    return any(isinstance(each, OuterRef) for each in walk(expression))


def _is_only_outer(expression: Expression) -> bool:
    return _is_outer(expression) and not input_columns(expression)


def as_join_terms(terms: Sequence[Expression], width: int) -> tuple[Expression, ...]:
    """Terms over an outer row of `width` columns and the row of a subquery behind it."""

    def moved(node: Expression) -> Expression:
        if isinstance(node, OuterRef):
            return InputRef(node.index, node.data_type)
        return InputRef(width + node.index, node.data_type) if isinstance(node, InputRef) else node

    return tuple(transform(term, moved) for term in terms)


def _unsupported(what: str, span: TextSpan | None) -> BindError:
    return BindError(f"{what} refers to the query around the subquery is not supported", **error_span(span))
