"""Rows on disk by the hash of some of their columns: rows that are equal in them are in one file.

What a query computes for each value of the columns, it can compute for one file after the other. A file that is still
too large is partitioned again, by other bits of the hash. See Kitsuregawa, Tanaka, Moto-oka: Application of Hash to
Data Base Machine and its Architecture, New Generation Computing, 1983 (the GRACE hash join).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from relational.batch.query_memory import QueryMemory
from relational.batch.spill_file import SpillFile
from relational.chunk import DataChunk, vnodes_of
from relational.types import DataType
from relational.types.vnodes import MAX_VNODE_COUNT

LEVEL_BITS = 4
FILES = 1 << LEVEL_BITS
LEVELS = (MAX_VNODE_COUNT.bit_length() - 1) // LEVEL_BITS
"""How often rows can be partitioned."""


def partitioned(
    chunks: Iterable[DataChunk], types: Sequence[DataType], columns: Sequence[int], memory: QueryMemory, level: int
) -> list[SpillFile]:
    """FILES files with the visible rows of `chunks`. `level`: how often these were partitioned before, below LEVELS."""
    files = [memory.file(types) for _ in range(FILES)]
    for rows in _windows(chunks, memory.window_bytes):
        numbers = _numbers(rows, columns, level)
        order = np.argsort(numbers, kind="stable").astype(np.int32)
        ordered = rows.take(order)
        ends = np.searchsorted(numbers[order], np.arange(FILES + 1))
        for file, first, end in zip(files, ends, ends[1:], strict=False):
            if end > first:
                file.append(ordered.slice(int(first), int(end - first)))
    return files


def level_below(level: int, *parts: Sequence[SpillFile]) -> int:
    """How often the rows of a file count as partitioned, of each of `parts` those at `level`: LEVELS, so that nobody
    tries again, if all rows came into one file."""
    return level + 1 if any(sum(file.rows > 0 for file in files) > 1 for files in parts) else LEVELS


def _numbers(rows: DataChunk, columns: Sequence[int], level: int) -> np.ndarray:
    """uint16[rows]: the number of the file of each row."""
    hashes = vnodes_of([rows.columns[column] for column in columns], MAX_VNODE_COUNT, rows=rows.capacity)
    return (hashes >> (LEVEL_BITS * level)) & (FILES - 1)


def _windows(chunks: Iterable[DataChunk], most_bytes: int) -> Iterator[DataChunk]:
    """The visible rows in chunks of about so many bytes, unless one is larger."""
    kept: list[DataChunk] = []
    size = 0
    for chunk in chunks:
        if not chunk.visible_rows:
            continue
        kept.append(chunk.compact())
        size += kept[-1].nbytes
        if size >= most_bytes:
            yield DataChunk.concat(kept)
            kept, size = [], 0
    if kept:
        yield DataChunk.concat(kept)
