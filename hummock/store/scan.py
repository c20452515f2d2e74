"""What reads one HummockStorage batch by batch, on the picture of its beginning: scans and change feeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import pyarrow as pa

from hummock.columnar.arrow_export import table_of
from hummock.columnar.write_batch import KvBatch
from hummock.errors import HummockError, StoreClosed
from hummock.iterator.batch_collector import BatchCollector
from hummock.options import StorageOptions
from hummock.read.changes import ChangeReader
from hummock.read.view import ReadView
from hummock.state_store import TABLE_BATCH_ROWS, ChangeBatch, StateStoreChanges, StateStoreIterator

NO_LIMIT = 1 << 62  # rows

Taken = TypeVar("Taken")
Explain = Callable[[ReadView, HummockError], HummockError]


class _Source(Protocol):
    def close(self) -> None: ...


class _OnView:
    """Holds its view, and so the files it reads, until it is exhausted or closed, by whichever thread."""

    def __init__(self, view: ReadView, source: _Source, explain: Explain):
        self._view: ReadView | None = view
        self._source, self._explain = source, explain
        self._is_closed = False
        self._lock = threading.Lock()  # a store that closes waits for the batch in the making

    def _take(self, take: Callable[[], Taken], nothing: Taken) -> Taken:
        """What `take` gives; once that is `nothing` the view is let go of."""
        with self._lock:
            if self._is_closed:
                raise StoreClosed("the scan")
            if self._view is None:
                return nothing
            try:
                taken = take()
            except HummockError as error:
                raise self._explain(self._view, error) from error
            if taken == nothing:
                self._let_go()
            return taken

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _let_go(self) -> None:
        self._view = None
        self._source.close()


class HummockScan(_OnView, StateStoreIterator):
    """One scan."""

    def __init__(
        self, view: ReadView, collector: BatchCollector, options: StorageOptions, limit: int | None, explain: Explain
    ):
        super().__init__(view, collector, explain)
        self._collector, self._options = collector, options
        self._left = NO_LIMIT if limit is None else limit

    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        rows = self._options.scan_batch_rows if max_rows is None else max_rows

        def take() -> list[KvBatch]:
            batch = self._collector.next_batch(min(rows, self._left), self._options.scan_batch_bytes)
            return [] if batch is None else [batch]

        batches = self._next(take) if rows > 0 else []
        return batches[0] if batches else None

    def next_batches(self) -> list[KvBatch]:
        """The next large batches, a few at a time, for which the GIL is asked for once; none at the end."""
        return self._next(lambda: self._collector.next_batches(
            self._left, TABLE_BATCH_ROWS, self._options.scan_batch_bytes))

    def to_arrow(self) -> pa.Table:
        taken: list[KvBatch] = []
        with self:
            while batches := self.next_batches():
                taken += batches
        return table_of(taken)

    def _next(self, take: Callable[[], list[KvBatch]]) -> list[KvBatch]:
        def taken() -> list[KvBatch]:
            batches = take() if self._left > 0 else []
            self._left -= sum(map(len, batches))
            return batches

        return self._take(taken, [])


class HummockChanges(_OnView, StateStoreChanges):
    """One change feed."""

    def __init__(self, view: ReadView, reader: ChangeReader, options: StorageOptions, explain: Explain):
        super().__init__(view, reader, explain)
        self._reader, self._options = reader, options

    def next_batch(self, max_rows: int | None = None) -> ChangeBatch | None:
        rows = self._options.scan_batch_rows if max_rows is None else max_rows

        def take() -> ChangeBatch | None:
            return self._reader.next_batch(rows, self._options.scan_batch_bytes)

        return self._take(take, None) if rows > 0 else None
