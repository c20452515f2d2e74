"""LateRows: rows whose columns are gathered when they are needed, most of them only for the rows that are left then.

Late materialization, see Abadi, Myers, DeWitt, Madden: Materialization Strategies in a Column-Oriented DBMS, ICDE 2007.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relational.chunk import Column, DataChunk

Gather = Callable[[np.ndarray | None, Sequence[int]], DataChunk]
"""Some columns of the rows at ascending positions, int32[n], or of all rows for None."""


class LateRows:
    """`count` rows, none of them hidden."""

    def __init__(self, count: int, gather: Gather) -> None:
        self.count = count
        self._gather = gather
        self._whole: dict[int, Column] = {}  # columns that were gathered for all rows

    @classmethod
    def of(cls, *chunks: DataChunk) -> LateRows:
        """The rows of chunks, at least one, one chunk after the other."""
        ends = np.cumsum([chunk.capacity for chunk in chunks])

        def gather(at: np.ndarray | None, columns: Sequence[int]) -> DataChunk:
            chosen = [chunk.project(columns) for chunk in chunks]
            if at is None:
                return DataChunk.concat(chosen)
            return DataChunk.taken(list(zip(chosen, _pieces(at, ends), strict=True)))

        return cls(int(ends[-1]), gather)

    @classmethod
    def together(cls, parts: Sequence[LateRows]) -> LateRows:
        """Those of all parts, at least one, one part after the other."""
        filled = [part for part in parts if part.count] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        ends = np.cumsum([part.count for part in filled])

        def gather(at: np.ndarray | None, columns: Sequence[int]) -> DataChunk:
            if at is None:
                return DataChunk.concat([part.ascending(None, columns) for part in filled])
            pieces = zip(filled, _pieces(at, ends), strict=True)
            found = [part.ascending(piece, columns) for part, piece in pieces if len(piece)]
            return DataChunk.concat(found) if found else filled[0].ascending(at, columns)

        return cls(int(ends[-1]), gather)

    def column(self, number: int) -> Column:
        """The values of all rows."""
        if number not in self._whole:
            self._whole[number] = self._gather(None, (number,)).columns[0]
        return self._whole[number]

    def ascending(self, at: np.ndarray | None, columns: Sequence[int]) -> DataChunk:
        """Some columns of the rows at ascending positions, int32[n], or of all rows for None."""
        if at is None:
            return DataChunk([self.column(number) for number in columns], capacity=self.count)
        if all(number in self._whole for number in columns):
            return DataChunk([self._whole[number] for number in columns], capacity=self.count).take(at)
        return self._gather(at, columns)

    def take(self, at: np.ndarray, columns: Sequence[int]) -> DataChunk:
        """Some columns of the rows at any positions, int32[n], that differ."""
        ascending = np.sort(at)
        return self.ascending(ascending, columns).take(np.searchsorted(ascending, at).astype(np.int32))

    def only(self, at: np.ndarray) -> LateRows:
        """Those at ascending positions, int32[n], that differ."""
        if len(at) == self.count:
            return self
        return LateRows(len(at), lambda rows, columns: self.ascending(at if rows is None else at[rows], columns))


def _pieces(at: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """Of ascending positions in parts that end at `ends` those in each part, from its begin on."""
    pieces = np.split(at, np.searchsorted(at, ends[:-1]))
    return [pieces[0], *(piece - end for piece, end in zip(pieces[1:], ends[:-1].astype(np.int32), strict=True))]
