"""Netting: the changes of an epoch, of which insertions and deletions of equal rows cancel each other out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relational.chunk import Op, StreamChunk
from relational.encoding import KeyEncoder
from relational.types import OrderType

KEPT_ROWS = 1 << 20
"""Changes of an epoch beyond which its barrier is requested."""


class KeptChanges:
    """The changes of the writers of a table in one epoch."""

    def __init__(self, request_barrier: Callable[[], None]) -> None:
        self._request_barrier = request_barrier
        self._chunks: dict[int, list[StreamChunk]] = {}  # by writer
        self._rows = 0

    def __len__(self) -> int:
        """Visible changes."""
        return self._rows

    def add(self, chunk: StreamChunk, writer: int = 0) -> None:
        """Keeps the visible rows."""
        was_below = self._rows <= KEPT_ROWS
        self._chunks.setdefault(writer, []).append(chunk.compact())
        self._rows += chunk.visible_rows
        if was_below and self._rows > KEPT_ROWS:
            self._request_barrier()

    def take(self) -> list[tuple[int, StreamChunk]]:
        """(writer, its netted changes); none is kept any longer."""
        chunks, self._chunks, self._rows = self._chunks, {}, 0
        return [(writer, netted(StreamChunk.concat(each))) for writer, each in chunks.items()]


def netted(changes: StreamChunk) -> StreamChunk:
    """The changes of an epoch without insertions and deletions of equal rows, as many of the one as of the other: first
    all deletions, then all insertions. REQUIRES that no row is hidden."""
    types = [column.data_type for column in changes.columns]
    keys = KeyEncoder(types, [OrderType()] * len(types)).encode(changes.columns).to_arrow()
    numbers = keys.dictionary_encode().indices.to_numpy()
    is_deletion = (changes.ops & Op.DELETE) != 0
    balance = np.bincount(numbers, np.where(is_deletion, -1.0, 1.0)).astype(np.int64)
    deleted = _first_of_each(np.flatnonzero(is_deletion), numbers, -balance)
    inserted = _first_of_each(np.flatnonzero(~is_deletion), numbers, balance)
    ops = np.repeat(np.array([Op.DELETE, Op.INSERT], np.uint8), (len(deleted), len(inserted)))
    return changes.take(np.concatenate([deleted, inserted]).astype(np.int32)).with_ops(ops)


def _first_of_each(rows: np.ndarray, numbers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of the `rows` of each number the first ones, as many as `wanted` says, in their order."""
    order = np.argsort(numbers[rows], kind="stable")
    ordered = numbers[rows][order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(ordered)) - np.repeat(begins, np.diff(begins, append=len(ordered)))
    return np.sort(rows[order[rank < wanted[ordered]]])
