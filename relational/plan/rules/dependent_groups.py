"""Removes groups, and equalities of joins, that others determine: state has shorter keys.

    Aggregate [k, w, w_end] over            Project k, w, w + 10 s AS w_end
      Project k, bin(t) AS w,                 Aggregate [k, w] over
              bin(t) + 10 s AS w_end            Project k, bin(t) AS w, ...

    a join b ON a.w = b.w AND a.w + 10 s = b.w + 10 s        a join b ON a.w = b.w, where a.w + 10 s IS NOT NULL

An expression that contains the expressions of other groups, and no column beside them, has one value in each of their
groups; where two rows are equal in what both sides of an equality are computed from alike, the equality holds, unless
it is of NULLs. Such is the end of a window, which queries group and join by because it is shown. Only types in which
equal values are the same value count: 0.0 = -0.0, but not their reciprocals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relational.expr.expression import (
    Call,
    Expression,
    InputRef,
    Literal,
    Parameter,
    conjunction,
    input_columns,
    input_refs,
    substitute,
)
from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, Join, JoinKind, LogicalPlan, Project
from relational.plan.logical.equalities import Equality, equalities
from relational.plan.logical.filter import where
from relational.plan.logical.project import over_base
from relational.types.data_type import DataType, TypeKind

EXACT = frozenset((
    TypeKind.BOOLEAN, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.DATE,
    TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ,
))
"""Types in which equal values are the same value."""


def dependent_groups(plan: LogicalPlan) -> LogicalPlan:
    """The plan without groups that follow from other groups of their aggregation."""
    return transformed(plan, lambda node: _grouped(node) if isinstance(node, Aggregate) else node)


def implied_equalities(plan: LogicalPlan) -> LogicalPlan:
    """The plan without equalities of inner joins that follow from others of them."""
    return transformed(plan, lambda node: _joined(node) if isinstance(node, Join) else node)


def _grouped(plan: Aggregate) -> LogicalPlan:
    _, columns = over_base(plan.input)
    values = [columns[column] for column in plan.group_by]
    kept = list(range(len(values)))
    for number in reversed(range(len(values))):
        others = {values[each]: each for each in kept if each != number}
        if input_columns(values[number]) and _computed_from(values[number], others) is not None:
            kept.remove(number)
    if len(kept) == len(values):
        return plan
    less = Aggregate(plan.input, tuple(plan.group_by[number] for number in kept), plan.calls, plan.names, plan.phases)
    refs = input_refs(less.schema.types)
    places = {values[number]: at for at, number in enumerate(kept)}
    groups = [refs[kept.index(number)] if number in kept else _computed_from(value, places)
              for number, value in enumerate(values)]
    columns = (*(each for each in groups if each is not None), *refs[len(kept) :])
    return Project(less, columns, plan.schema.names, plan.hidden)


def _joined(plan: Join) -> LogicalPlan:
    if plan.kind is not JoinKind.INNER or plan.is_temporal or plan.is_delta:
        return plan
    (_, left), (_, right) = over_base(plan.left), over_base(plan.right)
    width, kept, checks = len(plan.left.schema), list(plan.terms), list[Expression]()
    for term in reversed(plan.terms):
        others = [each for each in kept if each is not term]
        for pair in equalities((term,), width)[0]:
            value = _implied(pair, equalities(others, width)[0], left, right)
            if value is not None:
                kept = others
                checks += () if pair.is_null_safe else [Call("is_not_null", (value,), DataType.BOOLEAN)]
    if len(kept) == len(plan.terms):
        return plan
    return replace(plan, left=where(plan.left, tuple(checks)), on=conjunction(tuple(kept)))


def _implied(
    pair: Equality, others: Sequence[Equality], left: Sequence[Expression], right: Sequence[Expression]
) -> Expression | None:
    """The left side of a pair in terms of those of others, if its sides, over the columns `left` and `right`, are
    computed alike from theirs."""
    of_left: dict[Expression, int] = {}
    of_right: dict[Expression, int] = {}
    for number, each in enumerate(others):
        of_left.setdefault(substitute(each.left, left), number)
        of_right.setdefault(substitute(each.right, right), number)
    found = _computed_from(substitute(pair.left, left), of_left)
    if found is None or found != _computed_from(substitute(pair.right, right), of_right):
        return None
    return substitute(found, [each.left for each in others])


def _computed_from(value: Expression, known: Mapping[Expression, int]) -> Expression | None:
    """The value over a row of the `known` expressions, by position; None if it needs something else."""
    at = known.get(value)
    if at is not None and input_columns(value) and value.data_type.kind in EXACT:
        return InputRef(at, value.data_type)
    if not value.children:
        return value if isinstance(value, Literal | Parameter) else None
    if value.is_volatile:
        return None
    parts = [_computed_from(child, known) for child in value.children]
    found = tuple(part for part in parts if part is not None)
    return value.with_children(found) if len(found) == len(parts) else None
