"""Selection: the rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Iterator

from relational.chunk import StreamChunk
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Message

SPARSE = 4  # a chunk is compacted if fewer than 1 / SPARSE of its rows are visible


class FilterExecutor(Executor):
    """Keeps rows for which `predicate` is true, not NULL. An update of which only one half is kept becomes an insert or
    a delete. Rows for which the predicate fails are dropped, and counted in `errors`."""

    def __init__(self, info: ExecutorInfo, input: Executor, predicate: Expression, errors: ErrorCounts) -> None:
        self.info = info
        self._input = input
        self._predicate = Evaluator(predicate)
        self._errors = errors

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if not isinstance(message, StreamChunk):
                yield message
                continue
            kept = message.filter(self._predicate(message, errors=self._errors))
            rows = kept.visible_rows
            if rows:
                yield kept.compact() if rows * SPARSE < kept.capacity else kept
