"""Rows stored as one entry per value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.errors import StoreClosed
from hummock.read.changes import changed_rows
from hummock.state_store import ChangeBatch, StateStore, StateStoreChanges, StateStoreIterator
from relational.encoding import CellEncoder, CellJoin
from relational.table.row_layout import RowStore

CELL_BYTES = 4  # after the key of a row: identifies its entry


class CellRows(RowStore):
    """Writes only the changed values of an update if the old row is given, which therefore must equal the stored row.
    """

    keeps_old = True

    def __init__(self, store: StateStore, cells: CellEncoder):
        self._store, self._cells = store, cells

    def get_many(self, keys: BinaryColumn, epoch: Epoch) -> BinaryColumn:
        owners, rows = self.scan_prefixes(keys, epoch)
        positions = np.full(len(keys), -1, np.int64)
        positions[owners] = np.arange(len(owners))
        taken = rows.values.to_arrow().take(pa.array(positions, mask=positions < 0))
        return BinaryColumn.from_arrow(taken)

    def scan(
        self, key_range: KeyRange, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> StateStoreIterator:
        entries = self._store.scan(key_range, epoch, reverse=reverse)
        return CellScan(entries, CellJoin(self._cells, is_reverse=reverse), self._cells.count + 1, limit)

    def scan_prefixes(
        self, prefixes: BinaryColumn, epoch: Epoch, *, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        """Re-reads entries of a prefix that the limit may have truncated before its rows were complete."""
        if limit is None:
            owners, entries = self._store.scan_prefixes(prefixes, epoch)
            return self._joined(owners, entries)
        asked = limit * (self._cells.count + 1) + 1
        while True:
            owners, entries = self._store.scan_prefixes(prefixes, epoch, limit=asked)
            owned, rows = self._joined(owners, entries)
            was_cut = np.bincount(owners, minlength=len(prefixes)) == asked
            if not (was_cut & (np.bincount(owned, minlength=len(prefixes)) <= limit)).any():
                kept = np.flatnonzero(_ranks(owned) < limit)
                return owned[kept], KvBatch(rows.keys.to_arrow().take(kept), rows.values.to_arrow().take(kept))
            asked *= 4

    def scan_ranges(
        self, starts: BinaryColumn, ends: BinaryColumn, epoch: Epoch, *, limit: int
    ) -> tuple[np.ndarray, KvBatch]:
        """One scan a range: the store does not know where a row ends."""
        found: list[KvBatch] = []
        counts = np.zeros(len(starts), np.int64)
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            with self.scan(KeyRange(start, end), epoch, limit=limit) as rows:
                while (batch := rows.next_batch()) is not None:
                    found.append(batch)
                    counts[at] += len(batch)
        owners = np.repeat(np.arange(len(starts), dtype=np.int32), counts)
        empty = pa.array([], pa.binary())
        return owners, KvBatch(pa.concat_arrays([empty, *(batch.keys.to_arrow() for batch in found)]),
                               pa.concat_arrays([empty, *(batch.values.to_arrow() for batch in found)]))

    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        return CellChanges(self, self._store.changes(key_range, since, until), since, until)

    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        """Splits the batch in halves if the entries of all rows would exceed 2 GiB."""
        try:
            keys, values = self._cells.split(batch.keys, batch.values, old)
        except OverflowError:
            half = len(batch) // 2
            if half == 0:
                raise
            for start, rows in ((0, half), (half, len(batch) - half)):
                part = WriteBatch(batch.keys.slice(start, rows), batch.values.slice(start, rows))
                self.ingest(part, None if old is None else old.slice(start, rows), epoch, local_only=local_only)
            return
        if len(keys):
            self._store.ingest_batch(WriteBatch(keys, values), epoch, local_only=local_only)

    def _joined(self, owners: np.ndarray, entries: KvBatch) -> tuple[np.ndarray, KvBatch]:
        join = CellJoin(self._cells)
        join.take(entries.keys, entries.values, owners)
        keys, values, owned = join.rows(is_end=True)
        return owned, KvBatch(keys, values)


class CellScan(StateStoreIterator):
    """The rows of a scan of entries, at most `width` entries per row as far as its format knows."""

    def __init__(self, entries: StateStoreIterator, join: CellJoin, width: int, limit: int | None):
        self._entries, self._join, self._width = entries, join, width
        self._left = limit
        self._ready: KvBatch | None = None
        self._is_done = self._is_closed = False

    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        if self._is_closed:
            raise StoreClosed("the scan was closed")
        most = _least(max_rows, self._left)
        if most == 0 or not self._fill(most):
            return None
        batch = self._ready
        assert batch is not None
        rows = len(batch) if most is None else min(most, len(batch))
        self._ready = _part(batch, rows, len(batch) - rows) if rows < len(batch) else None
        self._left = None if self._left is None else self._left - rows
        return _part(batch, 0, rows)

    def close(self) -> None:
        self._is_closed = True
        self._entries.close()

    def _fill(self, most: int | None) -> bool:
        """Whether there is a current row."""
        while self._ready is None and not self._is_done:
            entries = self._entries.next_batch(None if most is None else most * self._width + 1)
            self._is_done = entries is None
            if entries is not None:
                self._join.take(entries.keys, entries.values)
            keys, values, _ = self._join.rows(is_end=self._is_done)
            self._ready = KvBatch(keys, values) if len(keys) else None
        return self._ready is not None


class CellChanges(StateStoreChanges):
    """The rows with a changed entry, each read at both epochs."""

    def __init__(self, rows: CellRows, entries: StateStoreChanges, since: Epoch, until: Epoch):
        self._rows, self._entries, self._since, self._until = rows, entries, since, until
        self._last: bytes | None = None

    def next_batch(self, max_rows: int | None = None) -> ChangeBatch | None:
        while (entries := self._entries.next_batch(max_rows)) is not None:
            keys = self._new_keys(entries.keys)
            found = changed_rows(keys, self._rows.get_many(keys, self._since), self._rows.get_many(keys, self._until))
            if len(found):
                return found
        return None

    def close(self) -> None:
        self._entries.close()

    def _new_keys(self, entries: BinaryColumn) -> BinaryColumn:
        """The keys of the rows of ascending entries, except the last key of the previous batch."""
        keys = BinaryColumn.from_arrow(pc.binary_slice(entries.to_arrow(), 0, -CELL_BYTES).unique())
        first = keys.slice(1, len(keys) - 1) if keys[0] == self._last else keys
        self._last = keys[len(keys) - 1]
        return first


def _ranks(owners: np.ndarray) -> np.ndarray:
    """The rank of each row among those of its owner; REQUIRES owners ascending."""
    if len(owners) == 0:
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    return np.arange(len(owners)) - np.repeat(starts, np.diff(np.r_[starts, len(owners)]))


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _part(batch: KvBatch, start: int, rows: int) -> KvBatch:
    return KvBatch(batch.keys.slice(start, rows), batch.values.slice(start, rows))
