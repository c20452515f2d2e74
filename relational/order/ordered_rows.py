"""Ordered rows: partitions one after the other, each in its order, with the positions of partitions, of peers (the rows
of a partition that are equal in the order), and of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relational.chunk import DataChunk
from relational.encoding import KeyEncoder
from relational.expr.window_functions import Bound, BoundKind, Frame, FrameUnit
from relational.order.frame_search import range_ends
from relational.order.ranking import Ranking
from relational.types.ordering import OrderType, SortKey


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """`rows`, none hidden, in order. Of each row, int64[n], the positions at which something begins, and ends
    (excluded): `begin` and `end` of its partition, `peer_begin` and `peer_end` of its peers. `dense_rank`: the number
    of its peers in the partition, from 1. `order`: of the first sort key."""

    rows: DataChunk
    begin: np.ndarray
    end: np.ndarray
    peer_begin: np.ndarray
    peer_end: np.ndarray
    dense_rank: np.ndarray
    order: OrderType

    @classmethod
    def of(cls, rows: DataChunk, found: Ranking, keys: Sequence[SortKey]) -> OrderedRows:
        """`rows`, ranked as `found` says by `keys`."""
        at = np.arange(len(found.rows))
        begin, peer_begin = at - found.row_number + 1, at - found.row_number + found.rank
        order = keys[0].order if keys else OrderType()
        return cls(rows.take(found.rows), begin, _ends(begin), peer_begin, _ends(peer_begin), found.dense_rank, order)

    @property
    def begins(self) -> np.ndarray:
        """uint8[n]: 1 for the first row of each partition."""
        return (self.begin == np.arange(len(self.begin))).astype(np.uint8)

    def bounds_of(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """(where the frame of each row begins, where it ends, excluded: int64[n]), within the row's partition. Both are
        equal for a frame without rows."""
        start, end = self._position(frame, frame.start, False), self._position(frame, frame.end, True)
        return start, np.maximum(start, end)

    def _position(self, frame: Frame, bound: Bound, is_end: bool) -> np.ndarray:
        """Where a bound is: the first row of a frame that begins with it, or the row after a frame that ends with it.
        """
        if bound.kind is BoundKind.UNBOUNDED_PRECEDING:
            return self.begin
        if bound.kind is BoundKind.UNBOUNDED_FOLLOWING:
            return self.end
        if frame.unit is FrameUnit.RANGE:
            return self._of_range(frame, bound, is_end)
        distance = 0 if bound.offset is None else min(bound.offset, len(self.begin))
        distance = -distance if bound.kind is BoundKind.PRECEDING else distance
        if frame.unit is FrameUnit.ROWS:
            return np.clip(np.arange(len(self.begin)) + distance + is_end, self.begin, self.end)
        return self._of_groups(distance, is_end)

    def _of_groups(self, distance: int, is_end: bool) -> np.ndarray:
        """Where the peers begin, or end, that are so many groups of peers behind a row."""
        if not len(self.begin):
            return self.begin
        first = np.flatnonzero(self.peer_begin == np.arange(len(self.begin)))  # of each group
        number = np.searchsorted(first, self.peer_begin) + distance
        edges = np.append(first, len(self.begin))
        return np.clip(edges[np.clip(number + is_end, 0, len(first))], self.begin, self.end)

    def _of_range(self, frame: Frame, bound: Bound, is_end: bool) -> np.ndarray:
        if bound.offset is None:
            return self.peer_end if is_end else self.peer_begin
        assert frame.key is not None
        key, value = self.rows.columns[frame.key], self.rows.columns[bound.offset]
        encoder = KeyEncoder([key.data_type], [self.order])
        return range_ends(encoder.encode([key]), encoder.encode([value]), self.begin, self.end, is_end)


def _ends(begins: np.ndarray) -> np.ndarray:
    """For each row, of which `begins` says where what it belongs to begins, where that ends."""
    first = np.flatnonzero(begins == np.arange(len(begins)))
    if not len(begins):
        return begins
    return np.repeat(np.append(first[1:], len(begins)), np.diff(np.append(first, len(begins))))
