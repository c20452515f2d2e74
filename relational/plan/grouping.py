"""Binds the expressions of a grouped SELECT: only group expressions, aggregates and constants may occur in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TypeAlias

from relational.errors import BindError
from relational.expr.aggregates import AggCall
from relational.expr.bind import (
    BindSetCall,
    BindSubquery,
    BindWindow,
    ExprBinder,
    Scope,
    call,
    error_span,
    span_of,
)
from relational.expr.expression import Expression, InputRef, Literal, OuterRef, input_columns, walk
from relational.expr.unbound import (
    Name,
    TextSpan,
    UnboundAggregate,
    UnboundColumn,
    UnboundExpr,
    UnboundGrouping,
    has_aggregate,
    has_joined_value,
    has_only_set_values,
    is_alike,
)
from relational.plan.aggregate_calls import BoundCall, bound_call
from relational.plan.logical import Aggregate, Expand, LogicalPlan, Project, Share, Union
from relational.plan.logical.expand import SET_NAME, SET_TYPE
from relational.plan.set_functions import SetFunctions
from relational.types.data_type import DataType

SharePlan: TypeAlias = Callable[[LogicalPlan], Share]
"""Numbers a plan that has several readers."""
MOST_BITS = 31
"""Arguments of grouping(…), whose value is an INT."""


class GroupBinder(ExprBinder):
    """Binds terms to the output of the Aggregate that it builds: groups first, then calls."""

    def __init__(
        self,
        scope: Scope,
        groups: Sequence[UnboundExpr],
        subqueries: BindSubquery | None = None,
        windows: BindWindow | None = None,
        set_calls: BindSetCall | None = None,
        grouping_sets: Sequence[Sequence[int]] | None = None,
        share: SharePlan | None = None,
    ):
        """`grouping_sets`: as positions in `groups`; None: all groups are one. `share` numbers a plan with several
        readers, None: above those in the plan."""
        super().__init__(scope, subqueries, windows, set_calls)
        self._input = ExprBinder(scope)
        self._sets_of_groups = SetFunctions()
        self._of_groups = ExprBinder(scope, sets=self._sets_of_groups)
        self._groups: list[Expression] = []
        self._constants: list[tuple[UnboundExpr, int]] = []  # groups that are constants, by what is written
        bound = list(map(self._of_groups.bind, groups))
        has_constants = grouping_sets is not None or not any(map(input_columns, bound))
        positions = list(map(self._position, groups, bound, repeat(has_constants)))
        self._has_set_calls = self._sets_of_groups.freeze()
        self._grouping_sets = [tuple(range(len(self._groups)))] if grouping_sets is None else [
            tuple(dict.fromkeys(positions[at] for at in each)) for each in grouping_sets
        ]
        self._share = share or _next_share
        self._calls: list[BoundCall] = []

    def _position(self, term: UnboundExpr, group: Expression, has_constants: bool) -> int:
        """The position of a group, -1 of a constant that groups nothing. One that a grouping set may leave out, or
        without which there would be no group, is a group."""
        if has_constants and not input_columns(group):
            known = self._constant(term)
            if known is not None:
                return known.index
            self._constants.append((term, len(self._groups)))
            self._groups.append(group)
            return len(self._groups) - 1
        if isinstance(group, Literal):
            return -1
        if group not in self._groups:
            self._groups.append(group)
        return self._groups.index(group)

    def _constant(self, term: UnboundExpr) -> InputRef | None:
        """The group that a constant item of the SELECT list is. As in PostgreSQL, an equal constant elsewhere is none.
        """
        at = next((at for group, at in self._constants if group is term), None)
        return None if at is None else InputRef(at, self._groups[at].data_type)

    def bind(self, term: UnboundExpr) -> Expression:
        """Binds the term over groups and aggregates. BindError for a column that is neither grouped nor aggregated."""
        constant = self._constant(term)
        if constant is not None:
            return constant
        if isinstance(term, UnboundAggregate):
            return self._aggregate(term)
        if isinstance(term, UnboundGrouping):
            return self._grouping(term)
        if not has_aggregate(term) and not has_joined_value(term):
            bound = self._input.bind(term)
            if not input_columns(bound):
                return bound
            if bound in self._groups:
                return InputRef(self._groups.index(bound), bound.data_type)
        if self._has_set_calls and has_only_set_values(term):
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
        arguments = [each for bound in self._calls for each in bound.expressions]
        names = plan.schema.names
        if all(isinstance(each, InputRef) for each in (*self._groups, *arguments)):
            columns = None
        else:
            conditions = [bound.condition for bound in self._calls if bound.condition is not None]
            columns = list(dict.fromkeys((*self._groups, *arguments, *conditions, *self._ties(plan))))
            plan = Project(plan, tuple(columns), tuple(each.describe(names) for each in columns))

        def position(expression: Expression) -> int:
            if columns is not None:
                return columns.index(expression)
            assert isinstance(expression, InputRef)
            return expression.index

        calls = []
        for bound in self._calls:
            condition = bound.condition
            if condition is not None and columns is not None:
                condition = InputRef(position(condition), condition.data_type)
            calls.append(bound.placed(position, condition).with_state(plan.is_append_only))
        called = tuple(each.describe(plan.schema.names) for each in calls)
        columns_of_groups = tuple(map(position, self._groups))
        if not self._has_grouping_sets:
            return Aggregate(plan, columns_of_groups, tuple(calls), called)
        return self._of_sets(plan, columns_of_groups, tuple(calls), called)

    @property
    def _has_grouping_sets(self) -> bool:
        """Whether rows have the number of their grouping set, behind the groups."""
        return len(self._grouping_sets) > 1 or len(self._grouping_sets[0]) < len(self._groups)

    def _of_sets(
        self, plan: LogicalPlan, groups: tuple[int, ...], calls: tuple[AggCall, ...], names: tuple[str, ...]
    ) -> LogicalPlan:
        """The groups of all sets, then the number of the set, then the calls. An empty set has a row even over no rows,
        so it is an aggregation of its own."""
        numbered = list(enumerate(self._grouping_sets, 1))
        totals = [number for number, each in numbered if not each]
        if totals:
            plan = self._share(plan)
        branches: list[LogicalPlan] = []
        if len(totals) < len(self._grouping_sets):
            grouped = [(number, each) for number, each in numbered if each]
            branches.append(_expanded(plan, groups, grouped, calls, names))
        types = [plan.schema[column].data_type for column in groups]
        for number in totals:
            total = Aggregate(plan, (), calls, names)
            nothing = [*(Literal(None, each) for each in types), Literal(number, SET_TYPE)]
            values = (*nothing, *(InputRef(at, each.data_type) for at, each in enumerate(calls)))
            shown = (*(plan.schema[column].name for column in groups), SET_NAME, *names)
            branches.append(Project(total, values, shown))
        return Union(tuple(branches)) if len(branches) > 1 else branches[0]

    def _grouping(self, term: UnboundGrouping) -> Expression:
        """The bits of grouping(…), from the number of the set."""
        if not 1 <= len(term.args) <= MOST_BITS:
            raise BindError(f"grouping() takes 1 to {MOST_BITS} arguments", **error_span(term.span))
        positions = [self._group_written(each, term.span) for each in term.args]
        bits = [
            sum((at not in each) << bit for bit, at in enumerate(reversed(positions))) for each in self._grouping_sets
        ]
        if not self._has_grouping_sets:
            return Literal(bits[0], SET_TYPE)
        number = InputRef(len(self._groups), SET_TYPE)
        return call("subscript", [Literal(bits, DataType.list_of(SET_TYPE)), number])

    def _group_written(self, term: UnboundExpr, span: TextSpan | None) -> int:
        """The position of the group that is written as an argument of grouping(…)."""
        bound = self._input.bind(term)
        if bound in self._groups and input_columns(bound):
            return self._groups.index(bound)
        for group, at in self._constants:
            if is_alike(group, term):
                return at
        message = "an argument of grouping() must stand in GROUP BY"
        raise BindError(message, **error_span(span_of(term) or span))

    def _ties(self, plan: LogicalPlan) -> list[Expression]:
        """The columns that decide the order of rows which are equal in that of a call."""
        key = plan.stream_key if any(each.kind.collects for each in self._calls) else None
        return [InputRef(column, plan.schema[column].data_type) for column in key or ()]

    def _aggregate(self, term: UnboundAggregate) -> Expression:
        bound = bound_call(term, self._input)
        if _is_of_outer_query(bound):
            message = f"{term.function} of columns of the query around the subquery only is an aggregate of that query"
            reason = "which is not supported here: compute it there, in a subquery of its FROM"
            raise BindError(f"{message}, {reason}", **error_span(term.span))
        if bound not in self._calls:
            self._calls.append(bound)
        first = len(self._groups) + self._has_grouping_sets
        return InputRef(first + self._calls.index(bound), bound.data_type)


def _is_of_outer_query(bound: BoundCall) -> bool:
    """Whether all columns of a call are of a query around this one: SQL then takes it for an aggregate of that query.
    """
    parts = [*bound.expressions, *(() if bound.condition is None else (bound.condition,))]
    found = [node for part in parts for node in walk(part) if isinstance(node, InputRef | OuterRef)]
    return bool(found) and all(isinstance(node, OuterRef) for node in found)


def _next_share(plan: LogicalPlan) -> Share:
    return Share(plan, max((-1, *plan.properties.shares)) + 1)


def _expanded(
    plan: LogicalPlan,
    groups: tuple[int, ...],
    sets: Sequence[tuple[int, tuple[int, ...]]],
    calls: tuple[AggCall, ...],
    names: tuple[str, ...],
) -> LogicalPlan:
    """The aggregation of sets that have groups, each with its number."""
    width = len(plan.schema)
    whole = Expand(plan, groups, tuple(each for _, each in sets))
    grouped = Aggregate(whole, tuple(range(width, width + len(groups) + 1)), calls, names)
    if [number for number, _ in sets] == list(range(1, len(sets) + 1)):
        return grouped
    number = call("subscript", [
        Literal([number for number, _ in sets], DataType.list_of(SET_TYPE)), InputRef(len(groups), SET_TYPE)])
    values = [InputRef(at, each) for at, each in enumerate(grouped.schema.types)]
    shown: list[Expression] = [*values[: len(groups)], number, *values[len(groups) + 1 :]]
    return Project(grouped, tuple(shown), grouped.schema.names)
