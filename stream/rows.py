"""Rows that a user hands over become a chunk with a table's stored columns.

Rows are tuples in the order of the visible columns, mappings by column name, or anything that gives an
Arrow table (Arrow, pandas, polars), matched by name. What is not given is the column's default; a generated key is
always left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk
from relational.errors import EncodingError
from relational.expr.evaluate import evaluate
from relational.expr.expression import Literal
from stream.errors import InvalidStatement


def chunk_of_rows(table: TableCatalog, rows: Any) -> DataChunk:
    """The chunk of `rows`, of all stored columns of `table`. InvalidStatement names what does not fit."""
    try:
        if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
            return _from_arrow(table, pa.table(rows))
        return DataChunk.from_rows(table.schema, list(_tuples(table, rows)))
    except (EncodingError, pa.ArrowException) as error:
        raise InvalidStatement(table.name, str(error)) from error


def _tuples(table: TableCatalog, rows: Iterable) -> Iterable[tuple]:
    """Each row with a value for every stored column."""
    visible = table.visible_indices
    names = [table.columns[index].name for index in visible]
    for row in rows:
        if isinstance(row, Mapping):
            _check_names(table, row, names)
            values = [row.get(name, table.columns[index].default) for index, name in zip(visible, names, strict=True)]
        else:
            values = list(row) if isinstance(row, (tuple, list)) else [row]
            if len(values) != len(names):
                raise InvalidStatement(table.name, f"a row has {len(values)} values for {len(names)} columns")
        full: list[object] = [None] * len(table.columns)
        for index, value in zip(visible, values, strict=True):
            full[index] = value
        yield tuple(full)


def _from_arrow(table: TableCatalog, rows: pa.Table) -> DataChunk:
    names = [table.columns[index].name for index in table.visible_indices]
    _check_names(table, rows.column_names, names)
    columns = []
    for column in table.columns:
        target = column.data_type.arrow
        if column.is_hidden or column.name not in rows.column_names:
            default = Literal(column.default, column.data_type)
            columns.append(evaluate(default, DataChunk([], capacity=rows.num_rows)).array)
        else:
            columns.append(rows[column.name].cast(target).combine_chunks())
    return DataChunk.from_arrow(pa.Table.from_arrays(columns, schema=table.schema.arrow))


def _check_names(table: TableCatalog, given: Iterable[str], known: list[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidStatement(table.name, f"there is no column {unknown[0]!r}; there are {', '.join(known)}")
