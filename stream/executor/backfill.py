"""Backfill: a new view reads the rows that a table already has, then the changes that follow.

The table's own actor emits the view's first barrier b after it has written the table's rows up to b.epoch.prev. So the
history up to b.epoch.prev and the changes after b together contain each row once. The history consists of the table's
rows or, if the view was loaded with the rows of an older epoch, of the changes since. It is read in bounded slices
while the upstream channel holds back the table's actor; all of it belongs to the epoch that b opens. A crash before
that epoch is committed undoes the whole DDL, so no position needs to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from hummock.epoch import Epoch
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.table.storage_table import StorageTable
from stream.executor.base import Executor, ExecutorInfo, first_barrier, received, slices
from stream.message import Barrier, Message
from stream.runtime.channel import Channel

History: TypeAlias = Callable[[Epoch], Iterator[StreamChunk]]
"""The rows or changes of a table up to an epoch that a view has not read yet, in the columns that the view reads."""


def history_of(table: StorageTable, since: Epoch | None) -> History:
    """All rows of the table, or the changes since epoch `since`, with whose rows the view was loaded."""
    if since is None:
        return lambda epoch: map(StreamChunk.inserts, table.scan(epoch))
    return lambda epoch: (chunk.without_unchanged_updates() for chunk in table.changes(since, epoch))


class BackfillExecutor(Executor):
    """Reads `columns` of a table: first its `history` (None: the view read it before a recovery), then the changes of
    `upstream`. Chunks of `upstream` are whole rows, whose other columns may be added or dropped with a barrier."""

    def __init__(
        self,
        info: ExecutorInfo,
        upstream: Channel,
        table: TableCatalog,
        columns: Sequence[int],
        history: History | None,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._upstream = upstream
        self._table_id = table.id
        self._column_ids = tuple(table.column_ids[column] for column in columns)
        self._columns = tuple(columns)
        self._history = history
        self._chunk_rows = chunk_rows

    def execute(self) -> Iterator[Message]:
        messages = received(self._upstream)
        barrier = first_barrier(messages, self.info.identity)
        yield barrier
        if self._history is not None:
            for chunk in self._history(barrier.epoch.prev):
                yield from slices(chunk, self._chunk_rows)
        for message in messages:
            if isinstance(message, StreamChunk):
                chunk = message.project(self._columns).without_unchanged_updates()
                if chunk.visible_rows:
                    yield chunk
            else:
                if isinstance(message, Barrier):
                    self._follow(message)
                yield message

    def _follow(self, barrier: Barrier) -> None:
        """The columns may have other positions in the next version of the table."""
        altered = barrier.altered(self._table_id)
        if altered is not None and set(self._column_ids) <= set(altered.column_ids):  # else this actor ends
            self._columns = tuple(map(altered.column_ids.index, self._column_ids))
