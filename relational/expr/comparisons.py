"""Comparisons of a column with a constant that a predicate implies: what a reader decides by the bounds of a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relational.expr.expression import Call, Expression, InputRef, Literal, conjuncts
from relational.types.data_type import DataType, TypeKind


class Relation(StrEnum):
    """How a value compares with the constant, by the name of the function in a bound expression."""

    EQUAL = "equal"
    LESS = "less"
    LESS_EQUAL = "less_equal"
    GREATER = "greater"
    GREATER_EQUAL = "greater_equal"

    @property
    def turned(self) -> Relation:
        """The relation with its sides exchanged."""
        return _TURNED.get(self, self)


_TURNED = {
    Relation.LESS: Relation.GREATER,
    Relation.LESS_EQUAL: Relation.GREATER_EQUAL,
    Relation.GREATER: Relation.LESS,
    Relation.GREATER_EQUAL: Relation.LESS_EQUAL,
}
_WITHOUT_ORDER = frozenset((TypeKind.INTERVAL, TypeKind.JSONB, TypeKind.STRUCT, TypeKind.LIST))
_FLOATS = (TypeKind.REAL, TypeKind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column relation value`, true for no NULL. `value` is the Python value of `data_type`, the column's type but for
    the precision of a NUMERIC; never NULL or NaN."""

    column: int
    relation: Relation
    value: Any
    data_type: DataType

    def excludes(self, least: Any, most: Any) -> bool:
        """Whether it is true for no value between `least` and `most`, both included. NaN, which SQL orders above all
        other values and bounds of files leave out, is taken to be among them."""
        if self.relation is Relation.LESS:
            return bool(least >= self.value)
        if self.relation is Relation.LESS_EQUAL:
            return bool(least > self.value)
        if self.relation is Relation.EQUAL:
            return bool(least > self.value or most < self.value)
        if self.data_type.kind in _FLOATS:
            return False
        return bool(most < self.value or (most == self.value and self.relation is Relation.GREATER))


def comparisons_of(predicate: Expression) -> tuple[Comparison, ...]:
    """Comparisons that are true for every row for which `predicate` is; columns are input columns. Types without a
    total order, or whose order differs between systems, are left out."""
    found = (_comparison(term) for term in conjuncts(predicate))
    return tuple(each for each in found if each is not None)


def _comparison(term: Expression) -> Comparison | None:
    if not isinstance(term, Call) or term.function not in list(Relation):
        return None
    left, right = term.args
    relation = Relation(term.function)
    if isinstance(left, Literal):
        left, right, relation = right, left, relation.turned
    if not isinstance(left, InputRef) or not isinstance(right, Literal) or right.value is None:
        return None
    if right.data_type.kind in _WITHOUT_ORDER or right.value != right.value:
        return None
    return Comparison(left.index, relation, right.value, right.data_type)
