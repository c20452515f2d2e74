"""What INSERT, UPDATE and DELETE may do to a table, whichever face they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError
from relational.expr.bind import convert, convert_all, is_unknown, span, unknown
from relational.expr.coercion import can_assign
from relational.expr.expression import Expression, Literal
from relational.expr.unbound import Place
from relational.types.data_type import DataType


def writable(table: TableCatalog, place: Place | None = None) -> TableCatalog:
    """The table if statements may write it; BindError for a view and for a table fed by a connector."""
    if table.kind is not TableKind.TABLE:
        raise BindError(f"{table.name!r} is {table.kind.one}: it changes with its query only", **span(place))
    if table.connector is not None:
        raise BindError(f"table {table.name!r} is written by its connector only", **span(place))
    return table


def retractable(table: TableCatalog, statement: str, place: Place | None = None) -> TableCatalog:
    """The table if rows may be taken back from it; BindError for an append-only one."""
    if writable(table, place).is_append_only:
        raise BindError(f"{statement} of append-only table {table.name!r}", **span(place))
    return table


def column_of(table: TableCatalog, name: str, place: Place | None = None) -> int:
    """The number of a visible column; BindError with a suggestion."""
    for index in table.visible_indices:
        if table.columns[index].name == name:
            return index
    known = [table.columns[index].name for index in table.visible_indices]
    raise BindError(unknown("column", name, known), **span(place))


def updatable(table: TableCatalog, column: int, place: Place | None = None) -> int:
    """The column if it can be set; BindError for one of the primary key."""
    if column in table.pk_indices:
        name = table.columns[column].name
        raise BindError(f"primary key column {name!r} cannot be updated: delete and insert", **span(place))
    return column


def assigned(value: Expression, table: TableCatalog, column: int, place: Place | None = None) -> Expression:
    """`value` in the type of the column it is stored in; BindError where it cannot be stored there."""
    return _fitted(value, table.columns[column].name, table.columns[column].data_type, place)


def assigned_all(
    cells: Sequence[tuple[Expression, Place | None]], table: TableCatalog, column: int
) -> list[Expression]:
    """Values, each with its place, in the type of the column they are stored in; BindError at the first that cannot."""
    name, data_type = table.columns[column].name, table.columns[column].data_type
    for value, place in cells:
        _check_assignable(value, name, data_type, place)
    try:
        return convert_all([value for value, _ in cells], [data_type] * len(cells))
    except BindError:
        return [convert(value, data_type, place) for value, place in cells]


def default_of(value: Expression, name: str, data_type: DataType, place: Place | None = None) -> Any:
    """The constant that `value` is, in the type of column `name`; BindError where it is none, or does not fit."""
    fitted = _fitted(value, name, data_type, place)
    if not isinstance(fitted, Literal):
        raise BindError(f"the DEFAULT of column {name!r} must be a constant", **span(place))
    return fitted.value


def _fitted(value: Expression, name: str, data_type: DataType, place: Place | None) -> Expression:
    _check_assignable(value, name, data_type, place)
    return convert(value, data_type, place)


def _check_assignable(value: Expression, name: str, data_type: DataType, place: Place | None) -> None:
    if not is_unknown(value) and not can_assign(value.data_type, data_type):
        raise BindError(
            f"column {name!r} is {data_type}, this is {value.data_type}: write a CAST", **span(place)
        )


def stored_row(table: TableCatalog, values: Mapping[int, Expression]) -> tuple[Expression, ...]:
    """One value for each stored column; its default where none is given, NULL for a generated row id."""
    return tuple(
        values.get(index, Literal(column.default, column.data_type)) for index, column in enumerate(table.columns)
    )
