"""The rows of one table in a state store: key and value of each, whatever the row format of the table.

Tables read and write through this alone, so that they know nothing of formats. Any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.state_store import StateStore, StateStoreChanges, StateStoreIterator


class RowStore(ABC):
    """User keys of rows, and their values in the value encoding."""

    keeps_old = False  # whether `ingest` is better for knowing what rows were before

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
