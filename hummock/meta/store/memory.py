"""A meta store in a dict, lost with the process. The store of `memory://`, and the reference of the suite."""

from __future__ import annotations

import threading

from hummock.errors import PreconditionFailed
from hummock.meta.store.base import MetaOperations, MetaStore, check_key


class MemoryMetaStore(MetaStore):
    """Several managers may share one instance, as several processes share a database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return "memory://"

    def get(self, key: str) -> bytes | None:
        check_key(key)
        with self._lock:
            return self._rows.get(key)

    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        with self._lock:
            return sorted((key, value) for key, value in self._rows.items() if key.startswith(prefix))

    def transaction(self, operations: MetaOperations) -> None:
        with self._lock:
            for key, expected in operations.require.items():
                if (got := self._rows.get(key)) != expected:
                    raise PreconditionFailed(key, expected, got)
            for key in operations.delete:
                self._rows.pop(key, None)
            self._rows.update(operations.put)
