"""Rows of a table's only writer, the newest of which are remembered between two reads of the store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStoreChanges, StateStoreIterator
from relational.table.row_cache import RowCache
from relational.table.row_layout import RowStore


@dataclass(frozen=True, slots=True)
class RowCacheCounts:
    """Where a row cache stands; `Metrics.watch` takes it."""

    row_cache_rows: int  # known absences included
    row_cache_bytes: int  # touched so far, of the budget
    row_cache_hits: int  # keys
    row_cache_misses: int
    row_cache_evictions: int

    @classmethod
    def of(cls, cache: RowCache) -> RowCacheCounts:
        return cls(len(cache), cache.held_bytes, cache.hits, cache.misses, cache.evictions)


class CachedRows(RowStore):
    """REQUIRES that every read is at the table's newest epoch, and every write to it comes through here."""

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
