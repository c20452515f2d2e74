"""Sources that compute their rows: what datagen and Nexmark share.

A split of n reads every n-th row of one sequence: row `number * n + split`, for number 0, 1, 2 ... Every value is a
function of the seed and the row's position in the sequence, so the same offset, the number of rows of the split before
it, always leads to the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from relational.chunk import Column, DataChunk, StreamChunk
from stream.connector.base import SplitReader, Start
from stream.errors import ConnectorError, InvalidOffset

MOST_ROWS = 1 << 53
MOST_SPLITS = 1_024
ROWS_AT_ONCE = 16_384
"""Maximum rows of a chunk: what is computed on the way to them stays in the cache."""

Rows = Callable[[int, int, int], Sequence[pa.Array]]
"""(position of the first row, distance of the rows, number of rows) -> the values of each column."""


def split_names(splits: int) -> list[str]:
    """0 to splits - 1, in an order that is that of their numbers."""
    digits = len(str(splits - 1))
    return [f"{number:0{digits}}" for number in range(splits)]


def split_number(connector: str, split: str, splits: int) -> int:
    """The number of a split by its name. ConnectorError if there is no such split."""
    names = split_names(splits)
    if split not in names:
        raise ConnectorError(connector, f"there is no split {split!r}; there are {names[0]} to {names[-1]}")
    return names.index(split)


class GeneratedReader(SplitReader):
    """Split `number` of `splits` of a sequence of `rows` rows, which `compute` computes. It delivers at most
    `rows_per_second` (0: no limit). `position_at(start)`: of the first row at or after a moment."""

    def __init__(
        self,
        connector: str,
        number: int,
        splits: int,
        rows: int,
        compute: Rows,
        rows_per_second: float = 0.0,
        position_at: Callable[[Start], int] = lambda start: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connector, self._number, self._splits = connector, number, splits
        self._rows = max(0, -(-(rows - number) // splits))
        self._compute, self._rate, self._position_at, self._clock = compute, rows_per_second, position_at, clock
        self._next = self._paced_from = 0
        self._began = clock()

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        rows = min(max_rows, ROWS_AT_ONCE, self._rows - self._next, self._allowed())
        if rows <= 0:
            return None
        columns = self._compute(self._next * self._splits + self._number, self._splits, rows)
        self._next += rows
        return StreamChunk.inserts(DataChunk([Column(column) for column in columns], capacity=rows))

    @property
    def offset(self) -> str:
        return str(self._next)

    def seek(self, offset: str) -> None:
        if not offset.isdecimal() or int(offset) > self._rows:
            raise InvalidOffset(self._connector, str(self._number), offset)
        self._move_to(int(offset))

    def begin_at(self, start: Start) -> None:
        behind = self._position_at(start) - self._number
        self._move_to(min(self._rows, max(0, -(-behind // self._splits))))

    @property
    def is_finished(self) -> bool:
        return self._next >= self._rows

    def _move_to(self, row: int) -> None:
        self._next = self._paced_from = row
        self._began = self._clock()

    def _allowed(self) -> int:
        if not self._rate:
            return self._rows
        return self._paced_from + int((self._clock() - self._began) * self._rate) - self._next
