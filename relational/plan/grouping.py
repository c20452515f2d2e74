"""Binds the expressions of a grouped SELECT: only group expressions, aggregates and constants may occur in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.aggregates import SQUARED_PRECISION, AggCall, AggKind, aggregate_type
from relational.expr.bind import (
    AGGREGATES,
    BindSetCall,
    BindSubquery,
    BindWindow,
    ExprBinder,
    Scope,
    error_span,
    is_unknown,
    span_of,
    unknown,
)
from relational.expr.expression import Expression, InputRef, Literal, OuterRef, input_columns
from relational.expr.unbound import (
    Name,
    UnboundAggregate,
    UnboundCast,
    UnboundColumn,
    UnboundExpr,
    has_aggregate,
    has_joined_value,
    has_only_set_values,
)
from relational.plan.logical import Aggregate, LogicalPlan, Project
from relational.plan.set_functions import SetFunctions
from relational.types.data_type import DataType


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate whose argument and filter are expressions over the input."""

    kind: AggKind
    argument: Expression | None
    condition: Expression | None
    distinct: bool
    data_type: DataType


def _has_long_squares(argument: Expression) -> bool:
    """Whether a sum of its squares may have no room, so that its variance is that of a DOUBLE."""
    return (argument.data_type.precision or 0) > SQUARED_PRECISION


class GroupBinder(ExprBinder):
    """Binds terms to the output of the Aggregate that it builds: groups first, then calls."""

    def __init__(
        self,
        scope: Scope,
        groups: Sequence[UnboundExpr],
        subqueries: BindSubquery | None = None,
        windows: BindWindow | None = None,
        sets: BindSetCall | None = None,
    ):
        super().__init__(scope, subqueries, windows, sets)
        self._input = ExprBinder(scope)
        self._sets_of_groups = SetFunctions()
        self._of_groups = ExprBinder(scope, sets=self._sets_of_groups)
        self._groups: list[Expression] = []
        for term in groups:
            bound = self._of_groups.bind(term)
            if bound not in self._groups and not isinstance(bound, Literal):
                self._groups.append(bound)
        self._has_sets = self._sets_of_groups.freeze()
        self._calls: list[_Call] = []

    def bind(self, term: UnboundExpr) -> Expression:
        """Binds the term over groups and aggregates. BindError for a column that is neither grouped nor aggregated."""
        if isinstance(term, UnboundAggregate):
            return self._aggregate(term)
        if not has_aggregate(term) and not has_joined_value(term):
            bound = self._input.bind(term)
            if not input_columns(bound):
                return bound
            if bound in self._groups:
                return InputRef(self._groups.index(bound), bound.data_type)
        if self._has_sets and has_only_set_values(term):
            bound = self._of_groups.bind(term)
            if bound in self._groups:
                return InputRef(self._groups.index(bound), bound.data_type)
        if isinstance(term, Name | UnboundColumn):
            raise BindError(
                f"column {term.name!r} must stand in GROUP BY or inside an aggregate", **error_span(term.span)
            )
        return super().bind(term)

    def group_of(self, column: OuterRef) -> Expression:
        """The group that a column of the input is, for a subquery. BindError if it is none."""
        wanted = InputRef(column.index, column.data_type)
        if wanted not in self._groups:
            raise BindError("a subquery of a grouped SELECT can refer to its groups only")
        return InputRef(self._groups.index(wanted), column.data_type)

    def aggregated(self, plan: LogicalPlan) -> LogicalPlan:
        """The Aggregate over `plan` of all bound terms, with a projection below if expressions need one."""
        plan, self._groups = self._sets_of_groups.joined(plan, self._groups)
        arguments = [call.argument for call in self._calls if call.argument is not None]
        names = plan.schema.names
        if all(isinstance(each, InputRef) for each in (*self._groups, *arguments)):
            columns = None
        else:
            conditions = [call.condition for call in self._calls if call.condition is not None]
            columns = list(dict.fromkeys((*self._groups, *arguments, *conditions)))
            plan = Project(plan, tuple(columns), tuple(each.describe(names) for each in columns))

        def position(expression: Expression) -> int:
            if columns is not None:
                return columns.index(expression)
            assert isinstance(expression, InputRef)
            return expression.index

        calls = []
        for call in self._calls:
            argument = None if call.argument is None else position(call.argument)
            condition = call.condition
            if condition is not None and columns is not None:
                condition = InputRef(position(condition), condition.data_type)
            calls.append(AggCall(call.kind, argument, condition, call.distinct, call.data_type))
        called = tuple(call.describe(plan.schema.names) for call in calls)
        return Aggregate(plan, tuple(map(position, self._groups)), tuple(calls), called)

    def _aggregate(self, term: UnboundAggregate) -> Expression:
        call = self._call(term)
        if call not in self._calls:
            self._calls.append(call)
        return InputRef(len(self._groups) + self._calls.index(call), call.data_type)

    def _call(self, term: UnboundAggregate) -> _Call:
        if term.function not in AGGREGATES:
            raise BindError(unknown("aggregate", term.function, AGGREGATES), **error_span(term.span))
        kind = AggKind(term.function)
        argument = None if term.argument is None else self._input.bind(term.argument)
        if argument is not None and is_unknown(argument) and kind is not AggKind.COUNT:
            raise BindError(f"{term.function} of a constant text", **error_span(span_of(term)))
        if kind.is_variance and term.argument is not None and argument is not None and _has_long_squares(argument):
            argument = self._input.bind(UnboundCast(term.argument, DataType.DOUBLE))
        data_type = aggregate_type(kind, None if argument is None else argument.data_type)
        if data_type is None:
            what = "*" if argument is None else argument.data_type
            raise BindError(f"{term.function} is not defined for ({what})", **error_span(term.span))
        condition = None if term.condition is None else self._input.condition(term.condition, "FILTER")
        return _Call(kind, argument, condition, term.distinct and not kind.ignores_duplicates, data_type)
