"""Backfill: a new view sees the rows a table already has, then the changes that follow.

The view's first barrier b leaves the table's own actor after the table has written its rows up to
b.epoch.prev, so what the table has to tell up to b.epoch.prev and the changes after b together are the table, each row
once. What it has to tell are its rows, or, where the view was loaded with those of an older epoch, what has changed
since. It is read in bounded slices while the upstream channel holds back the table's actor; all of it lies in the epoch
that b opens. A crash before that epoch is committed undoes the whole DDL, so no position needs to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from hummock.epoch import Epoch
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.table.storage_table import StorageTable
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.executor.receive import received
from stream.executor.slices import slices
from stream.message import Barrier, Message
from stream.runtime.channel import Channel

History: TypeAlias = Callable[[Epoch], Iterator[StreamChunk]]
"""What a view has yet to see of a table as it is at an epoch, in the columns that the view reads."""


def history_of(table: StorageTable, since: Epoch | None) -> History:
    """All rows of the table, or what has changed since epoch `since`, whose rows the view was loaded with."""
    if since is None:
        return lambda epoch: map(StreamChunk.inserts, table.scan(epoch))
    return lambda epoch: (chunk.without_unchanged_updates() for chunk in table.changes(since, epoch))


class BackfillExecutor(Executor):
    """Reads `columns` of a table: first its `history` (None: the view has seen it in an earlier life), then
    what `upstream` brings. Chunks of `upstream` are whole rows, which may get or lose other columns with a barrier."""

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
        """The columns may stand elsewhere in the next version of the table."""
        altered = barrier.altered(self._table_id)
        if altered is not None and set(self._column_ids) <= set(altered.column_ids):  # else this actor ends here
            self._columns = tuple(map(altered.column_ids.index, self._column_ids))
