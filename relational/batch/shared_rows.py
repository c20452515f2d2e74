"""SharedRows: the rows of an input that several operators of a query read, computed once."""

from __future__ import annotations

from collections.abc import Iterator

from relational.batch.query_memory import HeldRows, QueryMemory
from relational.batch.spill_file import SpillFile
from relational.chunk import DataChunk


class SharedRows:
    """The visible rows of `chunks`, which are computed as the first reader gets to them: the first ones are held, the
    others, if there is no memory for them, are in a temporary file. One thread at a time."""

    def __init__(self, chunks: Iterator[DataChunk], memory: QueryMemory) -> None:
        self._coming, self._memory = chunks, memory
        self._held = HeldRows(memory, 1)
        self._file: SpillFile | None = None

    def __iter__(self) -> Iterator[DataChunk]:
        """All rows, for one reader. QueryTooLarge, SpillFailed."""
        at = 0
        while at < self._count or self._compute():
            yield self._chunk(at)
            at += 1

    @property
    def _count(self) -> int:
        return len(self._held.chunks) + (0 if self._file is None else len(self._file))

    def _chunk(self, number: int) -> DataChunk:
        held = self._held.chunks
        if number < len(held):
            return held[number]
        assert self._file is not None
        return self._file.chunk(number - len(held))

    def _compute(self) -> bool:
        """Keeps the next chunk; whether there is one."""
        chunk = next((each for each in self._coming if each.visible_rows), None)
        if chunk is None:
            return False
        if self._file is None and self._held.fits:
            self._held.add(chunk.compact())
            return True
        if self._file is None:
            self._file = self._memory.file(chunk.types)
        self._file.append(chunk.compact())
        return True
