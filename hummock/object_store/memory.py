"""Objects in a dict, not persistent: for tests and `memory://`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from hummock.epoch import Clock, wall_clock_ms
from hummock.errors import ObjectExists, ObjectNotFound
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, check_path, check_range


class MemoryObjectStore(ObjectStore):
    """Each object is one immutable `bytes`; a listing is a snapshot taken when it begins."""

    def __init__(self, clock: Clock = wall_clock_ms):
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    @property
    def url(self) -> str:
        return "memory://"

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        check_path(path)
        copy = bytes(memoryview(data))
        with self._lock:
            if if_absent and path in self._objects:
                raise ObjectExists(path)
            self._objects[path] = (copy, self._clock())

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        data, _ = self._find(path)
        if byte_range is None:
            return data
        check_range(path, byte_range)
        return data[byte_range.start:byte_range.stop]

    def head(self, path: str) -> ObjectMeta:
        data, modified_ms = self._find(path)
        return ObjectMeta(path, len(data), modified_ms)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        with self._lock:
            found = [(path, *entry) for path, entry in self._objects.items()
                     if path.startswith(prefix) and path > after]
        for path, data, modified_ms in sorted(found, key=lambda entry: entry[0]):
            yield ObjectMeta(path, len(data), modified_ms)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)
        with self._lock:
            for path in paths:
                self._objects.pop(path, None)

    def _find(self, path: str) -> tuple[bytes, int]:
        check_path(path)
        with self._lock:
            try:
                return self._objects[path]
            except KeyError:
                raise ObjectNotFound(path) from None
