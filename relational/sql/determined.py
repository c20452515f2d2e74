"""Columns of a grouped SELECT that its groups determine: those of a table whose whole primary key is among the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relational.errors import BindError
from relational.expr.expression import InputRef
from relational.expr.scope import Scope
from relational.expr.unbound import (
    Name,
    Named,
    UnboundAggregate,
    UnboundColumn,
    UnboundExpr,
    UnboundLiteral,
    is_alike,
)
from relational.plan.builder import Selection


def with_determined(selection: Selection, scope: Scope) -> Selection:
    """The selection, grouped also by the columns that its groups determine, as far as it has them outside of
    aggregates: each group has one value of these."""
    if not selection.groups or selection.sets is not None or not any(item.key for item in scope.items):
        return selection
    groups = [_written(term, selection, scope) for term in selection.groups]
    grouped = {column.index for column in (_resolved(term, scope) for term in groups) if column is not None}
    determined: set[int] = set()
    for item in scope.items:
        if item.key and grouped >= {item.first + position for position in item.key}:
            determined.update(range(item.first, item.first + len(item.schema)))
    if not determined:
        return selection
    wanted: dict[int, UnboundColumn] = {}
    for column in _outside_of_aggregates(selection, groups, scope):
        if column.index in determined and column.index not in grouped:
            wanted.setdefault(column.index, column)
    return replace(selection, groups=(*selection.groups, *wanted.values())) if wanted else selection


def _written(term: UnboundExpr, selection: Selection, scope: Scope) -> UnboundExpr:
    """What a group stands for: an item of the SELECT list by its position or, unless a column has it, by its name."""
    items = selection.items
    if isinstance(term, UnboundLiteral) and type(term.value) is int and 1 <= term.value <= len(items):
        item = items[term.value - 1]
        return item.term if isinstance(item, Named) else term
    if isinstance(term, Name) and not term.qualifier and not scope.has(term.name):
        return next((item.term for item in items if isinstance(item, Named) and item.name == term.name), term)
    return term


def _outside_of_aggregates(
    selection: Selection, groups: Sequence[UnboundExpr], scope: Scope
) -> Iterator[UnboundColumn]:
    """The columns of all clauses that come after the groups, those of a * included, without those inside of groups."""
    named = {item.name for item in selection.items if isinstance(item, Named)}
    sorted_by = (*(key.term for key in selection.arrangement.order), *selection.first_of)
    todo = [term for term in sorted_by if not isinstance(term, Name) or term.qualifier or term.name not in named]
    todo += () if selection.having is None else (selection.having,)
    for item in selection.items:
        if isinstance(item, Named):
            todo.append(item.term)
        elif item.row is None:
            omitted = {name.name for name in item.omitted}
            yield from (each for each in scope.star(item.qualifier, item.span) if each.name not in omitted)
    while todo:
        term = todo.pop()
        column = _resolved(term, scope)
        if column is not None:
            yield column
        elif not isinstance(term, UnboundAggregate) and not any(is_alike(group, term) for group in groups):
            todo += term.children


def _resolved(term: UnboundExpr, scope: Scope) -> UnboundColumn | None:
    """The column of this SELECT that a term is; None for one of a query around it, and for what is no column."""
    if isinstance(term, UnboundColumn):
        return term
    if not isinstance(term, Name):
        return None
    try:
        found = scope.resolve(term)
    except BindError:
        return None
    return UnboundColumn(found.index, found.data_type, term.name, term.span) if isinstance(found, InputRef) else None
