"""The rows of one table in a state store: the key and the value of each, whatever the row format of the table.

`RowStore` is the interface that tables read and write through, which keeps row formats out of them; any thread.
`WholeRows` stores a row as one entry. `CachedRows` wraps another RowStore and keeps the newest rows of a table with a
single writer in memory, so that repeated lookups by key do not read the store; one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStore, StateStoreChanges, StateStoreIterator
from relational.table.row_cache import RowCache


class RowStore(ABC):
    """User keys of rows, and their values in the value encoding."""

    keeps_old = False  # whether `ingest` profits from the former values of rows

    @abstractmethod
    def get_many(self, keys: BinaryColumn, epoch: Epoch) -> BinaryColumn:
        """The value of each row; null where there is none."""

    @abstractmethod
    def scan(
        self, key_range: KeyRange, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> StateStoreIterator:
        """The rows of the range in order of their keys, at most `limit`."""

    @abstractmethod
    def scan_prefixes(
        self, prefixes: BinaryColumn, epoch: Epoch, *, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        """As `StateStore.scan_prefixes`, of rows. OverflowError when the answer passes 2 GiB."""

    @abstractmethod
    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        """As `StateStore.changes`, of rows. REQUIRES that `since` stays readable to the end."""

    @abstractmethod
    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        """The rows of `batch` become its values, a null one being gone. `old`: what they were before, null where
        that is unknown, or nothing; None where it is not kept.
        """


class WholeRows(RowStore):
    """A row is one entry."""

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

    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        return self._store.changes(key_range, since, until)

    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        self._store.ingest_batch(batch, epoch, local_only=local_only)


@dataclass(frozen=True, slots=True)
class RowCacheCounts:
    """Statistics of a row cache, for `Metrics.watch`."""

    row_cache_rows: int  # known absences included
    row_cache_bytes: int  # touched so far, of the budget
    row_cache_hits: int  # keys
    row_cache_misses: int
    row_cache_evictions: int

    @classmethod
    def of(cls, cache: RowCache) -> RowCacheCounts:
        return cls(len(cache), cache.held_bytes, cache.hits, cache.misses, cache.evictions)


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

    def changes(self, key_range: KeyRange, since: Epoch, until: Epoch) -> StateStoreChanges:
        return self._rows.changes(key_range, since, until)

    def ingest(self, batch: WriteBatch, old: BinaryColumn | None, epoch: Epoch, *, local_only: bool = False) -> None:
        try:
            self._rows.ingest(batch, old, epoch, local_only=local_only)
        except BaseException:
            self._cache.clear()  # some of it may be written
            raise
        self._cache.update(batch)
