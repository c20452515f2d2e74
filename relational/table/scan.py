"""Rows of user-key ranges of one table, as batches.

One vnode's rows lie together in key order; a scan over several vnodes either takes one range after the other
or merges them by what follows the vnode [R5]. Neither holds more than a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStoreIterator
from relational.table.overlay import merged, rows_until
from relational.table.row_layout import RowStore

MERGE_ROWS = 512  # rows that a merge holds of each range


def concatenated(
    store: RowStore,
    ranges: Sequence[KeyRange],
    epoch: Epoch,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Iterator[KvBatch]:
    """Each range in key order, one range after the other; in reverse from the last to the first."""
    left = limit
    for key_range in reversed(ranges) if reverse else ranges:
        if left is not None and left <= 0:
            return
        for batch in _batches(store.scan(key_range, epoch, reverse=reverse, limit=left)):
            left = None if left is None else left - len(batch)
            yield batch


def _batches(rows: StateStoreIterator) -> Iterator[KvBatch]:
    with rows:
        while (batch := rows.next_batch()) is not None:
            yield batch


def in_key_order(
    store: RowStore,
    ranges: Sequence[KeyRange],
    epoch: Epoch,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Iterator[KvBatch]:
    """The rows of all ranges, which lie in different vnodes, in order of the table key behind the vnode.

    They are those of the call, whenever the first one is asked for: a later commit may bring a watermark that hides
    some at this very epoch.
    """
    opened = [store.scan(part, epoch, reverse=reverse, limit=limit) for part in ranges]
    return _batches(opened[0]) if len(opened) == 1 else _merged(opened, reverse, limit)


def _merged(opened: Sequence[StateStoreIterator], reverse: bool, left: int | None) -> Iterator[KvBatch]:
    cursors = [_Cursor(rows) for rows in opened]
    try:
        while left is None or left > 0:
            batch = _next_merged(cursors, reverse)
            if batch is None:
                return
            if left is not None:
                rows = min(left, len(batch))
                batch = KvBatch(batch.keys.slice(0, rows), batch.values.slice(0, rows))
                left -= rows
            yield batch
    finally:
        for cursor in cursors:
            cursor.rows.close()


class _Cursor:
    """One range: the batch in hand and the first of its rows that is still to come."""

    __slots__ = ("at", "batch", "is_done", "rows")

    def __init__(self, rows: StateStoreIterator):
        self.rows = rows
        self.batch: KvBatch | None = None
        self.at = 0
        self.is_done = False

    def fill(self) -> bool:
        """Whether there is a row in hand."""
        if not self.is_done and (self.batch is None or self.at == len(self.batch)):
            self.batch, self.at = self.rows.next_batch(MERGE_ROWS), 0
            self.is_done = self.batch is None
        return self.batch is not None

    @property
    def last_key(self) -> bytes:
        """Of the batch in hand."""
        assert self.batch is not None
        return self.batch.keys[len(self.batch) - 1]


def _next_merged(cursors: Sequence[_Cursor], reverse: bool) -> KvBatch | None:
    """All rows in hand up to the nearest end of a batch: beyond it a range may have rows not yet read."""
    filled = [cursor for cursor in cursors if cursor.fill()]
    if not filled:
        return None
    ends_of_batches = (cursor.last_key for cursor in filled)
    bound = (max if reverse else min)(ends_of_batches, key=lambda key: key[USER_KEY_PREFIX_BYTES:])
    starts = np.array([cursor.at for cursor in filled], np.int64)
    for cursor in filled:
        cursor.at = rows_until(cursor.batch, cursor.at, bound, USER_KEY_PREFIX_BYTES, reverse)
    ends = np.array([cursor.at for cursor in filled], np.int64)
    return merged([cursor.batch for cursor in filled], starts, ends, USER_KEY_PREFIX_BYTES, reverse)
