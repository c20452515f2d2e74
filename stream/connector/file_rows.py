"""Files that a query reads: `read_parquet`, `read_csv`, `read_json`, `read_arrow`, and COPY … FROM.

    location   a path, relative to the working directory of the process, or a URL of an object store: of a file, of a
               directory, or of files whose last name has `*`, `?` or `[…]`
    types      of columns, as in `id BIGINT, note VARCHAR`; others have those of the first file
    names      of the columns of CSV files without a header, separated by commas
    and the options of the connector of the format, but for changes

The columns and their types are those of the first file, of text files as far as its first SAMPLE_BYTES tell. Files are
read one after the other by the readers of the connectors, in batches of at most BATCH_ROWS rows, when a query runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from relational.errors import RelationalError
from relational.types import DataType, Schema
from stream.errors import ConnectorError, MalformedRows

if TYPE_CHECKING:
    from relational.expr.comparisons import Comparison
    from stream.connector.files import FileConnector

BATCH_ROWS = 65_536
CONNECTORS = {"parquet": "parquet", "csv": "csv", "json": "ndjson", "ndjson": "ndjson", "arrow": "arrow"}
"""Format -> the connector that reads it."""
OWN_OPTIONS = ("types", "names")
NOT_OF_QUERIES = frozenset(("path", "format"))
"""Options of connectors: the location has its own place, and a query has rows, not changes."""


def open_file_rows(form: str, location: str, options: Mapping[str, str]) -> FileRows:
    """The rows of files. ConnectorError for options that the format does not have, and for files that are not there or
    whose columns cannot be told; BindError for an unknown type."""
    types = options.get("types", "")
    fields = DataType.parse(f"STRUCT<{types}>").fields if types.strip() else ()
    return FileRows(form, location, options, {field.name: field.data_type for field in fields})


class FileRows:
    """A RowSource: the rows of files at `location`. `types`: of some columns, or with `is_whole` of all of them."""

    def __init__(
        self,
        form: str,
        location: str,
        options: Mapping[str, str],
        types: Mapping[str, DataType],
        *,
        is_whole: bool = False,
    ) -> None:
        from stream.connector.base import open_connector

        if form not in CONNECTORS:
            raise ConnectorError(form, f"it is no format of files; there are {', '.join(CONNECTORS)}")
        for name in sorted(NOT_OF_QUERIES & options.keys()):
            raise ConnectorError(form, f"it has no option {name!r} in a query")
        place, self._pattern = located(form, location)
        self._location, self.name = location, f"{form} {location!r}"
        own = () if is_whole else OWN_OPTIONS
        given = {name: value for name, value in options.items() if name not in own} | {"path": place}

        def opened(schema: Schema) -> FileConnector:
            return cast("FileConnector", open_connector(CONNECTORS[form], given, schema))

        self._connector = opened(Schema())
        self._is_inferred = not is_whole
        self.schema = Schema.of(**types) if is_whole else self._inferred(options, types)
        self._connector = opened(self.schema)

    def files(self) -> Sequence[str]:
        """Their names, in the order in which they are read. ConnectorError if there are none."""
        names = self._connector.enumerator().list_splits() if self._pattern is None else self._matching(self._pattern)
        if not names:
            raise ConnectorError(self._connector.name, f"there is no file at {self._location}")
        return names

    def read(self, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> Iterator[pa.RecordBatch]:
        """As RowSource. ConnectorError; MalformedRows names the file, the record and the column."""
        for name in self.files():
            for _, batch in self._read_file(name, columns, filters):
                yield batch

    def read_with_places(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """All columns of all rows as `read`, each batch with the path of its file and the number of its first row in
        that, from 0."""
        for name in self.files():
            for first, batch in self._read_file(name, range(len(self.schema)), ()):
                yield self._connector.directory.where(name), first, batch

    def _read_file(
        self, name: str, columns: Sequence[int], filters: Sequence[Comparison]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches, with the rows before them; without those that filters leave out."""
        from stream.connector.base import open_reader, validated

        connector, schema = self._connector, self.schema.project(columns)
        reader = open_reader(connector, name, columns, filters)
        rows = 0
        try:
            while not reader.is_finished:
                chunk = reader.next_chunk(BATCH_ROWS)
                if chunk is None:
                    break
                chunk = validated(chunk, schema, name, connector=connector.name, is_sound=reader.is_sound)
                yield rows, pa.RecordBatch.from_arrays([each.array for each in chunk.columns], list(schema.names))
                rows += chunk.capacity
        except MalformedRows as error:
            raise self._located_error(error, name, None if filters else rows) from error
        finally:
            reader.close()

    def _located_error(self, error: MalformedRows, name: str, rows: int | None) -> MalformedRows:
        """The error with the row in its file, if the `rows` before its batch are known, and what to do about it."""
        reason = error.reason
        if error.row is not None:
            number = "a row" if rows is None else f"row {rows + error.row + 1}"
            reason = f"{number} of {self._connector.directory.where(name)}: {reason}"
        if self._is_inferred and error.column is not None:
            reason += f"; types => '{error.column} …' names another type than the first rows have"
        return MalformedRows(self._connector.name, name, reason, column=error.column)

    def _matching(self, pattern: str) -> Sequence[str]:
        from stream.connector.directory import READ_ERRORS

        try:
            names = self._connector.directory.names()
        except READ_ERRORS as error:
            raise ConnectorError(self._connector.name, f"{self._location} cannot be listed: {error}") from error
        return [name for name in names if fnmatchcase(name, pattern)]

    def _inferred(self, options: Mapping[str, str], types: Mapping[str, DataType]) -> Schema:
        from stream.connector.file_schema import schema_of

        connector, first = self._connector, self.files()[0]
        try:
            found = schema_of(connector, first, options, types)
        except RelationalError as error:
            raise ConnectorError(connector.name, f"{connector.directory.where(first)}: {error}") from error
        lacking = [name for name in types if name not in found.names]
        if lacking:
            has = f"has no column {lacking[0]!r}; it has {', '.join(found.names)}"
            raise ConnectorError(connector.name, f"{connector.directory.where(first)} {has}")
        return Schema.of(**{field.name: types.get(field.name, field.data_type) for field in found})


def located(form: str, location: str) -> tuple[str, str | None]:
    """The absolute path or URL of a file or directory, and the pattern of the names in it, if there is one.
    ConnectorError for a pattern of directories."""
    is_url = "://" in location or location.startswith("file:")
    marks = "*" if is_url else "*?["
    if is_url:
        parts = urlsplit(location)
        parent, _, last = parts.path.rpartition("/")
        whole = urlunsplit((parts.scheme, parts.netloc, parent, parts.query, ""))
    else:
        location = str(Path(location).expanduser().absolute())
        parent, _, last = location.rpartition("/")
        whole = parent or "/"
    if any(mark in parent for mark in marks):
        raise ConnectorError(form, f"path {location!r}: only the last name of a path is a pattern of files")
    if not any(mark in last for mark in marks) or (not is_url and Path(location).exists()):
        return location, None
    return whole, last
