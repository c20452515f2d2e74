"""Builds logical plans from written terms. SQL and the fluent face both end here, so both make the same
plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.bind import Scope, TermBinder, place_of, span, unknown
from relational.expr.expression import Expression
from relational.expr.unbound import Constant, Name, Named, Ordered, Place, Term, has_summary, renamed
from relational.plan.grouping import GroupBinder
from relational.plan.logical import Aggregate, Filter, Limit, LogicalPlan, Project, Sort
from relational.types.ordering import OrderType, SortKey


@dataclass(frozen=True, slots=True)
class Star:
    """Every visible column, of the relation `qualifier` where one is written."""

    qualifier: str | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """One SELECT without its FROM, clause by clause."""

    items: tuple[Named | Star, ...]
    where: Term | None = None
    groups: tuple[Term, ...] = ()
    having: Term | None = None
    distinct: bool = False
    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


def scope_of(plan: LogicalPlan, qualifier: str | None = None) -> Scope:
    """The names that a plan's columns have."""
    return Scope(plan.schema, plan.hidden, qualifier)


def keep(plan: LogicalPlan, condition: Term, qualifier: str | None = None) -> LogicalPlan:
    """The rows for which `condition` is true."""
    return Filter(plan, TermBinder(scope_of(plan, qualifier)).condition(condition, "WHERE"))


def sort(plan: LogicalPlan, keys: Sequence[Ordered]) -> LogicalPlan:
    """The plan's rows ordered by its own columns or by expressions over them."""
    stars = (Star(),)
    return select(plan, Selection(stars, order=tuple(keys)))


def select(plan: LogicalPlan, selection: Selection, qualifier: str | None = None) -> LogicalPlan:
    """A whole SELECT over `plan`."""
    if selection.where is not None:
        plan = keep(plan, selection.where, qualifier)
    scope = scope_of(plan, qualifier)
    items = _expanded(selection.items, scope)
    order = tuple(Ordered(_order_term(key.term, items, scope), key.order) for key in selection.order)
    terms = [*(item.term for item in items), *(key.term for key in order)]
    binder: TermBinder
    if selection.groups or selection.having is not None or any(map(has_summary, terms)):
        groups = [_group_term(term, items, scope) for term in selection.groups]
        binder = GroupBinder(scope, groups)
        bound = [binder.bind(term) for term in terms]
        wanted = selection.having
        having = None if wanted is None else binder.condition(_having(wanted, items, scope), "HAVING")
        plan = binder.aggregated(plan)
        plan = plan if having is None else Filter(plan, having)
    else:
        binder = TermBinder(scope)
        bound = [binder.bind(term) for term in terms]
    return _output(plan, items, bound, order, selection)


def _output(
    plan: LogicalPlan,
    items: Sequence[Named],
    bound: Sequence[Expression],
    order: Sequence[Ordered],
    selection: Selection,
) -> LogicalPlan:
    """Projection, DISTINCT, ORDER BY and LIMIT of bound items, followed in `bound` by the bound sort keys."""
    expressions = list(bound[: len(items)])
    names = [item.name for item in items]
    keys: list[SortKey] = []
    for key, expression in zip(order, bound[len(items) :], strict=True):
        if expression not in expressions:
            if selection.distinct:
                raise BindError(
                    "ORDER BY of SELECT DISTINCT must name selected columns", **span(place_of(key.term))
                )
            expressions.append(expression)
            names.append(f"_order_{len(expressions)}")
        keys.append(SortKey(expressions.index(expression), key.order))
    concealed = frozenset(range(len(items), len(expressions)))
    plan = Project(plan, tuple(expressions), tuple(names), concealed)
    if selection.distinct:
        plan = Aggregate(plan, tuple(range(len(expressions))), (), ())
    if keys:
        plan = Sort(plan, tuple(keys))
    if selection.limit is not None or selection.offset:
        plan = Limit(plan, selection.limit, selection.offset)
    return plan


def _expanded(items: Sequence[Named | Star], scope: Scope) -> tuple[Named, ...]:
    """The items with every * spelled out."""
    found: list[Named] = []
    for item in items:
        if isinstance(item, Named):
            found.append(item)
            continue
        if item.qualifier is not None and item.qualifier != scope.qualifier:
            raise BindError(unknown("relation", item.qualifier, [scope.qualifier or ""]), **span(item.place))
        visible = (name for place, name in enumerate(scope.schema.names) if place not in scope.hidden)
        found += (Named(Name(name, place=item.place), name) for name in visible)
    if not found:
        raise BindError("a SELECT needs at least one column")
    return tuple(found)


def _by_position(term: Term, items: Sequence[Named], clause: str) -> Term | None:
    """The item that a whole number stands for, None where the term is no number."""
    if not isinstance(term, Constant) or isinstance(term.value, bool) or not isinstance(term.value, int):
        return None
    if not 1 <= term.value <= len(items):
        raise BindError(f"{clause} {term.value}: there are {len(items)} columns", **span(term.place))
    return items[term.value - 1].term


def _order_term(term: Term, items: Sequence[Named], scope: Scope) -> Term:
    """What a sort key means: an item by position, an item by its name, else an expression over the input."""
    found = _by_position(term, items, "ORDER BY")
    if found is not None:
        return found
    if isinstance(term, Name) and term.qualifier is None:
        return next((item.term for item in items if item.name == term.name), term)
    return term


def _group_term(term: Term, items: Sequence[Named], scope: Scope) -> Term:
    """What a group means: an item by position, a column of the input by its name, else an item by its
    name.
    """
    found = _by_position(term, items, "GROUP BY")
    if found is None and isinstance(term, Name) and term.qualifier is None:
        if term.name in scope.schema.names:
            return term
        found = next((item.term for item in items if item.name == term.name), None)
    return term if found is None else found


def _having(term: Term, items: Sequence[Named], scope: Scope) -> Term:
    """HAVING with the names of items, where the input has no such column, replaced by the items' terms."""
    aliased = {item.name: item.term for item in items if item.name not in scope.schema.names}
    return renamed(term, aliased) if aliased else term


def ordered(value: Term | str | Ordered) -> Ordered:
    """A sort key of the fluent face: a column's name, a term, or either with its order."""
    if isinstance(value, Ordered):
        return value
    return Ordered(Name(value) if isinstance(value, str) else value, OrderType())
