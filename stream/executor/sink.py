"""Delivers a change stream to a sink, and stores the state of the delivery with it.

The last executor of a sink's chain: it emits nothing but barriers and watermarks. At a barrier the writer's state
replaces the one row of the sink's table, in the epoch of the changes that it covers; after a recovery the writer starts
from the committed row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from stream.connector.sink import SinkState, SinkWriter
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.message import Barrier, Message


class SinkExecutor(Executor):
    """`table` holds the state of `writer`."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        writer: SinkWriter,
        table: StateTable,
    ) -> None:
        self.info = info
        self._input = input
        self._writer = writer
        self._table = table
        self._stored: SinkState | None = None

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        self._writer.begin(barrier.epoch)
        row = self._table.get_row(())
        if row is not None:
            self._stored = cast(SinkState, tuple(row))
            self._writer.restore(self._stored)
        yield barrier
        for message in messages:
            if isinstance(message, StreamChunk):
                yield from self._write(message)
                continue
            if isinstance(message, Barrier):
                yield from self._end_epoch(message)
                self._store()
                self._table.commit(message.epoch)
            yield message

    def _write(self, chunk: StreamChunk) -> Iterable[Message]:
        """Deliver a chunk; what is sent on."""
        self._writer.write(chunk)
        return ()

    def _end_epoch(self, barrier: Barrier) -> Iterable[Message]:
        """The epoch ends; what is sent on before the barrier."""
        self._writer.end_epoch(barrier.epoch, is_checkpoint=barrier.checkpoint)
        return ()

    def _store(self) -> None:
        state = self._writer.state
        if self._stored is None:
            self._table.insert_row(state)
        elif state != self._stored:
            self._table.update_row(self._stored, state)
        self._stored = state
