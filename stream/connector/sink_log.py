"""The log of a sink: changes that are committed with their epoch and not yet delivered.

    <sink>.log       seq BIGINT | changes BYTEA                              ascending; deleted when delivered
    <sink>.batches   epoch BIGINT | first, chunks, rows, bytes BIGINT        what is delivered together

`changes` is an Arrow IPC stream of one record batch: the columns of the query and `_op`. A batch is closed at a
checkpoint, under the epoch that it ends; it consists of the `chunks` entries from `first` on, and is never cut
otherwise, so that a repeated delivery has the same changes. The batch that is still open has the key 0.

The actor appends, closes and deletes; the delivering thread only reads, what is committed. `SinkProgress` is what they
know of each other: how far the thread has delivered, which the actor records at the next barrier by deleting, and
whether the log is full. Both tables are in one vnode: the changes of a sink are in order, so one actor writes them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa

from relational.chunk import Op, StreamChunk
from relational.chunk.arrow_export import OP_COLUMN
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types.key_set import RowRange
from stream.connector.sink import LogLimits, SinkWriter
from stream.errors import ConnectorError

if TYPE_CHECKING:
    from hummock.epoch import Epoch, EpochPair
    from hummock.state_store import StateStore
    from relational.catalog.objects import TableCatalog
    from relational.types import Schema

CHUNK_BYTES = 1 << 20
"""Of the changes of one entry, about."""
ENTRIES_AT_ONCE = 16
"""Read at once by the delivering thread."""
OPEN = 0
"""The key of the batch that is not closed."""


class LogBatch(NamedTuple):
    """A row of `<sink>.batches`."""

    epoch: int
    first: int
    chunks: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class SinkProgress:
    """Shared by the actor of a sink and its delivering thread; outlives both. `delivered`: everything up to this epoch
    was delivered by this process. `is_full`: the log exceeds its limit, so that sources wait."""

    delivered: int = 0
    is_full: bool = False


class LogWriter(SinkWriter):
    """Appends the changes of a query with the columns `schema` to its log."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        log: StateTable,
        batches: StateTable,
        limits: LogLimits,
        progress: SinkProgress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._name, self._log, self._batches = name, log, batches
        self._schema = pa.schema([*schema.arrow, pa.field(OP_COLUMN, pa.uint8(), nullable=False)])
        self._limits, self._progress, self._clock = limits, progress, clock
        self._closed: deque[LogBatch] = deque()  # not yet deleted
        self._open = LogBatch(OPEN, 0)
        self._stored_open: LogBatch | None = None  # as of the last barrier
        self._opened_at = 0.0

    def begin(self, epoch: EpochPair) -> None:
        self._log.init_epoch(epoch)
        self._batches.init_epoch(epoch)
        stored = sorted(_batch(row) for row in self._batches.scan())
        self._closed = deque(batch for batch in stored if batch.epoch != OPEN)
        if stored and stored[0].epoch == OPEN:
            self._open = self._stored_open = stored[0]
        elif stored:
            self._open = LogBatch(OPEN, stored[-1].first + stored[-1].chunks)

    def write(self, chunk: StreamChunk) -> None:
        dense = chunk.compact()
        if not dense.capacity:
            return
        if not self._open.rows:
            self._opened_at = self._clock()
        deleted = int((dense.ops & Op.DELETE).sum())
        self.inserted += dense.capacity - deleted
        self.deleted += deleted
        entries = self._entries(dense)
        batch, count = self._open, len(entries)
        seq = pa.array(batch.first + batch.chunks + np.arange(count))
        self._log.write_chunk(StreamChunk([seq, entries], np.zeros(count, np.uint8)))
        self._open = LogBatch(
            OPEN, batch.first, batch.chunks + count, batch.rows + dense.capacity, batch.bytes + entries.nbytes
        )

    def end_epoch(self, epoch: EpochPair, *, is_checkpoint: bool) -> None:
        self._delete_delivered()
        is_due = self._clock() - self._opened_at >= self._limits.interval_ms / 1_000
        if is_checkpoint and self._open.rows and is_due:
            self._close(epoch.prev)
        elif self._open != self._stored_open and self._open.rows:
            self._store_open(self._open)
        self._log.commit(epoch)
        self._batches.commit(epoch)
        self._check_limit()

    def _entries(self, chunk: StreamChunk) -> pa.BinaryArray:
        """The changes as values of the log, one for each part of them."""
        sink, ends = pa.BufferOutputStream(), [0]
        for part in _parts(chunk):
            with pa.ipc.new_stream(sink, self._schema) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays([*part.arrays, pa.array(part.ops)], schema=self._schema))
            ends.append(sink.tell())
        offsets = pa.py_buffer(np.array(ends, np.int32))
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, sink.getvalue()])

    def _delete_delivered(self) -> None:
        while self._closed and self._closed[0].epoch <= self._progress.delivered:
            batch = self._closed.popleft()
            seq = pa.array(batch.first + np.arange(batch.chunks))
            absent = pa.nulls(batch.chunks, pa.binary())
            self._log.write_chunk(StreamChunk([seq, absent], np.full(batch.chunks, Op.DELETE, np.uint8)))
            self._batches.delete_row(batch)

    def _close(self, epoch: int) -> None:
        """The open batch is closed under the epoch that ends; the next one follows it."""
        self._store_open(None)
        batch = self._open._replace(epoch=epoch)
        self._batches.insert_row(batch)
        self._closed.append(batch)
        self._open = LogBatch(OPEN, batch.first + batch.chunks)

    def _store_open(self, batch: LogBatch | None) -> None:
        if self._stored_open is not None and batch is not None:
            self._batches.update_row(self._stored_open, batch)
        elif self._stored_open is not None:
            self._batches.delete_row(self._stored_open)
        elif batch is not None:
            self._batches.insert_row(batch)
        self._stored_open = batch

    def _check_limit(self) -> None:
        """A single batch is never too large: there was no time to deliver it."""
        behind = sum(batch.bytes for batch in self._closed)
        self._progress.is_full = self._limits.waits and behind + self._open.bytes > self._limits.log_bytes
        if not self._limits.waits and self._closed and behind - self._closed[0].bytes > self._limits.log_bytes:
            waiting = f"{len(self._closed)} batches of {behind:,} bytes since epoch {self._closed[0].epoch}"
            raise ConnectorError(self._name, f"its log is full: {waiting} are not delivered")


def _parts(chunk: StreamChunk) -> Iterator[StreamChunk]:
    """The changes in parts of about CHUNK_BYTES, without splitting an update pair."""
    rows = max(2, chunk.capacity * CHUNK_BYTES // max(chunk.nbytes, 1))
    start = 0
    while start < chunk.capacity:
        end = min(start + rows, chunk.capacity)
        end += end < chunk.capacity and chunk.ops[end - 1] == Op.UPDATE_DELETE
        yield chunk.slice(start, end - start)
        start = end


def _batch(row: Sequence[object]) -> LogBatch:
    return LogBatch(*cast(tuple[int, int, int, int, int], tuple(row)))


class LogReader:
    """Reads the committed part of a log. `pin()`: a context with a committed epoch, which stays readable inside."""

    def __init__(
        self,
        log: TableCatalog,
        batches: TableCatalog,
        store: StateStore,
        pin: Callable[[], AbstractContextManager[Epoch]],
    ) -> None:
        self._log, self._batches, self._pin = StorageTable(log, store), StorageTable(batches, store), pin

    def closed(self, after: int) -> list[LogBatch]:
        """The committed batches that are closed under a later epoch than `after`, in order."""
        with self._pin() as epoch:
            rows = [_batch(row) for chunk in self._batches.scan(epoch) for row in chunk.rows()]
        return sorted(batch for batch in rows if batch.epoch > after)

    def changes(self, batch: LogBatch) -> Iterator[pa.RecordBatch]:
        """The changes of a batch in order, of bounded memory: no epoch is pinned while they are used."""
        end = batch.first + batch.chunks
        for first in range(batch.first, end, ENTRIES_AT_ONCE):
            bounds = RowRange(first, min(first + ENTRIES_AT_ONCE, end))
            with self._pin() as epoch:
                found = self._log.scan(epoch, bounds=bounds, ordered=True)
                entries = [entry for chunk in found for entry in chunk.columns[1].array]
            for entry in entries:
                yield from pa.ipc.open_stream(entry.as_buffer())
