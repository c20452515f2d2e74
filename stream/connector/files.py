"""Files of record batches as sources: `WITH (connector = 'arrow' | 'parquet', path = '/data/bids')`.

`path` is an absolute path of a directory or of one file. Each file is a split, named by its file name; a directory's
files are those with the suffixes of the format. Only the columns that a job needs are read; values whose types differ
from those of the source are cast, others are passed on as they are. The offset of a split is "<group>:<row>", the
position within a record batch of Arrow or a row group of Parquet. Files must not change while they are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from relational.chunk import Column, DataChunk, StreamChunk
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader
from stream.errors import ConnectorError, InvalidOffset


class GroupedFile(ABC):
    """An open file: groups of rows, each read as record batches. Its methods may raise OSError and ArrowException."""

    @property
    @abstractmethod
    def fields(self) -> pa.Schema:
        """All columns of the file."""

    @property
    @abstractmethod
    def groups(self) -> int:
        """The number of groups."""

    @abstractmethod
    def read(self, group: int, names: Sequence[str]) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The number of rows of a group, and these rows in order. Columns are found by name."""

    @abstractmethod
    def close(self) -> None: ...


class FileConnector(Connector):
    """A format: `name`, the `suffixes` of its files, and how one is opened."""

    name: str
    suffixes: tuple[str, ...]
    is_append_only = is_consistent = True

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        unknown = sorted(options.keys() - {"path"})
        if unknown or "path" not in options:
            fault = f"it has no option {unknown[0]!r}, only path" if unknown else "the option path is missing"
            raise ConnectorError(self.name, fault)
        self._path, self._schema = Path(options["path"]), schema
        if not self._path.is_absolute():
            raise ConnectorError(self.name, f"path {options['path']!r} is not absolute")

    @abstractmethod
    def open_file(self, path: Path) -> GroupedFile:
        """OSError, ArrowException."""

    def enumerator(self) -> SplitEnumerator:
        return FileEnumerator(self.name, self._path, self.suffixes)

    def open_split(self, split: str, columns: Sequence[int]) -> SplitReader:
        directory = self._path.parent if self._path.is_file() else self._path
        if Path(split).name != split:
            raise ConnectorError(self.name, f"{split!r} is no file name")
        return FileReader(self, directory / split, self._schema.project(columns))


class FileEnumerator(SplitEnumerator):
    """The files of a directory by name, or the one file."""

    def __init__(self, connector: str, path: Path, suffixes: tuple[str, ...]) -> None:
        self._connector, self._path, self._suffixes = connector, path, suffixes

    def list_splits(self) -> Sequence[str]:
        if self._path.is_file():
            return [self._path.name]
        if not self._path.is_dir():
            raise ConnectorError(self._connector, f"there is no file or directory {self._path}")
        return sorted(each.name for each in self._path.iterdir() if each.suffix in self._suffixes and each.is_file())


class FileReader(SplitReader):
    """Invariant: the next row is row `_row` of group `_group`; if that is open, it is row `_used` of `_batch`, or the
    first of the next batch if there is none. The file is open from the first read to its last row."""

    is_bounded = True

    def __init__(self, connector: FileConnector, path: Path, schema: Schema) -> None:
        """ConnectorError for a file that cannot be read, or without a column of `schema`."""
        self._connector, self._path, self._schema = connector, path, schema
        self._group = self._row = self._used = self._group_rows = 0
        self._batches: Iterator[pa.RecordBatch] | None = None  # of the open group
        self._batch: pa.RecordBatch | None = None
        self._file: GroupedFile | None = None
        fields, self._groups = self._opened().fields, self._opened().groups
        self.close()
        for name in schema.names:
            count = len(fields.get_all_field_indices(name))
            if count != 1:
                has = "no column" if not count else "several columns"
                fault = f"{path} has {has} {name!r}; it has {', '.join(fields.names)}"
                raise ConnectorError(connector.name, fault[:1_000])

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        batch = self._current()
        if batch is None:
            return None
        rows = batch.slice(self._used, max_rows)
        columns = [self._column(rows, number) for number in range(len(self._schema))]
        self._pass(rows.num_rows)
        return StreamChunk.inserts(DataChunk(columns, capacity=rows.num_rows))

    @property
    def offset(self) -> str:
        return f"{self._group}:{self._row}"

    def seek(self, offset: str) -> None:
        group, _, row = offset.partition(":")
        if not (group.isdecimal() and row.isdecimal()) or int(group) > self._groups:
            raise InvalidOffset(self._connector.name, self._path.name, offset)
        self._open_group(int(group))
        left = int(row)
        while left:
            batch = self._current()
            if batch is None or self._group != int(group) or self._row + left >= self._group_rows:
                raise InvalidOffset(self._connector.name, self._path.name, offset)
            passed = min(left, batch.num_rows - self._used)
            self._pass(passed)
            left -= passed

    @property
    def is_finished(self) -> bool:
        return self._group >= self._groups

    def close(self) -> None:
        self._batch = self._batches = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> GroupedFile:
        if self._file is None:
            try:
                self._file = self._connector.open_file(self._path)
            except (OSError, pa.ArrowException) as error:
                raise ConnectorError(self._connector.name, f"{self._path} cannot be read: {error}") from error
        return self._file

    def _open_group(self, group: int) -> None:
        self._group, self._row, self._used, self._batch, self._batches = group, 0, 0, None, None
        if self.is_finished:
            self.close()

    def _current(self) -> pa.RecordBatch | None:
        """The batch of the next row, read if necessary; None at the end of the file."""
        while self._batch is None and not self.is_finished:
            try:
                if self._batches is None:
                    self._group_rows, self._batches = self._opened().read(self._group, self._schema.names)
                if self._row == self._group_rows:
                    self._open_group(self._group + 1)
                    continue
                self._batch = next((batch for batch in self._batches if batch.num_rows), None)
            except (OSError, pa.ArrowException) as error:
                raise ConnectorError(self._connector.name, f"{self._where} cannot be read: {error}") from error
            if self._batch is None:
                fault = f"{self._where} has {self._row} rows, not {self._group_rows}"
                raise ConnectorError(self._connector.name, fault)
        return self._batch

    @property
    def _where(self) -> str:
        return f"group {self._group} of {self._path}"

    def _pass(self, rows: int) -> None:
        """Moves behind the next `rows` of the current batch, and at the end of a group to the next one."""
        assert self._batch is not None
        self._row += rows
        self._used += rows
        if self._used == self._batch.num_rows:
            self._batch, self._used = None, 0
        if self._row == self._group_rows:
            self._open_group(self._group + 1)

    def _column(self, rows: pa.RecordBatch, number: int) -> Column:
        field = self._schema[number]
        array, wanted = rows.column(field.name), field.data_type.arrow
        try:
            return Column(array if array.type == wanted else array.cast(wanted))
        except (pa.ArrowException, NotImplementedError) as error:
            message = f"column {field.name!r} of {self._path} is {array.type}, not {field.data_type}: {error}"
            raise ConnectorError(self._connector.name, message) from error
