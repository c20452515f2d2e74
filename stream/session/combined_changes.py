"""Many executions of one change by key as one statement.

    UPDATE t SET x = x + $1 WHERE id = $2    with (5, 1) and (7, 2)
    UPDATE t SET x = x + CASE id WHEN 1 THEN 5 WHEN 2 THEN 7 END WHERE id IN (1, 2)

Each execution changes the row of its key only, so those of different keys do not see each other, and together they do
the same in any order. What an execution costs besides its row is paid once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relational.expr.expression import (
    Call,
    Case,
    Expression,
    InputRef,
    Literal,
    Parameter,
    conjunction,
    conjuncts,
    equality,
    transform,
)
from relational.expr.parameters import has_parameters
from relational.sql.statement import Delete, Update
from relational.types import DataType
from relational.types.data_type import TypeKind

Values = Sequence[Literal]
_KEYS = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.VARCHAR, TypeKind.DATE)
"""Types of keys whose Python values are equal where SQL's are."""


def combined(
    change: Update | Delete, many: Sequence[Values]
) -> Iterator[tuple[Update | Delete | None, Sequence[Values]]]:
    """The executions with each of `many`, in order, in parts: as one change, or None where they are to be executed one
    by one. `change` is as it was bound, with its parameters."""
    key = _key_of(change)
    if key is None:
        yield None, many
        return
    ref, number, rest = key
    part: dict[object, Values] = {}
    for values in many:
        value = values[number].value
        if value in part:
            yield _one(change, ref, number, rest, part), list(part.values())
            part = {}
        part[value] = values
    yield _one(change, ref, number, rest, part), list(part.values())


def _key_of(change: Update | Delete) -> tuple[InputRef, int, tuple[Expression, ...]] | None:
    """The only column of the key, the parameter that it equals, and the other terms, which have no parameters; None for
    a change by another condition."""
    pk = change.table.pk_indices
    if len(pk) != 1 or change.predicate is None or change.table.columns[pk[0]].data_type.kind not in _KEYS:
        return None
    ref = InputRef(pk[0], change.table.columns[pk[0]].data_type)
    terms = conjuncts(change.predicate)
    for term in terms:
        if isinstance(term, Call) and term.function == "equal" and ref in term.args:
            (other,) = (arg for arg in term.args if arg != ref) if term.args[0] != term.args[1] else (ref,)
            rest = tuple(each for each in terms if each is not term)
            if isinstance(other, Parameter) and other.number and not any(map(has_parameters, rest)):
                return ref, other.number, rest
    return None


def _one(
    change: Update | Delete, ref: InputRef, number: int, rest: tuple[Expression, ...], part: dict[object, Values]
) -> Update | Delete | None:
    if len(part) < 2:
        return None
    keys = [Literal(key, ref.data_type) for key in part]
    listed = Literal(list(part), DataType.list_of(ref.data_type))
    predicate = conjunction([Call("in_list", (ref, listed), DataType.BOOLEAN), *rest])

    def value_of(node: Expression) -> Expression:
        if not isinstance(node, Parameter):
            return node
        if node.number == number and node.data_type == ref.data_type:
            return ref
        found = [Literal(values[node.number].value, node.data_type) for values in part.values()]
        if all(each == found[0] for each in found):
            return found[0]
        branches = zip((equality(ref, key, is_null_safe=False) for key in keys), found, strict=True)
        return Case(tuple(branches), Literal(None, node.data_type), node.data_type)

    if isinstance(change, Delete):
        return replace(change, predicate=predicate)
    assignments = tuple((column, transform(value, value_of)) for column, value in change.assignments)
    return replace(change, assignments=assignments, predicate=predicate)
