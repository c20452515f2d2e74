"""Orders the inputs of inner joins so that each finds its rows by an equality with those before it.

    FROM a, b, c WHERE a.x = c.x AND b.y = c.y      (a join c) join b, instead of all pairs of a and b first

The order is that of the query, except that an input which equals nothing in those before it waits for one that does.
In views selective inputs come early: those with a filter, or that lead to one, of which each row before them finds one
row at most. So rows that a filter of a dimension drops are not kept by the joins behind it. Beside watermarks the order
stays that of the query, and beside inputs that only append one that changes stays where it is: joined early it would
end what is known of them.

    FROM a, b, c WHERE a.x = b.x AND a.y = c.key AND c.name = 'z'       (a join c) join b

Terms that all branches of an OR share are terms of their own, which may be equalities: (p AND q) OR (p AND r) is
p AND (q OR r), with NULL too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from relational.expr.disjunctions import factored
from relational.expr.expression import (
    Call,
    Cast,
    Expression,
    InputRef,
    conjunction,
    equality,
    input_columns,
    is_equality,
    remap,
    transform,
)
from relational.plan.cardinality import Equated, JoinGraph, TableRows, drops_most
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Join, JoinKind, LogicalPlan, Project, only


def share_terms(plan: LogicalPlan) -> LogicalPlan:
    """The plan with the common terms of the branches of each OR of a filter before it."""
    return transformed(plan, _shared)


def order_joins(plan: LogicalPlan) -> LogicalPlan:
    """The plan without joins of all pairs, where another order has equalities."""
    return transformed(plan, _ordered)


def order_lookups(plan: LogicalPlan) -> LogicalPlan:
    """As `order_joins`, with selective inputs before others."""
    return transformed(plan, lambda node: _ordered(node, selective_first=True))


def order_joins_by(rows: TableRows) -> Callable[[LogicalPlan], LogicalPlan]:
    """A rule that orders the inputs of each tree of joins by the estimated rows of the joins."""

    def rule(plan: LogicalPlan) -> LogicalPlan:
        shares: dict[int, LogicalPlan] = {}

        def visit(node: LogicalPlan, is_within: bool) -> LogicalPlan:
            if node.share_number is not None and node.share_number in shares:
                return shares[node.share_number]
            is_part = _is_movable(node) or _is_selection(node)
            found = node.over(tuple(visit(each, is_part) for each in node.inputs)) if node.inputs else node
            if is_part and not is_within:
                found = _ordered(found, rows)
            if node.share_number is not None:
                shares[node.share_number] = found
            return found

        return visit(plan, False)

    return rule


def _shared(plan: LogicalPlan) -> LogicalPlan:
    if not isinstance(plan, Filter):
        return plan
    predicate = transform(plan.predicate, factored)
    return plan if predicate == plan.predicate else Filter(plan.input, predicate)


def _ordered(plan: LogicalPlan, rows: TableRows | None = None, *, selective_first: bool = False) -> LogicalPlan:
    """The joins below `plan`, the lowest of which were looked at before."""
    if not _is_movable(plan) and not (rows is not None and _is_selection(plan)):
        return plan
    inputs, terms, columns = _flattened(plan)
    starts = [0]
    for each in inputs:
        starts.append(starts[-1] + len(each.schema))
    owner = [number for number, each in enumerate(inputs) for _ in each.schema]
    if rows is None:
        order = as_written = _order(len(inputs), owner, terms)
        if selective_first:
            order = _order(len(inputs), owner, terms, _Lookups(inputs, starts, owner, terms))
        if order == list(range(len(inputs))) or (order == as_written and _all_equated(plan)):
            return plan
    else:
        graph = JoinGraph(inputs, starts, [pair for pair in map(_columns_equated, terms) if pair is not None], rows)
        order = graph.order()
        terms = [*(term for term in terms if not _is_plain(term)), *_equalities(graph, order)]
    joined, position = _joined(inputs, starts, order, terms)
    found = only(joined, [position[column] for column in columns])
    if (found.schema.names, found.hidden) == (plan.schema.names, plan.hidden):
        return found
    chosen = tuple(InputRef(position[column], data_type)
                   for column, data_type in zip(columns, plan.schema.types, strict=True))
    return Project(joined, chosen, plan.schema.names, plan.hidden)


def _is_movable(plan: LogicalPlan) -> bool:
    return isinstance(plan, Join) and plan.kind is JoinKind.INNER and not plan.is_keyed and not plan.is_temporal


def _is_selection(plan: LogicalPlan) -> bool:
    """Whether a plan selects columns of joins that can be ordered otherwise."""
    if not isinstance(plan, Project) or not _is_movable(plan.input):
        return False
    return all(isinstance(each, InputRef) for each in plan.expressions)


def _all_equated(plan: LogicalPlan) -> bool:
    """Whether each of the joins has an equality."""
    if isinstance(plan, Project) and _is_selection(plan):
        return _all_equated(plan.input)
    if not isinstance(plan, Join) or not _is_movable(plan):
        return True
    return bool(plan.equalities[0]) and _all_equated(plan.left) and _all_equated(plan.right)


def _flattened(plan: LogicalPlan) -> tuple[list[LogicalPlan], list[Expression], list[int]]:
    """The inputs of a tree of joins, its terms over the columns of all of them, and which of these the tree has."""
    if isinstance(plan, Project) and _is_selection(plan):
        inputs, terms, columns = _flattened(plan.input)
        return inputs, terms, [columns[each.index] for each in plan.expressions if isinstance(each, InputRef)]
    if not isinstance(plan, Join) or not _is_movable(plan):
        return [plan], [], list(range(len(plan.schema)))
    left, terms, columns = _flattened(plan.left)
    right, more, others = _flattened(plan.right)
    width = sum(len(each.schema) for each in left)
    shifted = {column: width + column for each in more for column in input_columns(each)}
    columns += (width + column for column in others)
    own = (remap(term, dict(enumerate(columns))) for term in plan.terms)
    return [*left, *right], [*terms, *(remap(term, shifted) for term in more), *own], columns


class _Lookups:
    """Which inputs have one row at most for each row of others, and which of them have a filter."""

    def __init__(
        self, inputs: Sequence[LogicalPlan], starts: Sequence[int], owner: Sequence[int], terms: Sequence[Expression]
    ) -> None:
        self._inputs, self._starts, self._owner = inputs, starts, owner
        pairs = [pair for pair in map(_columns_equated, terms) if pair is not None]
        self._pairs = [both for one, other, _ in pairs for both in ((one, other), (other, one))]
        self._drops = list(map(drops_most, inputs))
        known = [each.properties for each in inputs]
        self._are_marked = any(each.watermarks for each in known)
        self._ends_append_only = [not each.is_append_only and any(other.is_append_only for other in known)
                                  for each in known]
        numbers = range(len(inputs))
        self._behind = [[each for each in numbers if each != at and self._is_unique(each, {at})] for at in numbers]

    def is_selective(self, number: int, known: set[int], waiting: Collection[int]) -> bool:
        """Whether each row of the inputs `known` finds one row of this one at most, which has a filter, or leads to one
        of those that are `waiting` in the same way."""
        if self._are_marked or self._ends_append_only[number] or not self._is_unique(number, known):
            return False
        seen, todo = {number}, [number]
        while todo:
            at = todo.pop()
            if self._drops[at]:
                return True
            further = [each for each in self._behind[at] if each in waiting and each not in seen]
            seen.update(further)
            todo += further
        return False

    def _is_unique(self, number: int, known: set[int]) -> bool:
        """Whether no two rows of an input are equal in the columns that are equated with those of `known`."""
        columns = {one - self._starts[number] for one, other in self._pairs
                   if self._owner[one] == number and self._owner[other] in known}
        return bool(columns) and self._inputs[number].properties.is_unique(frozenset(columns))


def _order(
    count: int, owner: Sequence[int], terms: Sequence[Expression], lookups: _Lookups | None = None
) -> list[int]:
    """The inputs, each behind those that a term equates it with, if there is one; with `lookups` selective ones before
    others."""
    edges = [pair for pair in (_equated(term, owner) for term in terms) if pair is not None]
    order, waiting = [0], list(range(1, count))
    while waiting:
        known = set(order)
        linked = [each for each in waiting if any(_links(edge, each, known) for edge in edges)]
        first = [each for each in linked if lookups is not None and lookups.is_selective(each, known, waiting)]
        following = next(iter(first or linked or waiting))
        waiting.remove(following)
        order.append(following)
    return order


def _links(edge: tuple[frozenset[int], frozenset[int]], following: int, known: set[int]) -> bool:
    """Whether an equality has a side over input `following` alone, and one over known inputs."""
    return any(one == {following} and other <= known for one, other in (edge, edge[::-1]))


def _equated(term: Expression, owner: Sequence[int]) -> tuple[frozenset[int], frozenset[int]] | None:
    """The inputs of both sides of an equality between different inputs; None for other terms."""
    if not is_equality(term):
        return None
    one, other = (frozenset(owner[column] for column in input_columns(arg)) for arg in term.args)
    return (one, other) if one and other and not one & other else None


def _columns_equated(term: Expression) -> Equated | None:
    """The columns that a term equates; None for other terms."""
    if not is_equality(term):
        return None
    one, other = (each.operand if isinstance(each, Cast) else each for each in term.args)
    if not isinstance(one, InputRef) or not isinstance(other, InputRef):
        return None
    return Equated(one.index, other.index, _is_plain(term))


def _is_plain(term: Expression) -> bool:
    """Whether a term is an equality of two columns of one type, from which follow others."""
    return isinstance(term, Call) and term.function == "equal" and all(isinstance(arg, InputRef) for arg in term.args)


def _equalities(graph: JoinGraph, order: Sequence[int]) -> Iterator[Expression]:
    """Of the columns that are equal in a chain, each with one of those before it in the order of the inputs."""
    for members in graph.chains:
        known: int | None = None
        for number in order:
            for column in (each for each in graph.columns(number) if each in members):
                if known is not None:
                    yield equality(graph.column(known), graph.column(column), is_null_safe=False)
                known = column if known is None else known


def _joined(
    inputs: Sequence[LogicalPlan], starts: Sequence[int], order: Sequence[int], terms: Sequence[Expression]
) -> tuple[LogicalPlan, dict[int, int]]:
    """The joins in this order, each with the terms whose columns are all there, and where the columns are then."""
    left = list(terms)
    position: dict[int, int] = {}
    plan: LogicalPlan | None = None
    for number in order:
        first = len(position)
        width = len(inputs[number].schema)
        position |= {starts[number] + column: first + column for column in range(width)}
        if plan is None:
            plan = inputs[number]
            continue
        ready = [term for term in left if input_columns(term) <= position.keys()]
        left = [term for term in left if term not in ready]
        moved = tuple(remap(term, position) for term in ready)
        plan = Join(plan, inputs[number], JoinKind.INNER, conjunction(moved) if moved else None)
    assert plan is not None and not left
    return plan, position
