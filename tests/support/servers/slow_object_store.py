"""An object store over a directory, at a hundredth of a disk's speed and with regular outages.

It wraps the local store without being one, so that compiled code cannot bypass it through file descriptors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from hummock.errors import ObjectStoreError
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, ObjectWriter
from hummock.object_store.local import LocalObjectStore

MIB = 1 << 20
BYTES_PER_SECOND = 12 * MIB     # a hundredth of the disk's bandwidth
OUTAGE_SECONDS, OUTAGE_EVERY = 2.0, 6.0


class SlowStore(ObjectStore):
    """All calls in both directions share one link."""

    def __init__(self, directory: str):
        self._store = LocalObjectStore(directory)
        self._wire = threading.Lock()
        self.has_outages = True

    @property
    def url(self) -> str:
        return self._store.url

    def carry(self, path: str, size: int) -> None:
        if self.has_outages and time.monotonic() % OUTAGE_EVERY < OUTAGE_SECONDS:
            raise ObjectStoreError(path, "the store is away")
        with self._wire:
            time.sleep(size / BYTES_PER_SECOND)

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        self.carry(path, memoryview(data).nbytes)
        self._store.put(path, data, if_absent=if_absent)

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        return SlowWriter(self, path, self._store.create(path, if_absent=if_absent))

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        data = self._store.get(path, byte_range)
        self.carry(path, len(data))
        return data

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        self.carry(path, target.nbytes)
        return self._store.get_into(path, start, target)

    def head(self, path: str) -> ObjectMeta:
        return self._store.head(path)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        return self._store.list(prefix, after=after)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete(paths)

    def remove_leftovers(self, now_ms: int) -> int:
        return self._store.remove_leftovers(now_ms)

    def close(self) -> None:
        self._store.close()


class SlowWriter(ObjectWriter):
    def __init__(self, store: SlowStore, path: str, writer: ObjectWriter):
        self._store, self._path, self._writer = store, path, writer

    def write(self, data: Buffer) -> None:
        self._store.carry(self._path, memoryview(data).nbytes)
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.abort()
