"""Checks of INSERT, UPDATE and DELETE on a table, shared by SQL and the fluent API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError
from relational.expr.bind import convert, convert_all, error_span, is_unknown, unknown
from relational.expr.coercion import can_assign
from relational.expr.expression import Call, Expression, Literal
from relational.expr.unbound import TextSpan
from relational.types.data_type import DataType


def writable(table: TableCatalog, span: TextSpan | None = None) -> TableCatalog:
    """The table if statements may write it; BindError for a view and for a table written by a connector."""
    if table.kind is not TableKind.TABLE:
        writer = "connector" if table.kind is TableKind.SOURCE else "query"
        raise BindError(f"{table.name!r} is {table.kind.one}: it changes with its {writer} only", **error_span(span))
    if table.connector is not None:
        raise BindError(f"table {table.name!r} is written by its connector only", **error_span(span))
    return table


def retractable(table: TableCatalog, statement: str, span: TextSpan | None = None) -> TableCatalog:
    """The table if its rows can be updated or deleted; BindError for an append-only one."""
    if writable(table, span).is_append_only:
        raise BindError(f"{statement} of append-only table {table.name!r}", **error_span(span))
    return table


def column_of(table: TableCatalog, name: str, span: TextSpan | None = None) -> int:
    """The index of a visible column; BindError with a suggestion."""
    for index in table.visible_indices:
        if table.columns[index].name == name:
            return index
    known = [table.columns[index].name for index in table.visible_indices]
    raise BindError(unknown("column", name, known), **error_span(span))


def updatable(table: TableCatalog, column: int, span: TextSpan | None = None) -> int:
    """The column if it can be updated; BindError for one of the primary key."""
    if column in table.pk_indices:
        name = table.columns[column].name
        raise BindError(f"primary key column {name!r} cannot be updated: delete and insert", **error_span(span))
    return column


def assigned(value: Expression, table: TableCatalog, column: int, span: TextSpan | None = None) -> Expression:
    """`value` cast to the type of its target column; BindError if it cannot be stored there."""
    return _fitted(value, table.columns[column].name, table.columns[column].data_type, span)


def assigned_all(
    cells: Sequence[tuple[Expression, TextSpan | None]], table: TableCatalog, column: int
) -> list[Expression]:
    """Values, each with its span, cast to the types of their target columns; BindError at the first that cannot be."""
    name, data_type = table.columns[column].name, table.columns[column].data_type
    for value, span in cells:
        _check_assignable(value, name, data_type, span)
    try:
        return convert_all([value for value, _ in cells], [data_type] * len(cells))
    except BindError:
        return [convert(value, data_type, span) for value, span in cells]


def default_of(value: Expression, name: str, data_type: DataType, span: TextSpan | None = None) -> Any:
    """`value` as a constant in the type of column `name`; BindError if it is not constant, or does not fit."""
    fitted = _fitted(value, name, data_type, span)
    if not isinstance(fitted, Literal):
        raise BindError(f"the DEFAULT of column {name!r} must be a constant", **error_span(span))
    return fitted.value


def _fitted(value: Expression, name: str, data_type: DataType, span: TextSpan | None) -> Expression:
    _check_assignable(value, name, data_type, span)
    return convert(value, data_type, span)


def _check_assignable(value: Expression, name: str, data_type: DataType, span: TextSpan | None) -> None:
    if not is_unknown(value) and not _can_assign(value, data_type):
        raise BindError(
            f"column {name!r} is {data_type}, this is {value.data_type}: write a CAST", **error_span(span)
        )


def _can_assign(value: Expression, data_type: DataType) -> bool:
    """Whether the value may be stored; texts inside of ROW (…) and ARRAY[…] are of any type."""
    if isinstance(value, Call) and value.function in ("row", "array") and value.data_type.kind is data_type.kind:
        types = data_type.children if value.function == "row" else data_type.children * len(value.args)
        if len(types) == len(value.args):
            return all(is_unknown(arg) or _can_assign(arg, each) for arg, each in zip(value.args, types, strict=True))
    return can_assign(value.data_type, data_type)


def stored_row(table: TableCatalog, values: Mapping[int, Expression]) -> tuple[Expression, ...]:
    """One value for each stored column; its default if none is given, NULL for a generated row id."""
    return tuple(
        values.get(index, Literal(column.default, column.data_type)) for index, column in enumerate(table.columns)
    )
