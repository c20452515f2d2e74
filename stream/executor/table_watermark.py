"""The watermark of a table that takes statements: drops late rows, and emits the watermark before a barrier by which it
has moved.

It is the executor between the statements of a table and what stores them. A row is late if it is below the watermark
that was emitted last, so before any row of the epoch; it is left out of its INSERT and counted [R29]. NULL is never
late. Only rows that were stored move the watermark: those of a statement that failed, or was cancelled, do not. The
state table has one row with the greatest value, committed at the same barrier as the rows of the table; a recovery
continues with it, and emits the watermark again. Statements that are evaluated again after a recovery are not judged
again: their rows were in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from stream.executor.base import Executor, ExecutorInfo, first_barrier, store_rows
from stream.executor.integer_form import integers, value_of
from stream.executor.source_watermark import raised
from stream.executor.watermark_filter import BOUND, late_reason
from stream.message import Add, Barrier, InsertRows, Message, Replayed, Watermark


class TableWatermarkExecutor(Executor):
    """The messages of `input`, statements on `table` and the changes of sinks that write it, without late rows. The
    watermark is `delay` below the greatest value of the column for which the table declares it."""

    def __init__(
        self, info: ExecutorInfo, input: Executor, table: TableCatalog, state: StateTable, errors: ErrorCounts
    ) -> None:
        self.info = info
        self._input = input
        self._table, self._state, self._errors = table, state, errors
        self._column, self._delay = self._declared()
        self._greatest: int | None = None
        self._bound: int | None = None  # the greatest value as of the last barrier
        self._stored: dict[str, int] = {}
        self._is_due = False  # some receiver has not got the watermark

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._state.init_epoch(barrier.epoch)
        self._stored = {str(key): int(str(value)) for key, value in self._state.scan()}
        self._greatest = self._bound = self._stored.get(BOUND)
        self._is_due = self._bound is not None
        yield barrier
        for message in messages:
            if isinstance(message, InsertRows):
                yield from self._inserted(message)
            elif isinstance(message, StreamChunk):
                kept, late = self._timely(message)
                self._errors.add(late_reason(self._name), late)
                self._raise(kept.columns[self._column].array)
                if kept.visible_rows:
                    yield kept
            elif isinstance(message, Replayed):
                yield message
                self._raise_by(message)
            elif isinstance(message, Barrier):
                yield from self._advanced(message)
                self._follow(message)
                yield message
            else:
                yield message

    @property
    def _name(self) -> str:
        return self._table.columns[self._column].name

    def _declared(self) -> tuple[int, int]:
        declared = self._table.declared_watermark
        assert declared is not None, self._table
        return declared

    def _inserted(self, statement: InsertRows) -> Iterator[Message]:
        """The statement without its late rows; it has been evaluated when the next message is asked for."""
        kept, late = self._timely(statement.chunk)
        yield replace(statement, chunk=kept)
        result = statement.result
        if result.done() and not result.cancelled() and result.exception() is None:
            self._errors.add(late_reason(self._name), late)
            self._raise(kept.columns[self._column].array)

    def _timely(self, chunk: StreamChunk) -> tuple[StreamChunk, int]:
        """The visible rows that are not late, and how many are."""
        chunk = chunk.compact()
        if self._bound is None or not chunk.capacity:
            return chunk, 0
        values = integers(chunk.columns[self._column].array)
        late = pc.less(values, pa.scalar(self._bound - self._delay, pa.int64())).fill_null(False)
        count = pc.sum(late).as_py()
        return (chunk.filter(pc.invert(late).to_numpy(zero_copy_only=False)).compact() if count else chunk), count

    def _raise(self, values: pa.Array) -> None:
        greatest = pc.max(integers(values)).as_py()
        if greatest is not None:
            self._greatest = raised(self._greatest, greatest)

    def _raise_by(self, replayed: Replayed) -> None:
        """By the rows of a statement that was evaluated before a recovery."""
        evaluation = replayed.evaluation
        column_id = self._table.columns[self._column].column_id
        if evaluation.changes is not None and column_id in evaluation.column_ids:
            self._raise(evaluation.changes.columns[evaluation.column_ids.index(column_id)].array)

    def _advanced(self, barrier: Barrier) -> Iterator[Watermark]:
        """The watermark, if it has moved in the epoch that `barrier` ends or somebody lacks it."""
        if self._greatest is not None and (self._greatest != self._bound or self._is_due):
            value = value_of(self._greatest - self._delay, self._table.columns[self._column].data_type)
            if value is not None:
                yield Watermark(self._column, value)
        self._bound = self._greatest
        self._is_due = isinstance(barrier.mutation, Add)  # new readers receive messages from this barrier on
        rows = {} if self._bound is None else {BOUND: self._bound}
        store_rows(self._state, self._stored, rows)
        self._stored = rows
        self._state.commit(barrier.epoch)

    def _follow(self, barrier: Barrier) -> None:
        """The column may have another position in the next version of the table."""
        self._table = barrier.altered(self._table.id) or self._table
        self._column, self._delay = self._declared()
