"""Snapshot backfill: a new job reads the rows that a table already has apart from the graph, at committed epochs.

Its barriers are its own, and nobody else waits for them. Their epochs stand for committed ones (`own_epoch`). A barrier
with (curr, prev) begins with the changes between the two of the rows at or below the positions, then the next rows are
read as of curr, in slices in key order. So when the following barrier comes, what was emitted is exactly the rows at or
below the positions as of curr: positions and epoch are state, written at that barrier, by which the job continues after
a crash, here or in the graph (`BackfillExecutor`), from the changes since [C17].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hummock.epoch import Epoch, committed_epoch_of
from relational.chunk import StreamChunk
from relational.table.scan_positions import ScanPositions
from relational.table.storage_table import StorageTable
from stream.executor.backfill import changes_of_read_rows
from stream.executor.backfill_pace import BackfillPace
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.message import PAUSE, Barrier, Message, Wait


class SnapshotBackfillExecutor(Executor):
    """Reads `table`; `input` brings barriers only. `finished()` is called before the barrier that ends the
    epoch in which the last row was read."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: StorageTable,
        positions: ScanPositions,
        pace: BackfillPace,
        chunk_rows: int,
        *,
        slice_rows: int,
        finished: Callable[[], None],
    ) -> None:
        self.info = info
        self._input = input
        self._table = table
        self._positions = positions
        self._pace = pace
        self._chunk_rows, self._slice_rows = chunk_rows, slice_rows
        self._finished = finished
        self._was_done = False

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._positions.init_epoch(barrier.epoch)
        since = self._positions.since or committed_epoch_of(barrier.epoch.prev)
        yield barrier
        until = committed_epoch_of(barrier.epoch.curr)
        while True:
            yield from changes_of_read_rows(self._table, self._positions, since, until, self._chunk_rows)
            snapshot = self._snapshot(until)
            for message in messages:
                if isinstance(message, Barrier):
                    break
                if isinstance(message, Wait) and message is not PAUSE and self._may_read():
                    yield from self._next_slice(snapshot)
                else:
                    yield message
            else:
                return
            self._positions.since = since = until
            self._positions.commit(message.epoch)
            until = committed_epoch_of(message.epoch.curr)
            self._pace.begin(message.epoch.prev)
            if self._positions.is_done and not self._was_done:
                self._was_done = True
                self._finished()
            yield message

    def _may_read(self) -> bool:
        return not self._positions.is_done and self._pace.may_read()

    def _next_slice(self, snapshot: Iterator[tuple[StreamChunk, int]]) -> Iterator[StreamChunk]:
        found = next(snapshot, None)
        if found is None:
            self._pace.end()
            return
        chunk, rows = found
        self._pace.read(rows)
        yield from slices(chunk, self._chunk_rows)

    def _snapshot(self, epoch: Epoch) -> Iterator[tuple[StreamChunk, int]]:
        """The rows that were not read yet, as of `epoch`, and their number; the positions advance with each slice."""
        for key_range, first, last in list(self._positions.ranges()):
            begin = first
            for rows, last_key in self._table.scan_slices(epoch, key_range, self._slice_rows):
                begin = self._positions.advance(begin, last_key, rows.capacity)
                yield StreamChunk.inserts(rows), rows.capacity
            self._positions.end_run(first, last)
