"""The rows of one table in a state store: the key and the value of each, whatever the row format of the table.

`RowStore` is the interface through which tables read and write, independent of row formats; any thread. `WholeRows`
stores a row as one entry. `CachedRows` wraps another RowStore and caches the newest rows of a table with a single
writer in memory, so that repeated lookups by key do not read the store; one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStore, StateStoreChanges, StateStoreIterator
from relational.table.row_cache import RowCache


class RowStore(ABC):
    """Reads and writes rows by user key, with values in the value encoding."""

    keeps_old = False  # whether `ingest` benefits from the old values of rows

    @abstractmethod
    def get_many(self, keys: BinaryColumn, epoch: Epoch) -> BinaryColumn:
        """The value of each row; null if there is none."""

    @abstractmethod
    def scan(
        self, key_range: KeyRange, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> StateStoreIterator:
        """The rows of the range in key order, at most `limit`."""

    @abstractmethod
    def scan_prefixes(
        self, prefixes: BinaryColumn, epoch: Epoch, *, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        """As `StateStore.scan_prefixes`, for rows. OverflowError if the result exceeds 2 GiB."""

    @abstractmethod
    def scan_ranges(
        self, starts: BinaryColumn, ends: BinaryColumn, epoch: Epoch, *, limit: int
    ) -> tuple[np.ndarray, KvBatch]:
        """(int32[n]: the range of each result row, ascending; the first `limit` rows of each range of user keys, in key
        order). A null among `ends`: to the last key. OverflowError if the result exceeds 2 GiB."""

    @abstractmethod
    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        """As `StateStore.changes`, for rows. REQUIRES that `since` remains readable to the end."""

    @abstractmethod
    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        """Writes the rows of `batch`; a null value deletes. `old`: the old values, null where unknown or absent; None
        if they are not kept.
        """


class WholeRows(RowStore):
    """Stores a row as one entry."""

    def __init__(self, store: StateStore):
        self._store = store

    def get_many(self, keys: BinaryColumn, epoch: Epoch) -> BinaryColumn:
        return self._store.get_many(keys, epoch)

    def scan(
        self, key_range: KeyRange, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> StateStoreIterator:
        return self._store.scan(key_range, epoch, reverse=reverse, limit=limit)

    def scan_prefixes(
        self, prefixes: BinaryColumn, epoch: Epoch, *, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        return self._store.scan_prefixes(prefixes, epoch, limit=limit)

    def scan_ranges(
        self, starts: BinaryColumn, ends: BinaryColumn, epoch: Epoch, *, limit: int
    ) -> tuple[np.ndarray, KvBatch]:
        return self._store.scan_many(starts, epoch, ends=ends, limit=limit)

    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        return self._store.changes(key_range, since, until)

    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        self._store.ingest_batch(batch, epoch, local_only=local_only)


class CachedRows(RowStore):
    """REQUIRES that every read is at the table's newest epoch, and every write to it is made through this object."""

    def __init__(self, rows: RowStore, cache: RowCache):
        self._rows, self._cache, self.keeps_old = rows, cache, rows.keeps_old

    def get_many(self, keys: BinaryColumn, epoch: Epoch) -> BinaryColumn:
        return self._cache.get_many(keys, lambda unknown: self._rows.get_many(unknown, epoch))

    def scan(
        self, key_range: KeyRange, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> StateStoreIterator:
        return self._rows.scan(key_range, epoch, reverse=reverse, limit=limit)

    def scan_prefixes(
        self, prefixes: BinaryColumn, epoch: Epoch, *, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        return self._rows.scan_prefixes(prefixes, epoch, limit=limit)

    def scan_ranges(
        self, starts: BinaryColumn, ends: BinaryColumn, epoch: Epoch, *, limit: int
    ) -> tuple[np.ndarray, KvBatch]:
        return self._rows.scan_ranges(starts, ends, epoch, limit=limit)

    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        return self._rows.changes(key_range, since, until)

    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        try:
            self._rows.ingest(batch, old, epoch, local_only=local_only)
        except BaseException:
            self._cache.clear()  # the write may have succeeded in part
            raise
        self._cache.update(batch)
