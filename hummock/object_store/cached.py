"""DiskCachedObjectStore: an object store with a read cache of its files on local disk.

Reads are widened to the cache's aligned windows; adjacent missing windows are fetched by one request, each by one
thread at a time. Everything else is passed through to the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from hummock.object_store.base import (
    Buffer,
    ObjectMeta,
    ObjectStore,
    ObjectWriter,
    check_range,
    is_sstable_name,
    sstable_name_of,
)
from hummock.object_store.disk_cache import WINDOW_BYTES, DiskCache

Window = tuple[bytes, bool]         # bytes, and whether the object ends with this window
Windows = list[Window]
Parts = list[bytes]
Flight = Future[Windows]            # of adjacent windows


class DiskCachedObjectStore(ObjectStore):
    """Caches the immutable `.data` and `.meta` objects of `store` in `cache`. Closing it closes neither."""

    def __init__(self, store: ObjectStore, cache: DiskCache):
        self._store, self._cache = store, cache
        self._lock = threading.Lock()
        self._flights: dict[tuple[str, int], tuple[Flight, int]] = {}       # by window: its read, its offset there
        self.creates_exclusively = store.creates_exclusively

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        self._store.put(path, data, if_absent=if_absent)

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        return self._store.create(path, if_absent=if_absent)

    def create_scratch(self, path: str) -> ObjectWriter:
        return self._store.create_scratch(path)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        name = sstable_name_of(path)
        if name is None or not is_sstable_name(name):
            return self._store.get(path, byte_range)
        if byte_range is None:
            return self._whole(path)
        start, end = check_range(path, byte_range).start, byte_range.stop
        if start >= end:
            return self._store.get(path, byte_range)
        first = start // WINDOW_BYTES
        windows = self._windows(path, first, (end - 1) // WINDOW_BYTES + 1)
        found = windows[0][0] if len(windows) == 1 else b"".join([data for data, _ in windows])
        return found[start - first * WINDOW_BYTES:end - first * WINDOW_BYTES]

    def head(self, path: str) -> ObjectMeta:
        return self._store.head(path)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        return self._store.list(prefix, after=after)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete(paths)

    def forget(self, path: str) -> bool:
        name = sstable_name_of(path)
        return name is not None and is_sstable_name(name) and self._cache.forget(path)

    def _whole(self, path: str) -> bytes:
        parts: Parts = []
        while window := self._cache.get(path, len(parts)):
            parts.append(window[0])
            if window[1]:
                return b"".join(parts)
        data = self._store.get(path)
        self._keep(path, 0, data, is_whole=True)
        return data

    def _windows(self, path: str, first: int, end: int) -> Windows:
        """The windows [first, end), fewer if the object ends before."""
        found: dict[int, Window | None] = {window: self._cache.get(path, window) for window in range(first, end)}
        window = first
        while window < end:
            here = found[window]
            if here is None:
                stop = next((other for other in range(window + 1, end) if found[other] is not None), end)
                fetched = self._fetched(path, window, stop)
                if not fetched:                         # behind the end of the object
                    break
                found.update(enumerate(fetched, window))
                window, here = window + len(fetched), fetched[-1]
            else:
                window += 1
            if here[1]:
                break
        return [here for _, here in sorted(found.items()) if here is not None]

    def _fetched(self, path: str, first: int, end: int) -> Windows:
        """The windows [first, end), by a read of this thread or one already in progress."""
        with self._lock:
            other, offset = self._flights.get((path, first), (None, 0))
            if other is None:
                end = next((window for window in range(first + 1, end) if (path, window) in self._flights), end)
                mine: Flight = Future()
                for window in range(first, end):
                    self._flights[path, window] = mine, window - first
        if other is not None:
            return other.result()[offset:offset + end - first]
        try:
            data = self._store.get(path, range(first * WINDOW_BYTES, end * WINDOW_BYTES))
            mine.set_result(self._keep(path, first, data))
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                for window in range(first, end):
                    del self._flights[path, window]
        return mine.result()

    def _keep(self, path: str, first: int, data: bytes, *, is_whole: bool = False) -> Windows:
        """Splits bytes from window `first` on into windows and caches them; a short window ends the object."""
        view, windows = memoryview(data), Windows()
        for start in range(0, len(data), WINDOW_BYTES):
            part = view[start:start + WINDOW_BYTES]
            is_last = part.nbytes < WINDOW_BYTES or (is_whole and start + WINDOW_BYTES >= len(data))
            self._cache.put(path, first + start // WINDOW_BYTES, part, is_last)
            windows.append((bytes(part), is_last))
        return windows
