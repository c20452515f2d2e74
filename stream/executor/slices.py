"""Large chunks leave an executor in pieces that a channel's permits can carry."""

from __future__ import annotations

from collections.abc import Iterator

from relational.chunk import Op, StreamChunk


def slices(chunk: StreamChunk, rows: int) -> Iterator[StreamChunk]:
    """`chunk` in pieces of at most `rows` rows (at least two), no update pair parted; the values are
    shared."""
    start = 0
    while start < chunk.capacity:
        end = min(start + rows, chunk.capacity)
        if end < chunk.capacity and chunk.ops[end - 1] == Op.UPDATE_DELETE:
            end -= 1
        yield chunk if end - start == chunk.capacity else chunk.slice(start, end - start)
        start = end
