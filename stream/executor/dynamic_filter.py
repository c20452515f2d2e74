"""Dynamic filter: rows whose value is above, or below, a bound that moves with the time of the epochs.

    value > bound     a row is emitted if it satisfies the condition when it arrives, and retracted when the bound has
                      reached it: a temporal filter that keeps what is recent
    value <= bound    a row that arrives too early waits, and is emitted when the bound has reached it

The bound of an epoch follows from its time alone, so it is the same in every actor, on every engine and after a
recovery. The state table has the rows that the bound has not reached, in the order of their values. An epoch begins
with those that its bound reaches: they are read, emitted and deleted. So what the table needs to know is not when it
was read last. Changes of rows that the bound has reached pass without state, or are dropped. Watermarks end here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hummock.epoch import Epoch, to_unix_ms
from relational.chunk import Op, StreamChunk, mask_of
from relational.expr.comparisons import Relation
from relational.expr.eval import Evaluator, evaluate_constant
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Call, Expression, InputRef, Literal, substitute
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.executor.waiting_rows import reached_rows
from stream.message import Barrier, Message, Wait, Watermark

UNIX = datetime(1970, 1, 1, tzinfo=UTC)


class DynamicFilterExecutor(Executor):
    """The rows of `input` whose value in `column` compares with the bound as `relation` says: the first columns, those
    of `info`. `bound`: an expression of one column, the time, that never decreases with it. `table` has the columns of
    the input, `column` the first of its key. `errors` counts rows dropped because their key is too long for the store.
    """

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        column: int,
        relation: Relation,
        bound: Expression,
        table: StateTable,
        errors: ErrorCounts,
        *,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._input, self._table, self._errors = input, table, errors
        self._value = InputRef(column, input.info.schema.types[column])
        self._relation, self._bound = relation, bound
        self._expires = relation in (Relation.GREATER, Relation.GREATER_EQUAL)
        self._chunk_rows = chunk_rows
        self._is_shown: Evaluator | None = None
        self._is_waiting: Evaluator | None = None
        stored = tuple(table.catalog.pk_indices)
        self._long_key = stored if may_be_long(input.info.schema.types, stored) else None

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        yield barrier
        begun: Epoch | None = barrier.epoch.curr  # and no message of it was seen
        for message in messages:
            if begun is not None:
                yield from self._reached(begun)
                begun = None
                if isinstance(message, Wait):
                    continue  # what it said of the input is no longer true
            if isinstance(message, StreamChunk):
                shown = self._apply(message)
                if shown.visible_rows:
                    yield shown
            elif isinstance(message, Barrier):
                self._table.commit(message.epoch)
                yield message
                begun = message.epoch.curr
            elif not isinstance(message, Watermark):
                yield message

    def _reached(self, epoch: Epoch) -> Iterator[StreamChunk]:
        """Moves the bound to that of `epoch`: the changes of the rows that it reaches."""
        bound = self._bound_of(epoch)
        self._is_shown, self._is_waiting = self._compared(self._relation, bound), None
        if not self._expires:
            beyond = Relation.GREATER if self._relation is Relation.LESS_EQUAL else Relation.GREATER_EQUAL
            self._is_waiting = self._compared(beyond, bound)
        is_inclusive = self._relation in (Relation.GREATER, Relation.LESS_EQUAL)
        op = Op.DELETE if self._expires else Op.INSERT
        yield from reached_rows(self._table, bound.value, is_inclusive=is_inclusive, op=op,
                                width=len(self.info.schema), chunk_rows=self._chunk_rows)

    def _bound_of(self, epoch: Epoch) -> Literal:
        time = Literal(UNIX + timedelta(milliseconds=to_unix_ms(epoch)), DataType.TIMESTAMPTZ)
        return Literal(evaluate_constant(substitute(self._bound, [time])), self._bound.data_type)

    def _compared(self, relation: Relation, bound: Literal) -> Evaluator:
        return Evaluator(Call(relation.value, (self._value, bound), DataType.BOOLEAN))

    def _apply(self, chunk: StreamChunk) -> StreamChunk:
        """Stores what the bound has not reached; the changes of the rows that are shown."""
        if self._long_key is not None:
            chunk, lost = without_long_keys(chunk, self._long_key, self._table.catalog)
            self._errors.add(LONG_KEY, lost)
        assert self._is_shown is not None
        shown = chunk.filter(mask_of(self._is_shown(chunk)))
        stored = shown if self._is_waiting is None else chunk.filter(mask_of(self._is_waiting(chunk)))
        self._table.write_chunk(stored)
        return shown.with_columns(shown.columns[: len(self.info.schema)])
