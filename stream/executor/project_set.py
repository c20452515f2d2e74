"""Set-returning functions: the rows that they give for each row of the input, beside some of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relational.chunk import StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.expr.set_rows import SetRows
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.message import Message, Watermark


class ProjectSetExecutor(Executor):
    """The rows of `rows`, which passes the columns `passed` of the input. It has no state: the rows of a change follow
    from the change alone. A row whose function has no value gives none, and is counted in `errors`. Watermarks of
    passed columns go on."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        rows: SetRows,
        passed: Sequence[int],
        errors: ErrorCounts,
        *,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._input, self._rows = input, rows
        self._passed = tuple(passed)
        self._errors = errors
        self._chunk_rows = max(2, chunk_rows)

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, StreamChunk):
                yield from self._made(message)
            elif isinstance(message, Watermark):
                if message.column in self._passed:
                    yield Watermark(self._passed.index(message.column), message.value)
            else:
                yield message

    def _made(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        for made in self._rows(chunk, self._chunk_rows, errors=self._errors):
            assert isinstance(made, StreamChunk)
            changed = made.without_unchanged_updates()
            if changed.visible_rows:
                yield from slices(changed, self._chunk_rows)
