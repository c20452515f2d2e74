"""MemoryStateStore: the simplest implementation of the StateStore contract.

A dict of versions beside a sorted list of keys under one lock. It is the model for tests of every other store, and a
store for tests that need no files; nothing here is fast.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort, insort_left
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import Tables
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch, check_epoch, check_pure, pure_epoch
from hummock.errors import InvalidEpoch, StoreClosed, WaitEpochTimeout
from hummock.state_store import (
    DEFAULT,
    EVERYTHING,
    ChangeBatch,
    ReadOptions,
    StateStoreChanges,
    StateStoreIterator,
    SyncResult,
    check_key_range,
    check_limit,
)

DEFAULT_WAIT_MS = 10_000
SCAN_BATCH_ROWS = 8192
Row = TypeVar("Row")


class MemoryStateStore:
    """Invariant: `_versions[key]` is newest first, with the last write of each epoch only; `_keys` is sorted."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._committed = threading.Condition(self._lock)
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[tuple[int, bytes | None, bool]]] = {}  # epoch, value, local_only
        self._sealed_epoch = 0
        self._committed_epoch = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"MemoryStateStore({len(self._keys)} keys, epoch {self._committed_epoch})"

    @property
    def committed_epoch(self) -> Epoch:
        return Epoch(self._committed_epoch)

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        with self._lock:
            self._require_open()
            epoch = check_pure(epoch)
            if epoch <= self._sealed_epoch:
                raise InvalidEpoch(epoch, f"writes go above the sealed epoch {self._sealed_epoch}")
            for key, value in batch:
                if key not in self._versions:
                    insort(self._keys, key)
                same = (epoch, local_only)
                older = [v for v in self._versions.get(key, ()) if (v[0], v[2]) != same]
                insort_left(older, (epoch, value, local_only), key=lambda version: -version[0])
                self._versions[key] = older
            return batch.size_bytes

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        """Does nothing: no row is ever hidden."""

    def announce_rules(self, tables: Tables) -> None:
        """Does nothing: no file is built."""

    def get(self, key: bytes, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> bytes | None:
        with self._lock:
            at = self._epoch_of(epoch)
            return self._visible(key, at)

    def get_many(self, keys: Any, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> BinaryColumn:
        with self._lock:
            at = self._epoch_of(epoch)
            wanted = BinaryColumn.from_arrow(keys)
            return BinaryColumn.from_pylist([self._visible(wanted[row], at) for row in range(len(wanted))])

    def scan(
        self,
        key_range: KeyRange = EVERYTHING,
        epoch: Epoch | None = None,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> MemoryScan:
        check_key_range(key_range)
        most = check_limit(limit)
        with self._lock:
            at = self._epoch_of(epoch)
            return MemoryScan(self, list(self._rows(key_range, at, reverse, most)))

    def scan_prefixes(
        self, prefixes: Any, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        wanted = BinaryColumn.from_arrow(prefixes)
        with self._lock:
            at = self._check_read(epoch)
            found = [
                (row, pair)
                for row in range(len(wanted))
                for pair in self._rows(KeyRange.prefix(wanted[row]), at, reverse, limit)
            ]
        return np.array([row for row, _ in found], dtype=np.int32), _batch([pair for _, pair in found])

    def scan_many(
        self, starts: Any, epoch: Epoch, *, ends: Any = None, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        wanted = BinaryColumn.from_arrow(starts)
        bounds = [None] * len(wanted) if ends is None else list(BinaryColumn.from_arrow(ends))
        with self._lock:
            at = self._check_read(epoch)
            found = [
                (row, pair)
                for row, (start, end) in enumerate(zip(wanted, bounds, strict=True))
                for pair in self._rows(KeyRange(start, end), at, False, limit)
            ]
        return np.array([row for row, _ in found], dtype=np.int32), _batch([pair for _, pair in found])

    def changes(
        self, key_range: KeyRange, since: Epoch, until: Epoch, options: ReadOptions = DEFAULT
    ) -> MemoryChanges:
        check_key_range(key_range)
        with self._lock:
            since, until = self._check_read(since), self._check_read(until)
            if pure_epoch(until) < pure_epoch(since):
                raise InvalidEpoch(until, f"the changes since {since} end there or later")
            rows = [(key, self._visible(key, since), self._visible(key, until)) for key in self._keys_in(key_range)]
            return MemoryChanges(self, [row for row in rows if row[1] != row[2]])

    def seal_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            self._require_open()
            epoch = check_pure(epoch)
            if epoch < self._sealed_epoch:
                raise InvalidEpoch(epoch, f"{self._sealed_epoch} is sealed already")
            self._sealed_epoch = epoch

    def sync(self, epoch: Epoch) -> SyncResult:
        with self._lock:
            self._require_open()
            epoch = check_epoch(epoch)
            if epoch > self._sealed_epoch:
                raise InvalidEpoch(epoch, f"cannot be synced while only {self._sealed_epoch} is sealed")
            return SyncResult(epoch, ())

    def commit(self, epoch: Epoch) -> None:
        """Commits everything up to `epoch`; its `local_only` rows are dropped: another node's copy replaces them."""
        with self._lock:
            epoch = check_pure(epoch)
            self.seal_epoch(epoch)
            self.sync(epoch)
            self._retain(lambda version: version[0] > epoch or not version[2])
            self._committed_epoch = epoch
            self._committed.notify_all()

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        limit_ms = DEFAULT_WAIT_MS if timeout_ms is None else timeout_ms
        with self._committed:
            self._require_open()
            if not self._committed.wait_for(
                lambda: self._is_closed or self._committed_epoch >= epoch, limit_ms / 1000
            ):
                raise WaitEpochTimeout(epoch, self._committed_epoch, limit_ms)
            self._require_open()

    def clear_uncommitted(self) -> None:
        with self._lock:
            self._require_open()
            self._retain(lambda version: version[0] <= self._committed_epoch)
            self._sealed_epoch = self._committed_epoch

    def close(self) -> None:
        with self._committed:
            self._is_closed = True
            self._keys, self._versions = [], {}
            self._committed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: then every method raises StoreClosed."""
        return self._is_closed

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store")

    def _epoch_of(self, epoch: Epoch | None) -> Epoch:
        """The epoch of a read: the committed one if it names none."""
        return self._check_read(self.committed_epoch if epoch is None else epoch)

    def _check_read(self, epoch: Epoch) -> Epoch:
        self._require_open()
        return check_epoch(epoch)

    def _visible(self, key: bytes, epoch: int) -> bytes | None:
        for written, value, _ in self._versions.get(key, ()):
            if written <= pure_epoch(epoch):
                return value
        return None

    def _keys_in(self, key_range: KeyRange) -> list[bytes]:
        begin = bisect_left(self._keys, key_range.start)
        end = len(self._keys) if key_range.end is None else bisect_left(self._keys, key_range.end)
        return self._keys[begin:end]

    def _rows(
        self, key_range: KeyRange, epoch: int, reverse: bool, limit: int | None
    ) -> Iterator[tuple[bytes, bytes]]:
        left = len(self._keys) if limit is None else limit
        keys = self._keys_in(key_range)
        for key in reversed(keys) if reverse else keys:
            if left <= 0:
                return
            value = self._visible(key, epoch)
            if value is not None:
                left -= 1
                yield key, value

    def _retain(self, keep: Any) -> None:
        kept = {key: [v for v in versions if keep(v)] for key, versions in self._versions.items()}
        self._versions = {key: versions for key, versions in kept.items() if versions}
        self._keys = sorted(self._versions)


class _MemoryRead(Generic[Row]):
    """The rows that existed when the read began."""

    def __init__(self, store: MemoryStateStore, rows: list[Row]):
        self._store, self._rows, self._next, self._is_closed = store, rows, 0, False

    def _next_rows(self, max_rows: int | None) -> list[Row]:
        if self._is_closed or self._store.is_closed:
            raise StoreClosed("the scan")
        rows = self._rows[self._next : self._next + (SCAN_BATCH_ROWS if max_rows is None else max_rows)]
        self._next += len(rows)
        return rows

    def close(self) -> None:
        self._is_closed, self._rows = True, []


class MemoryScan(_MemoryRead[tuple[bytes, bytes]], StateStoreIterator):
    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        rows = self._next_rows(max_rows)
        return _batch(rows) if rows else None


class MemoryChanges(_MemoryRead[tuple[bytes, bytes | None, bytes | None]], StateStoreChanges):
    def next_batch(self, max_rows: int | None = None) -> ChangeBatch | None:
        rows = self._next_rows(max_rows)
        columns = [BinaryColumn.from_pylist(list(column)) for column in zip(*rows, strict=True)]
        return ChangeBatch(*columns) if rows else None


def _batch(rows: list[tuple[bytes, bytes]]) -> KvBatch:
    keys = BinaryColumn.from_pylist([key for key, _ in rows])
    return KvBatch(keys, BinaryColumn.from_pylist([value for _, value in rows]))
