"""ColumnCache: decoded columns of whole tables, at committed epochs, under a byte budget.

The contents of a committed epoch never change, and neither does a column under its id, so entries are never
invalidated; eviction is LRU. A table that does not change has its columns under one epoch, that of its last known
change, whatever else is committed. Any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hummock.epoch import Epoch
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk

ColumnName = tuple[int, int, int]  # table id, epoch, column id
COUNTED = ("column_cache_hits", "column_cache_misses", "column_cache_evictions")  # monotonic fields
PART_ROWS = 1 << 16  # of a chunk of cached columns
SHARE = 2  # the columns of one scan may use the budget divided by this


@dataclass(frozen=True, slots=True)
class ColumnCacheCounts:
    """Statistics of a column cache, for `Metrics.watch`."""

    column_cache_columns: int
    column_cache_bytes: int
    column_cache_hits: int  # scans that found every column
    column_cache_misses: int
    column_cache_evictions: int


class ColumnCache:
    """Invariant: the buffers of all entries have at most `budget_bytes`."""

    def __init__(self, budget_bytes: int, since: Callable[[int, Epoch], Epoch] = lambda table_id, epoch: epoch):
        """0: caches nothing. `since(table id, epoch)`: an epoch at which the table had the rows that it has then; see
        `HummockStorage.unchanged_since`."""
        self.budget_bytes, self.since = budget_bytes, since
        self._lock = threading.Lock()
        self._entries: OrderedDict[ColumnName, tuple[Column, ...]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    @property
    def counts(self) -> ColumnCacheCounts:
        with self._lock:
            return ColumnCacheCounts(len(self._entries), self._bytes, self._hits, self._misses, self._evictions)

    def scanned(self, names: Sequence[ColumnName], chunks: Iterator[DataChunk]) -> Iterator[DataChunk]:
        """The rows of `chunks`, which are the columns `names` of a whole table: from the cache if all of them are in
        it, without starting `chunks`; else cached when `chunks` ends, unless too large.
        """
        found = self._found(names)
        if found is not None:
            return map(DataChunk, zip(*found, strict=True))
        return self._keeping(names, chunks)

    def _found(self, names: Sequence[ColumnName]) -> list[tuple[Column, ...]] | None:
        with self._lock:
            if not all(name in self._entries for name in names):
                self._misses += 1
                return None
            self._hits += 1
            for name in names:
                self._entries.move_to_end(name)
            return [self._entries[name] for name in names]

    def _keeping(self, names: Sequence[ColumnName], chunks: Iterator[DataChunk]) -> Iterator[DataChunk]:
        kept: list[list[pa.Array]] | None = [[] for _ in names]
        size = 0
        for chunk in chunks:
            if kept is not None:
                for column, array in zip(kept, chunk.arrays, strict=True):
                    column.append(array)
                    size += array.get_total_buffer_size()
                kept = kept if size * SHARE <= self.budget_bytes else None
            yield chunk
        if kept is not None and kept[0]:
            for name, arrays in zip(names, kept, strict=True):
                self._put(name, _in_parts(arrays))

    def _put(self, name: ColumnName, parts: tuple[Column, ...]) -> None:
        with self._lock:
            if name in self._entries:
                return
            self._entries[name] = parts
            self._bytes += _bytes_of(parts)
            while self._bytes > self.budget_bytes:
                _, gone = self._entries.popitem(last=False)
                self._bytes -= _bytes_of(gone)
                self._evictions += 1


def _in_parts(arrays: Sequence[pa.Array]) -> tuple[Column, ...]:
    """A column in parts of PART_ROWS rows, the last one of fewer: those of all columns of a table begin together."""
    whole = pa.chunked_array(arrays)
    return tuple(Column(pa.concat_arrays(whole.slice(first, PART_ROWS).chunks))
                 for first in range(0, len(whole), PART_ROWS))


def _bytes_of(parts: Sequence[Column]) -> int:
    return sum(part.array.get_total_buffer_size() for part in parts)
