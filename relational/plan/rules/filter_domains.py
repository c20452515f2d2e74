"""Filters the domain of a subquery as the rows are that it is of (relational/plan/unnest.py).

    (t WHERE p) join (… domain of t …) ON t.k = domain.k        (t WHERE p) join (… domain of (t WHERE p) …) ON …

A subquery that is correlated by more than equalities is computed for each combination of the values that its outer
columns have, and joined with the outer rows by these values. The conditions of the outer rows concern any of their
columns, so they cannot pass the join; but no other combination than those of the rows that are left finds a partner.
Where all readers of the outer rows are filtered alike then, the conditions go below their Share, and so on to the
domains of subqueries within these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from relational.expr.expression import Expression, InputRef, conjunction, conjuncts, input_refs, substitute, walk
from relational.plan.descent import transformed
from relational.plan.logical import (
    Aggregate,
    Filter,
    Join,
    LogicalPlan,
    OverWindow,
    Project,
    ProjectSet,
    Scan,
    Share,
    Sort,
    TopN,
    Union,
)
from relational.plan.rules.push_down_filter import push_down_filter

Pairs = tuple[tuple[int, int], ...]
"""Columns of a plan, each with the column of something else that has its value."""


def filter_domains(plan: LogicalPlan) -> LogicalPlan:
    """The plan in which each domain has the conditions of the rows that it is joined with."""
    while True:
        found = transformed(plan, _changed)
        if found is plan:
            return plan
        plan = push_down_filter(found)


@dataclass(frozen=True, slots=True)
class _Selection:
    """The rows of `base`, stored or shared ones, for which `terms` are true one after the other; `columns`: the output.
    All are over the columns of the base."""

    base: LogicalPlan
    terms: tuple[Expression, ...]
    columns: Sequence[Expression]


def _changed(plan: LogicalPlan) -> LogicalPlan:
    """A join with the domains of each side filtered as the other side is, unless its rows stay without a partner."""
    if not isinstance(plan, Join) or plan.is_temporal or plan.is_delta:
        return plan
    known = [each.columns for each in plan.equalities[0]]
    equal = [(left, right) for left, right in known if left is not None and right is not None]
    sides = [plan.left, plan.right]
    for inner, is_kept in enumerate((plan.kind.keeps_left, plan.kind.keeps_right)):
        if not is_kept:
            pairs = tuple((each[1 - inner], each[inner]) for each in equal)
            for selection, columns in _selections(sides[1 - inner], pairs):
                sides[inner] = _narrowed(sides[inner], columns, selection)
    return plan.over(tuple(sides))


def _selections(plan: LogicalPlan, pairs: Pairs) -> list[tuple[_Selection, Pairs]]:
    """The filtered rows that columns of `plan` have their values of, together; each with what `pairs` has beside these
    columns, and the column of its base."""
    if not pairs:
        return []
    found = _selection(plan)
    if found is not None:
        terms = tuple(takewhile(lambda term: not any(each.is_volatile for each in walk(term)), found.terms))
        own = ((other, found.columns[column]) for column, other in pairs)
        columns = tuple((other, each.index) for other, each in own if isinstance(each, InputRef))
        return [(_Selection(found.base, terms, found.columns), columns)] if terms and columns else []
    if isinstance(plan, Union):
        return []
    below = zip(plan.inputs, _below(plan, pairs), strict=True)
    return [each for child, columns in below for each in _selections(child, columns)]


def _narrowed(plan: LogicalPlan, pairs: Pairs, selection: _Selection) -> LogicalPlan:
    """The plan without rows of a domain whose values no row of `selection` has. `pairs`: columns that only these
    values matter of, each with the column of the base that has them."""
    if not pairs:
        return plan
    if isinstance(plan, Aggregate) and _is_domain(plan, pairs, selection.base):
        return plan.over((_filtered(plan.input, selection),))
    below = zip(plan.inputs, _below(plan, pairs), strict=True)
    return plan.over(tuple(_narrowed(child, columns, selection) for child, columns in below))


def _is_domain(plan: Aggregate, pairs: Pairs, base: LogicalPlan) -> bool:
    """Whether the rows are the combinations of values of columns of `base`, all of which are in `pairs`."""
    found = None if plan.calls else _selection(plan.input)
    if found is None or not _is_same(found.base, base):
        return False
    sources = [found.columns[column] for column in plan.group_by]
    known = {at for at, column in pairs for source in (sources[at],)
             if isinstance(source, InputRef) and source.index == column}
    return len(known) == len(sources)


def _below(plan: LogicalPlan, pairs: Pairs) -> list[Pairs]:
    """For each input those of `pairs` that it has too: without all rows of some values there, the result is without
    the rows of these values, and has all others."""
    if isinstance(plan, Filter | Sort | Union):
        return [pairs for _ in plan.inputs]
    if isinstance(plan, Join):
        width = len(plan.left.schema)
        is_left, is_right = not plan.kind.keeps_right, not plan.kind.keeps_left and plan.kind.has_pairs
        left = tuple(each for each in pairs if is_left and each[0] < width)
        right = tuple((column - width, other) for column, other in pairs if is_right and column >= width)
        return [(), ()] if plan.is_temporal or plan.is_delta else [left, right]
    if isinstance(plan, OverWindow | TopN):
        return [tuple(each for each in pairs if each[0] in plan.groups)]
    if isinstance(plan, Project):
        parts = ((plan.expressions[column], other) for column, other in pairs)
        return [tuple((part.index, other) for part, other in parts if isinstance(part, InputRef))]
    if isinstance(plan, Aggregate | ProjectSet):
        passed = plan.group_by if isinstance(plan, Aggregate) else plan.passed
        return [tuple((passed[column], other) for column, other in pairs if column < len(passed))]
    return [() for _ in plan.inputs]


def _selection(plan: LogicalPlan) -> _Selection | None:
    """The plan as filtered and projected rows; None if it is more."""
    layers: list[Filter | Project] = []
    while isinstance(plan, Filter | Project):
        layers.append(plan)
        plan = plan.input
    if not isinstance(plan, Share | Scan):
        return None
    columns: Sequence[Expression] = input_refs(plan.schema.types)
    terms: list[Expression] = []
    for layer in reversed(layers):
        if isinstance(layer, Filter):
            terms += (substitute(each, columns) for each in conjuncts(layer.predicate))
        else:
            columns = [substitute(each, columns) for each in layer.expressions]
    return _Selection(plan, tuple(dict.fromkeys(terms)), columns)


def _filtered(plan: LogicalPlan, selection: _Selection) -> LogicalPlan:
    """A selection of the same base with all terms of another one before its own, which they may guard [R6]."""
    found = _selection(plan)
    assert found is not None
    if not set(selection.terms).difference(found.terms):
        return plan
    return _with_terms(plan, selection.terms)


def _with_terms(plan: LogicalPlan, terms: tuple[Expression, ...]) -> LogicalPlan:
    """`plan` with the terms on the rows of its base."""
    if isinstance(plan, Filter) and not isinstance(plan.input, Filter | Project):
        own = tuple(each for each in conjuncts(plan.predicate) if each not in terms)
        return Filter(plan.input, conjunction((*terms, *own)))
    if isinstance(plan, Filter | Project):
        return plan.with_inputs((_with_terms(plan.input, terms),))
    return Filter(plan, conjunction(terms))


def _is_same(one: LogicalPlan, other: LogicalPlan) -> bool:
    """Whether both are the same shared rows, or the same stored ones."""
    if isinstance(one, Scan) and isinstance(other, Scan):
        same_table = one.table.id == other.table.id
        return one is other or (same_table and one.columns == other.columns and one.epoch == other.epoch)
    return one.share_number is not None and one.share_number == other.share_number
