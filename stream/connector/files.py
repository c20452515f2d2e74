"""Files as sources: `WITH (connector = 'arrow' | 'parquet' | 'csv' | 'ndjson', path = '/data/bids')`.

`path` is an absolute path, or a URL of an object store such as `s3://bucket/bids`, of a directory or of one file. Each
file is a split, named by its file name; a directory's files are those with the suffixes of the format, but for names
that begin with a dot. Only the columns that a job needs are read; values whose types differ from those of the source
are cast, others are passed on as they are; times in nanoseconds are truncated to microseconds. Files must not change
while they are read, and are complete when they get their names.

This module has what the formats share, and the reader of files that consist of groups of rows: record batches of Arrow,
row groups of Parquet. The offset of such a split is "<group>:<row>".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from relational.chunk import Column, DataChunk, StreamChunk
from relational.chunk.arrow_import import cast_values
from relational.errors import InvalidValue
from relational.expr.comparisons import Comparison
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader, Start, StartKind
from stream.connector.directory import READ_ERRORS, Directory, open_directory
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError, InvalidOffset

PATH_OPTION = "path"


class FileConnector(Connector):
    """A format: `name`, the `suffixes` of its files, whether local ones are mapped into memory, and its other
    options."""

    is_remote = True

    name: str
    suffixes: tuple[str, ...]
    is_mapped = False
    other_options: tuple[str, ...] = ()
    is_append_only = is_consistent = True
    starts = frozenset(StartKind)

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        self.options = OptionValues(self.name, options, (PATH_OPTION, *self.other_options))
        location = self.options.text(PATH_OPTION)
        self.directory = open_directory(self.name, location, self.suffixes, is_mapped=self.is_mapped)
        self.schema = schema
        self._location = location

    def enumerator(self) -> SplitEnumerator:
        return FileEnumerator(self.name, self._location, self.directory, self.suffixes)

    def check_split(self, split: str) -> None:
        """ConnectorError for a split that is no name of a file."""
        if not split or "/" in split or "\0" in split or split in (".", ".."):
            raise ConnectorError(self.name, f"{split!r} is no file name")

    def column_of(self, array: pa.Array, column: int, where: str) -> Column:
        """The values of a column of the schema in its type. ConnectorError if they cannot be cast."""
        field = self.schema[column]
        try:
            return Column(cast_values(array, field.data_type))
        except (pa.ArrowException, NotImplementedError, InvalidValue) as error:
            reason = error.reason if isinstance(error, InvalidValue) else error
            message = f"column {field.name!r} of {where} is {array.type}, not {field.data_type}: {reason}"
            raise ConnectorError(self.name, message) from error


class FileEnumerator(SplitEnumerator):
    """The files of a directory by name, or the one file."""

    def __init__(self, connector: str, location: str, directory: Directory, suffixes: tuple[str, ...]) -> None:
        self._connector, self._location = connector, location
        self._directory, self._suffixes = directory, suffixes

    def list_splits(self) -> Sequence[str]:
        try:
            names = self._directory.names()
        except (FileNotFoundError, NotADirectoryError):
            raise ConnectorError(self._connector, f"there is no file or directory {self._location}") from None
        except READ_ERRORS as error:
            raise ConnectorError(self._connector, f"{self._location} cannot be listed: {error}") from error
        if len(names) == 1 and self._directory.is_one_file:
            return names
        return [name for name in names if name.endswith(self._suffixes) and not name.startswith(".")]


class FileReader(SplitReader):
    """What the readers of all formats share: a file that is open from the first read to its last row."""

    is_bounded = True

    def __init__(self, connector: FileConnector, split: str) -> None:
        """ConnectorError for a name that is none."""
        connector.check_split(split)
        self._connector, self._split = connector, split
        self._source: pa.NativeFile | None = None
        self.where = connector.directory.where(split)
        """The path or URL of the file."""

    def begin_at(self, start: Start) -> None:
        """A file belongs to the moment at which it was written last: it is read whole or not at all."""
        if start.kind is StartKind.LATEST or (
            start.moment is not None and self._modified_ms() < start.moment.timestamp() * 1_000
        ):
            self.skip_all()

    @abstractmethod
    def skip_all(self) -> None:
        """Continue at the end of the file."""

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def opened(self) -> pa.NativeFile:
        """The open file. ConnectorError if it cannot be opened."""
        if self._source is None:
            try:
                self._source = self._connector.directory.open(self._split)
            except READ_ERRORS as error:
                raise self.unreadable(error) from error
        return self._source

    def unreadable(self, error: BaseException, where: str = "") -> ConnectorError:
        """The error for a file, or a part of it, that cannot be read."""
        return ConnectorError(self._connector.name, f"{where or self.where} cannot be read: {error}")

    def _modified_ms(self) -> int:
        try:
            return self._connector.directory.modified_ms(self._split)
        except READ_ERRORS as error:
            raise self.unreadable(error) from error


class GroupedFile(ABC):
    """An open file: groups of rows, each read as record batches. Its methods may raise READ_ERRORS."""

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

    def may_have(self, group: int, name: str, comparison: Comparison) -> bool:
        """Whether a row of a group may have a value in column `name` for which the comparison is true."""
        return True


class GroupedConnector(FileConnector):
    """A format of grouped files."""

    @abstractmethod
    def open_file(self, source: pa.NativeFile) -> GroupedFile:
        """READ_ERRORS."""

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        return GroupReader(self, split, columns, filters)


class GroupReader(FileReader):
    """Invariant: the next row is row `_row` of group `_group`; if that is open, it is row `_used` of `_batch`, or the
    first of the next batch if there is none. Groups without a row that passes all `filters` are not read, as far as the
    file tells."""

    def __init__(
        self, connector: GroupedConnector, split: str, columns: Sequence[int], filters: Sequence[Comparison]
    ) -> None:
        """ConnectorError for a file that cannot be read, or without one of the columns."""
        super().__init__(connector, split)
        self._open_file = connector.open_file
        self._columns, self._filters = columns, filters
        self._schema = connector.schema.project(columns)
        self._group = self._row = self._used = self._group_rows = 0
        self._batches: Iterator[pa.RecordBatch] | None = None  # of the open group
        self._batch: pa.RecordBatch | None = None
        self._positions: list[int] = []  # of the columns in the batches of the open file
        self._file: GroupedFile | None = None
        fields, self._groups = self._opened_file().fields, self._opened_file().groups
        self.close()
        for name in {*self._schema.names, *(connector.schema.names[each.column] for each in filters)}:
            count = len(fields.get_all_field_indices(name))
            if count != 1:
                has = "no column" if not count else "several columns"
                fault = f"{self.where} has {has} {name!r}; it has {', '.join(fields.names)}"
                raise ConnectorError(connector.name, fault[:1_000])

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        batch = self._current()
        if batch is None:
            return None
        rows = batch.slice(self._used, max_rows)
        columns = [
            self._connector.column_of(rows.column(position), column, self.where)
            for position, column in zip(self._positions, self._columns, strict=True)
        ]
        self._pass(rows.num_rows)
        return StreamChunk.inserts(DataChunk(columns, capacity=rows.num_rows))

    @property
    def offset(self) -> str:
        return f"{self._group}:{self._row}"

    def seek(self, offset: str) -> None:
        group, _, row = offset.partition(":")
        if not (group.isdecimal() and row.isdecimal()) or int(group) > self._groups:
            raise InvalidOffset(self._connector.name, self._split, offset)
        self._open_group(int(group))
        left = int(row)
        while left:
            batch = self._current(left)
            if batch is None or self._group != int(group) or self._row + left >= self._group_rows:
                raise InvalidOffset(self._connector.name, self._split, offset)
            passed = min(left, batch.num_rows - self._used)
            self._pass(passed)
            left -= passed

    def skip_all(self) -> None:
        self._open_group(self._groups)

    @property
    def is_finished(self) -> bool:
        return self._group >= self._groups

    def close(self) -> None:
        self._batch = self._batches = self._file = None
        self._positions = []
        super().close()

    def _opened_file(self) -> GroupedFile:
        if self._file is None:
            try:
                self._file = self._open_file(self.opened())
            except READ_ERRORS as error:
                raise self.unreadable(error) from error
        return self._file

    def _open_group(self, group: int) -> None:
        self._group, self._row, self._used, self._batch, self._batches = group, 0, 0, None, None
        if self.is_finished:
            self.close()

    def _current(self, sought: int = 0) -> pa.RecordBatch | None:
        """The batch of the next row, read if necessary; None at the end of the file. `sought`: a row of this group is
        the next one, so that it is read whatever the filters."""
        while self._batch is None and not self.is_finished:
            try:
                if self._batches is None:
                    if not sought and not self._may_pass_filters():
                        self._open_group(self._group + 1)
                        continue
                    self._group_rows, self._batches = self._opened_file().read(self._group, self._schema.names)
                if self._row == self._group_rows:
                    self._open_group(self._group + 1)
                    continue
                self._batch = next((batch for batch in self._batches if batch.num_rows), None)
                if not self._positions and self._batch is not None:
                    self._positions = list(map(self._batch.schema.get_field_index, self._schema.names))
            except READ_ERRORS as error:
                raise self.unreadable(error, self._where) from error
            if self._batch is None:
                fault = f"{self._where} has {self._row} rows, not {self._group_rows}"
                raise ConnectorError(self._connector.name, fault)
        return self._batch

    def _may_pass_filters(self) -> bool:
        names, file = self._connector.schema.names, self._opened_file()
        return all(file.may_have(self._group, names[each.column], each) for each in self._filters)

    @property
    def _where(self) -> str:
        return f"group {self._group} of {self.where}"

    def _pass(self, rows: int) -> None:
        """Moves behind the next `rows` of the current batch, and at the end of a group to the next one."""
        assert self._batch is not None
        self._row += rows
        self._used += rows
        if self._used == self._batch.num_rows:
            self._batch, self._used = None, 0
        if self._row == self._group_rows:
            self._open_group(self._group + 1)
