"""Subqueries in expressions, as joins of the query around them.

    EXISTS (q), x IN (q) among the terms of a WHERE     a semi join
    NOT EXISTS (q)                                      an anti join; NOT IN too, where neither side has NULL
    ARRAY (q)                                           a left join with array_agg of q
    any other use                                       a left join with an aggregation of q, by what its terms compare
                                                        with the outer row; the value follows from the aggregates

The aggregate of no rows is there for an outer row without any: count(*) is 0, and an expression over it has its value
for that [R56]. A query that is used as a value and has more than one row for an outer row gives an error of that row.
IN is FALSE without any row, TRUE with an equal one, else NULL if x or one of the rows is NULL. So is x op ANY (q); the
least and the greatest value decide it, and x op ALL (q).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from relational.errors import BindError
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.bind import ExprBinder, call, error_span
from relational.expr.expression import (
    Case,
    Expression,
    InputRef,
    Literal,
    OuterRef,
    SubqueryValue,
    conjunction,
    equality,
    input_refs,
    remap,
    substitute,
    transform,
    walk,
)
from relational.expr.scope import Scope
from relational.expr.unbound import SubqueryUse, TextSpan, UnboundCall, UnboundExpr, UnboundSubquery
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
    nodes,
    only,
)
from relational.plan.logical.filter import where
from relational.plan.unnest import COUNT, Domain, Unnested, Unnesting, empty_value, with_columns
from relational.types.data_type import DataType


class QueryPlanner(Protocol):
    """How an expression's subqueries become plans."""

    def subquery(self, node: Any, scope: Scope) -> LogicalPlan:
        """The plan of the syntax tree of a subquery, whose names may be of the scope around it."""
        ...

    def shared(self, plan: LogicalPlan) -> Share:
        """A plan with several readers."""
        ...


_ZERO = Literal(0, DataType.BIGINT)
_UNKNOWN = Literal(None, DataType.BOOLEAN)
_TRUE, _FALSE = Literal(True, DataType.BOOLEAN), Literal(False, DataType.BOOLEAN)
_DECIDING = {"less": "max", "less_equal": "max", "greater": "min", "greater_equal": "min"}
"""The extreme for which a comparison holds if it does for any value; the other one decides of all values."""


@dataclass(frozen=True, slots=True)
class _Lookup:
    """`calls` over the rows of `query` for an outer row for which `terms` are true too; `values`, over the calls, are
    those of the next SubqueryValues."""

    query: LogicalPlan
    terms: tuple[Expression, ...]
    calls: tuple[AggCall, ...]
    values: tuple[Expression, ...]
    span: TextSpan | None


class Subqueries:
    """Those of one SELECT, over rows with the columns of `scope`: binds terms to values, for which `joined` then adds
    columns."""

    def __init__(self, planner: QueryPlanner, scope: Scope) -> None:
        self._planner, self._scope = planner, scope
        self._lookups: list[_Lookup] = []

    def __call__(self, term: UnboundSubquery, operands: Sequence[Expression]) -> Expression:
        """What stands for the value of a subquery. BindError."""
        _check_operands(operands, term.span)
        if term.use is SubqueryUse.LIST:
            return self._list(self._planner.subquery(term.query, self._scope), term.span)
        plan = self._plan(term)
        if term.use is SubqueryUse.EXISTS:
            return self._exists(plan, term.span)
        if term.use is SubqueryUse.IN:
            return self._member(plan, operands, term.span)
        if len(plan.schema) != 1:
            raise BindError(f"a subquery used as a value has one column, not {len(plan.schema)}",
                            **error_span(term.span))
        if term.use is SubqueryUse.VALUE:
            return self._value(plan, term.span)
        return self._quantified(plan, term, *operands)

    def joined(
        self, plan: LogicalPlan, bound: Sequence[Expression], outer: Callable[[OuterRef], Expression] | None = None
    ) -> tuple[LogicalPlan, list[Expression]]:
        """`plan`, with columns more for the values bound so far, and `bound` over it. `outer`: the column of `plan` for
        one of the row of the scope, None: they are the same."""
        values: list[Expression] = []
        for lookup in self._taken():
            plan, found = self._looked(Domain(plan, self._planner.shared, outer), lookup)
            values += found
        return plan, [_with_values(each, values) for each in bound]

    def joined_on(self, pairs: Join, condition: UnboundExpr) -> LogicalPlan:
        """`pairs`, of which the scope has the columns, with a condition that has subqueries. Those of an outer join may
        refer to one of its sides, which then has columns more for their values. BindError."""
        binder = ExprBinder(self._scope, self)
        if pairs.kind is JoinKind.INNER:
            return self.filtered(pairs, condition, binder, "ON")
        on = binder.condition(condition, "ON")
        sides, width = [pairs.left, pairs.right], len(pairs.left.schema)
        found: list[tuple[int, Expression]] = []
        for lookup in self._taken():
            at = self._side_of(lookup, width)
            outer = _minus(width) if at else None
            sides[at], values = self._looked(Domain(sides[at], self._planner.shared, outer), lookup)
            found += ((at, value) for value in values)
        wider, right_width = len(sides[0].schema), len(pairs.right.schema)
        moved = [{column: (wider if at else 0) + column for column in range(len(side.schema))}
                 for at, side in enumerate(sides)]
        own = dict(enumerate(range(width))) | {width + column: wider + column for column in range(right_width)}
        on = _with_values(remap(on, own), [remap(value, moved[at]) for at, value in found])
        join = Join(sides[0], sides[1], pairs.kind, on)
        return only(join, [*range(width), *range(wider, wider + right_width)])

    def _side_of(self, lookup: _Lookup, width: int) -> int:
        """The side of an outer join, with a left input of `width` columns, that a subquery of its ON refers to."""
        parts = (*lookup.terms, *lookup.values, *(each for node in nodes(lookup.query) for each in node.evaluated))
        own = {node.index >= width for each in parts for node in walk(each)
               if isinstance(node, OuterRef) and node.depth == self._scope.depth}
        if len(own) > 1:
            message = "a subquery in the ON of an outer join can refer to one of its sides only"
            raise BindError(message, **error_span(lookup.span))
        return int(own.pop()) if own else 0

    def _taken(self) -> list[_Lookup]:
        lookups, self._lookups = self._lookups, []
        return lookups

    def filtered(
        self, plan: LogicalPlan, condition: UnboundExpr, binder: ExprBinder, clause: str = "WHERE"
    ) -> LogicalPlan:
        """The rows of `plan` for which the condition of a WHERE, or of an inner join, is true. Its subqueries are for
        the rows that its other terms leave [R6]."""
        terms, joins = [], []
        for term in conjunction_terms(condition):
            is_negated = isinstance(term, UnboundCall) and term.function == "not"
            inner = term.args[0] if isinstance(term, UnboundCall) and is_negated else term
            if isinstance(inner, UnboundSubquery) and inner.use in (SubqueryUse.EXISTS, SubqueryUse.IN):
                joins.append((term, inner, is_negated))
            else:
                terms.append(binder.condition(term, clause))
        plan = where(plan, tuple(term for term in terms if not _has_values(term)))
        terms = list(filter(_has_values, terms))
        for term, inner, is_negated in joins:
            matching = self._matching(plan, inner, binder, is_negated)
            if matching is None:
                terms.append(binder.condition(term, clause))
            else:
                plan = matching
        if not terms:
            return plan
        plan, bound = self.joined(plan, terms)
        return Filter(plan, conjunction(bound))

    def _matching(
        self, plan: LogicalPlan, term: UnboundSubquery, binder: ExprBinder, is_negated: bool
    ) -> LogicalPlan | None:
        """The rows of `plan` with, or if `is_negated` without, a row of EXISTS or IN; None for what no such join is."""
        query = self._plan(term)
        if term.use is SubqueryUse.EXISTS and _always_has_a_row(query):
            return None
        operands = [binder.bind(each) for each in term.operands]
        _check_operands(operands, term.span)
        equal = self._comparisons(operands, query, term.span)
        if is_negated and operands:
            is_known = all(isinstance(each, InputRef) and each.index in plan.properties.not_null for each in operands)
            if not is_known or not frozenset(range(len(query.schema))) <= query.properties.not_null:
                return None
        domain = Domain(plan, self._planner.shared)
        unnesting = Unnesting(self._scope.depth, domain, term.span)
        rows = unnesting.unnested(query)
        terms = unnesting.as_join_terms((*rows.terms, *equal), len(plan.schema))
        kind = JoinKind.ANTI if is_negated else JoinKind.SEMI
        return Join(domain.plan, rows.plan, kind, conjunction(terms) if terms else None)

    def _plan(self, term: UnboundSubquery) -> LogicalPlan:
        plan = self._planner.subquery(term.query, self._scope)
        return only(plan, plan.visible) if term.use is not SubqueryUse.EXISTS else _existing(plan)

    def _exists(self, plan: LogicalPlan, span: TextSpan | None) -> Expression:
        if _always_has_a_row(plan):
            return _TRUE
        (found,) = self._looked_up(plan, (), (COUNT,), [call("greater", [InputRef(0, DataType.BIGINT), _ZERO])], span)
        return found

    def _member(self, plan: LogicalPlan, operands: Sequence[Expression], span: TextSpan | None) -> Expression:
        """TRUE if a row equals the operands, else NULL if one may for a NULL, else FALSE."""
        equal = self._comparisons(operands, plan, span)
        number = InputRef(0, DataType.BIGINT)
        (matches,) = self._looked_up(plan, equal, (COUNT,), [number], span)
        if len(operands) == 1:
            known = AggCall(AggKind.COUNT, 0, None, False, DataType.BIGINT)
            counts = self._looked_up(plan, (), (COUNT, known), [number, InputRef(1, DataType.BIGINT)], span)
            is_open = call("or", [call("is_null", [operands[0]]), call("not_equal", list(counts))])
        else:
            maybe = tuple(call("coalesce", [each, _TRUE]) for each in equal)
            counts = self._looked_up(plan, maybe, (COUNT,), [number], span)
            is_open = call("greater", [counts[0], _ZERO])
        branches = (
            (call("greater", [matches, _ZERO]), _TRUE),
            *(((call("equal", [counts[0], _ZERO]), _FALSE),) if len(operands) == 1 else ()),
            (is_open, _UNKNOWN),
        )
        return Case(branches, _FALSE, DataType.BOOLEAN)

    def _quantified(self, plan: LogicalPlan, term: UnboundSubquery, operand: Expression) -> Expression:
        """A comparison with any or all values, which is one with the least or greatest of them."""
        data_type = plan.schema.types[0]
        extreme = aggregate_type(AggKind.MAX, data_type)
        if extreme is None:
            raise BindError(f"ANY and ALL do not compare {data_type}", **error_span(term.span))
        kinds = (AggKind.COUNT, AggKind.MIN, AggKind.MAX)
        calls = (COUNT, *(AggCall(kind, 0, None, False, DataType.BIGINT if kind is AggKind.COUNT else extreme)
                          for kind in kinds))
        refs = [InputRef(number, each.data_type) for number, each in enumerate(calls)]
        rows, known, low, high = self._looked_up(plan, (), calls, refs, term.span)
        is_all, function = term.use is SubqueryUse.ALL, term.comparison
        if function in _DECIDING:
            of_any, of_all = (high, low) if _DECIDING[function] == "max" else (low, high)
            holds = call(function, [operand, of_all if is_all else of_any], term.span)
        else:
            both = [call(function, [operand, each], term.span) for each in (low, high)]
            holds = call("and" if is_all else "or", both)
        decides = call("not", [holds]) if is_all else holds
        branches = (
            (call("equal", [rows, _ZERO]), _TRUE if is_all else _FALSE),
            (decides, _FALSE if is_all else _TRUE),
            (call("or", [call("is_null", [operand]), call("not_equal", [rows, known])]), _UNKNOWN),
        )
        return Case(branches, _TRUE if is_all else _FALSE, DataType.BOOLEAN)

    def _value(self, plan: LogicalPlan, span: TextSpan | None) -> Expression:
        found = global_aggregate(plan)
        if found is not None:
            aggregate, values = found
            return self._looked_up(aggregate.input, (), aggregate.calls, values, span)[0]
        data_type = aggregate_type(AggKind.MAX, plan.schema.types[0])
        if data_type is None:
            raise BindError(f"a subquery used as a value cannot be {plan.schema.types[0]}", **error_span(span))
        greatest = AggCall(AggKind.MAX, 0, None, False, data_type)
        value = call("single_value", [InputRef(0, data_type), InputRef(1, DataType.BIGINT)], span)
        return self._looked_up(plan, (), (greatest, COUNT), [value], span)[0]

    def _list(self, plan: LogicalPlan, span: TextSpan | None) -> Expression:
        """ARRAY (query): its values in its order, an empty list without a row."""
        if len(plan.visible) != 1:
            raise BindError(f"ARRAY takes a query of one column, not {len(plan.visible)}", **error_span(span))
        sort = plan.input if isinstance(plan, Limit) else plan
        order = sort.keys if isinstance(sort, Sort) else ()
        rows = sort.input if sort is plan and isinstance(sort, Sort) else plan
        (column,) = plan.visible
        data_type = DataType.list_of(plan.schema.types[column])
        values = AggCall(AggKind.ARRAY_AGG, column, None, False, data_type, order=order)
        found = call("coalesce", [InputRef(0, data_type), Literal([], data_type)])
        return self._looked_up(rows, (), (values,), [found], span)[0]

    def _comparisons(
        self, operands: Sequence[Expression], plan: LogicalPlan, span: TextSpan | None
    ) -> tuple[Expression, ...]:
        """That each operand, over the outer row, equals a column of the plan. BindError."""
        if operands and len(operands) != len(plan.schema):
            message = f"the left side of IN has {len(operands)} columns, the subquery has {len(plan.schema)}"
            raise BindError(message, **error_span(span))

        def from_within(node: Expression) -> Expression:
            return OuterRef(node.index, node.data_type, self._scope.depth) if isinstance(node, InputRef) else node

        return tuple(
            call("equal", [transform(operand, from_within), InputRef(column, plan.schema.types[column])], span)
            for column, operand in enumerate(operands)
        )

    def _looked_up(
        self,
        query: LogicalPlan,
        terms: tuple[Expression, ...],
        calls: tuple[AggCall, ...],
        values: Sequence[Expression],
        span: TextSpan | None,
    ) -> list[SubqueryValue]:
        first = sum(len(lookup.values) for lookup in self._lookups)
        self._lookups.append(_Lookup(query, terms, calls, tuple(values), span))
        return [SubqueryValue(first + at, value.data_type) for at, value in enumerate(values)]

    def _looked(self, domain: Domain, lookup: _Lookup) -> tuple[LogicalPlan, list[Expression]]:
        unnesting = Unnesting(self._scope.depth, domain, lookup.span)
        return looked_up(domain, unnesting, lookup.query, lookup.terms, lookup.calls, lookup.values)


def looked_up(
    domain: Domain,
    unnesting: Unnesting,
    query: LogicalPlan,
    terms: Sequence[Expression],
    calls: Sequence[AggCall],
    values: Sequence[Expression],
) -> tuple[LogicalPlan, list[Expression]]:
    """The domain's plan, joined with aggregates of the rows of `query` for which `terms` are true, and over it
    `values`, which are over the aggregates and the outer row."""
    below = unnesting.unnested(query)
    filters = [each.filter for each in calls if each.filter is not None]
    rows, known = unnesting.with_values(Unnested(below.plan, (*below.terms, *terms)), filters)
    calls = [each if each.filter is None else replace(each, filter=unnesting.value_of(each.filter, known))
             for each in calls]
    width = len(domain.plan.schema)
    names = [each.describe(rows.plan.schema.names) for each in calls]
    if not rows.terms:
        whole = Aggregate(rows.plan, (), tuple(calls), tuple(names))
        moved = {number: width + number for number in range(len(calls))}
        return Join(domain.plan, whole, JoinKind.INNER, None), [unnesting.of_plan(remap(v, moved)) for v in values]
    rows, bindings = unnesting.by_equalities(rows)
    source, keys = with_columns(rows.plan, [each.inner for each in bindings])
    groups = tuple(dict.fromkeys(keys))
    counted = calls if COUNT in calls else [*calls, COUNT]
    grouped = Aggregate(source, groups, tuple(counted), tuple([*names, "count(*)"][: len(counted)]))
    pairs = []
    for binding, key in zip(bindings, keys, strict=True):
        other = InputRef(width + groups.index(key), binding.inner.data_type)
        pairs.append(equality(unnesting.of_plan(binding.outer), other, is_null_safe=binding.is_null_safe))
    join = Join(domain.plan, grouped, JoinKind.LEFT, conjunction(pairs))
    first = width + len(groups)
    moved = {number: first + number for number in range(len(calls))}
    is_there = call("is_not_null", [InputRef(first + counted.index(COUNT), DataType.BIGINT)])
    found: list[Expression] = []
    for value in values:
        given = unnesting.of_plan(remap(value, moved))
        if not (isinstance(value, InputRef) and empty_value(calls[value.index]).value is None):
            nothing = unnesting.of_plan(substitute(value, [empty_value(each) for each in calls]))
            given = Case(((is_there, given),), nothing, value.data_type)
        found.append(given)
    return join, found


def _with_values(expression: Expression, values: Sequence[Expression]) -> Expression:
    """The expression with what stands for the values of subqueries."""
    return transform(expression, lambda node: values[node.number] if isinstance(node, SubqueryValue) else node)


def _has_values(expression: Expression) -> bool:
    return any(isinstance(node, SubqueryValue) for node in walk(expression))


def _minus(width: int) -> Callable[[OuterRef], Expression]:
    return lambda column: InputRef(column.index - width, column.data_type)


def _check_operands(operands: Sequence[Expression], span: TextSpan | None) -> None:
    if any(map(_has_values, operands)):
        raise BindError("a subquery on the left of IN, ANY or ALL is not supported", **error_span(span))


def global_aggregate(plan: LogicalPlan) -> tuple[Aggregate, list[Expression]] | None:
    """The aggregation without groups of a plan with its one row, and the columns of that over its calls."""
    values: list[Expression] = list(input_refs(plan.schema.types))
    while isinstance(plan, Project):
        values, plan = [substitute(each, plan.expressions) for each in values], plan.input
    return (plan, values) if isinstance(plan, Aggregate) and not plan.group_by else None


def _always_has_a_row(plan: LogicalPlan) -> bool:
    while isinstance(plan, Project):
        plan = plan.input
    return isinstance(plan, Aggregate) and not plan.group_by


def _existing(plan: LogicalPlan) -> LogicalPlan:
    """What has a row if and only if `plan` has one: without its LIMIT, its order and its expressions."""
    while True:
        if isinstance(plan, Project | Sort) or (isinstance(plan, Limit) and not plan.offset and plan.count != 0):
            plan = plan.input
        else:
            return plan


def conjunction_terms(condition: UnboundExpr) -> list[UnboundExpr]:
    """The terms of a conjunction."""
    if isinstance(condition, UnboundCall) and condition.function == "and":
        return [term for arg in condition.args for term in conjunction_terms(arg)]
    return [condition]
