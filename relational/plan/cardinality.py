"""Estimates of how many rows a plan has, from the rows of the stored tables, and the order of joins that they suggest.

Only the order of joins depends on them, so they need not be right: a condition keeps a fixed share of the rows, and
values that are equated are distributed evenly over the values of a key among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from relational.catalog.objects import TableCatalog
from relational.expr.expression import Call, Expression, InputRef, Literal, conjuncts
from relational.plan.logical import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    LogicalPlan,
    Project,
    Scan,
    TopN,
    Union,
    Values,
)
from relational.plan.logical.node import UnaryPlan

TableRows = Callable[[TableCatalog], float]
"""The estimated rows of a stored table."""
_SHARES = {"equal": 0.05, "is_not_distinct": 0.05, "is_null": 0.05, "like": 0.1, "in": 0.15, "in_list": 0.15,
           "not_equal": 0.9, "is_distinct": 0.9, "is_not_null": 0.95}
OTHER_SHARE = 0.35
UNKNOWN_SHARE = 0.5
"""Of a column of truth values."""
GROUPS_SHARE = 0.2
MOST_STARTS = 10
"""Inputs of joins up to which each of them is tried as the first one."""


def estimated_rows(plan: LogicalPlan, rows: TableRows) -> float:
    """At least 1."""
    if isinstance(plan, Scan):
        return max(rows(plan.table), 1.0)
    if isinstance(plan, Values):
        return max(float(len(plan.rows)), 1.0)
    if isinstance(plan, Join):
        left, right = (estimated_rows(each, rows) for each in plan.inputs)
        if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return max(left * OTHER_SHARE, 1.0)
        return max(left, right) if plan.equalities[0] else left * right
    if isinstance(plan, Union):
        return sum(estimated_rows(each, rows) for each in plan.inputs)
    if not isinstance(plan, UnaryPlan):
        return max((estimated_rows(each, rows) for each in plan.inputs), default=1.0)
    below = estimated_rows(plan.input, rows)
    if isinstance(plan, Filter):
        return max(below * _share(plan), 1.0)
    if isinstance(plan, Aggregate):
        return max(below * GROUPS_SHARE, 1.0) if plan.group_by else 1.0
    if isinstance(plan, Limit) and plan.count is not None:
        return max(min(below, float(plan.count)), 1.0)
    return min(below, float(plan.limit)) if isinstance(plan, TopN) and not plan.groups else below


def _share(plan: Filter) -> float:
    """Of the rows that a filter keeps."""
    fixed = frozenset(
        part.index
        for term in conjuncts(plan.predicate)
        if isinstance(term, Call) and term.function == "equal" and any(isinstance(arg, Literal) for arg in term.args)
        for part in term.args
        if isinstance(part, InputRef)
    )
    if fixed and plan.input.properties.is_unique(fixed):
        return 0.0
    return _share_of(plan.predicate)


def _share_of(term: Expression) -> float:
    """Of the rows for which a term is expected to be true."""
    if not isinstance(term, Call):
        return UNKNOWN_SHARE
    if term.function == "and":
        return prod(map(_share_of, term.args))
    if term.function == "or":
        return min(sum(map(_share_of, term.args)), 1.0)
    return 1.0 - _share_of(term.args[0]) if term.function == "not" else _SHARES.get(term.function, OTHER_SHARE)


def drops_most(plan: LogicalPlan) -> bool:
    """Whether a plan is a filter that is expected to keep less than half of the rows."""
    while isinstance(plan, Project):
        plan = plan.input
    return isinstance(plan, Filter) and not plan.has_state and _share(plan) < 0.5


def base_rows(plan: LogicalPlan, rows: TableRows) -> float:
    """The rows of a plan without its filters."""
    while isinstance(plan, UnaryPlan) and not isinstance(plan, Aggregate | Limit | TopN):
        plan = plan.input
    return estimated_rows(plan, rows)


class Equated(NamedTuple):
    """Two columns that are equal in all rows. `is_transitive`: what equals one of them equals the other."""

    one: int
    other: int
    is_transitive: bool


class JoinGraph:
    """The inputs of inner joins, and the equalities among columns of all of them: `starts` is the first column of each
    input."""

    def __init__(
        self, inputs: Sequence[LogicalPlan], starts: Sequence[int], equated: Sequence[Equated], rows: TableRows
    ) -> None:
        self._inputs, self._starts = inputs, starts
        self._sizes = [estimated_rows(each, rows) for each in inputs]
        self._bases = [base_rows(each, rows) for each in inputs]
        self.chains: list[set[int]] = []
        """Columns that are equal to each other."""
        for pair in equated:
            if pair.is_transitive:
                found = [each for each in self.chains if not each.isdisjoint(pair[:2])]
                self.chains = [each for each in self.chains if each.isdisjoint(pair[:2])]
                self.chains.append({pair.one, pair.other}.union(*found))
        links = [*self.chains, *({pair.one, pair.other} for pair in equated if not pair.is_transitive)]
        self._links = links
        self._links_of = [
            {number for number, link in enumerate(links) if not link.isdisjoint(self.columns(each))}
            for each in range(len(inputs))
        ]

    def columns(self, number: int) -> range:
        """The columns of an input."""
        return range(self._starts[number], self._starts[number] + len(self._inputs[number].schema))

    def column(self, column: int) -> InputRef:
        """A column of all inputs together."""
        number = max(at for at, start in enumerate(self._starts[: len(self._inputs)]) if start <= column)
        return InputRef(column, self._inputs[number].schema.types[column - self._starts[number]])

    def order(self) -> list[int]:
        """The order of the inputs with the fewest rows in between, each behind one that it is equated with, if there is
        one. Of equally good ones the first."""
        count = len(self._inputs)
        starts = range(count) if count <= MOST_STARTS else [min(range(count), key=self._sizes.__getitem__)]
        return min((self._from(start) for start in starts), key=lambda found: found[0])[1]

    def _from(self, start: int) -> tuple[float, list[int]]:
        """(rows of all intermediate results, the order that takes the smallest next one)."""
        order, waiting = [start], [each for each in range(len(self._inputs)) if each != start]
        current = cost = self._sizes[start]
        while waiting:
            found = [(self._joined(order, current, each), each) for each in waiting]
            current, following = min(found, key=lambda each: each[0])
            cost += current
            waiting.remove(following)
            order.append(following)
        return cost, order

    def _joined(self, order: Sequence[int], current: float, following: int) -> float:
        """The estimated rows of a join of known inputs, which have `current` rows, with another one."""
        shared = set().union(*(self._links_of[each] for each in order)) & self._links_of[following]
        product = current * self._sizes[following]
        if not shared:
            return product * 1e6  # all pairs: after everything that is linked
        keys = [self._bases[each] for each in (following, *order) if self._has_key(each, shared)]
        if keys:
            return max(product / keys[0], 1.0)
        values = max(self._values(each) for each in shared)
        return max(product / values, 1.0)

    def _has_key(self, number: int, shared: set[int]) -> bool:
        """Whether no two rows of an input are equal in the columns of these links."""
        columns = {column for link in shared for column in self._links[link]}.intersection(self.columns(number))
        start = self._starts[number]
        return self._inputs[number].properties.is_unique(frozenset(column - start for column in columns))

    def _values(self, link: int) -> float:
        """How many different values the columns of a link have: as many as a key among them, if there is one."""
        found = []
        for number, plan in enumerate(self._inputs):
            for column in self._links[link].intersection(self.columns(number)):
                is_key = plan.properties.is_unique(frozenset((column - self._starts[number],)))
                found.append((not is_key, self._bases[number] if is_key else self._bases[number] ** 0.5))
        return max(min(found)[1], 1.0)
