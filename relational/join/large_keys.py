"""LargeKeys: the keys of one input of a join whose rows do not fit into its budget, and how many rows they have.

A key that was found to be large is not read into memory again, however often it is looked up. The number of its rows is
counted once, when it is needed, and then follows the changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relational.chunk import Column, Op
from relational.hash.key_ids import KeyInterner
from relational.types import DataType

MOST_KEYS = 1 << 12
"""Beyond which no further one is added, and all are forgotten at the next barrier, to be found again."""
UNKNOWN = -1


class LargeKeys:
    """Keys of `types`, by number."""

    def __init__(self, types: Sequence[DataType]) -> None:
        self._types = tuple(types)
        self.clear()

    def clear(self) -> None:
        """Forgets all keys."""
        self._numbers = KeyInterner(self._types)
        self._rows = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._numbers.count

    @property
    def is_full(self) -> bool:
        return len(self) >= MOST_KEYS

    def find(self, keys: Sequence[Column]) -> np.ndarray:
        """The number of each key: int32[rows], -1 for one that is not known to be large."""
        return self._numbers.find(keys, is_adding=False)

    def add(self, keys: Sequence[Column]) -> None:
        """Adds keys, with an unknown number of rows."""
        self._numbers.find(keys)
        self._rows = np.append(self._rows, np.full(len(self) - len(self._rows), UNKNOWN, np.int64))

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of each key: int64[n], UNKNOWN also for number -1."""
        return np.where(numbers >= 0, self._rows[numbers], UNKNOWN) if len(self) else np.full(len(numbers), UNKNOWN)

    def set_rows(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """The rows of keys were counted; those of number -1 are ignored."""
        known = numbers >= 0
        self._rows[numbers[known]] = rows[known]

    def apply(self, keys: Sequence[Column], ops: np.ndarray) -> None:
        """Rows under `keys` are inserted or deleted."""
        if not len(self):
            return
        numbers = self.find(keys)
        changed = np.flatnonzero(numbers >= 0)
        weights = np.where(ops[changed] & Op.DELETE, -1.0, 1.0)
        more = np.bincount(numbers[changed], weights, len(self)).astype(np.int64)
        self._rows = np.where(self._rows == UNKNOWN, UNKNOWN, self._rows + more)
