"""RowsByKey: finds rows by their stream keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relational.chunk import DataChunk
from relational.hash.key_ids import KeyInterner


class RowsByKey:
    """The `rows`, none of them hidden, of which no two are equal in the columns `key`, as SQL compares them, NULL to
    NULL."""

    def __init__(self, rows: DataChunk, key: Sequence[int]) -> None:
        self._key = tuple(key)
        columns = [rows.columns[column] for column in self._key]
        self._ids = KeyInterner([column.data_type for column in columns])
        self._ids.find(columns, rows=rows.capacity)

    def find(self, rows: DataChunk) -> np.ndarray:
        """For each of `rows`, with the same columns, the position of the row with its key: int32[capacity], -1 for
        none."""
        columns = [rows.columns[column] for column in self._key]
        return self._ids.find(columns, is_adding=False, rows=rows.capacity)
