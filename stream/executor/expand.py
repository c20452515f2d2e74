"""Expand: every change once for each grouping set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relational.chunk import StreamChunk
from relational.chunk.expanded import expanded
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Message, Watermark


class ExpandExecutor(Executor):
    """Emits a chunk for each of `sets`, see `expanded`. A watermark of a column is also one of its copy, if that is in
    all sets."""

    def __init__(
        self, info: ExecutorInfo, input: Executor, columns: Sequence[int], sets: Sequence[Sequence[int]]
    ) -> None:
        self.info = info
        self._input = input
        self._columns, self._sets = tuple(columns), tuple(map(tuple, sets))

    def execute(self) -> Iterator[Message]:
        width = len(self._input.info.schema)
        for message in self._input.execute():
            if isinstance(message, StreamChunk):
                yield from expanded(message, self._columns, self._sets)
                continue
            yield message
            if isinstance(message, Watermark):
                for at, column in enumerate(self._columns):
                    if column == message.column and all(at in each for each in self._sets):
                        yield Watermark(width + at, message.value)
