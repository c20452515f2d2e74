"""Arrow streams of this process as sources: `arrow_source(name, stream)`, then `WITH (connector = 'arrow_stream',
name = …)`.

A stream is read once and cannot be rewound: its batches are held until every job that reads them has committed them,
in a buffer of bounded size; when it is full, the stream is not read on before the next commit. A recovery of this
process therefore loses nothing. With the process the stream is gone: after its death a job goes on at the beginning of
the stream that is registered then, and what was read but not committed is lost. A new job begins with the oldest batch
that is held, or with `start = 'latest'` with the next one.

The offset of the only split is "<stream>:<batch>:<row>"; `stream` tells streams apart that had the name one after the
other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from relational.chunk import Column, DataChunk, StreamChunk
from relational.chunk.arrow_import import cast_values
from relational.errors import InvalidValue
from relational.expr.comparisons import Comparison
from relational.types import Field, Schema
from stream.connector.base import Connector, SplitEnumerator, SplitNames, SplitReader, Start, StartKind
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError, InvalidOffset

NAME = "arrow_stream"
SPLIT = "all"
BUFFER_BYTES = 128 << 20

_STREAMS: dict[str, ArrowStream] = {}
_LOCK = threading.Lock()  # of the registry


def arrow_source(name: str, source: Any, *, buffer_bytes: int = BUFFER_BYTES) -> ArrowStream:
    """Registers a stream of record batches as `name`, until the result is closed.

    `source`: a RecordBatchReader, any object with `__arrow_c_stream__` or `__arrow_c_array__`, such as a table, or an
    iterable of batches, tables and such objects. Nothing is read from it before a job reads `name`; then a thread does.
    `buffer_bytes`: of batches that are held; a larger batch is held alone. ConnectorError if the name is taken,
    TypeError for another kind of source.

        clicks = stream.arrow_source("clicks", pa.table({"person": [1, 2, 1]}))
        db.sql("CREATE SOURCE click (person BIGINT) WITH (connector = 'arrow_stream', name = 'clicks')")
        db.sql("CREATE MATERIALIZED VIEW per_person AS SELECT person, count(*) AS n FROM click GROUP BY person")
    """
    stream = ArrowStream(name, batches_of(source), buffer_bytes)
    with _LOCK:
        if name in _STREAMS:
            raise ConnectorError(NAME, f"a stream {name!r} is registered already: close it first")
        _STREAMS[name] = stream
    return stream


def batches_of(source: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. TypeError for an object that is none."""
    if isinstance(source, pa.RecordBatch):
        return iter((source,))
    if hasattr(source, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(source))
    if hasattr(source, "__arrow_c_array__"):
        return iter((pa.record_batch(source),))
    if not isinstance(source, Iterable):
        raise TypeError(f"a {type(source).__name__} is no stream of record batches")
    return (batch for part in source for batch in batches_of(_part(part)))


def _part(part: Any) -> Any:
    if not hasattr(part, "__arrow_c_stream__") and not hasattr(part, "__arrow_c_array__"):
        raise TypeError(f"a {type(part).__name__} in a stream of record batches")
    return part


class ArrowStream(ClosedAtExit):
    """A registered stream. Thread safe; a context manager that closes it."""

    def __init__(self, name: str, batches: Iterator[pa.RecordBatch], buffer_bytes: int) -> None:
        self.name = name
        self.identity = os.urandom(8).hex()
        self._batches, self._buffer_bytes = batches, buffer_bytes
        self._changed = threading.Condition()
        self._held: deque[pa.RecordBatch] = deque()
        self._held_bytes = 0
        self._first = 0  # the number of the first held batch
        self._positions: dict[SplitReader, int] = {}  # of open readers: the first batch that each may read again
        self._has_ended = self._is_closed = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Unregister the stream and drop what it holds; jobs that read it fail. Idempotent."""
        with _LOCK:
            if _STREAMS.get(self.name) is self:
                del _STREAMS[self.name]
        with self._changed:
            self._is_closed = True
            self._held.clear()
            self._held_bytes = 0
            self._changed.notify_all()

    # -- interface of readers --------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number of the oldest batch that is held, or of the next one."""
        with self._changed:
            return self._first

    @property
    def end(self) -> int:
        """The number of the next batch that will be read from the stream."""
        with self._changed:
            return self._first + len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether the stream is not read on before batches are released."""
        return self._held_bytes >= self._buffer_bytes

    def attach(self, reader: SplitReader) -> int:
        """The number of the oldest batch, which is held for `reader` from now on, as are later ones."""
        with self._changed:
            self._positions[reader] = self._first
            if self._thread is None:
                self._thread = threading.Thread(target=self._pull, name=f"arrow-source-{self.name}", daemon=True)
                self._thread.start()
            return self._first

    def detach(self, reader: SplitReader) -> None:
        """Nothing is held for `reader` any more, once others release it."""
        with self._changed:
            self._positions.pop(reader, None)

    def release(self, reader: SplitReader, number: int) -> None:
        """`reader` does not read batches before `number` again."""
        with self._changed:
            if reader not in self._positions:
                return
            self._positions[reader] = max(number, self._positions[reader])
            least = min(self._positions.values())
            while self._held and self._first < least:
                self._held_bytes -= self._held.popleft().nbytes
                self._first += 1
            self._changed.notify_all()

    def batch(self, number: int) -> pa.RecordBatch | None:
        """The batch, None if it was not read yet. ConnectorError for the error that the stream ended with, or if it was
        closed."""
        with self._changed:
            if self._is_closed:
                raise ConnectorError(NAME, f"the stream {self.name!r} was closed")
            if number < self.end:
                return self._held[number - self._first]
            if self._error is not None:
                raise ConnectorError(NAME, f"the stream {self.name!r} ended with an error: {self._error!r}")
            return None

    def has_ended_at(self, number: int) -> bool:
        """Whether there will never be a batch of this number."""
        with self._changed:
            return self._has_ended and self._error is None and number >= self.end

    # -- the thread ------------------------------------------------------------------------------------

    def _pull(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._batches:
                if batch.num_rows and not self._hold(batch):
                    return
        except BaseException as failure:
            error = failure
        with self._changed:
            self._has_ended, self._error = True, error

    def _hold(self, batch: pa.RecordBatch) -> bool:
        """Waits until there is room; whether the stream is still open."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._held or not self.is_full)
            if not self._is_closed:
                self._held.append(batch)
                self._held_bytes += batch.nbytes
            return not self._is_closed


class ArrowStreamReader(SplitReader):
    """The next row is row `_row` of batch `_batch`."""

    holds_rows = True

    def __init__(self, stream: ArrowStream, fields: Sequence[Field]) -> None:
        self._stream, self._fields = stream, fields
        self._batch, self._row = stream.attach(self), 0

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        batch = self._stream.batch(self._batch)
        if batch is None:
            return None
        rows = batch.slice(self._row, max_rows)
        columns = [self._column(rows, field) for field in self._fields]
        self._row += rows.num_rows
        if self._row == batch.num_rows:
            self._batch, self._row = self._batch + 1, 0
        return StreamChunk.inserts(DataChunk(columns, capacity=rows.num_rows))

    @property
    def offset(self) -> str:
        return f"{self._stream.identity}:{self._batch}:{self._row}"

    def seek(self, offset: str) -> None:
        stream, number, row = self._parsed(offset)
        if stream != self._stream.identity:  # of an earlier one, which is gone
            self._batch, self._row = self._stream.first, 0
            return
        if not self._stream.first <= number <= self._stream.end:
            raise InvalidOffset(NAME, SPLIT, offset)
        self._batch, self._row = number, row

    def begin_at(self, start: Start) -> None:
        self._batch, self._row = self._stream.end if start.kind is StartKind.LATEST else self._stream.first, 0

    def committed(self, offset: str) -> None:
        stream, number, _ = self._parsed(offset)
        if stream == self._stream.identity:
            self._stream.release(self, number)

    @property
    def needs_commit(self) -> bool:
        return self._stream.is_full and self._batch == self._stream.end

    @property
    def is_finished(self) -> bool:
        return self._stream.has_ended_at(self._batch)

    def close(self) -> None:
        self._stream.detach(self)

    def _parsed(self, offset: str) -> tuple[str, int, int]:
        parts = offset.split(":")
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise InvalidOffset(NAME, SPLIT, offset)
        return parts[0], int(parts[1]), int(parts[2])

    def _column(self, rows: pa.RecordBatch, field: Field) -> Column:
        count = len(rows.schema.get_all_field_indices(field.name))
        if count != 1:
            has = "no column" if not count else "several columns"
            names = ", ".join(rows.schema.names)[:500]
            raise ConnectorError(NAME, f"a batch of {self._stream.name!r} has {has} {field.name!r}; it has {names}")
        array = rows.column(field.name)
        try:
            return Column(cast_values(array, field.data_type))
        except (pa.ArrowException, NotImplementedError, InvalidValue) as error:
            reason = error.reason if isinstance(error, InvalidValue) else error
            fault = f"column {field.name!r} of {self._stream.name!r} is {array.type}, not {field.data_type}: {reason}"
            raise ConnectorError(NAME, fault) from error


class ArrowStreamConnector(Connector):
    """`WITH (connector = 'arrow_stream', name = …)`."""

    is_append_only = is_consistent = True
    starts = frozenset((StartKind.EARLIEST, StartKind.LATEST))

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        name = OptionValues(NAME, options, ("name",)).text("name")
        with _LOCK:
            stream = _STREAMS.get(name)
            known = ", ".join(sorted(_STREAMS)) or "none"
        if stream is None:
            fault = f"this process has no stream {name!r}: stream.arrow_source({name!r}, …) adds it; it has: {known}"
            raise ConnectorError(NAME, fault[:1_000])
        self._stream, self._schema = stream, schema

    def enumerator(self) -> SplitEnumerator:
        return SplitNames((SPLIT,))

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        if split != SPLIT:
            raise ConnectorError(NAME, f"a stream has one split, {SPLIT!r}; there is no {split!r}")
        return ArrowStreamReader(self._stream, [self._schema[column] for column in columns])
