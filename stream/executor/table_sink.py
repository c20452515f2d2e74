"""A sink into a table: the changes of its query go on to the actor of the table, in the epoch in which they arrive.

The table applies them by its primary key. Where the stream key of the query is part of that key, or rows are only
inserted, all changes of a key come in their order. Otherwise a key may pass from one row to another within an epoch,
and the actors of the two rows send their changes in any order:

    the row a leaves key 1 for 2, the row b leaves key 2 for 1    - (1, a)  + (2, a)  - (2, b)  + (1, b)

If the deletion of (2, b) came after (2, a) was inserted, it would delete that row. So the changes of an epoch are kept
until the barrier, insertions and deletions of equal rows cancel each other out, and what is left is sent with the
deletions first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relational.catalog.objects import SinkOrder
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from stream.connector.sink import BlackholeWriter
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.executor.netting import KeptChanges
from stream.executor.sink import SinkExecutor
from stream.message import Barrier, Message


class TableSinkExecutor(SinkExecutor):
    """Sends the changes of `input` on, and counts them in `table`, the state of the sink."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: StateTable,
        order: SinkOrder,
        chunk_rows: int,
        request_barrier: Callable[[], None],
    ) -> None:
        super().__init__(info, input, BlackholeWriter(), table)
        self._is_netted = order is SinkOrder.NETTED
        self._chunk_rows = chunk_rows
        self._kept = KeptChanges(request_barrier)

    def _write(self, chunk: StreamChunk) -> Iterator[Message]:
        if not self._is_netted:
            self._writer.write(chunk)
            yield chunk
            return
        self._kept.add(chunk)

    def _end_epoch(self, barrier: Barrier) -> Iterator[Message]:
        for _, changes in self._kept.take():
            self._writer.write(changes)
            yield from slices(changes, self._chunk_rows)
