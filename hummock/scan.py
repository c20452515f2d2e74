"""HummockScan: one scan of a HummockStorage, on the picture of its beginning."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from hummock.arrow_columns import table_of
from hummock.errors import HummockError, StoreClosed
from hummock.iterator.collect import BatchCollector
from hummock.options import StorageOptions
from hummock.read_view import ReadView
from hummock.state_store import TABLE_BATCH_ROWS, StateStoreIterator
from hummock.write_batch import KvBatch

NO_LIMIT = 1 << 62  # rows


class HummockScan(StateStoreIterator):
    """Holds its view, and so the files it reads, until it is exhausted or closed, by whichever thread."""

    def __init__(
        self,
        view: ReadView,
        collector: BatchCollector,
        options: StorageOptions,
        limit: int | None,
        explain: Callable[[ReadView, HummockError], HummockError],
    ):
        self._view, self._collector, self._options, self._explain = view, collector, options, explain
        self._left = limit
        self._is_closed = False
        self._lock = threading.Lock()  # a store that closes waits for the batch in the making

    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        rows = self._options.scan_batch_rows if max_rows is None else max_rows

        def take(left: int) -> list[KvBatch]:
            batch = self._collector.next_batch(min(rows, left), self._options.scan_batch_bytes)
            return [] if batch is None else [batch]

        batches = self._next(take) if rows > 0 else []
        return batches[0] if batches else None

    def next_batches(self) -> list[KvBatch]:
        """The next large batches, a few at a time, for which the GIL is asked for once; none at the end."""
        return self._next(lambda left: self._collector.next_batches(
            left, TABLE_BATCH_ROWS, self._options.scan_batch_bytes))

    def to_arrow(self) -> pa.Table:
        taken: list[KvBatch] = []
        with self:
            while batches := self.next_batches():
                taken += batches
        return table_of(taken)

    def _next(self, take: Callable[[int], list[KvBatch]]) -> list[KvBatch]:
        """`take` is told how many rows the limit leaves."""
        with self._lock:
            if self._is_closed:
                raise StoreClosed("the scan")
            left = NO_LIMIT if self._left is None else self._left
            if left <= 0 or self._view is None:
                return []
            try:
                batches = take(left)
            except HummockError as error:
                raise self._explain(self._view, error) from error
            if not batches:
                self._let_go()
            elif self._left is not None:
                self._left -= sum(map(len, batches))
            return batches

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _let_go(self) -> None:
        self._view = None
        self._collector.close()
