"""The head of a table with a connector: chunks of its splits between the barriers and statements of its
channel.

How far each split has been read is a row (split, offset) of the source's own state table, committed at the
same barrier as the rows themselves (ruling R13): after a recovery the readers seek there and nothing is
lost or doubled. The channel has precedence over the readers, so a barrier waits for one chunk at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from stream.connector.base import SplitReader, validated
from stream.errors import ChannelClosed
from stream.exchange.channel import Channel
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.message import Add, Barrier, Message, Pause, Resume

IDLE_SECONDS = 0.02  # between two looks at readers that have nothing now


def begins_paused(barrier: Barrier) -> bool:
    """Whether sources that begin with this barrier wait for a Resume."""
    mutation = barrier.mutation
    return isinstance(mutation, Pause) or (isinstance(mutation, Add) and mutation.is_paused)


class SourceExecutor(Executor):
    """Reads `readers` (split -> reader) in turn, `chunk_rows` at a time. After `checkpoint_rows` rows
    since the last barrier (0: never) it calls `request_barrier` once and reads on only after the next
    barrier. Where all readers come to their end it asks too, so that the end is committed without waiting
    for an interval."""

    def __init__(
        self,
        info: ExecutorInfo,
        control: Channel,
        readers: Mapping[str, SplitReader],
        offset_table: StateTable,
        chunk_rows: int,
        checkpoint_rows: int = 0,
        request_barrier: Callable[[], None] = lambda: None,
        table: TableCatalog | None = None,
    ) -> None:
        self.info = info
        self._table = table
        self._control = control
        self._readers = dict(readers)
        self._offset_table = offset_table
        self._chunk_rows = chunk_rows
        self._checkpoint_rows = checkpoint_rows
        self._request_barrier = request_barrier
        self._stored: dict[str, str] = {}  # split -> offset as of the last barrier
        self._turn = 0  # the reader whose turn it is
        self._rows_since_barrier = 0
        self._is_reading = False  # not before the stored offsets are known, nor while paused

    def execute(self) -> Iterator[Message]:
        messages = self._messages()
        barrier = first_barrier(messages, self.info.identity)
        self._offset_table.init_epoch(barrier.epoch)
        self._seek_to_stored_offsets()
        self._is_reading = not begins_paused(barrier)
        yield barrier
        try:
            for message in messages:
                if isinstance(message, Barrier):
                    self._pass_barrier(message)
                yield message
        finally:
            for reader in self._readers.values():
                reader.close()

    def _messages(self) -> Iterator[Message]:
        """What the channel brings, and between that what the readers have; ends when the channel is
        closed."""
        while True:
            try:
                message = self._control.try_recv() if self._may_read() else self._control.recv()
                if message is None:
                    message = self._next_chunk()
                if message is None:
                    message = self._control.recv(IDLE_SECONDS)
            except TimeoutError:
                continue
            except ChannelClosed as closed:
                if closed.__cause__ is not None:
                    raise
                return
            yield message

    def _may_read(self) -> bool:
        if not self._is_reading or all(reader.is_finished for reader in self._readers.values()):
            return False
        return not self._checkpoint_rows or self._rows_since_barrier < self._checkpoint_rows

    def _next_chunk(self) -> StreamChunk | None:
        """The next chunk of the first reader, in turn, that has one."""
        readers = list(self._readers.values())
        rows = self._chunk_rows
        if self._checkpoint_rows:
            rows = min(rows, self._checkpoint_rows - self._rows_since_barrier)
        for _ in readers:
            split, reader = list(self._readers.items())[self._turn]
            self._turn = (self._turn + 1) % len(readers)
            chunk = None if reader.is_finished else reader.next_chunk(rows)
            if chunk is None and rows == 1 and not reader.is_finished:
                chunk = reader.next_chunk(2)  # what comes next may be an update pair, which is never parted
            if chunk is not None:
                chunk = validated(chunk, self.info.schema, split, connector=self.info.identity, table=self._table)
                self._rows_since_barrier += chunk.visible_rows
                is_full = self._checkpoint_rows and self._rows_since_barrier >= self._checkpoint_rows
                if is_full or all(each.is_finished for each in readers):
                    self._request_barrier()
                return chunk
        return None

    def _pass_barrier(self, barrier: Barrier) -> None:
        for split, reader in self._readers.items():
            offset = reader.offset
            if split not in self._stored:
                self._offset_table.insert_row((split, offset))
            elif self._stored[split] != offset:
                self._offset_table.update_row((split, self._stored[split]), (split, offset))
            self._stored[split] = offset
        self._offset_table.commit(barrier.epoch)
        self._rows_since_barrier = 0
        if isinstance(barrier.mutation, (Pause, Resume)):
            self._is_reading = isinstance(barrier.mutation, Resume)

    def _seek_to_stored_offsets(self) -> None:
        for split, reader in self._readers.items():
            row = self._offset_table.get_row((split,))
            if row is not None:
                self._stored[split] = str(row[1])
                reader.seek(self._stored[split])
