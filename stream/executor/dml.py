"""The first executor of a table without a connector: barriers and statements in the order they were sent.

One channel carries both, so a statement belongs to the epoch that the barrier before it opens, and all statements of a
session are evaluated in the order in which it sent them. A statement that was bound before the table's columns changed
is fitted to the current ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from stream.errors import StatementError
from stream.executor.base import Executor, ExecutorInfo, received
from stream.executor.schema_change import fitted
from stream.message import STATEMENTS, Barrier, InsertRows, Message
from stream.runtime.channel import Channel

NO_STATEMENT = 0
"""The id of an INSERT that no session sent."""


class DmlExecutor(Executor):
    """Emits the messages of `control` until it is closed; statements are fitted to the columns of `table`. After the
    first barrier it inserts `rows`, if there are any; the StatementError of one that the table cannot hold ends the
    actor."""

    def __init__(
        self, info: ExecutorInfo, control: Channel, table: TableCatalog, rows: StreamChunk | None = None
    ) -> None:
        self.info = info
        self._control = control
        self._table = table
        self._rows = rows

    def execute(self) -> Iterator[Message]:
        for message in received(self._control):
            if isinstance(message, STATEMENTS) and message.column_ids not in (None, self._table.column_ids):
                try:
                    yield fitted(message, self._table)
                except StatementError as refusal:
                    if message.result.set_running_or_notify_cancel():
                        message.result.set_exception(refusal)
                continue
            if isinstance(message, Barrier):
                self._table = message.altered(self._table.id) or self._table
            yield message
            if self._rows is not None:
                yield from self._first_rows(self._rows)

    def _first_rows(self, rows: StreamChunk) -> Iterator[Message]:
        """The INSERT of the first rows, which has been evaluated when the next message is asked for."""
        self._rows = None
        statement = InsertRows(NO_STATEMENT, rows)
        yield statement
        statement.result.result(timeout=0)
