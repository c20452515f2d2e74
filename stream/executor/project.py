"""Projection: each output column is an expression over the input's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relational.chunk import DataChunk, StreamChunk
from relational.expr.eval import Evaluator, context_of, evaluate
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression, remap
from relational.expr.monotone import monotone_column
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Message, Watermark


class ProjectExecutor(Executor):
    """Computes `expressions` for every row; a row's error is NULL, and counted in `errors`.

    An update whose halves become equal is dropped. The halves never differ in their stream key, since a projection
    passes the columns of its input's stream key through. A watermark of a column becomes one of each expression that
    does not decrease while the column increases.
    """

    def __init__(
        self, info: ExecutorInfo, input: Executor, expressions: Sequence[Expression], errors: ErrorCounts
    ) -> None:
        self.info = info
        self._input = input
        self._expressions = tuple(expressions)
        self._evaluators = tuple(map(Evaluator, self._expressions))
        self._errors = errors
        self._monotone = [monotone_column(each) for each in self._expressions]

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, StreamChunk):
                context = context_of(message, errors=self._errors)
                columns = [evaluator.over(message, context) for evaluator in self._evaluators]
                chunk = message.with_columns(columns).without_unchanged_updates()
                if chunk.visible_rows:
                    yield chunk
            elif isinstance(message, Watermark):
                yield from self._mapped(message)
            else:
                yield message

    def _mapped(self, watermark: Watermark) -> Iterator[Watermark]:
        """The watermarks of the output that follow from one of the input."""
        column = watermark.column
        row = DataChunk.from_rows(self._input.info.schema.project((column,)), [(watermark.value,)])
        for position, expression in enumerate(self._expressions):
            if self._monotone[position] == column:
                value = evaluate(remap(expression, {column: 0}), row)[0]
                if value is not None:
                    yield Watermark(position, value)
