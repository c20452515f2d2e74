"""SortedRuns: rows in an order, as runs that are merged, in memory or on disk.

Rows are held until they are as many as the memory allows, then they are sorted and written with their keys: a run. If
there are none on disk, all rows are sorted at once. Runs are merged chunk by chunk, as many at a time as MERGED_RUNS:
of the runs' current chunks the one whose last key is the least ends a round, in which the rows that are not after that
key are sorted together. Rows with equal keys come as they were added.

See Knuth: The Art of Computer Programming, volume 3, 5.4 External Sorting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller

import pyarrow as pa

from hummock.columnar.binary_column import BinaryColumn
from relational.batch.query_memory import COLUMN_BYTES, HeldRows, QueryMemory
from relational.batch.spill_file import SpillFile
from relational.chunk import Column, DataChunk
from relational.encoding import KeyEncoder
from relational.table.key_sort import sorted_rows
from relational.types import DataType
from relational.types.ordering import SortKey

MERGED_RUNS = 32
COPIES = 4
"""What sorting takes: the rows as they came, together, in order, and their keys."""
ROW_BYTES = 40
PIECE_ROWS = 65_536
Sorted = tuple[DataChunk, pa.Array]
"""Rows in order, and their keys."""


class SortedRuns:
    """Rows of `types` in the order of `keys`."""

    def __init__(self, types: Sequence[DataType], keys: Sequence[SortKey], memory: QueryMemory) -> None:
        self._types, self._memory = tuple(types), memory
        self._columns = [key.column for key in keys]
        self._encoder = KeyEncoder([types[key.column] for key in keys], [key.order for key in keys])
        self._held = HeldRows(memory, COPIES, ROW_BYTES)
        self._runs: list[SpillFile] = []

    def add(self, chunk: DataChunk) -> None:
        """More rows, the visible ones of a chunk. QueryTooLarge, SpillFailed."""
        if not chunk.visible_rows:
            return
        self._held.add(chunk.compact())
        key_bytes = self._held.column_bytes(self._columns) + self._held.rows * len(self._columns)
        if not self._held.fits or key_bytes > COLUMN_BYTES:
            self._runs.append(self._written([self._sorted()]))

    def chunks(self) -> Iterator[DataChunk]:
        """All rows. REQUIRES that no more are added."""
        if not self._runs:
            if self._held.rows:
                rows, _ = self._sorted()
                yield rows
            return
        if self._held.rows:
            self._runs.append(self._written([self._sorted()]))
        while len(self._runs) > MERGED_RUNS:
            first, self._runs = self._runs[:MERGED_RUNS], self._runs[MERGED_RUNS:]
            self._runs.insert(0, self._written(_merged(first)))
        yield from (rows for rows, _ in _merged(self._runs))

    def _sorted(self) -> Sorted:
        """The rows that are held, and their keys; then none are held."""
        rows = DataChunk.concat(list(self._held.drain()))
        keys = self._encoder.encode([rows.columns[column] for column in self._columns])
        order = sorted_rows(keys)
        return rows.take(order), keys.to_arrow().take(pa.array(order))

    def _written(self, parts: Iterable[Sorted]) -> SpillFile:
        """A run of these rows, which are in order."""
        run = self._memory.file((*self._types, DataType.BYTEA))
        for rows, keys in parts:
            whole = DataChunk([*rows.columns, Column(keys)], capacity=rows.capacity)
            size = max(1, min(PIECE_ROWS, whole.capacity * self._memory.window_bytes // max(1, whole.nbytes)))
            for first in range(0, whole.capacity, size):
                run.append(whole.slice(first, min(size, whole.capacity - first)))
        return run


class _Run:
    """A run as it is read: of the current chunk the rows from `at` on are still to come."""

    def __init__(self, file: SpillFile) -> None:
        self._chunks = iter(file)
        self.is_done = False
        self._next()

    def _next(self) -> None:
        chunk = next(self._chunks, None)
        self.is_done, self._at = chunk is None, 0
        if chunk is not None:
            *columns, keys = chunk.columns
            self._rows, self._keys = DataChunk(columns, capacity=chunk.capacity), keys.array

    @property
    def last(self) -> bytes:
        """The last key of the current chunk."""
        return self._keys[-1].as_py()

    def take(self, last: bytes, is_included: bool) -> Sorted | None:
        """The next rows of the current chunk before the key `last`, or also those with it; None if there are none."""
        search = bisect_right if is_included else bisect_left
        end = search(self._keys, last, self._at, len(self._keys), key=methodcaller("as_py"))
        if end == self._at:
            return None
        first, count = self._at, end - self._at
        found = self._rows.slice(first, count), self._keys.slice(first, count)
        self._at = end
        if end == len(self._keys):
            self._next()
        return found


def _merged(files: Sequence[SpillFile]) -> Iterator[Sorted]:
    """The rows of runs in one order; of equal keys those of earlier runs first."""
    runs = [run for run in map(_Run, files) if not run.is_done]
    while runs:
        last, ending = min((run.last, number) for number, run in enumerate(runs))
        taken = (run.take(last, number <= ending) for number, run in enumerate(runs))
        parts = [part for part in taken if part is not None]
        runs = [run for run in runs if not run.is_done]
        yield _together(parts)


def _together(parts: Sequence[Sorted]) -> Sorted:
    """The rows of parts, each in order, in one order."""
    if len(parts) == 1:
        return parts[0]
    rows, keys = DataChunk.concat([each for each, _ in parts]), pa.concat_arrays([each for _, each in parts])
    order = sorted_rows(BinaryColumn.from_arrow(keys))
    return rows.take(order), keys.take(pa.array(order))
