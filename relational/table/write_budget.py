"""WriteBudget: memory for the writes of an epoch that many state tables have in common.

A table reports its size after each write. When all of them have more than the limit, those that have at least the
average spill, each at its next write; small ones are left alone, so that a spill is worth its run of files.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary


class WriteBudget:
    """Thread safe. Tables that are gone use nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sizes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of tables with writes
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """What all tables have, as of their last reports."""
        with self._lock:
            return sum(self._sizes.values())

    def exceeded_by(self, table: Any, size_bytes: int) -> bool:
        """`table` has writes of so many bytes now; whether it is to spill them."""
        with self._lock:
            if not size_bytes:
                self._sizes.pop(table, None)
                return False
            self._sizes[table] = size_bytes
            used = sum(self._sizes.values())
            return used > self._limit and size_bytes * len(self._sizes) >= used
