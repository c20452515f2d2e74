"""Conversion of chunks to and from Arrow, by the PyCapsule protocol.

Exported are the visible rows, as a struct with a field c0, c1 … per column, since consumers know nothing of hidden
rows; a StreamChunk appends its ops as `_op`, so that no consumer mistakes a deleted row for an inserted one. Nothing is
copied where no row is hidden. Any object that implements the protocol can be imported: arrays and tables of pyarrow,
polars and pandas, results of DuckDB, other chunks. `arrow_import` validates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from relational.chunk.arrow_import import imported
from relational.types import DataType

OP_COLUMN = "_op"  # uint8, the values of Op


def rows_to_arrow(arrays: Sequence[pa.Array], rows: int, ops: np.ndarray | None) -> pa.StructArray:
    """Columns of `rows` rows, and their ops if any, as one array that shares their memory."""
    fields = [pa.field(f"c{at}", array.type) for at, array in enumerate(arrays)]
    parts = list(arrays)
    if ops is not None:
        fields.append(pa.field(OP_COLUMN, pa.uint8(), nullable=False))
        parts.append(pa.array(ops))
    return pa.Array.from_buffers(pa.struct(fields), rows, [None], children=parts)


def array_from(source: Any) -> pa.Array | pa.ChunkedArray:
    """The values of an object that implements the protocol. TypeError for any other."""
    if isinstance(source, (pa.Array, pa.ChunkedArray)):
        return source
    if hasattr(source, "__arrow_c_array__"):
        return pa.array(source)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.chunked_array(source)
    raise TypeError(f"a {type(source).__name__} does not speak Arrow's PyCapsule protocol")


def rows_from(source: Any) -> tuple[list[str], list[pa.Array | pa.ChunkedArray], int]:
    """(names, columns, rows) of a table, a batch or a struct of any library.

    A NULL struct has no row: ValueError. TypeError for an object that does not implement the protocol.
    """
    if isinstance(source, (pa.RecordBatch, pa.Table)):
        return source.schema.names, source.columns, source.num_rows
    values = array_from(source)
    if not pa.types.is_struct(values.type):
        raise ValueError(f"rows are structs, not {values.type}")
    if values.null_count:
        raise ValueError(f"{values.null_count} rows are NULL as a whole")
    names = [field.name for field in values.type]
    if isinstance(values, pa.ChunkedArray):
        return names, values.flatten(), len(values)
    return names, values.flatten(), len(values)


def imported_columns(names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
    """Foreign columns converted to the closest types of ours, validated. BindError for a type without a counterpart,
    InvalidValue names a column and a row.
    """
    return [imported(array, DataType.from_arrow(array.type), name) for name, array in zip(names, columns, strict=True)]


def changes_from(source: Any) -> tuple[list[pa.Array], np.ndarray]:
    """(columns without `_op`, ops uint8[rows]) of a table; without `_op` all rows are inserts.

    ValueError for an invalid op or a null among them; also raises the errors of `imported_columns`.
    """
    names, columns, rows = rows_from(source)
    pairs = [(name, column) for name, column in zip(names, columns, strict=True) if name != OP_COLUMN]
    kept = imported_columns([name for name, _ in pairs], [column for _, column in pairs])
    if len(kept) == len(columns):
        return kept, np.zeros(rows, np.uint8)
    given = columns[names.index(OP_COLUMN)].cast(pa.int64())
    ops = given.to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given.to_numpy()
    if given.null_count or (rows and not 0 <= ops.min() <= ops.max() <= 3):
        raise ValueError(f"ops are 0 to 3, not {sorted(set(given.to_pylist()), key=str)}")
    return kept, np.ascontiguousarray(ops, dtype=np.uint8)
