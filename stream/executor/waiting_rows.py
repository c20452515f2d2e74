"""The rows that wait in a state table until a bound that rises reaches their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from relational.chunk import Op, StreamChunk
from relational.table.key_ranges import RowRange
from relational.table.state_table import StateTable
from stream.executor.base import slices

ROWS_AT_ONCE = 1 << 18
"""That are read before what is deleted of them may leave memory."""


def reached_rows(
    table: StateTable, bound: object, *, is_inclusive: bool, op: Op, width: int, chunk_rows: int, since: object = None
) -> Iterator[StreamChunk]:
    """Removes the rows from `table` whose first key column is below `bound`, or at it if `is_inclusive`: their first
    `width` columns, as changes of kind `op`. NULL is not reached. `since`: no row is below it; None: that is unknown.
    """
    rows = ROWS_AT_ONCE
    while rows >= ROWS_AT_ONCE:
        rows = 0
        with closing(table.scan_within(RowRange(since, bound, includes_upper=is_inclusive))) as reached:
            for chunk in reached:
                table.write_slice(StreamChunk(chunk.columns, np.full(chunk.capacity, Op.DELETE, np.uint8)))
                output = StreamChunk(chunk.columns[:width], np.full(chunk.capacity, op, np.uint8))
                yield from slices(output, chunk_rows)
                rows += chunk.capacity
                if rows >= ROWS_AT_ONCE:
                    break
