"""TopRows: the first rows in an order among rows that are added chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import DataChunk
from relational.encoding import KeyEncoder

SPARE_ROWS = 4_096
"""Rows beyond those that are kept, after which the others are dropped."""


class TopRows:
    """The first `count` rows by `encoder` of the columns `columns`; ties in any order. Invariant: once that many rows
    are known, only rows that are not after the last of them are added."""

    def __init__(self, encoder: KeyEncoder, columns: Sequence[int], count: int) -> None:
        self._encoder, self._columns, self._count = encoder, columns, count
        self._chunks: list[DataChunk] = []
        self._keys: list[pa.Array] = []
        self._waiting = 0  # rows in them
        self._last: pa.Scalar | None = None  # key of the last row that is kept

    def add(self, chunk: DataChunk) -> None:
        """More rows."""
        rows = chunk.compact()
        keys = self._encoder.encode([rows.columns[column] for column in self._columns]).to_arrow()
        if self._last is not None:
            before = pc.less(keys, self._last).to_numpy(zero_copy_only=False)
            kept = np.flatnonzero(before).astype(np.int32)
            if not len(kept):
                return
            rows, keys = rows.take(kept), keys.take(pa.array(kept))
        self._chunks.append(rows)
        self._keys.append(keys)
        self._waiting += len(keys)
        if self._waiting >= 2 * self._count + SPARE_ROWS:
            self._select()

    def rows(self) -> DataChunk | None:
        """The rows in order; None if there are none."""
        if not self._waiting:
            return None
        self._select()
        (rows,) = self._chunks
        return rows

    def _select(self) -> None:
        """Keeps the first rows only, in order."""
        keys = pa.concat_arrays(self._keys)
        first = pc.array_sort_indices(keys)[: self._count]
        kept = keys.take(first)
        rows = DataChunk.concat(self._chunks).take(first.to_numpy().astype(np.int32))
        self._chunks, self._keys, self._waiting = [rows], [kept], len(kept)
        self._last = kept[-1] if len(kept) == self._count else None
