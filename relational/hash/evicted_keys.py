"""EvictedKeys: which keys that are not in memory may be in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from relational.chunk.data_chunk import DataChunk
from relational.hash.key_filter import KeyFilter
from relational.memory_budget import MemoryShare

FILTER_SHARE = 1 / 8  # of the capacity of what is in memory that the filter of evicted keys may use besides
ADDED_KEYS = 32_768  # at a time
Columns: TypeAlias = Callable[[np.ndarray], DataChunk]


class EvictedKeys:
    """Keys by number, whose columns `keys(ids)` returns. `memory`: of what is in memory, None: any."""

    def __init__(self, memory: MemoryShare | None) -> None:
        self._memory = memory
        self._filter: KeyFilter | None = None  # of all keys that are only in the store; None: unknown
        self.count = 0
        """Keys that have left memory so far."""

    @property
    def size_bytes(self) -> int:
        """Memory used."""
        known = self._filter
        return 0 if known is None else known.size_bytes

    def track(self) -> None:
        """From now on keys that were never evicted are known not to be stored. REQUIRES that no other is stored now."""
        self._filter = KeyFilter()

    def possibly_stored(self, new_ids: np.ndarray, keys: Columns) -> np.ndarray:
        """Those of the new keys that may be in the store."""
        if self._filter is None or not len(new_ids):
            return new_ids
        return new_ids[self._filter.may_contain(keys(new_ids))] if self._filter.keys else new_ids[:0]

    def add(self, ids: np.ndarray, keys: Columns) -> None:
        """These keys, which are stored, are about to leave memory. Too large a filter is dropped."""
        self.count += len(ids)
        if self._filter is None:
            return
        for first in range(0, len(ids), ADDED_KEYS):
            self._filter.add(keys(ids[first : first + ADDED_KEYS]))
        if self._memory is not None and self._filter.size_bytes > FILTER_SHARE * self._memory.capacity_bytes:
            self._filter = None
