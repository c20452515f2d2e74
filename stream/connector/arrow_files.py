"""Arrow IPC files as a source: `WITH (connector = 'arrow', path = '/data/bids')`, a directory or one file.

Each file is a split, named by its file name; a directory's files are those that end in .arrow, .ipc or .feather. Files
are mapped into memory, only the columns that are read are touched, and rows are handed on without a copy where the
file's types are those of the source; others are cast. Compressed files are decompressed batch by batch. The offset of a
split is "<record batch>:<row within it>". Files must not change while they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from relational.chunk import Column, DataChunk, StreamChunk
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader
from stream.errors import ConnectorError, InvalidOffset

NAME = "arrow"
SUFFIXES = (".arrow", ".ipc", ".feather")


class ArrowFileReader(SplitReader):
    """Reads `columns` of `schema` from one file, found by name."""

    def __init__(self, path: Path, schema: Schema, columns: Sequence[int]) -> None:
        self._path, self._schema = path, schema.project(columns)
        self._batch_number = self._row = 0
        self._batch: pa.RecordBatch | None = None
        try:
            self._source = pa.memory_map(str(path))
            fields = pa.ipc.open_file(self._source).schema
            numbers = [self._field_number(fields, name) for name in self._schema.names]
            options = pa.ipc.IpcReadOptions(included_fields=numbers)
            self._file = pa.ipc.open_file(self._source, options=options)
        except (OSError, pa.ArrowException) as error:
            raise ConnectorError(NAME, f"{path} cannot be read: {error}") from error

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        if self._batch is None and not self._load():
            return None
        assert self._batch is not None
        rows = self._batch.slice(self._row, max_rows)
        self._row += rows.num_rows
        if self._row == self._batch.num_rows:
            self._batch, self._batch_number, self._row = None, self._batch_number + 1, 0
        columns = [self._column(rows, number) for number in range(len(self._schema))]
        return StreamChunk.inserts(DataChunk(columns, capacity=rows.num_rows))

    @property
    def offset(self) -> str:
        return f"{self._batch_number}:{self._row}"

    def seek(self, offset: str) -> None:
        batch, _, row = offset.partition(":")
        if not (batch.isdecimal() and row.isdecimal()) or int(batch) > self._file.num_record_batches:
            raise InvalidOffset(NAME, self._path.name, offset)
        self._batch, self._batch_number, self._row = None, int(batch), int(row)
        if self._row and (not self._load() or self._batch is None or self._row >= self._batch.num_rows):
            raise InvalidOffset(NAME, self._path.name, offset)

    @property
    def is_finished(self) -> bool:
        return self._batch is None and self._batch_number >= self._file.num_record_batches

    def close(self) -> None:
        self._source.close()

    def _load(self) -> bool:
        """Opens the next record batch that has rows; False at the end of the file."""
        while self._batch_number < self._file.num_record_batches:
            try:
                self._batch = self._file.get_batch(self._batch_number)
            except (OSError, pa.ArrowException) as error:
                where = f"record batch {self._batch_number} of {self._path}"
                raise ConnectorError(NAME, f"{where} cannot be read: {error}") from error
            if self._batch.num_rows:
                return True
            self._batch, self._batch_number = None, self._batch_number + 1
        return False

    def _column(self, rows: pa.RecordBatch, number: int) -> Column:
        field = self._schema[number]
        array, wanted = rows.column(field.name), field.data_type.arrow
        try:
            return Column(array if array.type == wanted else array.cast(wanted))
        except (pa.ArrowException, NotImplementedError) as error:
            message = f"column {field.name!r} of {self._path} is {array.type}, not {field.data_type}: {error}"
            raise ConnectorError(NAME, message) from error

    def _field_number(self, fields: pa.Schema, name: str) -> int:
        numbers = fields.get_all_field_indices(name)
        if len(numbers) != 1:
            has = "no column" if not numbers else "several columns"
            raise ConnectorError(NAME, f"{self._path} has {has} {name!r}; it has {', '.join(fields.names)}"[:1_000])
        return int(numbers[0])


class ArrowFileEnumerator(SplitEnumerator):
    """The files of a directory by name, or the one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def list_splits(self) -> Sequence[str]:
        if self._path.is_file():
            return [self._path.name]
        if not self._path.is_dir():
            raise ConnectorError(NAME, f"there is no file or directory {self._path}")
        return sorted(each.name for each in self._path.iterdir() if each.suffix in SUFFIXES and each.is_file())


class ArrowFilesConnector(Connector):
    """Option `path`: an absolute path, of a file or of a directory of files."""

    is_append_only = is_consistent = True

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        unknown = sorted(options.keys() - {"path"})
        if unknown or "path" not in options:
            fault = f"it has no option {unknown[0]!r}, only path" if unknown else "the option path is missing"
            raise ConnectorError(NAME, fault)
        self._path, self._schema = Path(options["path"]), schema
        if not self._path.is_absolute():
            raise ConnectorError(NAME, f"path {options['path']!r} is not absolute")

    def enumerator(self) -> SplitEnumerator:
        return ArrowFileEnumerator(self._path)

    def open_split(self, split: str, columns: Sequence[int]) -> SplitReader:
        directory = self._path.parent if self._path.is_file() else self._path
        if Path(split).name != split:
            raise ConnectorError(NAME, f"{split!r} is no file name")
        return ArrowFileReader(directory / split, self._schema, columns)
