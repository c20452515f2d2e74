"""The rows of a chunk once for each grouping set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk

Chunk = TypeVar("Chunk", bound=DataChunk)


def expanded(chunk: Chunk, columns: Sequence[int], sets: Sequence[Sequence[int]]) -> Iterator[Chunk]:
    """For each of `sets`, positions in `columns`, a chunk with the same rows and ops: the columns of `chunk`, then
    `columns` again, NULL where they are not in the set, then the number of the set, from 1, INT. Values are shared."""
    rows = chunk.capacity
    nothing = {column: Column.nulls(chunk.columns[column].data_type, rows) for column in columns}
    for number, each in enumerate(sets, 1):
        copies = [chunk.columns[column] if at in each else nothing[column] for at, column in enumerate(columns)]
        yield chunk.with_columns([*chunk.columns, *copies, Column(pa.array(np.full(rows, number, np.int32)))])
