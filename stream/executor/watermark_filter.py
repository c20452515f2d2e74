"""Drops the late rows of a source, and emits its watermark before a barrier by which it has moved.

A row is late if it is below the watermark that was emitted last, so before any row of the epoch; whichever operation
brings it, it is dropped and counted [R29]. NULL is never late. The state table has one row per split with its greatest
value, and two per actor with the greatest value of splits that have ended, and with the bound from which its watermark
follows (see source_watermark.py): they are committed at the same barrier as the offsets of the splits. A recovery
continues with the greatest bound of all actors, and emits it again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import Column, StreamChunk
from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from relational.types import DataType, TypeKind
from stream.executor.base import Executor, ExecutorInfo, first_barrier, store_rows
from stream.executor.source import SourceExecutor
from stream.executor.source_watermark import SourceWatermark, SplitReport, raised
from stream.message import Add, Barrier, Message, Watermark

BOUND, ENDED = "\x1fbound", "\x1fended"
"""First words of keys in the state table that are not the names of splits; the number of the actor follows."""


class WatermarkFilterExecutor(Executor):
    """The rows of `input`, which come from `source`, whose value in `column` is at least the watermark. It is `delay`
    below the bound: in microseconds, days of a DATE, or units of a whole number. Actor `number` of those that share
    `shared`. A split without rows for `idle_seconds` is left out. Late rows are counted in `errors`."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        source: SourceExecutor,
        column: int,
        delay: int,
        table: StateTable,
        errors: ErrorCounts,
        shared: SourceWatermark,
        number: int = 0,
        *,
        idle_seconds: float,
    ) -> None:
        self.info = info
        self._input = input
        self._source = source
        self._column, self._delay = column, delay
        self._field = info.schema[column]
        self._table = table
        self._errors = errors
        self._shared = shared
        self._own_bound, self._own_ended = f"{BOUND} {number}", f"{ENDED} {number}"
        self._number = number
        self._idle_seconds = idle_seconds
        self._greatest: dict[str, int] = {}  # by split that has not ended
        self._ended: int | None = None
        self._bound: int | None = None
        self._stored: dict[str, int] = {}  # rows of this actor as of the last barrier
        self._is_due = False  # some receiver has not got the watermark

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        self._load()
        yield barrier
        for message in messages:
            if isinstance(message, StreamChunk):
                kept = self._timely(message)
                if kept.visible_rows:
                    yield kept
            elif isinstance(message, Barrier):
                yield from self._advanced(message)
                self._store()
                self._table.commit(message.epoch)
                yield message
            else:
                yield message

    def _load(self) -> None:
        """The bound and the ended splits of all actors of before; the greatest values of own splits."""
        for key, value in self._table.scan():
            name, number = str(key), int(str(value))
            if name.startswith(BOUND):
                self._bound = raised(self._bound, number)
            elif name.startswith(ENDED):
                self._ended = raised(self._ended, number)
            elif name in self._source.splits:
                self._greatest[name] = number
            else:
                continue
            if name in self._source.splits or name in (self._own_bound, self._own_ended):
                self._stored[name] = number
        if self._bound is not None:
            self._shared.restore(self._bound)
            self._is_due = True

    def _timely(self, chunk: StreamChunk) -> StreamChunk:
        """The chunk without late rows. Its greatest value becomes that of its split."""
        chunk = chunk.compact()
        values = integers_of(chunk.columns[self._column].array)
        extremes = pc.min_max(values)
        least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
        if greatest is None:
            return chunk
        position = self._source.position
        assert position is not None
        self._greatest[position.split] = raised(self._greatest.get(position.split), greatest)
        if self._bound is None or least >= self._bound - self._delay:
            return chunk
        late = pc.less(values, pa.scalar(self._bound - self._delay, pa.int64())).fill_null(False)
        self._errors.add(late_reason(self._field.name), pc.sum(late).as_py())
        return chunk.filter(pc.invert(late).to_numpy(zero_copy_only=False))

    def _advanced(self, barrier: Barrier) -> Iterator[Watermark]:
        """The watermark, if it has moved in the epoch that `barrier` ends or somebody lacks it."""
        bound = self._shared.report(self._number, barrier.epoch.prev, self._report())
        if bound is not None and (bound != self._bound or self._is_due):
            value = value_of(bound - self._delay, self._field.data_type)
            if value is not None:
                yield Watermark(self._column, value)
        self._bound = bound
        self._is_due = isinstance(barrier.mutation, Add)  # new actors receive messages from this barrier on

    def _report(self) -> SplitReport:
        for split in [split for split in self._greatest if self._source.has_ended(split)]:
            self._ended = raised(self._ended, self._greatest.pop(split))
        awaited = self._source.awaited_splits(self._idle_seconds)
        values = [self._greatest.get(split) for split in awaited]
        known = [value for value in values if value is not None]
        return SplitReport(len(known) < len(values), min(known, default=None), self._ended)

    def _store(self) -> None:
        """Writes what has changed since the last barrier."""
        rows = dict(self._greatest)
        if self._ended is not None:
            rows[self._own_ended] = self._ended
        if self._bound is not None:
            rows[self._own_bound] = self._bound
        store_rows(self._table, self._stored, rows)
        self._stored = rows


def late_reason(column: str) -> str:
    """The reason under which late rows are counted."""
    return f"late: {column} is below the watermark"


def integers_of(array: pa.Array) -> pa.Array:
    """The values of a moment or whole number as integers."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date32(array.type) else array


def value_of(number: int, data_type: DataType) -> object:
    """The Python value of an integer form; None if the type has no such value: then no row is below it."""
    integers = pa.int32() if data_type.kind is TypeKind.DATE else pa.int64()
    try:
        return Column(pa.array([number], integers).cast(data_type.arrow), data_type)[0]
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None
