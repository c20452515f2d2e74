"""Subqueries in expressions, as joins of the query around them.

    EXISTS (q), x IN (q) among the terms of a WHERE     a semi join
    NOT EXISTS (q)                                      an anti join; NOT IN too, where neither side has NULL
    any other use                                       a left join with an aggregation of q, by what its terms compare
                                                        with the outer row; the value follows from the aggregates

The aggregate of no rows is there for an outer row without any: count(*) is 0, and an expression over it has its value
for that [R56]. A query that is used as a value and has more than one row for an outer row gives an error of that row.
IN is FALSE without any row, TRUE with an equal one, else NULL if x or one of the rows is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
    remap,
    substitute,
    transform,
    walk,
)
from relational.expr.scope import Scope
from relational.expr.unbound import SubqueryUse, TextSpan, UnboundCall, UnboundExpr, UnboundSubquery
from relational.plan.logical import Aggregate, Filter, Join, JoinKind, Limit, LogicalPlan, Project, Sort, only
from relational.plan.unnest import Unnested, as_join_terms, bindings, unnested, with_columns
from relational.types.data_type import DataType

PlanQuery: TypeAlias = Callable[[Any, Scope], LogicalPlan]
"""The plan of the syntax tree of a subquery, whose names may be of the scope around it."""
_COUNT = AggCall(AggKind.COUNT, None, None, False, DataType.BIGINT)
_ZERO = Literal(0, DataType.BIGINT)
_UNKNOWN = Literal(None, DataType.BOOLEAN)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """`calls` over the rows of `rows` for an outer row; `value`, over the calls, is that of SubqueryValue `number`."""

    rows: Unnested
    calls: tuple[AggCall, ...]
    value: Expression
    span: TextSpan | None


class Subqueries:
    """Those of one SELECT, over rows with the columns of `scope`: binds terms to values, for which `joined` then adds
    columns."""

    def __init__(self, plan_query: PlanQuery, scope: Scope) -> None:
        self._plan_query, self._scope = plan_query, scope
        self._lookups: list[_Lookup] = []

    def __call__(self, term: UnboundSubquery, operands: Sequence[Expression]) -> Expression:
        """What stands for the value of a subquery. BindError."""
        _check_operands(operands, term.span)
        plan = self._plan(term)
        if term.use is SubqueryUse.EXISTS:
            return self._exists(plan, term.span)
        if term.use is SubqueryUse.IN:
            return self._member(plan, operands, term.span)
        if len(plan.schema) != 1:
            raise BindError(f"a subquery used as a value has one column, not {len(plan.schema)}",
                            **error_span(term.span))
        return self._value(plan, term.span)

    def joined(
        self, plan: LogicalPlan, bound: Sequence[Expression], outer: Callable[[OuterRef], Expression] | None = None
    ) -> tuple[LogicalPlan, list[Expression]]:
        """`plan`, with columns more for the values bound so far, and `bound` over it. `outer`: the column of `plan` for
        one of the row of the scope, None: they are the same."""
        values: list[Expression] = []
        for lookup in self._lookups:
            plan, value = _looked_up(plan, lookup, outer)
            values.append(value)
        self._lookups = []

        def replaced(node: Expression) -> Expression:
            return values[node.number] if isinstance(node, SubqueryValue) else node

        return plan, [transform(each, replaced) for each in bound]

    def filtered(self, plan: LogicalPlan, condition: UnboundExpr, binder: ExprBinder) -> LogicalPlan:
        """The rows of `plan` for which the condition of a WHERE is true."""
        terms, joins = [], []
        for term in _terms(condition):
            is_negated = isinstance(term, UnboundCall) and term.function == "not"
            inner = term.args[0] if isinstance(term, UnboundCall) and is_negated else term
            if isinstance(inner, UnboundSubquery) and inner.use is not SubqueryUse.VALUE:
                joins.append((term, inner, is_negated))
            else:
                terms.append(binder.condition(term, "WHERE"))
        for term, inner, is_negated in joins:
            matching = self._matching(plan, inner, binder, is_negated)
            if matching is None:
                terms.append(binder.condition(term, "WHERE"))
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
        rows = unnested(query, term.span)
        operands = [binder.bind(each) for each in term.operands]
        _check_operands(operands, term.span)
        equal = _comparisons(operands, query, term.span)
        if is_negated and operands:
            is_known = all(isinstance(each, InputRef) and each.index in plan.properties.not_null for each in operands)
            if not is_known or not frozenset(range(len(query.schema))) <= query.properties.not_null:
                return None
        terms = as_join_terms((*rows.terms, *equal), len(plan.schema))
        kind = JoinKind.ANTI if is_negated else JoinKind.SEMI
        return Join(plan, rows.plan, kind, conjunction(terms) if terms else None)

    def _plan(self, term: UnboundSubquery) -> LogicalPlan:
        plan = self._plan_query(term.query, self._scope)
        return only(plan, plan.visible) if term.use is not SubqueryUse.EXISTS else _existing(plan)

    def _exists(self, plan: LogicalPlan, span: TextSpan | None) -> Expression:
        if _always_has_a_row(plan):
            return Literal(True, DataType.BOOLEAN)
        return self._looked_up(unnested(plan, span), (_COUNT,), call("greater", [InputRef(0, DataType.BIGINT), _ZERO]),
                               span)

    def _member(self, plan: LogicalPlan, operands: Sequence[Expression], span: TextSpan | None) -> Expression:
        if len(operands) != 1:
            raise BindError("IN of several columns is supported as a term of WHERE", **error_span(span))
        equal = _comparisons(operands, plan, span)
        rows = unnested(plan, span)
        known = AggCall(AggKind.COUNT, 0, None, False, DataType.BIGINT)
        number = InputRef(0, DataType.BIGINT)
        counts = self._looked_up(rows, (_COUNT,), number, span), self._looked_up(rows, (known,), number, span)
        matches = self._looked_up(Unnested(rows.plan, (*rows.terms, *equal)), (_COUNT,), number, span)
        is_open = call("or", [call("is_null", [operands[0]]), call("not_equal", list(counts))])
        branches = (
            (call("greater", [matches, _ZERO]), Literal(True, DataType.BOOLEAN)),
            (call("equal", [counts[0], _ZERO]), Literal(False, DataType.BOOLEAN)),
            (is_open, _UNKNOWN),
        )
        return Case(branches, Literal(False, DataType.BOOLEAN), DataType.BOOLEAN)

    def _value(self, plan: LogicalPlan, span: TextSpan | None) -> Expression:
        found = _global_aggregate(plan)
        if found is not None:
            aggregate, value = found
            return self._looked_up(unnested(aggregate.input, span), aggregate.calls, value, span)
        rows = unnested(plan, span)
        data_type = aggregate_type(AggKind.MAX, plan.schema.types[0])
        if data_type is None:
            raise BindError(f"a subquery used as a value cannot be {plan.schema.types[0]}", **error_span(span))
        greatest = AggCall(AggKind.MAX, 0, None, False, data_type)
        value = call("single_value", [InputRef(0, data_type), InputRef(1, DataType.BIGINT)], span)
        return self._looked_up(rows, (greatest, _COUNT), value, span)

    def _looked_up(
        self, rows: Unnested, calls: tuple[AggCall, ...], value: Expression, span: TextSpan | None
    ) -> SubqueryValue:
        self._lookups.append(_Lookup(rows, calls, value, span))
        return SubqueryValue(len(self._lookups) - 1, value.data_type)


def _looked_up(
    plan: LogicalPlan, lookup: _Lookup, outer: Callable[[OuterRef], Expression] | None
) -> tuple[LogicalPlan, Expression]:
    """The plan joined with the aggregates of a lookup, and its value over it."""
    rows, width = lookup.rows, len(plan.schema)
    names = tuple(each.describe(rows.plan.schema.names) for each in lookup.calls)
    if not rows.terms:
        whole = Aggregate(rows.plan, (), lookup.calls, names)
        moved = {number: width + number for number in range(len(lookup.calls))}
        return Join(plan, whole, JoinKind.INNER, None), _of_row(remap(lookup.value, moved), outer)
    known = bindings(rows.terms)
    if known is None:
        message = "a subquery that is compared with the query around it by more than = is supported as EXISTS or IN of"
        raise BindError(f"{message} a WHERE", **error_span(lookup.span))
    source, keys = with_columns(rows.plan, [each.inner for each in known])
    groups = tuple(dict.fromkeys(keys))
    calls = lookup.calls if _COUNT in lookup.calls else (*lookup.calls, _COUNT)
    grouped = Aggregate(source, groups, calls, (*names, "count(*)")[: len(calls)])
    terms = []
    for binding, key in zip(known, keys, strict=True):
        one = _of_row(binding.outer, outer)
        other = InputRef(width + groups.index(key), binding.inner.data_type)
        terms.append(equality(one, other, is_null_safe=binding.is_null_safe))
    join = Join(plan, grouped, JoinKind.LEFT, conjunction(terms))
    first = width + len(groups)
    value = _of_row(remap(lookup.value, {number: first + number for number in range(len(lookup.calls))}), outer)
    if isinstance(lookup.value, InputRef) and not lookup.calls[lookup.value.index].kind.counts:
        return join, value
    is_there = call("is_not_null", [InputRef(first + calls.index(_COUNT), DataType.BIGINT)])
    return join, Case(((is_there, value),), _of_row(_of_no_rows(lookup), outer), value.data_type)


def _of_no_rows(lookup: _Lookup) -> Expression:
    """The value over no rows."""
    nothing = [_ZERO if each.kind.counts else Literal(None, each.data_type) for each in lookup.calls]
    return substitute(lookup.value, nothing)


def _of_row(expression: Expression, outer: Callable[[OuterRef], Expression] | None) -> Expression:
    """An expression over the outer row as one over the plan."""

    def moved(node: Expression) -> Expression:
        if not isinstance(node, OuterRef):
            return node
        return InputRef(node.index, node.data_type) if outer is None else outer(node)

    return transform(expression, moved)


def _check_operands(operands: Sequence[Expression], span: TextSpan | None) -> None:
    if any(isinstance(each, SubqueryValue) for operand in operands for each in walk(operand)):
        raise BindError("a subquery on the left of IN is not supported", **error_span(span))


def _comparisons(
    operands: Sequence[Expression], plan: LogicalPlan, span: TextSpan | None
) -> tuple[Expression, ...]:
    """That each operand, over the outer row, equals a column of the plan. BindError."""
    if operands and len(operands) != len(plan.schema):
        message = f"the left side of IN has {len(operands)} columns, the subquery has {len(plan.schema)}"
        raise BindError(message, **error_span(span))
    return tuple(
        call("equal", [_as_outer(operand), InputRef(column, plan.schema.types[column])], span)
        for column, operand in enumerate(operands)
    )


def _as_outer(operand: Expression) -> Expression:
    """An expression over the row of the scope, from within a subquery."""
    return transform(
        operand, lambda node: OuterRef(node.index, node.data_type) if isinstance(node, InputRef) else node
    )


def _global_aggregate(plan: LogicalPlan) -> tuple[Aggregate, Expression] | None:
    """The aggregation without groups of a plan with its one row, and the value of that over its calls."""
    value: Expression = InputRef(0, plan.schema.types[0])
    while isinstance(plan, Project):
        value, plan = substitute(value, plan.expressions), plan.input
    return (plan, value) if isinstance(plan, Aggregate) and not plan.group_by else None


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


def _terms(condition: UnboundExpr) -> list[UnboundExpr]:
    """The terms of a conjunction."""
    if isinstance(condition, UnboundCall) and condition.function == "and":
        return [term for arg in condition.args for term in _terms(arg)]
    return [condition]
