"""Files of text records as sources: what CSV and NDJSON share.

A file is read in blocks; the complete records of a block are parsed at once by pyarrow. The offset of a split is
"<byte>:<record>": the position at which the next record begins, and the number of records before it, which errors name
from 1 on; of a compressed file the position is that in its text. If a block cannot be parsed, ever smaller parts of it
are, until a single record is left: that is malformed. A record without an end is malformed too, and ends at its first
line end.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from relational.chunk import StreamChunk
from relational.errors import RelationalError
from stream.connector.base import ROWS_AFTER_FAULT
from stream.connector.decompressed import DecompressedFile, codec_of_name
from stream.connector.files import FileConnector, FileReader
from stream.errors import InvalidOffset, MalformedRows

BLOCK_BYTES = 1 << 20
MOST_RECORD_BYTES = 1 << 26
UNKNOWN_BYTES = 1 << 62
SHOWN_REASON = 300
NOISE = re.compile(r"^(In CSV column #\d+: )?((CSV|JSON) parse error: )?(Row #\d+: )?| in row \d+$")
"""What pyarrow says of the position in the part that it parsed."""
PARSE_ERRORS = (pa.ArrowException, RelationalError, ValueError)


class RecordFormat(ABC):
    """How records become rows of the columns that are read. `rows_of_record`: at most."""

    rows_of_record = 1

    @abstractmethod
    def ends(self, block: np.ndarray, is_last: bool) -> np.ndarray:
        """int64: the end of each complete record of a block of bytes that begins with a record; see `record_ends`."""

    @abstractmethod
    def parse(self, records: pa.Buffer, ends: np.ndarray, only: int | None = None) -> pa.RecordBatch:
        """One row per record, or another number if a record is not one row; `ends`: of each record in the buffer.
        `only`: of this column alone, by its number among those that are read; -1: of none, so that only the form of the
        records counts. PARSE_ERRORS."""

    @abstractmethod
    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        """The changes that parsed rows stand for, in order; None if there are none. The result depends on each row by
        itself."""


class RecordReader(FileReader):
    """Invariant: the next record is record `_next` of the block that begins at byte `_base`; records of the block end
    at `_ends`. `_rows` are parsed records from there on."""

    def __init__(self, connector: FileConnector, split: str, form: RecordFormat, names: Sequence[str]) -> None:
        """`names`: of the columns that are read. The first record is at the beginning; see `begin_at_byte`."""
        super().__init__(connector, split)
        self.form, self._names = form, names
        self._first_byte = 0
        self._base = self._record = self._next = 0
        self._block: pa.Buffer | None = None
        self._ends = np.empty(0, np.int64)
        self._rows: pa.RecordBatch | None = None
        self._at_once = MOST_RECORD_BYTES  # records that are parsed at once
        self._size = self.opened().size()
        self._is_finished = not self._size
        self._codec = codec_of_name(split)
        if self._codec is not None and self._size:
            self._size = UNKNOWN_BYTES
        self._decompressed: DecompressedFile | None = None

    def first_record(self) -> bytes:
        """The bytes of the next record, which stays the next one; none at the end of the file. MalformedRows for one
        without an end."""
        if self._is_finished or not self._read_block():
            return b""
        return memoryview(self._records(1)[0]).tobytes()

    def begin_at_byte(self, position: int) -> None:
        """What precedes `position` is no record, but a header."""
        self._first_byte = position
        self._move_to(position, 0)

    @property
    def offset(self) -> str:
        return f"{self._position}:{self._record}"

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    def seek(self, offset: str) -> None:
        byte, _, record = offset.partition(":")
        if not (byte.isdecimal() and record.isdecimal()) or not self._first_byte <= int(byte) <= self._size:
            raise InvalidOffset(self._connector.name, self._split, offset)
        self.close()
        self._move_to(int(byte), int(record))

    def skip_all(self) -> None:
        while self._size == UNKNOWN_BYTES:
            self._base += self._read(self._base, BLOCK_BYTES).size
        self._finish()

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        """As in SplitReader; a record that would exceed `max_rows` by itself is left for a later call."""
        while not self._is_finished:
            rows = self._parsed()
            if rows is None:
                return None
            taken = rows.slice(0, max(1, max_rows // self.form.rows_of_record))
            chunk = self.form.chunk(taken)
            if chunk is not None and chunk.capacity > max_rows:
                return None
            self._rows = rows.slice(taken.num_rows) if taken.num_rows < rows.num_rows else None
            self._pass(taken.num_rows)
            if chunk is not None:
                return chunk
        return None

    def close(self) -> None:
        self._move_to(self._position, self._record)
        self._decompressed = None
        super().close()

    @property
    def _position(self) -> int:
        return self._base + (int(self._ends[self._next - 1]) if self._next else 0)

    def _move_to(self, byte: int, record: int) -> None:
        self._base, self._record, self._next = byte, record, 0
        self._block, self._rows, self._ends = None, None, np.empty(0, np.int64)
        self._is_finished = byte >= self._size

    def _pass(self, records: int) -> None:
        """Moves behind the next `records`."""
        self._next += records
        self._record += records
        if self._position >= self._size:
            self._finish()

    def _finish(self) -> None:
        self._move_to(self._size, self._record)
        self.close()

    def _parsed(self) -> pa.RecordBatch | None:
        """The next records, parsed; None at the end of the file. MalformedRows for the next record, which is then
        passed."""
        while self._rows is None:
            if self._next == len(self._ends) and not self._read_block():
                return None
            count = min(self._at_once, len(self._ends) - self._next)
            try:
                rows = self.form.parse(*self._records(count))
                if rows.num_rows != count:
                    raise ValueError("a record is not one row")
            except pa.ArrowNotImplementedError:
                raise  # no fault of a record
            except PARSE_ERRORS as error:
                if count == 1:
                    self._refuse(error)
                self._at_once = (count + 1) // 2
                continue
            self._at_once = min(2 * count, MOST_RECORD_BYTES)
            self._rows = rows
        return self._rows

    def _records(self, count: int) -> tuple[pa.Buffer, np.ndarray]:
        """The bytes of the next `count` records of the block, and their ends in them."""
        assert self._block is not None
        start = self._position - self._base
        ends = self._ends[self._next : self._next + count] - start
        return self._block.slice(start, int(ends[-1])), ends

    def _refuse(self, error: BaseException) -> None:
        """Passes the next record, which is malformed."""
        number = self._record + 1
        column, reason = self._blamed(error)
        self._at_once = ROWS_AFTER_FAULT
        self._pass(1)
        raise self._malformed(number, reason, column)

    def _malformed(self, number: int, reason: str, column: str | None = None) -> MalformedRows:
        plain = NOISE.sub("", reason)
        text = f"record {number} of {self.where}: {plain}"[:SHOWN_REASON]
        return MalformedRows(self._connector.name, self._split, text, column=column)

    def _blamed(self, error: BaseException) -> tuple[str | None, str]:
        """The column whose value makes the next record malformed, None if its form does; and the reason."""
        record, ends = self._records(1)
        for only in range(-1, len(self._names)):
            try:
                self.form.parse(record, ends, only)
            except PARSE_ERRORS as found:
                return (self._names[only] if only >= 0 else None), str(found)
        return None, str(error)

    def _read_block(self) -> bool:
        """Whether there is another record: reads the block that it begins. MalformedRows for one without an end."""
        begin, length = self._position, BLOCK_BYTES
        while begin < self._size:
            block = self._read(begin, length)
            is_last = begin + block.size >= self._size
            ends = self.form.ends(np.frombuffer(block, np.uint8), is_last)
            if len(ends):
                self._base, self._next, self._block, self._ends = begin, 0, block, ends
                return True
            if is_last or length >= MOST_RECORD_BYTES:
                return self._pass_endless(begin, block, is_last)
            length *= 2
        self._finish()
        return False

    def _pass_endless(self, begin: int, block: pa.Buffer, is_last: bool) -> bool:
        """Passes what follows the last record of the file, if that is blank. MalformedRows for a record without an end,
        which is passed as far as its first line end."""
        text = memoryview(block).tobytes()
        blank = len(text) - len(text.lstrip())
        if blank == len(text) and is_last:
            self._finish()
            return False
        line = text.find(b"\n", blank)
        self._move_to(begin + (line + 1 if line >= 0 else len(text)), self._record + 1)
        what = "a quoted value does not end" if is_last else f"it is longer than {MOST_RECORD_BYTES:,} bytes"
        if self._is_finished:
            self._finish()
        raise self._malformed(self._record, what)

    def _read(self, begin: int, length: int) -> pa.Buffer:
        try:
            if self._codec is not None:
                return self._read_decompressed(self._codec, begin, length)
            source = self.opened()
            source.seek(begin)
            block = source.read_buffer(min(length, self._size - begin))
        except (OSError, EOFError, pa.ArrowException) as error:
            self._decompressed = None  # what the failed read took of it is lost
            super().close()
            raise self.unreadable(error) from error
        if block.size == 0:
            raise self.unreadable(EOFError(f"it ends at byte {begin:,} of {self._size:,}"))
        return block

    def _read_decompressed(self, codec: str, begin: int, length: int) -> pa.Buffer:
        """As `_read`; at the end of the text its size becomes known."""
        if self._decompressed is None:
            self._decompressed = DecompressedFile(self.opened(), codec)
        block = self._decompressed.read(begin, length)
        if block.size < length:
            self._size = begin + block.size
        return block


def batch_of(columns: Sequence[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    """A batch, which may have rows and no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(list(columns), list(names))
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table."""
    columns = [column.combine_chunks() for column in table.columns]
    arrays = [pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return batch_of(arrays, table.column_names, table.num_rows)
