"""Parameters: the values that are given to a statement, and what becomes of the expressions that it was bound to.

A value has the type that it would have as a literal. A plan is bound once for the types of its parameters, and executed
with their values in place of the parameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from relational.errors import BindError, shortened
from relational.expr.bind import convert, literal, text_literal
from relational.expr.coercion import common_type
from relational.expr.expression import Cast, Expression, Literal, Parameter, walk
from relational.expr.unbound import UnboundLiteral, as_unbound
from relational.types.data_type import DataType, TypeKind

_INT, _BIGINT = 1 << 31, 1 << 63
_TYPES: dict[type, DataType] = {
    bool: DataType.BOOLEAN,
    float: DataType.DOUBLE,
    bytes: DataType.BYTEA,
    date: DataType.DATE,
    time: DataType.TIME,
}
_SIMPLE = frozenset(TypeKind) - {TypeKind.NUMERIC, TypeKind.STRUCT, TypeKind.LIST}
"""Kinds of one type each."""
_NULL = Literal(None, DataType.VARCHAR)


def parameter(value: object) -> Literal:
    """A Python value as a literal: of the types that a fluent expression takes, and of bytes, numpy's numbers, lists
    and, as JSONB, dicts. BindError for any other value."""
    kind = type(value)
    if kind is str:
        return text_literal(value)  # type: ignore[arg-type]
    if kind is int:
        if -_INT <= value < _INT:  # type: ignore[operator]
            return Literal(value, DataType.INT)
        if -_BIGINT <= value < _BIGINT:  # type: ignore[operator]
            return Literal(value, DataType.BIGINT)
    found = _TYPES.get(kind)
    if found is not None:
        return Literal(value, found)
    return _NULL if value is None else _other(value)


def _other(value: object) -> Literal:
    """A value of a type that is not found by its class alone."""
    if isinstance(value, np.generic):
        return parameter(value.item())
    if isinstance(value, bytearray | memoryview):
        return Literal(bytes(value), DataType.BYTEA)
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, dict):
        return _json(value)
    if isinstance(value, str | int | float | Decimal | datetime):
        bound = literal(UnboundLiteral(value))
    else:
        term = as_unbound(value)
        if not isinstance(term, UnboundLiteral):
            raise BindError(f"a parameter is a value, not an expression: {shortened(repr(value))}")
        bound = literal(term)
    assert isinstance(bound, Literal)
    return bound


def _list(values: list[object]) -> Literal:
    """A list of the common type of its elements; without an element of a type a text, which adopts the type of a list.
    """
    elements = [parameter(each) for each in values]
    types = {each.data_type for each in elements if each.value is not None}
    if not types:
        return Literal("{" + ",".join("NULL" for _ in elements) + "}", DataType.VARCHAR)
    data_type = common_type(list(types))
    if data_type is None or any(each.is_nested for each in types):
        raise BindError(f"a list of {' and '.join(sorted(map(str, types)))} is no SQL value")
    found = [convert(each, data_type) for each in elements]
    assert all(isinstance(each, Literal) for each in found), found
    return Literal([each.value for each in found if isinstance(each, Literal)], DataType.list_of(data_type))


def _json(value: dict[object, object]) -> Literal:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BindError(f"a dict is a JSONB value if json.dumps takes it: {error}") from None
    found = convert(Literal(text, DataType.VARCHAR), DataType.JSONB)
    assert isinstance(found, Literal), found
    return found


def has_parameters(expression: Expression) -> bool:
    """Whether a value is needed to evaluate it."""
    return any(isinstance(node, Parameter) for node in walk(expression))


class ParameterError(BindError):
    """The value of parameter `number` cannot be converted to the type that the statement needs there."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def with_values(expression: Expression, values: Sequence[Literal]) -> Expression:
    """The expression with the values of its parameters, which have the types that it was bound to, by number; the same
    object if it has none. ParameterError."""
    if isinstance(expression, Parameter):
        found = values[expression.number]
        return found if found.data_type == expression.data_type else Literal(found.value, expression.data_type)
    if isinstance(expression, Cast) and isinstance(expression.operand, Parameter):
        try:
            return convert(with_values(expression.operand, values), expression.data_type)
        except BindError as error:
            raise ParameterError(expression.operand.number, error.message) from error
    children = expression.children
    changed = tuple([with_values(child, values) for child in children])
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expression
    return expression.with_children(changed)


def separated(expressions: Sequence[Expression]) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """`expressions` with other parameters, numbered from 0, each of which stands for an old one or for a conversion of
    it; and what they stand for: the value of parameter i is `with_values(found[i], values)`."""
    slots: dict[Expression, int] = {}

    def renumbered(node: Expression) -> Expression:
        if isinstance(node, Parameter) or (isinstance(node, Cast) and isinstance(node.operand, Parameter)):
            return Parameter(slots.setdefault(node, len(slots)), node.data_type)
        changed = tuple([renumbered(child) for child in node.children])
        if all(new is old for new, old in zip(changed, node.children, strict=True)):
            return node
        return node.with_children(changed)

    return tuple(map(renumbered, expressions)), tuple(slots)


def kinds_of(values: Sequence[Literal]) -> tuple[Any, ...]:
    """What a plan depends on: the types of the values, and which of them are NULL."""
    return tuple([
        None if each.value is None else int(kind) if (kind := each.data_type.kind) in _SIMPLE else each.data_type
        for each in values
    ])
