"""Temporal filters: conditions of a view that compare a value of each row with the time, now().

    valid_until > now() - INTERVAL '1 hour'     a row leaves when the time has passed it
    due <= now()                                a row enters when the time has reached it

now() is the time of the epoch: in every epoch of the view the condition has one meaning. The bound, what now() is
compared through, must not decrease while now() increases, so that each row changes once.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.comparisons import Relation
from relational.expr.expression import Call, Expression, InputRef, conjuncts, input_columns, transform, walk
from relational.expr.monotone import monotone_column
from relational.types.data_type import DataType

NOW = Call("now", (), DataType.TIMESTAMPTZ)
_ORDERED = (Relation.LESS, Relation.LESS_EQUAL, Relation.GREATER, Relation.GREATER_EQUAL)


@dataclass(frozen=True, slots=True)
class TemporalTerm:
    """`value relation bound`: `value` over the columns of a row, `bound` over one column, the time."""

    value: Expression
    relation: Relation
    bound: Expression

    @property
    def expires(self) -> bool:
        """Whether rows leave as time passes; else they enter."""
        return self.relation in (Relation.GREATER, Relation.GREATER_EQUAL)


def depends_on_time(expression: Expression) -> bool:
    """Whether now() is part of it."""
    return any(node == NOW for node in walk(expression))


def temporal_terms(predicate: Expression) -> tuple[Expression, ...]:
    """Its conjuncts of which now() is part."""
    return tuple(term for term in conjuncts(predicate) if depends_on_time(term))


def temporal_term(term: Expression) -> TemporalTerm | None:
    """The parts of a comparison with now(); None for any other condition of which it is part."""
    if not isinstance(term, Call) or term.function not in _ORDERED:
        return None
    value, bound = term.args
    relation = Relation(term.function)
    if depends_on_time(value):
        value, bound, relation = bound, value, relation.turned
    if depends_on_time(value) or not input_columns(value) or input_columns(bound):
        return None
    time = InputRef(0, NOW.data_type)
    of_time = transform(bound, lambda node: time if node == NOW else node)
    return TemporalTerm(value, relation, of_time) if monotone_column(of_time) == 0 else None
