"""Converts rows from a user to a chunk with a table's stored columns; every value is checked.

Rows are tuples in the order of the visible columns, or by name if their values have names, mappings by column name,
dataclass instances by field name, or any object that can be exported to Arrow (Arrow, pandas, polars), matched by name.
One mapping, instance or tuple with names is one row. Missing columns get their defaults; a generated key is never
given. The index of a pandas frame is used as a column if the table has a column of that name, otherwise it is ignored.
Errors count rows from 0. Rows are copied: who gave them may change them as soon as they were taken."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from relational.catalog.objects import ColumnCatalog, TableCatalog
from relational.chunk import Column, DataChunk
from relational.chunk.arrow_export import rows_from
from relational.chunk.arrow_import import check_frame, imported
from relational.errors import BindError, EncodingError, InvalidValue, shortened
from relational.expr.eval import evaluate
from relational.expr.expression import Literal
from relational.result import names_of
from stream.errors import InvalidStatement

Columns = Mapping[str, pa.Array | pa.ChunkedArray]


def chunk_of_rows(table: TableCatalog, rows: Any) -> DataChunk:
    """The chunk of `rows`, with all stored columns of `table`. InvalidStatement names an invalid column or row."""
    try:
        if is_lazy(rows):
            rows = rows.collect()
        if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
            check_frame(rows)
            return _from_arrow(table, rows)
        return DataChunk.from_rows(table.schema, list(_tuples(table, rows)))
    except (EncodingError, BindError, pa.ArrowException) as error:
        raise InvalidStatement(table.name, shortened(str(error), 1_000)) from error


def is_lazy(rows: Any) -> bool:
    """Whether `rows` is a polars LazyFrame or behaves like one: its rows are available after `collect()`."""
    return type(rows).__name__ == "LazyFrame" and hasattr(rows, "collect")


def is_record(row: object) -> bool:
    """Whether it is an instance of a dataclass."""
    return dataclasses.is_dataclass(row) and not isinstance(row, type)


def owned(array: pa.Array) -> pa.Array:
    """The values in memory of their own. Arrow shares that of NumPy, so of pandas, and of others, who may write to it.
    """
    return pa.concat_arrays([array, array[:0]])


def _tuples(table: TableCatalog, rows: Iterable) -> Iterable[tuple]:
    """Each row with a value for every stored column."""
    visible = table.visible_indices
    names = [table.columns[index].name for index in visible]
    is_one = isinstance(rows, Mapping) or is_record(rows) or names_of(rows) is not None
    for number, row in enumerate([rows] if is_one else rows):
        if is_record(row):
            row = dataclasses.asdict(row)
        given = row.keys() if isinstance(row, Mapping) else names_of(row)
        if given is not None:
            _check_names(table, given, names)
            row = row if isinstance(row, Mapping) else dict(zip(given, row, strict=True))
            values = [row.get(name, table.columns[index].default) for index, name in zip(visible, names, strict=True)]
        else:
            values = list(row) if isinstance(row, (tuple, list)) else [row]
            if len(values) != len(names):
                reason = f"row {number} has {len(values)} values for {len(names)} columns"
                raise InvalidStatement(table.name, reason)
        full: list[object] = [None] * len(table.columns)
        for index, value in zip(visible, values, strict=True):
            full[index] = value
        yield tuple(full)


def _from_arrow(table: TableCatalog, rows: Any) -> DataChunk:
    visible = {table.columns[index].name: table.columns[index] for index in table.visible_indices}
    given, count = _given_columns(table, rows, visible)
    columns = []
    for column in table.columns:
        if column.is_hidden or column.name not in given:
            default = Literal(column.default, column.data_type)
            columns.append(evaluate(default, DataChunk([], capacity=count)))
        else:
            array = imported(given[column.name], column.data_type, column.name)
            columns.append(Column(owned(array), column.data_type))
    return DataChunk(columns, capacity=count)


def _given_columns(
    table: TableCatalog, rows: Any, visible: Mapping[str, ColumnCatalog]
) -> tuple[Columns, int]:
    """(the columns of `rows` by name, the number of rows)."""
    try:
        if hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, pa.Table):
            rows = pa.table(rows)
        names, arrays, count = rows_from(rows)
    except pa.ArrowException:
        if not hasattr(rows, "itertuples"):
            raise
        _check_names(table, map(str, rows.columns), list(visible))
        return _of_objects(rows, visible), len(rows)
    except (TypeError, ValueError) as error:
        raise InvalidStatement(table.name, shortened(str(error), 1_000)) from error
    index = _pandas_index(rows.schema.metadata, count) if isinstance(rows, pa.Table) else {}
    pairs = [(name, array) for name, array in zip(names, arrays, strict=True) if name in visible or name not in index]
    _check_names(table, [name for name, _ in pairs], list(visible))
    given = dict(pairs)
    for name, array in index.items():
        if name in visible and array is not None:
            given.setdefault(name, array)
    return given, count


def _pandas_index(metadata: Mapping[bytes, bytes] | None, rows: int) -> dict[str, pa.Array | None]:
    """The index of the pandas frame that a table was made of, from its metadata: the names of index columns that the
    table contains, with value None, or the column of a range index, which Arrow only describes.
    """
    note = (metadata or {}).get(b"pandas")
    if note is None:
        return {}
    found: dict[str, pa.Array | None] = {}
    for level in json.loads(note).get("index_columns", ()):
        if isinstance(level, str):
            found[level] = None
        elif level.get("name") is not None:
            found[level["name"]] = pa.array(level["start"] + level["step"] * np.arange(rows, dtype=np.int64))
    return found


def _of_objects(frame: Any, visible: Mapping[str, ColumnCatalog]) -> Columns:
    """The columns of a pandas frame for whose objects Arrow finds no common type, each value in its column's type."""
    given = {}
    for name, values in frame.items():
        column = visible[str(name)]
        try:
            present = values.astype(object).where(values.notna(), None).tolist()
            given[column.name] = Column.from_pylist(present, column.data_type).array
        except InvalidValue as error:
            raise error.named(column.name) from error
    return given


def _check_names(table: TableCatalog, given: Iterable[str], known: list[str]) -> None:
    seen = set()
    for name in given:
        if name not in known:
            listed = shortened(", ".join(known), 1_000)
            raise InvalidStatement(table.name, f"there is no column {shortened(name)!r}; there are {listed}")
        if name in seen:
            raise InvalidStatement(table.name, f"two columns are called {shortened(name)!r}")
        seen.add(name)
