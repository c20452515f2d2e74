"""HummockScan: one scan of a HummockStorage, on the picture of its beginning."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hummock.errors import HummockError, StoreClosed
from hummock.iterator.collect import BatchCollector
from hummock.options import StorageOptions
from hummock.read_view import ReadView
from hummock.state_store import StateStoreIterator
from hummock.write_batch import KvBatch


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
        with self._lock:
            if self._is_closed:
                raise StoreClosed("the scan")
            rows = self._options.scan_batch_rows if max_rows is None else max_rows
            if self._left is not None:
                rows = min(rows, self._left)
            if rows <= 0 or self._view is None:
                return None
            try:
                batch = self._collector.next_batch(rows, self._options.scan_batch_bytes)
            except HummockError as error:
                raise self._explain(self._view, error) from error
            if batch is None:
                self._let_go()
            elif self._left is not None:
                self._left -= len(batch)
            return batch

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _let_go(self) -> None:
        self._view = None
        self._collector.close()
