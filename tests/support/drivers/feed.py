"""A source that tests fill while it is read: good rows, and ten kinds of malformed records.

A table reads the feed `name` of this process:

    CREATE TABLE t (<COLUMNS>) WITH (connector = 'feed', name = '<name>')
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from relational.chunk import Column, Op, StreamChunk
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader, register_connector
from stream.errors import MalformedRows
from tests.support.drivers.numbered_reader import NumberedReader

COLUMNS = ("id BIGINT, k VARCHAR, name VARCHAR(8) NOT NULL, price NUMERIC(10, 2), doc JSONB, at TIMESTAMP, "
           "PRIMARY KEY (id, k)")
SPLIT = "all"
KEY_LIMIT_BYTES = 1 << 20
Row = tuple[int, str, str, int, str, None]
Poison = Callable[[StreamChunk], StreamChunk]


def good_row(number: int) -> Row:
    """The row of a number, as the table returns it."""
    return number, f"k{number % 7}", f"n{number % 5}", number % 1_000, f'{{"a": {number}}}', None


def _with(column: int, array: pa.Array) -> Poison:
    """Replaces one column by an array whose values were never validated."""

    def changed(chunk: StreamChunk) -> StreamChunk:
        columns = list(chunk.columns)
        data_type = columns[column].data_type
        given = array if array.type == data_type.arrow else pa.ExtensionArray.from_storage(data_type.arrow, array)
        columns[column] = Column(given, data_type)
        return chunk.with_columns(columns)

    return changed


def _of_bytes(data_type: pa.DataType, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(data)])


def _text(data: bytes) -> pa.Array:
    offsets = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _of_no_op(chunk: StreamChunk) -> StreamChunk:
    return StreamChunk(chunk.columns, np.array([9], np.uint8))


MALFORMED: Mapping[str, Poison] = {
    "NULL in the key": _with(0, pa.array([None], pa.int64())),
    "NULL where none may be": _with(2, pa.array([None], pa.string())),
    "a text of 9 characters": _with(2, pa.array(["x" * 9])),
    "a key above the limit": _with(1, pa.array(["x" * (KEY_LIMIT_BYTES + 1)])),
    "bytes that are not UTF-8": _with(2, _text(b"\xff\xfe")),
    "text that is not JSON": _with(4, pa.array(['{"a":'])),
    "twelve digits": _with(3, _of_bytes(pa.decimal128(10, 2), (10**12).to_bytes(16, "little"))),
    "the year 10000": _with(5, _of_bytes(pa.timestamp("us"), (253402300800 * 10**6).to_bytes(8, "little"))),
    "no op": _of_no_op,
}
UNDECODABLE, BROKEN = "bytes that are no record", "a reader that raises"
KINDS = (*MALFORMED, UNDECODABLE, BROKEN)


class Feed:
    """The records of a split: good rows by number, poison by kind. Thread safe."""

    def __init__(self) -> None:
        self._records: list[int | str] = []
        self._lock = threading.Lock()
        self._mended = 0  # records that no longer make the reader raise

    def add(self, *records: int | str) -> None:
        """Append rows and poison."""
        with self._lock:
            self._records += records

    def mend(self) -> None:
        """From now on, skips the present records that make the reader raise."""
        with self._lock:
            self._mended = len(self._records)

    def chunk(self, begin: int, max_rows: int, schema: Schema) -> tuple[StreamChunk | None, int]:
        """A chunk of records from `begin` on, and its end. MalformedRows or RuntimeError at a record of that kind."""
        with self._lock:
            records, mended = self._records[begin : begin + max_rows], self._mended
        parts: list[StreamChunk] = []
        end = begin
        for record in records:
            if record in (UNDECODABLE, BROKEN) and not (record == BROKEN and end < mended):
                if parts:
                    break
                if record == UNDECODABLE:
                    raise MalformedRows("feed", SPLIT, "these bytes are no record")
                raise RuntimeError("the reader of the feed cannot go on")
            if record != BROKEN:
                parts.append(_chunk_of(schema, record))
            end += 1
        return (StreamChunk.concat(parts) if parts else None), end


def _chunk_of(schema: Schema, record: int | str) -> StreamChunk:
    row = good_row(record if isinstance(record, int) else 0)
    chunk = StreamChunk.from_rows(schema, [(Op.INSERT, row)])
    return MALFORMED[record](chunk) if isinstance(record, str) else chunk


FEEDS: dict[str, Feed] = {}


class FeedReader(NumberedReader):
    def __init__(self, feed: Feed, schema: Schema, columns: Sequence[int]) -> None:
        super().__init__()
        self._feed, self._schema, self._columns = feed, schema, columns

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        try:
            chunk, self.next = self._feed.chunk(self.next, max_rows, self._schema)
        except MalformedRows:
            self.next += 1
            raise
        return None if chunk is None else chunk.project(self._columns)


class FeedConnector(Connector):
    """One split, which never ends. REQUIRES a feed of the name in this process."""

    is_append_only = True

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        self._feed, self._schema = FEEDS[options["name"]], schema

    def enumerator(self) -> SplitEnumerator:
        return _OneSplit()

    def open_split(self, split: str, columns: Sequence[int]) -> SplitReader:
        return FeedReader(self._feed, self._schema, columns)


class _OneSplit(SplitEnumerator):
    def list_splits(self) -> list[str]:
        return [SPLIT]


def feeds(names: Iterable[str]) -> dict[str, Feed]:
    """New feeds of these names, which replace existing ones."""
    register_connector("feed", FeedConnector)
    made = {name: Feed() for name in names}
    FEEDS.update(made)
    return made


def create(session, name: str, *, malformed: str = "refuse") -> None:
    """Creates a table over the feed of the same name."""
    options = f"connector = 'feed', name = '{name}', malformed = '{malformed}'"
    session.sql(f"CREATE TABLE {name} ({COLUMNS}) WITH ({options})")
