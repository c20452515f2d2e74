"""Chunks as Arrow record batches and back, with ops and visibility as columns of their own.

For what leaves the process: files, Spark, other engines. Hidden rows travel too, so that a chunk comes back
as it was.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import StreamChunk
from relational.types import Schema

OP_COLUMN = "_op"  # uint8, the numbers of Op
VISIBLE_COLUMN = "_visible"  # bool; left out where every row is visible


def to_record_batch(chunk: DataChunk, schema: Schema) -> pa.RecordBatch:
    """All rows of a chunk, its columns named by `schema`, then `_op` if it is a StreamChunk, then `_visible`.

    Columns are shared, not copied. ValueError where a column of the schema has one of the two names.
    """
    arrays, fields = chunk.arrays, list(schema.arrow)
    taken = {OP_COLUMN, VISIBLE_COLUMN}.intersection(schema.names)
    if taken:
        raise ValueError(f"a chunk with a column named {taken.pop()!r} cannot become a record batch")
    if isinstance(chunk, StreamChunk):
        arrays.append(pa.array(chunk.ops))
        fields.append(pa.field(OP_COLUMN, pa.uint8(), nullable=False))
    if chunk.visibility is not None:
        arrays.append(pa.array(chunk.visibility.astype(np.bool_)))
        fields.append(pa.field(VISIBLE_COLUMN, pa.bool_(), nullable=False))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def from_record_batch(batch: pa.RecordBatch) -> DataChunk:
    """The chunk of a record batch: a StreamChunk if it has `_op`, else a DataChunk.

    ValueError for an op that is none, or a null among ops or visibility.
    """
    names = batch.schema.names
    columns = [batch.column(i) for i, name in enumerate(names) if name not in (OP_COLUMN, VISIBLE_COLUMN)]
    visibility = None
    if VISIBLE_COLUMN in names:
        visibility = _dense(batch.column(VISIBLE_COLUMN).cast(pa.uint8()))
    if OP_COLUMN not in names:
        return DataChunk(columns, visibility, capacity=batch.num_rows)
    ops = _dense(batch.column(OP_COLUMN).cast(pa.uint8()))
    if len(ops) and ops.max() > 3:
        raise ValueError(f"{ops.max()} is no op: they are 0 to 3")
    return StreamChunk(columns, ops, visibility)


def _dense(array: pa.Array) -> np.ndarray:
    if array.null_count:
        raise ValueError("ops and visibility have no nulls")
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False), dtype=np.uint8)
