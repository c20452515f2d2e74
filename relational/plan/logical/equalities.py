"""Equalities: the terms of a join condition by which the rows of its two inputs find each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.expr.aggregates import MAX_PRECISION
from relational.expr.coercion import digits, is_exact
from relational.expr.expression import (
    Cast,
    Expression,
    InputRef,
    Literal,
    input_columns,
    input_refs,
    is_equality,
    remap,
)
from relational.types.data_type import DataType
from relational.types.schema import Field, Schema

_ALWAYS = Literal(1, DataType.INT)


@dataclass(frozen=True, slots=True)
class Equality:
    """A left and a right row match only if `left`, over the columns of the one input, equals `right`, over those of the
    other; both have one type. `is_null_safe`: NULL equals NULL, else it equals nothing."""

    left: Expression
    right: Expression
    is_null_safe: bool

    @property
    def columns(self) -> tuple[int | None, int | None]:
        """The column of either input that the other side determines: None where that is an expression."""
        return _column_of(self.left), _column_of(self.right)


EVERY_PAIR = Equality(_ALWAYS, _ALWAYS, False)
"""What all pairs of rows fulfil."""


def equalities(terms: Sequence[Expression], width: int) -> tuple[tuple[Equality, ...], tuple[Expression, ...]]:
    """The equalities among the conjuncts of the condition of a join whose left input has `width` columns, and all other
    terms. No expression is in two equalities."""
    found: list[Equality] = []
    rest: list[Expression] = []
    for term in terms:
        each = _equality(term, width)
        if each is None or any(each.left == other.left or each.right == other.right for other in found):
            rest.append(term)
        else:
            found.append(each)
    return tuple(found), tuple(rest)


def key_columns(
    schema: Schema, keys: Sequence[Expression]
) -> tuple[tuple[int, ...], tuple[Schema, tuple[Expression, ...]] | None]:
    """The position of each of `keys`, distinct expressions over `schema`; and, where one is not a column, the schema
    and the expressions of a projection that adds them behind all columns."""
    added = [key for key in keys if not isinstance(key, InputRef)]
    width = len(schema)
    positions = tuple(key.index if isinstance(key, InputRef) else width + added.index(key) for key in keys)
    if not added:
        return positions, None
    columns = input_refs(schema.types)
    fields = [Field(f"key_{number}", key.data_type) for number, key in enumerate(added)]
    return positions, (Schema((*schema, *fields)), (*columns, *added))


def _equality(term: Expression, width: int) -> Equality | None:
    """None for other terms, and where no type has all values of both sides."""
    if not is_equality(term):
        return None
    for left, right in (term.args, term.args[::-1]):
        below, above = input_columns(left), input_columns(right)
        if below and above and max(below) < width <= min(above):
            data_type = _exact_type(left.data_type, right.data_type)
            if data_type is None:
                return None
            right = remap(right, {column: column - width for column in above})
            return Equality(_in_type(left, data_type), _in_type(right, data_type), term.function != "equal")
    return None


def _exact_type(one: DataType, other: DataType) -> DataType | None:
    """The type that represents all values of both; None if there is none."""
    if one == other:
        return one
    if not (is_exact(one) and is_exact(other)):
        return None
    whole, scale = (max(parts) for parts in zip(digits(one), digits(other), strict=True))
    return DataType.numeric(whole + scale, scale) if whole + scale <= MAX_PRECISION else None


def _in_type(value: Expression, data_type: DataType) -> Expression:
    return value if value.data_type == data_type else Cast(value, data_type)


def _column_of(side: Expression) -> int | None:
    """The column that has the value of a side, possibly in a narrower type."""
    while isinstance(side, Cast) and _is_widening(side.operand.data_type, side.data_type):
        side = side.operand
    return side.index if isinstance(side, InputRef) else None


def _is_widening(source: DataType, target: DataType) -> bool:
    """Whether a cast from one exact type to another keeps all values apart, and refuses none."""
    if not (is_exact(source) and is_exact(target)) or (source.scale is not None and target.scale is None):
        return False
    return all(more >= less for more, less in zip(digits(target), digits(source), strict=True))
