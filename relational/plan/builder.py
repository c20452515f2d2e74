"""Builds logical plans from unbound expressions. SQL and the fluent API both use it, so both build the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, call, error_span, is_unknown, span_of, unify
from relational.expr.expression import Expression, InputRef, Literal
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
from relational.expr.window_functions import RANK_TYPE, RankKind
from relational.plan.grouping import GroupBinder
from relational.plan.logical import Aggregate, Filter, Limit, LogicalPlan, Project, Rank, Sort, Union, only
from relational.plan.subqueries import PlanQuery, Subqueries
from relational.plan.windows import Windows
from relational.types.ordering import OrderType, SortKey

MAX_BRANCHES = 1_000
"""Inputs of a UNION."""


@dataclass(frozen=True, slots=True)
class Star:
    """All visible columns, of the relation `qualifier` if one is written; or all fields of a `row`."""

    qualifier: tuple[str, ...] = ()
    span: TextSpan | None = None
    row: UnboundExpr | None = None


@dataclass(frozen=True, slots=True)
class Arrangement:
    """ORDER BY, LIMIT and OFFSET of a query."""

    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """One SELECT without its FROM, clause by clause."""

    items: tuple[Named | Star, ...]
    where: UnboundExpr | None = None
    groups: tuple[UnboundExpr, ...] = ()
    having: UnboundExpr | None = None
    distinct: bool = False
    arrangement: Arrangement = Arrangement()
    first_of: tuple[UnboundExpr, ...] = ()
    """DISTINCT ON: of the rows that are equal in these, the first one by the ORDER BY."""


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
    plan: LogicalPlan, selection: Selection, scope: Scope | None = None, plan_query: PlanQuery | None = None
) -> LogicalPlan:
    """Builds a complete SELECT over `plan`, whose columns have the names of `scope` (default: their own). `plan_query`
    plans subqueries of its expressions, None: there are none."""
    scope = scope or scope_of(plan)
    subqueries, windows = Subqueries(plan_query or _no_query, scope), Windows()
    if selection.where is not None:
        plan = subqueries.filtered(plan, selection.where, ExprBinder(scope, subqueries))
    items = _expanded(selection.items, scope)
    order = tuple(Ordered(_order_term(key.term, items), key.order) for key in selection.arrangement.order)
    terms = [*(item.term for item in items), *(key.term for key in order)]
    terms += (_order_term(term, items) for term in selection.first_of)
    binder: ExprBinder
    if selection.groups or selection.having is not None or any(map(has_aggregate, terms)):
        groups = [_group_term(term, items, scope) for term in selection.groups]
        binder = GroupBinder(scope, groups, subqueries, windows)
        bound = [binder.bind(term) for term in terms]
        if selection.having is not None:
            bound.append(binder.condition(_having(selection.having, items, scope), "HAVING"))
        plan, bound = subqueries.joined(binder.aggregated(plan), bound, binder.group_of)
        if selection.having is not None:
            plan = Filter(plan, bound.pop())
    else:
        binder = ExprBinder(scope, subqueries, windows)
        plan, bound = subqueries.joined(plan, [binder.bind(term) for term in terms])
    plan, bound = windows.joined(plan, bound)
    return _output(plan, items, bound, order, selection)


def _no_query(query: object, scope: Scope) -> LogicalPlan:
    raise AssertionError("an expression of the fluent API has no subquery")


def union(plans: Sequence[LogicalPlan], *, distinct: bool, spans: Sequence[TextSpan | None] = ()) -> LogicalPlan:
    """The rows of all plans, each once if `distinct`: columns are matched by position, have the names of the first plan
    and the common types. BindError at the span of a plan that does not fit.
    """
    check_branches(len(plans))
    branch_spans = list(spans) or [None] * len(plans)
    plans = [only(plan, plan.visible) for plan in plans]
    width = len(plans[0].schema)
    for plan, span in zip(plans, branch_spans, strict=True):
        if len(plan.schema) != width:
            raise BindError(
                f"a branch of a UNION has {len(plan.schema)} columns, the first has {width}", **error_span(span)
            )
    values = [[_output_value(plan, column) for plan in plans] for column in range(width)]
    columns = [_unified(each, column, branch_spans) for column, each in enumerate(values)]
    names = plans[0].schema.names
    fitted = [_selected(plan, values, names) for plan, values in zip(plans, zip(*columns, strict=True), strict=True)]
    flat = [part for plan in fitted for part in (plan.branches if isinstance(plan, Union) else (plan,))]
    plan = Union(tuple(flat)) if len(flat) > 1 else flat[0]
    return Aggregate(plan, tuple(range(width)), (), ()) if distinct else plan


def check_branches(count: int) -> None:
    """BindError for a UNION of too many branches."""
    if count > MAX_BRANCHES:
        raise BindError(f"a UNION has {MAX_BRANCHES} branches at most, this has {count}")


def _output_value(plan: LogicalPlan, column: int) -> Expression:
    """A column of a plan as an expression over it; a text or NULL without a type as itself."""
    if isinstance(plan, Project) and is_unknown(plan.expressions[column]):
        return plan.expressions[column]
    return InputRef(column, plan.schema.types[column])


def _unified(values: Sequence[Expression], column: int, spans: Sequence[TextSpan | None]) -> list[Expression]:
    """The values of one column in their common type. BindError at the first branch that has none with those before."""
    what = f"the branches of a UNION, in column {column + 1},"
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


def _output(
    plan: LogicalPlan,
    items: Sequence[Named],
    bound: Sequence[Expression],
    order: Sequence[Ordered],
    selection: Selection,
) -> LogicalPlan:
    """Projection, DISTINCT, ORDER BY and LIMIT of bound items, followed in `bound` by the bound sort keys, and by those
    of DISTINCT ON."""
    expressions = list(bound[: len(items)])
    names = [item.name for item in items]
    keys: list[SortKey] = []
    groups = bound[len(items) + len(order) :]
    _check_first(groups, bound[len(items) : len(items) + len(order)], order)
    for key, expression in zip(order, bound[len(items) :], strict=False):
        if expression not in expressions:
            if selection.distinct:
                raise BindError(
                    "ORDER BY of SELECT DISTINCT must name selected columns", **error_span(span_of(key.term))
                )
            expressions.append(expression)
            names.append(f"_order_{len(expressions)}")
        keys.append(SortKey(expressions.index(expression), key.order))
    for expression in groups:
        if expression not in expressions:
            expressions.append(expression)
            names.append(f"_group_{len(expressions)}")
    concealed = frozenset(range(len(items), len(expressions)))
    plan = Project(plan, tuple(expressions), tuple(names), concealed)
    if selection.distinct:
        plan = Aggregate(plan, tuple(range(len(expressions))), (), ())
    if groups:
        plan = _first_of(plan, tuple(map(expressions.index, groups)), tuple(keys))
    if keys:
        plan = Sort(plan, tuple(keys))
    limit, offset = selection.arrangement.limit, selection.arrangement.offset
    if limit is not None or offset:
        plan = Limit(plan, limit, offset)
    return plan


def _check_first(groups: Sequence[Expression], keys: Sequence[Expression], order: Sequence[Ordered]) -> None:
    """BindError unless an ORDER BY begins with the expressions of DISTINCT ON."""
    count = len(set(groups))
    if groups and keys and not (set(keys[:count]) <= set(groups) and (len(keys) < count or set(keys) >= set(groups))):
        message = "ORDER BY begins with the expressions of DISTINCT ON"
        raise BindError(message, **error_span(span_of(order[0].term)))


def _first_of(plan: LogicalPlan, groups: tuple[int, ...], keys: tuple[SortKey, ...]) -> LogicalPlan:
    """The first row of each group by the keys."""
    width = len(plan.schema)
    rank = Rank(plan, groups, keys, (RankKind.ROW_NUMBER,), (RankKind.ROW_NUMBER.value,))
    first = call("equal", [InputRef(width, RANK_TYPE), Literal(1, RANK_TYPE)])
    columns = tuple(InputRef(at, data_type) for at, data_type in enumerate(plan.schema.types))
    return Project(Filter(rank, first), columns, plan.schema.names, plan.hidden)


def _expanded(items: Sequence[Named | Star], scope: Scope) -> tuple[Named, ...]:
    """The items with every * expanded."""
    found: list[Named] = []
    for item in items:
        if isinstance(item, Named):
            found.append(item)
        elif item.row is not None:
            found += _fields(item.row, scope, item.span)
        else:
            found += (Named(column, column.name) for column in scope.star(item.qualifier, item.span))
    if not found:
        raise BindError("a SELECT needs at least one column")
    return tuple(found)


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


def _order_term(term: UnboundExpr, items: Sequence[Named]) -> UnboundExpr:
    """Resolves a sort key: an item by position, an item by its name, else an expression over the input."""
    found = _by_position(term, items, "ORDER BY")
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
