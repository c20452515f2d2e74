"""The first executor of a job that reads a connector, a table of its own or a source: chunks of its splits between the
barriers and statements of its channel.

The offset of each split is a row (split, offset) of the source's own state table, committed at the same barrier as the
rows themselves [R13, C13]: after a recovery the readers seek there, and no row is lost or duplicated. The channel has
precedence over the readers, so a barrier waits for one chunk at most, and for one if it follows another barrier
closely: barriers without a pause do not keep a source from reading. Shortly before a barrier is due a source reads
nothing while its receivers have not taken what it sent: a barrier behind it would wait for all of that.

A malformed record is refused with its split and row, which fails the job, or skipped and counted, depending on the
table's option `malformed`. A new job begins where the option `start` says, which its first offsets record; splits that
are found later begin at their beginning. A job that is resumed may skip rows of a split (`SkippedRows`): either a
number of malformed ones, wherever they occur, see `SkipAllowance`, or the next rows of any kind, between its first
barrier and the next, so that they are before the offset that the same commit stores. A job that is resumed reads
nothing else before that commit: no record can undo the RESUME, so a job with several records that it cannot read gets
on from one to the next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

from hummock.epoch import to_unix_ms
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from relational.table.row_checks import may_refuse
from relational.table.state_table import StateTable
from stream.connector.base import EARLIEST, SplitReader, Start, validated, without_malformed
from stream.errors import MalformedRows, SourcePosition
from stream.executor.base import Executor, ExecutorInfo, first_barrier, received, store_rows
from stream.executor.chunk_size import ChunkSize, Receivers
from stream.executor.rate_limit import RateLimit
from stream.executor.skip_allowance import SkipAllowance
from stream.message import PAUSE, WAIT, Add, Barrier, Message, Pause, Resume, SkippedRows, Wait
from stream.runtime.barrier_forecast import BarrierForecast
from stream.runtime.channel import Channel

BEGUN_ROW = "\x1fa job that begins where `start` says has begun"
"""Key of a row of the offset table, like SKIP_ROW: a job without it and without offsets is new."""
MOST_BOUNDED_SPLITS = 32  # read at a time
IDLE_SECONDS = 0.02  # between two polls of readers that have no rows
DRAIN_SECONDS = 0.03  # before a barrier is due
DRAIN_WAIT = Wait(0.004)  # before it looks again whether they have taken it
LATER_THAN_ANY = 1 << 63  # of the epochs
LEAST_CHUNK_ROWS = 4_096


def begins_paused(barrier: Barrier) -> bool:
    """Whether sources that begin with this barrier wait for a Resume."""
    mutation = barrier.mutation
    return isinstance(mutation, Pause) or (isinstance(mutation, Add) and mutation.is_paused)


FindSplits: TypeAlias = Callable[[Collection[str]], Mapping[str, SplitReader]]
"""Splits that the connector has besides the known ones -> a reader at the beginning of each."""


def read_columns(table: TableCatalog, columns: Sequence[int]) -> TableCatalog:
    """The catalog by which the rows of a source are checked that only `columns` of are read."""
    if len(columns) == len(table.columns):
        return table
    kept = tuple(table.columns[column] for column in columns)
    return replace(table, columns=kept, pk=(), stream_key=(), distribution_key=(), row_id_index=None,
                   value_indices=tuple(range(len(kept))))


class SourceExecutor(Executor):
    """Reads `readers` (split -> reader) round robin, `least_chunk_rows` to `chunk_rows` at a time, less shortly before
    the barriers that `forecast` expects (None: none). After `checkpoint_rows` rows since the last barrier (0: never) it
    calls `request_barrier` once and continues only after the next barrier. When all readers are finished it calls
    `announce_barrier`, None: the same, so that the end is committed without waiting for an interval. After a barrier,
    at most every `discovery_seconds`, `find_splits` looks for new splits. It reads at most `rate_limit` rows per second
    (0: no limit), none while `may_read()` is false, and none before `committed_epoch()` covers the epoch that its first
    barrier ends, and with it a new job: then it can be set aside if it fails at its first rows. One that `is_resumed`
    waits for the epoch after that, which holds what it may skip. A new job begins at `start`. Readers that hold what
    they delivered release it when it is committed. `cpu_clock()`: CPU seconds of the actor so far, on whichever
    threads. `on_idle(rows)` is called when it reads nothing more for the moment, after so many rows since the last
    barrier. `receivers` are those of the actor, None: it has none."""

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
        *,
        connector: str = "",
        skips_malformed: bool = False,
        skip: SkippedRows | None = None,
        skippable: Mapping[str, int] | None = None,
        is_resumed: bool = False,
        errors: ErrorCounts | None = None,
        least_chunk_rows: int = LEAST_CHUNK_ROWS,
        forecast: BarrierForecast | None = None,
        announce_barrier: Callable[[], None] | None = None,
        find_splits: FindSplits | None = None,
        discovery_seconds: float = 0.0,
        cpu_clock: Callable[[], float] = time.thread_time,
        rate_limit: int = 0,
        start: Start = EARLIEST,
        may_read: Callable[[], bool] = lambda: True,
        committed_epoch: Callable[[], int] = lambda: LATER_THAN_ANY,
        on_idle: Callable[[int], None] = lambda rows: None,
        receivers: Receivers | None = None,
    ) -> None:
        self.info = info
        self._on_idle, self._cpu_clock, self._receivers = on_idle, cpu_clock, receivers
        self._table = table if table is not None and may_refuse(table) else None  # by which rows are checked
        self._control, self._offset_table = control, offset_table
        self._readers, self._chunk_rows = dict(readers), chunk_rows
        self._forecast = BarrierForecast() if forecast is None else forecast
        self._chunk_size = ChunkSize(least_chunk_rows, chunk_rows, self._forecast, receivers)
        self._find_splits, self._discovery_seconds = find_splits, discovery_seconds
        self._next_discovery = time.monotonic() + discovery_seconds
        self._rate, self._may_read_now = RateLimit(rate_limit), may_read
        self._start, self._is_begun = start, start == EARLIEST
        self._committed_epoch, self._is_resumed = committed_epoch, is_resumed
        self._held: deque[tuple[int, dict[str, str]]] = deque()  # epoch, and its offsets of readers that hold rows
        self._checkpoint_rows, self._request_barrier = checkpoint_rows, request_barrier
        self._announce_barrier = request_barrier if announce_barrier is None else announce_barrier
        self._connector, self._errors = connector, errors
        self._skips_malformed, self._skip, self._skippable = skips_malformed, skip, skippable or {}
        self._position: SourcePosition | None = None
        self._stored: dict[str, str] = {}  # split -> offset as of the last barrier
        self._allowance = SkipAllowance(offset_table)
        self._active: list[str] = []  # splits that are read at present
        self._empty_polls: dict[str, tuple[float, float]] = {}  # split -> first and last poll since it brought a row
        self._has_ended = False  # one of the active splits
        self._next_reader = 0  # index in `_active` of the reader that is polled next
        self._rows_since_barrier = 0
        self._has_requested = False  # a barrier, for a reader that needs a commit
        self._has_begun = False  # it has passed the first barrier
        self._is_reading = False  # not before the stored offsets are known, nor while paused
        self._reads_after = LATER_THAN_ANY  # the epoch by whose commit it may begin to read

    def execute(self) -> Iterator[Message]:
        try:
            messages = self._messages()
            barrier = yield from first_barrier(messages, self.info.identity)
            self._forecast.note_barrier(barrier.epoch.curr)
            self._offset_table.init_epoch(barrier.epoch)
            self._begin()
            self._is_reading = not begins_paused(barrier)
            self._rate.refill((to_unix_ms(barrier.epoch.curr) - to_unix_ms(barrier.epoch.prev)) / 1_000)
            if not self._is_resumed:
                self._reads_after = barrier.epoch.prev
            yield barrier
            self._has_begun = True
            if self._is_resumed:
                self._request_barrier()
            if self._skip is not None and not self._skip.is_malformed:
                self._skip_rows(self._skip.split, self._skip.rows)
            for message in messages:
                if isinstance(message, Barrier):
                    self._forecast.note_barrier(message.epoch.curr)
                    self._pass_barrier(message)
                    yield message
                    self._discover()
                else:
                    yield message
        finally:
            with ExitStack() as readers:
                for reader in self._readers.values():
                    readers.callback(reader.close)

    def _begin(self) -> None:
        """Move the readers to the stored offsets, or those of a new job to where it begins."""
        self._allowance.load(self._readers)
        has_stored = next(self._offset_table.scan(limit=1), None) is not None
        if not has_stored:
            for split, rows in self._skippable.items():
                self._allowance.allow(split, rows)
        if self._skip is not None and self._skip.is_malformed:
            self._allowance.allow(self._skip.split, self._skip.rows)
        is_new = not self._is_begun and not has_stored
        self._is_begun = not is_new
        for split, reader in self._readers.items():
            if is_new:
                reader.begin_at(self._start)
            else:
                self._seek_to_stored_offset(split, reader)

    def _messages(self) -> Iterator[Message]:
        """The messages of the channel, with the chunks of the readers between them, at least one if there are rows
        before each barrier; ends when the channel is closed."""
        has_tried = False  # to read since the last barrier
        began = self._cpu_clock()
        for message in received(self._control):
            is_barrier = isinstance(message, Barrier)
            may_try = self._may_read() and (isinstance(message, Wait) or (is_barrier and not has_tried))
            lets_drain = may_try and self._lets_drain
            tries = may_try and not lets_drain
            chunk = self._next_chunk() if tries else None
            has_tried = not is_barrier and (has_tried or tries)
            if chunk is not None:
                sent = time.monotonic()
                yield chunk
                now = self._cpu_clock()
                self._chunk_size.note_chunk(chunk.capacity, now - began, chunk.nbytes, time.monotonic() - sent)
                began = now
                yield PAUSE
            if not isinstance(message, Wait):
                yield message
                began = self._cpu_clock()
            elif lets_drain:
                yield DRAIN_WAIT
            elif chunk is None:
                if self._has_begun:
                    self._on_idle(self._rows_since_barrier)
                idle = Wait(max(IDLE_SECONDS, self._rate.wait_seconds))
                yield idle if self._may_read() or self._awaits_commit else WAIT

    def _may_read(self) -> bool:
        if not self._is_reading or self._awaits_commit or self._is_finished:
            return False
        return not self._checkpoint_rows or self._rows_since_barrier < self._checkpoint_rows

    @property
    def _lets_drain(self) -> bool:
        """Whether it reads nothing since a barrier will come before the receivers have taken what was sent."""
        return self._receivers is not None and self._forecast.is_near(DRAIN_SECONDS) and self._receivers.has_queue

    @property
    def _awaits_commit(self) -> bool:
        return self._committed_epoch() < self._reads_after

    def _next_chunk(self) -> StreamChunk | None:
        """The next chunk of the first active reader, round robin, that has one."""
        self._release()
        splits, rows = self._active, self._rate.allowed(self._chunk_size.rows)
        if self._checkpoint_rows:
            rows = min(rows, self._checkpoint_rows - self._rows_since_barrier)
        for _ in splits if rows and self._may_read_now() else ():
            split = splits[self._next_reader % len(splits)]
            self._next_reader = (self._next_reader + 1) % len(splits)
            chunk = self._chunk_of(split, rows)
            self._note_poll(split, chunk is None)
            self._has_ended |= self._readers[split].is_finished
            if chunk is not None:
                self._rows_since_barrier += chunk.visible_rows
                self._rate.spend(chunk.visible_rows)
                if self._checkpoint_rows and self._rows_since_barrier >= self._checkpoint_rows:
                    self._request_barrier()
                elif self._is_finished:
                    self._announce_barrier()
                return chunk
        if not self._has_requested and any(self._readers[split].needs_commit for split in splits):
            self._has_requested = True
            self._request_barrier()
        return None

    def _choose_active(self) -> None:
        """All unfinished splits without an end, and the first ones of those with an end."""
        left = [split for split, reader in self._readers.items() if not reader.is_finished]
        endless = [split for split in left if not self._readers[split].is_bounded]
        self._has_ended = False
        self._active = endless + [split for split in left if self._readers[split].is_bounded][:MOST_BOUNDED_SPLITS]

    def _chunk_of(self, split: str, rows: int) -> StreamChunk | None:
        """The next rows of a split, validated for the table. ConnectorError for a malformed row, unless such rows are
        skipped."""
        reader = self._readers[split]
        if reader.is_finished:
            return None
        self._position = SourcePosition(split, reader.offset)
        try:
            chunk = self._read(reader, rows)
        except MalformedRows as fault:
            self._leave_out(split, [fault])
            return None
        return None if chunk is None else self._validated(chunk, split)

    def _read(self, reader: SplitReader, rows: int) -> StreamChunk | None:
        chunk = reader.next_chunk(rows)
        if chunk is None and rows == 1 and not reader.is_finished:
            chunk = reader.next_chunk(2)  # the next rows may be an update pair, which is never split
        return chunk

    def _validated(self, chunk: StreamChunk, split: str) -> StreamChunk | None:
        """The chunk, validated for its table, without malformed rows if those are skipped."""
        schema, connector, table = self.info.schema, self._connector, self._table
        if not self._skips_malformed and not self._allowance.left(split):
            is_sound = self._readers[split].is_sound
            return validated(chunk, schema, split, connector=connector, table=table, is_sound=is_sound)
        valid, faults = without_malformed(chunk, schema, split, connector=connector, table=table)
        self._leave_out(split, faults)
        return valid

    def _skip_rows(self, split: str, rows: int) -> None:
        """Skip the next rows of a split, or as many as are available. A record that cannot be read counts as one."""
        reader = self._readers.get(split)
        left = rows
        while left > 0 and reader is not None and not reader.is_finished:
            try:
                chunk = self._read(reader, min(left, self._chunk_rows))
            except MalformedRows:
                left -= 1
                continue
            if chunk is None:
                break
            left -= chunk.visible_rows
        if self._errors is not None:
            self._errors.add("skipped by RESUME", rows - max(left, 0))

    def _leave_out(self, split: str, faults: Sequence[MalformedRows]) -> None:
        """Count skipped malformed rows; raises the first one that may not be skipped."""
        if not self._skips_malformed and faults:
            allowed = self._allowance.left(split)
            if len(faults) > allowed:
                raise faults[allowed]
            self._allowance.use(split, len(faults))
        for fault in faults:
            reason = "malformed record" if fault.column is None else f"malformed column {fault.column}"
            if self._errors is not None:
                self._errors.add(reason, 1)

    @property
    def _is_finished(self) -> bool:
        if self._has_ended or not self._active:
            self._choose_active()
        return not self._active

    @property
    def position(self) -> SourcePosition | None:
        """The beginning of the last chunk that was read, or could not be read."""
        return self._position

    def _pass_barrier(self, barrier: Barrier) -> None:
        offsets = {split: reader.offset for split, reader in self._readers.items()}
        store_rows(self._offset_table, self._stored, offsets)
        self._stored = offsets
        self._allowance.store()
        self._reads_after = min(self._reads_after, barrier.epoch.prev)
        if not self._is_begun:
            self._offset_table.insert_row((BEGUN_ROW, ""))
            self._is_begun = True
        self._offset_table.commit(barrier.epoch)
        held = {split: self._stored[split] for split, reader in self._readers.items() if reader.holds_rows}
        if held:
            self._held.append((barrier.epoch.prev, held))
            self._release()
        self._rows_since_barrier, self._has_requested = 0, False
        if isinstance(barrier.mutation, (Pause, Resume)):
            self._is_reading = isinstance(barrier.mutation, Resume)
            self._empty_polls.clear()

    @property
    def splits(self) -> Collection[str]:
        """The splits that this actor reads or has read."""
        return self._readers.keys()

    @property
    def finished_splits(self) -> list[str]:
        """Those that have an end, of which all rows were read."""
        return [split for split, reader in self._readers.items() if reader.is_bounded and reader.is_finished]

    def has_ended(self, split: str) -> bool:
        """Whether a split brings no further rows."""
        return self._readers[split].is_finished

    def awaited_splits(self, idle_seconds: float) -> list[str]:
        """The splits that have not ended, except those that brought no row whenever they were polled for so long."""
        return [split for split, reader in self._readers.items()
                if not reader.is_finished and self._idle_seconds(split) < idle_seconds]

    def _idle_seconds(self, split: str) -> float:
        first, last = self._empty_polls.get(split, (0.0, 0.0))
        return last - first

    def _note_poll(self, split: str, is_empty: bool) -> None:
        if is_empty:
            now = time.monotonic()
            self._empty_polls[split] = self._empty_polls.get(split, (now, now))[0], now
        else:
            self._empty_polls.pop(split, None)

    def _release(self) -> None:
        """Readers need not hold what is committed."""
        while self._held and self._held[0][0] <= self._committed_epoch():
            for split, offset in self._held.popleft()[1].items():
                self._readers[split].committed(offset)

    def _discover(self) -> None:
        """Open the splits that were added to the connector."""
        if self._find_splits is None or time.monotonic() < self._next_discovery:
            return
        self._next_discovery = time.monotonic() + self._discovery_seconds
        for split, reader in self._find_splits(self._readers.keys()).items():
            self._readers[split] = reader
            self._allowance.load((split,))
            self._seek_to_stored_offset(split, reader)
            self._active = []

    def _seek_to_stored_offset(self, split: str, reader: SplitReader) -> None:
        row = self._offset_table.get_row((split,))
        if row is not None:
            self._stored[split] = str(row[1])
            reader.seek(self._stored[split])
            reader.committed(self._stored[split])
