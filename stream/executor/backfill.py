"""Backfill: a new job reads the rows that a table already has, while the changes that follow pass by.

Each vnode has a position: the key of the last row that was read from a snapshot of the table. A change of a row at or
below the position of its vnode is passed on at once, a change above it is kept. Rows are read in slices in key order,
between two messages of the upstream. After a slice, its rows are emitted first and then the kept changes that are now
at or below the position: they happened after the snapshot. Barriers pass at any time. At a barrier the other kept
changes are dropped, because the next snapshot contains them: it is that of `prev` of this barrier, to which the table's
actors have written everything by then [R17, R18]. The positions are committed with the epoch, so a recovery continues
from them. At least one slice is read in each epoch, even if one barrier follows closely upon another. If the kept
changes exceed their limit they are dropped and nothing more is read before the barrier, for which a request is made.

A watermark is held until all rows were read [R28]: existing rows may be below it.

A job that was loaded with the rows of an epoch, stopped at one, or was apart from the graph until one, first catches
up: it reads the changes since then, of rows at or below the positions, before it passes its second barrier [C14, C17].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hummock.epoch import Epoch
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.table.scan_positions import RowKeys, ScanPositions, keys_of
from relational.table.storage_table import StorageTable
from stream.executor.backfill_pace import BackfillPace
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.message import PAUSE, Barrier, Message, Wait, Watermark

OpenTable: TypeAlias = "Callable[[TableCatalog, Sequence[int] | None], StorageTable]"
"""The stored rows of a table, in these columns; None: all."""

KEPT_ROWS, KEPT_BYTES = 1 << 20, 64 << 20
"""Limits of the changes that one actor keeps within an epoch."""


def changes_of_read_rows(
    table: StorageTable, positions: ScanPositions, since: Epoch, until: Epoch, chunk_rows: int
) -> Iterator[StreamChunk]:
    """The changes between two epochs of the rows at or below the positions."""
    for key_range in positions.passed_ranges():
        for chunk in table.changes(since, until, key_range):
            yield from slices(chunk, chunk_rows)


@dataclass(slots=True)
class _Kept:
    """Changes above the positions, with their keys."""

    chunk: StreamChunk
    keys: RowKeys


class BackfillExecutor(Executor):
    """Reads `columns` of `table`: first its existing rows, as far as `positions` do not say that they were read, then
    the changes that `input` brings. Chunks of `input` are whole rows, whose other columns may be added or dropped with
    a barrier. `since`: catch up with the changes since that epoch. `finished()` is called before the barrier that ends
    the epoch in which the last row was read, or the first barrier if that was earlier."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        open_table: OpenTable,
        table: TableCatalog,
        columns: Sequence[int],
        positions: ScanPositions,
        pace: BackfillPace,
        chunk_rows: int,
        *,
        slice_rows: int,
        since: Epoch | None = None,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self.info = info
        self._input = input
        self._open_table = open_table
        self._table = table
        self._column_ids = tuple(table.column_ids[column] for column in columns)
        self._columns = tuple(columns)
        self._positions = positions
        self._pace = pace
        self._chunk_rows, self._slice_rows = chunk_rows, slice_rows
        self._since = since
        self._finished = finished
        self._kept: list[_Kept] = []
        self._kept_rows = self._kept_bytes = 0
        self._is_frozen = False  # too much was kept in this epoch
        self._is_at_end = False  # the snapshot of this epoch has no more rows
        self._held: dict[int, Watermark] = {}  # by column of the table

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._positions.init_epoch(barrier.epoch)
        since = self._positions.since or self._since
        if self._positions.is_done and since is None:
            self._finished()
        yield barrier
        if since is not None:
            table = self._open_table(self._table, self._columns)
            yield from changes_of_read_rows(table, self._positions, since, barrier.epoch.prev, self._chunk_rows)
            self._positions.since = None
            if self._positions.is_done:
                self._finished()
                self._pace.end()
        if not self._positions.is_done:
            yield from self._backfilled(messages, barrier)
            for watermark in self._held.values():
                yield from self._mapped(watermark)
        for message in messages:
            if isinstance(message, StreamChunk):
                yield from self._changes(message)
                continue
            if isinstance(message, Watermark):
                yield from self._mapped(message)
                continue
            if isinstance(message, Barrier):
                self._positions.commit(message.epoch)
                self._follow(message)
            yield message

    def _backfilled(self, messages: Iterator[Message], barrier: Barrier) -> Iterator[Message]:
        """Everything up to the barrier by which all rows were read."""
        snapshot = self._snapshot(barrier.epoch.prev)
        has_tried = False  # to read a slice in this epoch
        for message in messages:
            if isinstance(message, Barrier):
                if not has_tried and self._may_read:
                    yield from self._next_slice(snapshot)
                has_tried = False
                self._positions.commit(message.epoch)
                self._drop_kept()
                self._follow(message)
                is_done = self._positions.is_done
                if is_done:
                    self._finished()
                self._pace.begin(message.epoch.prev)
                yield message
                if is_done:
                    return
                snapshot = self._snapshot(message.epoch.prev)
                continue
            if message is PAUSE:
                yield message
                continue
            if isinstance(message, StreamChunk):
                yield from self._sorted_out(message)
            elif isinstance(message, Watermark):
                self._held[message.column] = message
            elif not isinstance(message, Wait):
                yield message
            has_tried = True
            if self._may_read:
                yield from self._next_slice(snapshot)
            elif isinstance(message, Wait):
                yield message

    @property
    def _may_read(self) -> bool:
        return not self._is_frozen and not self._is_at_end and self._pace.may_read()

    def _next_slice(self, snapshot: Iterator[StreamChunk]) -> Iterator[StreamChunk]:
        """The next rows of the snapshot, then the kept changes of rows up to them."""
        chunk = next(snapshot, None)
        if chunk is None:
            self._is_at_end = True
            self._pace.end()
        else:
            self._pace.read(chunk.capacity)
            yield from slices(chunk, self._chunk_rows)
        yield from self._released()

    def _snapshot(self, epoch: Epoch) -> Iterator[StreamChunk]:
        """The rows that were not read yet, as of `epoch`; the positions advance with each slice."""
        table = self._open_table(self._table, self._columns)
        for key_range, first, last in list(self._positions.ranges()):
            begin = first
            for rows, last_key in table.scan_slices(epoch, key_range, self._slice_rows):
                begin = self._positions.advance(begin, last_key, rows.capacity)
                yield StreamChunk.inserts(rows)
            self._positions.end_run(first, last)

    def _sorted_out(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        """The changes at or below the positions; the others are kept."""
        keys = keys_of(self._table, chunk)
        passed = self._positions.passed(keys)
        if passed.any():
            yield from self._changes(chunk.filter(passed))
        if passed.all() or self._is_frozen:
            return
        self._kept.append(_Kept(chunk.filter(1 - passed), keys))
        self._kept_rows += chunk.capacity
        self._kept_bytes += chunk.nbytes
        if self._kept_rows > KEPT_ROWS or self._kept_bytes > KEPT_BYTES:
            self._kept, self._is_frozen = [], True
            self._pace.end()

    def _released(self) -> Iterator[StreamChunk]:
        """The kept changes that are now at or below the positions."""
        left: list[_Kept] = []
        for kept in self._kept:
            passed = self._positions.passed(kept.keys)
            if passed.any():
                yield from self._changes(kept.chunk.filter(passed))
                rest = kept.chunk.filter(1 - passed)
                if rest.visible_rows:
                    left.append(_Kept(rest, kept.keys))
            else:
                left.append(kept)
        self._kept = left

    def _drop_kept(self) -> None:
        self._kept, self._kept_rows, self._kept_bytes = [], 0, 0
        self._is_frozen = self._is_at_end = False

    def _changes(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        """The visible changes in the columns of this scan, if any."""
        chunk = chunk.project(self._columns).compact().without_unchanged_updates()
        if chunk.visible_rows:
            yield chunk

    def _mapped(self, watermark: Watermark) -> Iterator[Watermark]:
        """The watermark in the columns of this scan, if it has the column."""
        if watermark.column in self._columns:
            yield Watermark(self._columns.index(watermark.column), watermark.value)

    def _follow(self, barrier: Barrier) -> None:
        """The columns may have other positions in the next version of the table."""
        altered = barrier.altered(self._table.id)
        if altered is not None and set(self._column_ids) <= set(altered.column_ids):  # else this actor ends
            self._table = altered
            self._columns = tuple(map(altered.column_ids.index, self._column_ids))
