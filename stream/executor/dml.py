"""The first executor of a table without a connector: barriers and statements in the order they were sent, and the
changes of the sinks that write the table.

One channel carries barriers and statements, so a statement belongs to the epoch that the barrier before it opens, and
all statements of a session are evaluated in the order in which it sent them. A statement that was bound before the
table's columns changed is fitted to the current ones.

Each sink has a channel of its own, which begins and ends with a barrier. All channels are aligned at barriers, and one
message is read from each in turn [R24]. So the changes of one sink keep their order and their epoch. Between writers no
order holds within an epoch. A key may pass from one sink to another: the changes of several sinks are kept until the
barrier, where the deletions of all of them precede all insertions.

The part of a block [R58] is passed on like a statement. Until the other tables of the block have evaluated theirs,
`control` is not read, and the changes of sinks are kept until the barrier: the sinks may carry what those tables emit,
so that a table which did not read them could wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from relational.catalog.objects import TableCatalog
from relational.chunk import Op, StreamChunk
from relational.errors import InvalidValue
from relational.table.row_checks import check_rows
from stream.errors import InvalidStatement, StatementError
from stream.executor.base import Executor, ExecutorInfo, aligned, next_of
from stream.executor.netting import KeptChanges
from stream.executor.schema_change import fitted, fitted_rows
from stream.message import (
    STATEMENTS,
    WAIT,
    Ballot,
    Barrier,
    Decision,
    InsertRows,
    JoinedSink,
    Message,
    Proposed,
    Statement,
    Watermark,
)
from stream.runtime.channel import Channel

NO_STATEMENT = 0
"""The id of an INSERT that no session sent."""


class DmlExecutor(Executor):
    """Emits the messages of `control` until it is closed, and the changes of the sinks that barriers name for
    `actor_id`; both are fitted to the columns of `table`. After the first barrier it inserts `rows`, if there are any.
    The StatementError of rows that the table cannot hold ends the actor: `writer` is the actor whose rows they are."""

    def __init__(
        self,
        info: ExecutorInfo,
        control: Channel,
        table: TableCatalog,
        actor_id: int = 0,
        rows: StreamChunk | None = None,
        request_barrier: Callable[[], None] = lambda: None,
    ) -> None:
        self.info = info
        self.writer: int | None = None
        """The actor of the sink whose changes are processed now."""
        self._control = control
        self._table = table
        self._actor_id = actor_id
        self._rows = rows
        self._sinks: dict[int, JoinedSink] = {}  # by actor
        self._kept = KeptChanges(request_barrier)
        self._undecided: Ballot | None = None

    def execute(self) -> Iterator[Message]:
        for sink, message in self._received():
            if sink is not None:
                yield from self._written(sink, message)
            elif isinstance(message, STATEMENTS):
                yield from self._fitted(message)
            elif isinstance(message, Proposed):
                yield from self._proposed(message)
            elif isinstance(message, Barrier):
                yield from self._netted()
                self._table = message.altered(self._table.id) or self._table
                yield message
                if self._rows is not None:
                    yield from self._first_rows(self._rows)
            else:
                yield message

    def _received(self) -> Iterator[tuple[JoinedSink | None, Message]]:
        """The messages of all channels, each with the sink that sent it, None for those of `control` and aligned
        barriers; until `control` is closed."""
        while True:
            unaligned: list[JoinedSink | None] = [None, *self._sinks.values()]
            barrier: Barrier | None = None
            while unaligned:
                is_idle = True
                for sink in tuple(unaligned):
                    message = self._from_control() if sink is None else next_of(sink.channel)
                    if message is None:
                        continue
                    is_idle = False
                    if not isinstance(message, Barrier):
                        yield sink, message
                        continue
                    barrier = aligned(barrier, message, self.info.identity)
                    unaligned.remove(sink)
                    if sink is None:
                        unaligned += self._joined(message)
                if is_idle and unaligned:
                    if None in unaligned and self._control.is_drained:
                        return
                    yield None, WAIT
            assert barrier is not None
            yield None, barrier
            for actor_id in barrier.stopped:
                self._sinks.pop(actor_id, None)

    def _from_control(self) -> Message | None:
        """The next message of `control`; while a block is undecided, none but the decision."""
        if self._undecided is None or self._control.is_drained:
            return next_of(self._control)
        if not self._undecided.is_decided:
            return None
        decided, self._undecided = self._undecided, None
        return Decision(decided.is_accepted)

    def _joined(self, barrier: Barrier) -> tuple[JoinedSink, ...]:
        """The sinks that begin with this barrier, which is their first message."""
        joined = barrier.joined(self._actor_id)
        self._sinks |= {sink.actor_id: sink for sink in joined}
        return joined

    def _fitted(self, statement: Statement) -> Iterator[Message]:
        if statement.column_ids not in (None, self._table.column_ids):
            try:
                statement = fitted(statement, self._table)
            except StatementError as refusal:
                if statement.result.set_running_or_notify_cancel():
                    statement.result.set_exception(refusal)
                return
        yield statement

    def _proposed(self, proposed: Proposed) -> Iterator[Message]:
        part, ids = proposed.part, self._table.column_ids
        try:
            fits = (each if each.column_ids in (None, ids) else fitted(each, self._table) for each in part.statements)
            statements = tuple(fits)
        except StatementError as refusal:
            proposed.ballot.refuse(refusal)
            return
        self._undecided = proposed.ballot
        yield replace(proposed, part=part._replace(statements=statements))

    def _first_rows(self, rows: StreamChunk) -> Iterator[Message]:
        """The INSERT of the first rows, which has been evaluated when the next message is asked for."""
        self._rows = None
        statement = InsertRows(NO_STATEMENT, rows)
        yield statement
        statement.result.result(timeout=0)

    def _written(self, sink: JoinedSink, message: Message) -> Iterator[Message]:
        """The changes of a sink in the columns of the table; its watermarks are not those of all writers."""
        if not isinstance(message, StreamChunk):
            assert isinstance(message, Watermark)
            return
        self.writer = sink.actor_id
        rows = fitted_rows(message, sink.column_ids, self._table)
        try:
            check_rows(self._table, rows)
        except InvalidValue as error:
            raise InvalidStatement(self._table.name, str(error)) from error
        is_only_inserted = self._table.row_id_index is not None or self._table.is_append_only
        if self._undecided is None and (is_only_inserted or (len(self._sinks) == 1 and not self._kept)):
            yield rows
        else:
            self._kept.add(rows, sink.actor_id)
        self.writer = None

    def _netted(self) -> Iterator[Message]:
        """The changes of several sinks in the epoch that ends."""
        changes = self._kept.take()
        for is_deletion in (True, False):
            for writer, chunk in changes:
                self.writer = writer
                part = chunk.filter(((chunk.ops & Op.DELETE) != 0) == is_deletion).compact()
                if part.capacity:
                    yield part
        self.writer = None
