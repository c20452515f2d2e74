"""EMIT ON WINDOW CLOSE: each row once, when no change of it can come any more.

The changes of the input are applied to the state table, in the order of the values of a column with a watermark. When
the watermark has passed a value its rows are final [R29]: they are read, emitted as insertions and deleted. A row with
NULL there waits for ever. The watermark follows the rows that it has closed; others end here, since rows come late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relational.chunk import Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.executor.waiting_rows import reached_rows
from stream.message import Barrier, Message, Watermark


class EmitOnWindowCloseExecutor(Executor):
    """The rows of `input` that are below the watermark of `column`, the first in the key of `table`, which has the
    columns of the input. `errors` counts rows dropped because their key is too long for the store."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        column: int,
        table: StateTable,
        errors: ErrorCounts,
        *,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._input, self._column, self._table, self._errors = input, column, table, errors
        self._chunk_rows = chunk_rows
        stored = tuple(table.catalog.pk_indices)
        self._long_key = stored if may_be_long(info.schema.types, stored) else None

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        yield barrier
        for message in messages:
            if isinstance(message, StreamChunk):
                self._keep(message)
            elif isinstance(message, Watermark):
                if message.column == self._column:
                    yield from self._closed(message.value)
                    yield message
            else:
                if isinstance(message, Barrier):
                    self._table.commit(message.epoch)
                yield message

    def _keep(self, chunk: StreamChunk) -> None:
        if self._long_key is not None:
            chunk, lost = without_long_keys(chunk, self._long_key, self._table.catalog)
            self._errors.add(LONG_KEY, lost)
        self._table.write_chunk(chunk)

    def _closed(self, bound: Any) -> Iterator[StreamChunk]:
        return reached_rows(self._table, bound, is_inclusive=False, op=Op.INSERT, width=len(self.info.schema),
                            chunk_rows=self._chunk_rows)
