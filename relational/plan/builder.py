"""Builds logical plans from unbound expressions. SQL and the fluent API both use it, so both build the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, error_span, span_of
from relational.expr.expression import Expression, InputRef
from relational.expr.unbound import (
    Name,
    Named,
    Ordered,
    TextSpan,
    UnboundCall,
    UnboundExpr,
    UnboundLiteral,
    has_aggregate,
    renamed,
)
from relational.expr.window_functions import RankKind
from relational.plan.grouping import GroupBinder
from relational.plan.logical import Aggregate, Filter, Limit, LogicalPlan, Project, Share, Sort, TopN
from relational.plan.set_functions import SetFunctions
from relational.plan.subqueries import QueryPlanner, Subqueries
from relational.plan.windows import Windows, has_window
from relational.types.ordering import OrderType, SortKey

MAX_SETS = 256
"""Grouping sets of one GROUP BY: each row of the input is grouped once for each of them."""

@dataclass(frozen=True, slots=True)
class Star:
    """All visible columns, of the relation `qualifier` if one is written; or all fields of a `row`. Without those that
    `omitted` names."""

    qualifier: tuple[str, ...] = ()
    span: TextSpan | None = None
    row: UnboundExpr | None = None
    omitted: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """ORDER BY, LIMIT and OFFSET of a query."""

    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """One SELECT without its FROM, clause by clause. `sets`: the grouping sets, as positions in `groups`; None: all
    groups are one. `first_of`: the terms of DISTINCT ON."""

    items: tuple[Named | Star, ...]
    where: UnboundExpr | None = None
    groups: tuple[UnboundExpr, ...] = ()
    sets: tuple[tuple[int, ...], ...] | None = None
    having: UnboundExpr | None = None
    distinct: bool = False
    first_of: tuple[UnboundExpr, ...] = ()
    arrangement: Arrangement = Arrangement()


def scope_of(plan: LogicalPlan) -> Scope:
    """The names of a plan's columns."""
    return Scope(plan.schema, plan.hidden)


def keep(plan: LogicalPlan, condition: UnboundExpr) -> LogicalPlan:
    """Filters the rows for which `condition` is true."""
    return Filter(plan, ExprBinder(scope_of(plan)).condition(condition, "WHERE"))


def arrange(plan: LogicalPlan, arrangement: Arrangement) -> LogicalPlan:
    """Sorts the plan's rows by its own columns or by expressions over them, and limits them."""
    if not arrangement.order and arrangement.limit is None and not arrangement.offset:
        return plan
    return select(plan, Selection((Star(),), arrangement=arrangement))


def select(
    plan: LogicalPlan, selection: Selection, scope: Scope | None = None, planner: QueryPlanner | None = None
) -> LogicalPlan:
    """Builds a complete SELECT over `plan`, whose columns have the names of `scope` (default: their own). `planner`
    plans subqueries of its expressions and numbers plans with several readers, None: there are no subqueries."""
    scope = scope or scope_of(plan)
    subqueries, windows, sets = Subqueries(planner or _NoQueries(), scope), Windows(), SetFunctions()
    if selection.where is not None:
        plan = subqueries.filtered(plan, selection.where, ExprBinder(scope, subqueries))
    items = _expanded(selection.items, scope)
    order = tuple(
        Ordered(_order_term(key.term, items, "ORDER BY"), key.order) for key in selection.arrangement.order
    )
    first_of = [_order_term(term, items, "DISTINCT ON") for term in selection.first_of]
    terms = [*(item.term for item in items), *(key.term for key in order), *first_of]
    binder: ExprBinder
    is_grouped = selection.groups or selection.sets is not None or selection.having is not None
    if is_grouped or any(map(has_aggregate, terms)):
        groups = [_group_term(term, items, scope) for term in selection.groups]
        share = None if planner is None else planner.shared
        binder = GroupBinder(scope, groups, subqueries, windows, sets, selection.sets, share)
        bound = [binder.bind(term) for term in terms]
        if selection.having is not None:
            bound.append(binder.condition(_having(selection.having, items, scope), "HAVING"))
            if has_window(bound[-1]):
                message = "HAVING cannot have a window function"
                raise BindError(message, **error_span(span_of(selection.having)))
        plan, bound = subqueries.joined(binder.aggregated(plan), bound, binder.group_of)
        if selection.having is not None:
            plan = Filter(plan, bound.pop())
    else:
        binder = ExprBinder(scope, subqueries, windows, sets)
        plan, bound = subqueries.joined(plan, [binder.bind(term) for term in terms])
    plan, bound = sets.joined(*windows.joined(plan, bound))
    return _output(plan, items, bound, order, selection)


class _NoQueries:
    """An expression of the fluent API has no subquery."""

    def subquery(self, node: object, scope: Scope) -> LogicalPlan:
        raise AssertionError(node)

    def shared(self, plan: LogicalPlan) -> Share:
        raise AssertionError(plan)


def _output(
    plan: LogicalPlan,
    items: Sequence[Named],
    bound: Sequence[Expression],
    order: Sequence[Ordered],
    selection: Selection,
) -> LogicalPlan:
    """Projection, DISTINCT, ORDER BY and LIMIT of bound items, followed in `bound` by the bound sort keys and the terms
    of DISTINCT ON."""
    expressions = list(bound[: len(items)])
    names = [item.name for item in items]
    keys: list[SortKey] = []
    for key, expression in zip(order, bound[len(items) : len(items) + len(order)], strict=True):
        if expression not in expressions:
            if selection.distinct:
                raise BindError(
                    "ORDER BY of SELECT DISTINCT must name selected columns", **error_span(span_of(key.term))
                )
            expressions.append(expression)
            names.append(f"_order_{len(expressions)}")
        keys.append(SortKey(expressions.index(expression), key.order))
    first_of = bound[len(items) + len(order) :]
    for expression in first_of:
        if expression not in expressions:
            expressions.append(expression)
            names.append(f"_order_{len(expressions)}")
    concealed = frozenset(range(len(items), len(expressions)))
    plan = Project(plan, tuple(expressions), tuple(names), concealed)
    if selection.distinct:
        plan = Aggregate(plan, tuple(range(len(expressions))), (), ())
    if first_of:
        groups = tuple(dict.fromkeys(map(expressions.index, first_of)))
        plan = _first_rows(plan, groups, keys, selection.arrangement.order)
    if keys:
        plan = Sort(plan, tuple(keys))
    limit, offset = selection.arrangement.limit, selection.arrangement.offset
    if limit is not None or offset:
        plan = Limit(plan, limit, offset)
    return plan


def _first_rows(
    plan: LogicalPlan, groups: tuple[int, ...], keys: Sequence[SortKey], order: Sequence[Ordered]
) -> LogicalPlan:
    """DISTINCT ON: the first row of each group in the order of `keys`, of which the groups come first."""
    known = set[int]()
    for key, written in zip(keys, order, strict=True):
        if key.column in groups:
            known.add(key.column)
        elif len(known) < len(groups):
            message = "ORDER BY of SELECT DISTINCT ON begins with the expressions of DISTINCT ON"
            raise BindError(message, **error_span(span_of(written.term)))
    rest = tuple(key for key in keys if key.column not in groups)
    return TopN(plan, groups, rest, RankKind.ROW_NUMBER, 1)


def _expanded(items: Sequence[Named | Star], scope: Scope) -> tuple[Named, ...]:
    """The items with every * expanded."""
    found: list[Named] = []
    for item in items:
        if isinstance(item, Named):
            found.append(item)
        elif item.row is not None:
            found += _fields(item.row, scope, item.span)
        else:
            omitted = _omitted(item.omitted, scope)
            columns = scope.star(item.qualifier, item.span)
            found += (Named(column, column.name) for column in columns if column.index not in omitted)
    if not found:
        raise BindError("a SELECT needs at least one column")
    return tuple(found)


def _omitted(names: Sequence[Name], scope: Scope) -> frozenset[int]:
    """The positions of the columns that an EXCEPT names. BindError for an unknown one, and for one named twice."""
    found: set[int] = set()
    for name in names:
        column = scope.resolve(name)
        if not isinstance(column, InputRef):
            raise BindError("EXCEPT names columns of this FROM", **error_span(name.span))
        if column.index in found:
            raise BindError(f"EXCEPT names the column {name.name!r} twice", **error_span(name.span))
        found.add(column.index)
    return frozenset(found)


def _fields(row: UnboundExpr, scope: Scope, span: TextSpan | None) -> list[Named]:
    """Each field of a row, by its name."""
    data_type = ExprBinder(scope).bind(row).data_type
    if not data_type.fields:
        raise BindError(f"{data_type} has no fields", **error_span(span))
    names = [field.name for field in data_type.fields]
    return [Named(UnboundCall("field", (row, UnboundLiteral(name)), span), name) for name in names]


def _by_position(term: UnboundExpr, items: Sequence[Named], clause: str) -> UnboundExpr | None:
    """The item that an integer refers to, None if the expression is not an integer."""
    if not isinstance(term, UnboundLiteral) or isinstance(term.value, bool) or not isinstance(term.value, int):
        return None
    if not 1 <= term.value <= len(items):
        raise BindError(f"{clause} {term.value}: there are {len(items)} columns", **error_span(term.span))
    return items[term.value - 1].term


def _order_term(term: UnboundExpr, items: Sequence[Named], clause: str) -> UnboundExpr:
    """Resolves a term of ORDER BY or DISTINCT ON: an item by position, an item by its name, else an expression over the
    input."""
    found = _by_position(term, items, clause)
    if found is not None:
        return found
    if isinstance(term, Name) and not term.qualifier:
        return next((item.term for item in items if item.name == term.name), term)
    return term


def _group_term(term: UnboundExpr, items: Sequence[Named], scope: Scope) -> UnboundExpr:
    """Resolves a group key: an item by position, a column of the input by its name, else an item by its name."""
    found = _by_position(term, items, "GROUP BY")
    if found is None and isinstance(term, Name) and not term.qualifier:
        if scope.has(term.name):
            return term
        found = next((item.term for item in items if item.name == term.name), None)
    return term if found is None else found


def _having(term: UnboundExpr, items: Sequence[Named], scope: Scope) -> UnboundExpr:
    """HAVING with names of items replaced by the items' terms, unless the input has a column of that name."""
    aliased = {item.name: item.term for item in items if not scope.has(item.name)}
    return renamed(term, aliased) if aliased else term


def ordered(value: UnboundExpr | str | Ordered) -> Ordered:
    """A sort key of the fluent API: a column name, a term, or either with its order."""
    if isinstance(value, Ordered):
        return value
    return Ordered(Name(value) if isinstance(value, str) else value, OrderType())
