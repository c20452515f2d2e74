"""Reads of a StateStore, each on the ReadView that was current when it began.

ViewReads is a mixin: given `_open_view`, it implements every read method. HummockScan and HummockChanges read in
batches.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import index
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.columnar.arrow_export import table_of
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError, ObjectNotFound, StoreClosed
from hummock.iterator.batch_collector import BatchCollector
from hummock.options import ARROW_BYTES_LIMIT, StorageOptions
from hummock.read.changes import ChangeReader
from hummock.read.get import read_one
from hummock.read.multi_get import read_many
from hummock.read.range_lookup import read_prefixes, read_starts
from hummock.read.view import ReadView
from hummock.state_store import (
    DEFAULT,
    EVERYTHING,
    TABLE_BATCH_ROWS,
    ChangeBatch,
    ReadOptions,
    StateStoreChanges,
    StateStoreIterator,
)
from hummock.store.stats import ReadCounts

NO_LIMIT = 1 << 62  # rows
TABLE_BATCH_SHARE = 2  # bytes of a table's chunks in proportion to a batch: then most of their memory is huge pages

Result = TypeVar("Result")
Explain = Callable[[ReadView, HummockError], HummockError]


def cause_of(explained: HummockError, error: HummockError) -> HummockError | None:
    """The cause of an error that `explained` replaces; None if it is the same: a chain of causes has an end."""
    return None if explained is error else error


class _Source(Protocol):
    def close(self) -> None: ...


class _OnView:
    """Holds its view, and so the view's files, until it is exhausted or closed, by any thread.

    An error closes it: rows that its call had read are lost, so a later one would return fewer rows than there are.
    """

    def __init__(self, view: ReadView, source: _Source, explain: Explain):
        self._view: ReadView | None = view
        self._source, self._explain = source, explain
        self._is_closed = False
        self._failure = ""  # the error that closed it, in the words of later ones
        self._lock = threading.Lock()  # closing the store waits for the batch under construction

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "at its end" if self._view is None else "open"
        return f"{type(self).__name__}({state})"

    def _result_of(self, read: Callable[[], Result], nothing: Result) -> Result:
        """The result of `read`; releases the view when that is `nothing`, and closes on any error."""
        with self._lock:
            if self._is_closed:
                raise StoreClosed(f"the scan{self._failure}")
            if self._view is None:
                return nothing
            try:
                result = self._read(self._view, read)
            except BaseException as error:
                self._is_closed = True
                self._release()
                self._failure = f", which failed with {type(error).__name__} ({error}),"
                raise
            if result == nothing:
                self._release()
            return result

    def _read(self, view: ReadView, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except HummockError as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._release()

    def _release(self) -> None:
        self._view = None
        self._source.close()


def _most_rows(max_rows: int | None, options: StorageOptions) -> int:
    """The limit of a batch's rows. Raises TypeError, before anything is read."""
    return options.scan_batch_rows if max_rows is None else min(index(max_rows), NO_LIMIT)


class HummockScan(_OnView, StateStoreIterator):
    """One scan."""

    def __init__(
        self, view: ReadView, collector: BatchCollector, options: StorageOptions, limit: int | None, explain: Explain
    ):
        super().__init__(view, collector, explain)
        self._collector, self._options = collector, options
        self._left = NO_LIMIT if limit is None else limit

    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        rows = _most_rows(max_rows, self._options)

        def read() -> list[KvBatch]:
            batch = self._collector.next_batch(min(rows, self._left), self._options.scan_batch_bytes)
            return [] if batch is None else [batch]

        batches = self._next(read) if rows > 0 else []
        return batches[0] if batches else None

    def next_batches(self) -> list[KvBatch]:
        """The next large batches, a few per acquisition of the GIL; none at the end."""
        most_bytes = min(TABLE_BATCH_SHARE * self._options.scan_batch_bytes, ARROW_BYTES_LIMIT)
        return self._next(lambda: self._collector.next_batches(self._left, TABLE_BATCH_ROWS, most_bytes))

    def to_arrow(self) -> pa.Table:
        found: list[KvBatch] = []
        with self:
            while batches := self.next_batches():
                found += batches
        return table_of(found)

    def _next(self, read: Callable[[], list[KvBatch]]) -> list[KvBatch]:
        def limited() -> list[KvBatch]:
            batches = read() if self._left > 0 else []
            self._left -= sum(map(len, batches))
            return batches

        return self._result_of(limited, [])


class HummockChanges(_OnView, StateStoreChanges):
    """One change feed."""

    def __init__(self, view: ReadView, reader: ChangeReader, options: StorageOptions, explain: Explain):
        super().__init__(view, reader, explain)
        self._reader, self._options = reader, options

    def next_batch(self, max_rows: int | None = None) -> ChangeBatch | None:
        rows = _most_rows(max_rows, self._options)

        def read() -> ChangeBatch | None:
            return self._reader.next_batch(rows, self._options.scan_batch_bytes)

        return self._result_of(read, None) if rows > 0 else None


Read = TypeVar("Read", HummockScan, HummockChanges)


class ViewReads(ABC):
    """Any thread may read. Scans and feeds end when `_end_reads` is called, and none begins from then on."""

    _view: ReadView | None = None  # current view; None: to be created

    def __init__(self, options: StorageOptions):
        self.options = options
        self._reads = ReadCounts()
        self._scans: WeakSet[HummockScan | HummockChanges] = WeakSet()
        self._scans_lock = threading.Lock()
        self._has_ended = False

    @abstractmethod
    def _open_view(self) -> ReadView:
        """The current view. Raises StoreClosed."""

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        """The error to raise instead of `error`, which ended a read."""
        return error

    @property
    def open_reads(self) -> int:
        """Scans that are not closed."""
        return len(self._scans)

    def get(self, key: bytes, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> bytes | None:
        view = self._view or self._open_view()
        try:
            return read_one(view, key, epoch)
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)

    def get_many(self, keys: Any, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> BinaryColumn:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(keys)
        self._reads.get_many_calls += 1
        self._reads.get_many_keys += len(wanted)
        try:
            return read_many(view, wanted, epoch)
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)

    def scan(
        self,
        key_range: KeyRange = EVERYTHING,
        epoch: Epoch | None = None,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> HummockScan:
        view = self._open_view()
        self._reads.scan_calls += 1
        try:
            collector = BatchCollector(view.read(key_range.start, key_range.end, epoch, reverse, options))
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)
        return self._under_way(HummockScan(view, collector, self.options, limit, self._explain))

    def changes(
        self, key_range: KeyRange, since: Epoch, until: Epoch, options: ReadOptions = DEFAULT
    ) -> HummockChanges:
        view = self._open_view()
        self._reads.changes_calls += 1
        try:
            reader = ChangeReader(view, key_range.start, key_range.end, since, until, options)
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)
        return self._under_way(HummockChanges(view, reader, self.options, self._explain))

    def scan_prefixes(
        self, prefixes: Any, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(prefixes)
        self._reads.scan_prefixes_calls += 1
        try:
            return read_prefixes(view, wanted, epoch, reverse, limit)
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)

    def scan_many(
        self, starts: Any, epoch: Epoch, *, ends: Any = None, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(starts)
        bounds = None if ends is None else BinaryColumn.from_arrow(ends)
        self._reads.scan_many_calls += 1
        try:
            return read_starts(view, wanted, bounds, epoch, limit)
        except ObjectNotFound as error:
            raise (found := self._explain(view, error)) from cause_of(found, error)

    def _under_way(self, read: Read) -> Read:
        with self._scans_lock:
            if self._has_ended:
                raise StoreClosed("the store")
            self._scans.add(read)
        return read

    def _end_reads(self) -> None:
        with self._scans_lock:
            self._has_ended = True
            scans = list(self._scans)
        for scan in scans:
            scan.close()
