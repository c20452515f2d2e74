"""Files that COPY … TO writes: Parquet, CSV, JSON (an object a line) and Arrow, batch by batch.

    parquet   compression: zstd (the default), snappy, lz4, gzip or none
    csv       header (true by default), delimiter, quote, null (the text that stands for NULL)
    json
    arrow

CSV and JSON files whose name ends with .gz, .bz2, .zst or .lz4 are compressed. A file appears whole, or not at all: it
is written under a temporary name beside it and gets its name at the end, in place of an older file.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from hummock.errors import HummockError
from hummock.object_store import directory_of, open_object_store
from relational.display.text_rows import csv_lines, json_objects, lines_as_bytes
from relational.types import Schema, TypeKind
from stream.connector.decompressed import codec_of_name
from stream.connector.object_upload import ObjectUpload
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError

TEXT_ROWS = 4_096
"""Rows that are text at a time."""
GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20
"""A row group of Parquet ends beyond either."""


class RowWriter(ABC):
    """Writes batches of one schema to an open file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """The next rows."""

    @abstractmethod
    def finish(self) -> None:
        """What follows the last row. The file itself stays open."""

    def abandon(self) -> None:  # noqa: B027  most writers hold nothing
        """The file will not be whole. It is still open."""


def write_file(
    form: str, path: str, options: Mapping[str, str], schema: Schema, batches: Iterator[pa.RecordBatch]
) -> int:
    """Writes the file, a path or a URL; the number of rows. ConnectorError for a format, option or type that there is
    not, and for a place that cannot be written; what `batches` raise. Nothing is left of a file that is not whole."""
    opened = _WRITERS.get(form)
    if opened is None:
        raise ConnectorError(form, f"it is no format of files; there are {', '.join(_WRITERS)}")
    begin, rows = opened(options, schema), 0
    try:
        with _whole_file(path) as file:
            writer = begin(file)
            try:
                for batch in batches:
                    writer.write(batch)
                    rows += batch.num_rows
                writer.finish()
            except BaseException:
                writer.abandon()
                raise
    except (OSError, HummockError) as error:
        raise ConnectorError(form, f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error
    return rows


@contextmanager
def _whole_file(path: str) -> Iterator[pa.NativeFile]:
    """A file that has its name after the block, unless the block raises."""
    codec = codec_of_name(path.partition("?")[0])
    if "://" in path and not path.startswith("file:"):
        parts = urlsplit(path)
        parent, _, name = parts.path.rpartition("/")
        store = open_object_store(urlunsplit((parts.scheme, parts.netloc, parent, parts.query, "")))
        try:
            with store.create(name, if_absent=False) as upload:
                yield from _compressed(pa.PythonFile(ObjectUpload(upload), mode="w"), codec)
        finally:
            store.close()
        return
    target = Path(directory_of(path) if path.startswith("file:") else path).expanduser().resolve()
    if target.exists() and not target.is_file():
        raise OSError(None, "a directory or a device is there, which no file replaces")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield from _compressed(pa.OSFile(str(temporary), mode="w"), codec)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _compressed(file: pa.NativeFile, codec: str | None) -> Iterator[pa.NativeFile]:
    """The file to write to, which is closed afterwards."""
    with file:
        if codec is None:
            yield file
            return
        with pa.CompressedOutputStream(file, codec) as stream:
            yield stream


class _ParquetWriter(RowWriter):
    """Collects the batches of a row group."""

    def __init__(self, file: pa.NativeFile, schema: Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self._schema = schema.arrow
        self._file = pq.ParquetWriter(file, self._schema, compression=compression, write_page_checksum=True)
        self._group: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self._group and (self._rows + batch.num_rows > GROUP_ROWS or self._bytes + batch.nbytes > GROUP_BYTES):
            self._end_group()
        self._group.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def finish(self) -> None:
        if self._group:
            self._end_group()
        self._file.close()

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()  # else its finalizer writes to a closed file

    def _end_group(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._group, self._schema))
        self._group, self._rows, self._bytes = [], 0, 0


class _ArrowWriter(RowWriter):
    def __init__(self, file: pa.NativeFile, schema: Schema) -> None:
        self._file = pa.ipc.new_file(file, schema.arrow)

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write_batch(batch)

    def finish(self) -> None:
        self._file.close()


class _LineWriter(RowWriter):
    """Rows as lines, each of which `lines` makes of a row."""

    def __init__(self, file: pa.NativeFile, lines: Callable[[pa.RecordBatch], pa.Array], header: pa.Array) -> None:
        self._file, self._lines = file, lines
        self._file.write(lines_as_bytes(header))

    def write(self, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, TEXT_ROWS):
            self._file.write(lines_as_bytes(self._lines(batch.slice(first, TEXT_ROWS))))

    def finish(self) -> None:
        """Nothing follows."""


Begin = Callable[[pa.NativeFile], RowWriter]


def _parquet(options: Mapping[str, str], schema: Schema) -> Begin:
    values = OptionValues("parquet", options, ("compression",))
    compression = values.choice("compression", "zstd", ("zstd", "snappy", "lz4", "gzip", "none"))
    for field in schema:
        if field.data_type.contains(TypeKind.INTERVAL):
            raise ConnectorError("parquet", f"column {field.name!r}: Parquet has no values of {field.data_type}")
    return lambda file: _ParquetWriter(file, schema, compression)


def _arrow(options: Mapping[str, str], schema: Schema) -> Begin:
    OptionValues("arrow", options, ())
    return lambda file: _ArrowWriter(file, schema)


def _csv(options: Mapping[str, str], schema: Schema) -> Begin:
    values = OptionValues("csv", options, ("header", "delimiter", "quote", "null"))
    delimiter, quote = values.character("delimiter", ","), values.character("quote", '"')
    has_header, null = values.flag("header", True), values.text("null", "")
    if not delimiter or not quote or delimiter == quote:
        raise ConnectorError("csv", "delimiter and quote are two ASCII characters")
    if not len(schema):
        raise ConnectorError("csv", "rows without columns have no lines")

    def lines(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_columns == 1 and not null and batch.column(0).null_count:
            cure = "NULL 'NA' writes a text for it"
            raise ConnectorError("csv", f"a NULL of the only column would be an empty line, which is no row: {cure}")
        return csv_lines(batch.columns, delimiter, quote, null)

    names = csv_lines([pa.array([name]) for name in schema.names], delimiter, quote, null)
    return lambda file: _LineWriter(file, lines, names if has_header else names.slice(0, 0))


def _json(options: Mapping[str, str], schema: Schema) -> Begin:
    OptionValues("json", options, ())
    return lambda file: _LineWriter(file, json_objects, pa.array([], pa.string()))


_WRITERS: Mapping[str, Callable[[Mapping[str, str], Schema], Begin]] = {
    "parquet": _parquet,
    "csv": _csv,
    "json": _json,
    "ndjson": _json,
    "arrow": _arrow,
}
