"""The head of a table without a connector: barriers and statements in the order they were sent.

One channel carries both, so a statement lies in the epoch of the barrier before it, and all statements of a
session are evaluated in the order it sent them. One that was bound before the table's columns changed is fitted to
those it has now.
"""

from __future__ import annotations

from collections.abc import Iterator

from relational.catalog.objects import TableCatalog
from stream.errors import StatementError
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.receive import received
from stream.executor.schema_change import fitted
from stream.message import STATEMENTS, Barrier, Message
from stream.runtime.channel import Channel


class DmlExecutor(Executor):
    """Hands on what `control` brings, until it is closed; statements have the columns of `table`."""

    def __init__(self, info: ExecutorInfo, control: Channel, table: TableCatalog) -> None:
        self.info = info
        self._control = control
        self._table = table

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
