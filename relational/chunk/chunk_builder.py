"""ChunkBuilder: changes in, chunks of a bounded size out.

An executor that makes rows one by one, or gets chunks that are too small or too large, puts this behind
itself. Update pairs stay whole: a chunk is cut one row early where the border would part one.
"""

from __future__ import annotations

from relational.chunk.stream_chunk import Op, StreamChunk
from relational.types import Schema


class ChunkBuilder:
    """Collects visible changes; each chunk it gives has 1 to `capacity_rows` of them, all visible."""

    def __init__(self, schema: Schema, capacity_rows: int):
        """`capacity_rows` is at least 2, so that an update fits."""
        if capacity_rows < 2:
            raise ValueError(f"a chunk holds at least 2 rows, not {capacity_rows}")
        self._schema, self._capacity = schema, capacity_rows
        self._rows: list[tuple[Op, tuple]] = []
        self._pieces: list[StreamChunk] = []
        self._piece_rows = 0

    @property
    def pending_rows(self) -> int:
        """Rows that wait for the next chunk."""
        return self._piece_rows + len(self._rows)

    def append_row(self, op: Op, row: tuple) -> StreamChunk | None:
        """Adds one change; returns a chunk when that filled one. EncodingError then, for any of its rows."""
        self._rows.append((op, row))
        full = self.pending_rows == self._capacity
        return self._cut(self._capacity) if full else None

    def append_chunk(self, chunk: StreamChunk) -> list[StreamChunk]:
        """Adds the visible changes of a chunk; returns the chunks that this filled."""
        self._close_rows()
        dense = chunk.compact()
        if dense.capacity:
            self._pieces.append(dense)
            self._piece_rows += dense.capacity
        filled = []
        while self._piece_rows >= self._capacity:
            filled.append(self._cut(self._capacity))
        return filled

    def finish(self) -> StreamChunk | None:
        """What is left, or None; the builder is empty afterwards."""
        return self._cut(self.pending_rows) if self.pending_rows else None

    def _close_rows(self) -> None:
        if self._rows:
            self._pieces.append(StreamChunk.from_rows(self._schema, self._rows))
            self._piece_rows += len(self._rows)
            self._rows = []

    def _cut(self, rows: int) -> StreamChunk:
        """The first `rows` changes, or one fewer where an update would be parted; the rest stays."""
        self._close_rows()
        joined = self._pieces[0] if len(self._pieces) == 1 else StreamChunk.concat(self._pieces)
        parted = rows == self._capacity and joined.ops[rows - 1] == Op.UPDATE_DELETE
        end = rows - 1 if parted else rows
        rest = joined.capacity - end
        self._pieces = [joined.slice(end, rest)] if rest else []
        self._piece_rows = rest
        return joined.slice(0, end) if rest else joined
