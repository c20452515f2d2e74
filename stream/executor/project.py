"""Projection: each output column is an expression over the input's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relational.chunk import StreamChunk
from relational.expr.eval import evaluate
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Message


class ProjectExecutor(Executor):
    """Computes `expressions` for every row; a row's error is NULL, and counted in `errors`.

    An update whose halves become equal is dropped. The halves never differ in their stream key, since a projection
    passes the columns of its input's stream key through.
    """

    def __init__(
        self, info: ExecutorInfo, input: Executor, expressions: Sequence[Expression], errors: ErrorCounts
    ) -> None:
        self.info = info
        self._input = input
        self._expressions = tuple(expressions)
        self._errors = errors

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, StreamChunk):
                columns = [evaluate(each, message, errors=self._errors) for each in self._expressions]
                chunk = message.with_columns(columns).without_unchanged_updates()
                if chunk.visible_rows:
                    yield chunk
            else:
                yield message
