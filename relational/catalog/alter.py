"""Versions of a table's columns, as pure functions from one catalog to the next.

A new column is appended under an id that no column ever had, with its default for existing rows; the id of a dropped
column is never reused. No row is rewritten: values name their columns by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from relational.catalog.names import check_name
from relational.catalog.objects import (
    TTL_VERSION,
    ColumnCatalog,
    ConflictBehaviour,
    RowFormat,
    TableCatalog,
    TableKind,
    value_columns,
)
from relational.errors import CatalogError, Duplicate, NotFound
from relational.types.data_type import DataType
from relational.types.ordering import SortKey


def with_column(
    table: TableCatalog,
    name: str,
    data_type: DataType,
    default: Any = None,
    *,
    not_null: bool = False,
    max_length: int | None = None,
) -> TableCatalog:
    """The next version of `table`, with one more column. Duplicate if the name exists; CatalogError for a default on a
    table stored as one entry per value, and for NOT NULL without a default, since the table has rows.
    """
    _check_alterable(table)
    if not_null and default is None:
        raise CatalogError(
            f"the rows that table {table.name!r} has would be NULL in {name!r}: give it a DEFAULT", name=table.name
        )
    if default is not None and table.row_format is RowFormat.CELL:
        raise CatalogError(
            f"a row of table {table.name!r} has no entry for NULL, so the rows there are can have no other default:"
            f" add {name!r} without one", name=table.name,
        )
    if any(column.name == name for column in table.columns):
        raise Duplicate(f"table {table.name!r} has a column {name!r} already", name=table.name)
    column = ColumnCatalog(
        name, _free_id(table), data_type, default=default, not_null=not_null, max_length=max_length
    )
    return _version(table, (*table.columns, column), range(len(table.columns)))


def without_column(table: TableCatalog, name: str) -> TableCatalog:
    """The next version of `table`, without the column. NotFound; CatalogError for a key column, or the last one."""
    _check_alterable(table)
    position = column_index(table, name)
    if position in {*table.pk_indices, *table.stream_key, *table.distribution_key}:
        raise CatalogError(
            f"column {name!r} is part of the primary key of table {table.name!r}: create another table with the"
            " key you want and insert the rows there",
            name=table.name,
        )
    if table.declared_watermark is not None and table.declared_watermark[0] == position:
        raise CatalogError(
            f"column {name!r} has the watermark of table {table.name!r}: create another table without it and insert"
            " the rows there",
            name=table.name,
        )
    if table.visible_indices == (position,):
        raise CatalogError(
            f"{name!r} is the only column of table {table.name!r}: DROP TABLE drops it all", name=table.name
        )
    kept = [index for index in range(len(table.columns)) if index != position]
    return _version(table, [table.columns[index] for index in kept], kept)


def with_ttl(table: TableCatalog, ttl_ms: int) -> TableCatalog:
    """The next version of `table`, whose rows expire after `ttl_ms`. CatalogError where rows may change otherwise
    [R31], and for a longer time than now: rows that are gone must not come back, and may still be stored.
    """
    if table.kind is not TableKind.TABLE:
        raise CatalogError(f"{table.name!r} is {table.kind.one}: only a table has a ttl", name=table.name)
    if not table.is_append_only or table.conflict is ConflictBehaviour.OVERWRITE:
        needed = "that is APPEND ONLY" if not table.is_append_only else "without ON CONFLICT OVERWRITE"
        raise CatalogError(f"ttl needs rows that are never changed: a table {needed}", name=table.name)
    if 0 < table.ttl_ms < ttl_ms:
        raise CatalogError(
            f"the ttl of table {table.name!r} can only be made shorter: rows that expired would come back until"
            " compaction has dropped them",
            name=table.name,
        )
    version = max(table.version, TTL_VERSION)
    return replace(table, ttl_ms=ttl_ms, schema_version=table.schema_version + 1, version=version)


def with_column_name(table: TableCatalog, name: str, new: str) -> TableCatalog:
    """The next version of `table`, in which the column `name` is called `new`. NotFound, Duplicate, CatalogError."""
    _check_alterable(table)
    position = column_index(table, name)
    check_name(new, "a column")
    if any(column.name == new for column in table.columns):
        raise Duplicate(f"table {table.name!r} has a column {new!r} already", name=table.name)
    columns = list(table.columns)
    columns[position] = replace(columns[position], name=new)
    return _version(table, columns, range(len(columns)))


def column_index(table: TableCatalog, name: str) -> int:
    """The index of a visible column; NotFound with the closest existing name."""
    known = {table.columns[index].name: index for index in table.visible_indices}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFound(f"table {table.name!r} has no column {name!r}{hint}", name=name)
    return known[name]


def _check_alterable(table: TableCatalog) -> None:
    if table.kind is not TableKind.TABLE:
        raise CatalogError(
            f"{table.name!r} is {table.kind.one}: its columns are those of its query; drop it and create it anew",
            name=table.name,
        )
    if table.connector is not None:
        raise CatalogError(
            f"the rows of table {table.name!r} come from a connector, which is configured with its columns: create a "
            "table with the columns you want, from the same connector",
            name=table.name,
        )


def _free_id(table: TableCatalog) -> int:
    return max(table.next_column_id, 1 + max(table.column_ids, default=-1))


def _version(table: TableCatalog, columns: Sequence[ColumnCatalog], kept: Sequence[int]) -> TableCatalog:
    """The version after `table` with `columns`, the first of which are the old columns at the indices `kept`."""
    moved = {old: new for new, old in enumerate(kept)}
    pk = tuple(SortKey(moved[key.column], key.order) for key in table.pk)
    return replace(
        table,
        columns=tuple(columns),
        pk=pk,
        stream_key=tuple(moved[index] for index in table.stream_key),
        distribution_key=tuple(moved[index] for index in table.distribution_key),
        value_indices=value_columns(columns, pk),
        row_id_index=None if table.row_id_index is None else moved[table.row_id_index],
        schema_version=table.schema_version + 1,
        next_column_id=max(_free_id(table), 1 + max(column.column_id for column in columns)),
    )
