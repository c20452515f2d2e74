"""The net changes of a chunk: at most one deletion and one insertion for each stream key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relational.chunk import Op, StreamChunk
from relational.hash.key_ids import KeyInterner


def net_changes(chunk: StreamChunk, key: Sequence[int]) -> StreamChunk:
    """The visible changes of `chunk`, whose stream key are the columns `key`, without those that others of the chunk
    undo: of each key the row that was there before, as a deletion, then the row that is there after it, as an
    insertion; both are one update, unless the rows are equal. The keys come in the order of their first change. `chunk`
    itself if that is what it has."""
    chunk = chunk.compact()
    if not chunk.op_bits & Op.DELETE:
        return chunk
    columns = [chunk.columns[column] for column in key]
    numbers = KeyInterner([column.data_type for column in columns]).find(columns, rows=chunk.capacity)
    rows = np.arange(chunk.capacity, dtype=np.int32)
    bounds = np.empty((int(numbers.max(initial=-1)) + 1, 2), np.int32)  # first and last change of each key
    bounds[numbers[::-1], 0] = rows[::-1]
    bounds[numbers, 1] = rows
    is_deletion = (chunk.ops & Op.DELETE).astype(np.bool_)
    kept = np.stack([is_deletion[bounds[:, 0]], ~is_deletion[bounds[:, 1]]], axis=1)
    is_update = kept[:, 0] & kept[:, 1]
    ops = np.where(is_update[:, None], (Op.UPDATE_DELETE, Op.UPDATE_INSERT), (Op.DELETE, Op.INSERT)).astype(np.uint8)
    taken, ops = bounds[kept], ops[kept]
    if len(taken) != chunk.capacity or not (np.array_equal(taken, rows) and np.array_equal(ops, chunk.ops)):
        chunk = chunk.take(taken).with_ops(ops)
    return chunk.without_unchanged_updates().compact()
