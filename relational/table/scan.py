"""Scans of rows, as batches: over ranges of user keys, and under many key prefixes at once.

The rows of one vnode are contiguous and in key order. A scan over several vnodes either concatenates their ranges or
merges them by the key bytes after the vnode [R5]. Neither holds more than a bounded number of rows.

The rows under many prefixes are read from the store with one call for many prefixes, and the operations of the current
epoch are overlaid on them. A prefix with many rows is read alone, batch by batch; where the result of a call exceeds
2 GiB all the same, the prefixes are split in halves and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange, successor_of_prefix
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStoreIterator
from relational.errors import ConsistencyError
from relational.table.key_ranges import KeyRanges
from relational.table.mem_table import MemTable
from relational.table.overlay import first_rows, merged, overlay, rows_until
from relational.table.row_layout import RowStore

MERGE_ROWS = 512  # rows that a merge buffers per range
SHORT_ROWS = 32  # of each range that are read in one call with those of all others
MAX_FETCHED = 1 << 20  # limit on the rows read under one prefix by `first_under`
ALL_ROWS = 1 << 62
PREFIXES_AT_ONCE = 1_024
ROWS_AT_ONCE = 1 << 16  # under one prefix; where there are more they are read batch by batch


def concatenated(
    store: RowStore,
    ranges: Sequence[KeyRange],
    epoch: Epoch,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Iterator[KvBatch]:
    """Each range in key order, range after range; in reverse from the last to the first."""
    left = limit
    for key_range in reversed(ranges) if reverse else ranges:
        if left is not None and left <= 0:
            return
        for batch in _batches(store.scan(key_range, epoch, reverse=reverse, limit=left)):
            left = None if left is None else left - len(batch)
            yield batch


def within(
    store: RowStore,
    ranges: KeyRanges,
    epoch: Epoch,
    *,
    ordered: bool = False,
    reverse: bool = False,
    limit: int | None = None,
) -> Iterator[KvBatch]:
    """The rows of ascending ranges, at most `limit`: `ordered` as `in_key_order`, else as `concatenated` but longer
    ranges after all short ones. One call of the store reads the first rows of all ranges, which is all of most."""
    if len(ranges) < 2 or reverse or (limit is not None and limit <= 0):
        read = in_key_order if ordered else concatenated
        return read(store, ranges, epoch, reverse=reverse, limit=limit) if ranges else iter(())
    most = SHORT_ROWS if limit is None or limit > MERGE_ROWS else limit
    starts, ends = BinaryColumn.from_pylist(list(ranges.starts)), BinaryColumn.from_pylist(list(ranges.ends))
    owners, first = store.scan_ranges(starts, ends, epoch, limit=most)
    counts = np.bincount(owners, minlength=len(ranges))
    longer = np.flatnonzero(counts == most) if most != limit else np.empty(0, np.int64)
    if not ordered:
        lasts = np.cumsum(counts)[longer] - 1
        nexts = [successor_of_prefix(first.keys[last]) for last in lasts]  # a row may have several entries
        pairs = zip(nexts, longer.tolist(), strict=True)
        left = [KeyRange(start, ranges.ends[at]) for start, at in pairs if start is not None]
        return _limited(first, left, store, epoch, limit)
    if len(longer):
        return in_key_order(store, ranges, epoch, limit=limit)
    return _limited(merged([first], [0], [len(first)], USER_KEY_PREFIX_BYTES), (), store, epoch, limit)


def _limited(
    first: KvBatch, ranges: Sequence[KeyRange], store: RowStore, epoch: Epoch, limit: int | None
) -> Iterator[KvBatch]:
    """A batch, then the rows of ranges, at most `limit` together."""
    if limit is not None and len(first) > limit:
        first = KvBatch(first.keys.slice(0, limit), first.values.slice(0, limit))
    if len(first):
        yield first
    yield from concatenated(store, ranges, epoch, limit=None if limit is None else limit - len(first))


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
    """The rows of all ranges, which are of different vnodes, in order of the table key after the vnode.

    The snapshot is taken at the call, even if iteration begins later: a later commit may include a watermark that hides
    some rows at this very epoch.
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
    """One range: its current batch, the index of the next row in it, and the batch after a short one."""

    __slots__ = ("ahead", "at", "batch", "is_done", "rows")

    def __init__(self, rows: StateStoreIterator):
        self.rows = rows
        self.batch: KvBatch | None = None
        self.ahead: KvBatch | None = None
        self.at = 0
        self.is_done = False

    def fill(self) -> bool:
        """Loads the next batch if needed. Returns whether there is a current row."""
        if self.batch is None or self.at == len(self.batch):
            self.batch, self.ahead, self.at = self.ahead or self._read(), None, 0
            if self.batch is not None and len(self.batch) < MERGE_ROWS:
                self.ahead = self._read()
        return self.batch is not None

    @property
    def is_last(self) -> bool:
        """Whether the range is known to have no rows after the current batch."""
        return self.is_done and self.ahead is None

    @property
    def last_key(self) -> bytes:
        """The last key of the current batch."""
        assert self.batch is not None
        return self.batch.keys[len(self.batch) - 1]

    def _read(self) -> KvBatch | None:
        batch = None if self.is_done else self.rows.next_batch(MERGE_ROWS)
        self.is_done = batch is None
        return batch


def _next_merged(cursors: Sequence[_Cursor], reverse: bool) -> KvBatch | None:
    """All loaded rows up to the nearest end of a batch beyond which its range may have rows that were not read yet."""
    filled = [cursor for cursor in cursors if cursor.fill()]
    if not filled:
        return None
    open_ends = [cursor.last_key for cursor in filled if not cursor.is_last]
    bound = (max if reverse else min)(open_ends, key=lambda key: key[USER_KEY_PREFIX_BYTES:], default=None)
    starts = np.array([cursor.at for cursor in filled], np.int64)
    for cursor in filled:
        assert cursor.batch is not None
        cursor.at = len(cursor.batch) if bound is None else rows_until(
            cursor.batch, cursor.at, bound, USER_KEY_PREFIX_BYTES, reverse)
    ends = np.array([cursor.at for cursor in filled], np.int64)
    return merged([cursor.batch for cursor in filled], starts, ends, USER_KEY_PREFIX_BYTES, reverse)


def first_under(
    store: RowStore, mem: MemTable, epoch: Epoch, keys: BinaryColumn, limit: int
) -> tuple[np.ndarray, KvBatch]:
    """(int32 row of `keys` of each result row, ascending; the first `limit` rows under each user key prefix).

    Reads more if this epoch has deleted some; ConsistencyError if that exceeds MAX_FETCHED.
    """
    asked, fetched = np.arange(len(keys), dtype=np.int32), limit
    owners, batches = [], []
    while len(asked):
        if fetched > MAX_FETCHED:
            raise ConsistencyError(f"{fetched} rows under a prefix are deleted in one epoch", table=mem.name)
        part = BinaryColumn.from_arrow(keys.to_arrow().take(asked)) if len(asked) < len(keys) else keys
        rows, stored = store.scan_prefixes(part, epoch, limit=fetched)
        found, batch, unfinished = first_rows(mem, part, rows, stored, limit, fetched)
        owners.append(asked[found])
        batches.append(batch)
        asked, fetched = asked[unfinished], fetched * 4
    if len(batches) == 1:
        return owners[0], batches[0]
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate(owners)[order], KvBatch(
        pa.concat_arrays([batch.keys.to_arrow() for batch in batches]).take(order),
        pa.concat_arrays([batch.values.to_arrow() for batch in batches]).take(order),
    )


def all_under(
    store: RowStore, newest: Callable[[], tuple[MemTable, Epoch]], keys: BinaryColumn
) -> Iterator[tuple[np.ndarray, KvBatch]]:
    """Every row under each user key prefix, in the same form, some prefixes at a time. `newest` is called for each
    part: writes between two parts are visible to the later parts.
    """
    waiting = [
        (start, min(start + PREFIXES_AT_ONCE, len(keys)))
        for start in reversed(range(0, len(keys), PREFIXES_AT_ONCE))
    ]
    while waiting:
        start, end = waiting.pop()
        part = keys.slice(start, end - start)
        mem, epoch = newest()
        try:
            rows, stored = store.scan_prefixes(part, epoch, limit=ROWS_AT_ONCE)
            many = np.flatnonzero(np.bincount(rows, minlength=end - start) >= ROWS_AT_ONCE)
        except OverflowError:
            many = np.array([(end - start) // 2])
        if len(many) and end - start == 1:
            yield from _under_one(store, mem, epoch, keys[start], start)
            continue
        if len(many):
            bounds = np.unique(np.concatenate([[start], start + many, start + many + 1, [end]])).tolist()
            waiting += reversed(list(pairwise(bounds)))
            continue
        owners, batch, _ = first_rows(mem, part, rows, stored, ALL_ROWS, ALL_ROWS)
        yield owners + np.int32(start), batch


def between(
    store: RowStore, mem: MemTable, epoch: Epoch, part: KeyRange, reverse: bool, limit: int | None
) -> Iterator[KvBatch]:
    """The rows of a range of one vnode, at most `limit`, with the operations of this epoch applied."""
    if part.is_empty or limit == 0:
        return
    left, changes = limit, mem.range(part.start, part.end)
    enough = None if limit is None else limit + len(changes)
    rows = concatenated(store, [part], epoch, reverse=reverse, limit=enough)
    if len(changes):
        rows = laid_over(rows, merged([changes], [0], [len(changes)], 0, reverse), 0, reverse)
    for batch in rows:
        if left is not None and len(batch) > left:
            batch = KvBatch(batch.keys.slice(0, left), batch.values.slice(0, left))
        yield batch
        left = None if left is None else left - len(batch)
        if left == 0:
            return


def laid_over(rows: Iterator[KvBatch], changes: KvBatch, skip: int, reverse: bool) -> Iterator[KvBatch]:
    """Batches in order of their keys without `skip` bytes, with changes in the same order applied."""
    position = 0
    for batch in rows:
        batch, position = overlay(batch, changes, position, skip, reverse)
        if len(batch):
            yield batch
    batch, _ = overlay(None, changes, position, skip, reverse)
    if len(batch):
        yield batch


def _under_one(
    store: RowStore, mem: MemTable, epoch: Epoch, prefix: bytes, owner: int
) -> Iterator[tuple[np.ndarray, KvBatch]]:
    part = KeyRange.prefix(prefix)
    changes = mem.range(part.start, part.end)
    for batch in laid_over(concatenated(store, [part], epoch), changes, 0, False):
        yield np.full(len(batch), owner, np.int32), batch
