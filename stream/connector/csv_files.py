"""CSV files as sources: `WITH (connector = 'csv', path = …)`.

    header     true: the first record of each file has the names of its columns, and one without a name is called by its
               position, from column0 on; false: they are the source's, in order
    delimiter  of values, one ASCII character; ','
    quote      of values that contain delimiters, line ends or quotes, which are doubled in them; '"'; empty: none
    escape     takes away the meaning of the character behind it; empty: none
    null       the text that stands for NULL where it is not quoted; empty by default

Values are those of PostgreSQL's COPY but for INTERVAL, BYTEA, lists and structs, which no CSV file has here. Empty
lines are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from relational.chunk import Column, DataChunk, StreamChunk
from relational.chunk.arrow_import import imported
from relational.chunk.text_records import has_hexadecimal, record_ends
from relational.expr.comparisons import Comparison
from relational.types import DataType, Field, Schema, TypeKind
from stream.connector.base import SplitReader
from stream.connector.decompressed import with_compressed
from stream.connector.files import FileConnector
from stream.connector.text_files import BLOCK_BYTES, RecordFormat, RecordReader, batch_of, one_batch
from stream.errors import ConnectorError, MalformedRows

TRUE, FALSE = ["true", "t", "yes", "y", "on", "1"], ["false", "f", "no", "n", "off", "0"]
WITHOUT_TEXT = (TypeKind.INTERVAL, TypeKind.BYTEA, TypeKind.STRUCT, TypeKind.LIST)
INTEGERS = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
FLOATS = (TypeKind.REAL, TypeKind.DOUBLE)


class CsvFormat(RecordFormat):
    """`names`: of all columns of the file; `fields`: those that are read."""

    def __init__(
        self, names: Sequence[str], fields: Sequence[Field], *, delimiter: str, quote: str, escape: str, null: str
    ) -> None:
        self._names, self._fields = names, fields
        self._codes = {"delimiter": code_of(delimiter), "quote": code_of(quote), "escape": code_of(escape)}
        self._options = parse_options(delimiter, quote, escape)
        self.null = null
        self._convert = self._converting(fields)

    def ends(self, block: np.ndarray, is_last: bool) -> np.ndarray:
        return record_ends(block, is_last=is_last, has_returns=True, **self._codes)

    def parse(self, records: pa.Buffer, ends: np.ndarray, only: int | None = None) -> pa.RecordBatch:
        fields = self._fields if only is None else self._fields[only : only + 1] if only >= 0 else ()
        data = memoryview(records)
        if data[-1] != ord("\n"):
            records = pa.py_buffer(data.tobytes() + b"\n")  # else pyarrow ends it at a line end within a quoted value
        rows = self._read(records, self._convert if only is None else self._converting(fields))
        self._check(records, rows, fields)
        columns = [_value(rows.column(number), field) for number, field in enumerate(fields)]
        return batch_of(columns, [field.name for field in fields], rows.num_rows)

    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        return StreamChunk.inserts(DataChunk([Column(column) for column in rows.columns], capacity=rows.num_rows))

    def _converting(self, fields: Sequence[Field]) -> pyarrow.csv.ConvertOptions:
        types = {field.name: text_type(field.data_type) for field in fields}
        if not types:  # pyarrow reads all columns if none is included
            types = {self._names[0]: pa.utf8()}
        return pyarrow.csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=[self.null], strings_can_be_null=True,
            quoted_strings_can_be_null=False, true_values=_cases(TRUE), false_values=_cases(FALSE),
        )

    def _read(self, records: pa.Buffer, convert: pyarrow.csv.ConvertOptions) -> pa.RecordBatch:
        """All records; their values may be in one block of pyarrow's reader only if that is larger than they are."""
        read = pyarrow.csv.ReadOptions(
            use_threads=False, column_names=self._names, block_size=max(BLOCK_BYTES, 2 * records.size)
        )
        return one_batch(pyarrow.csv.read_csv(pa.BufferReader(records), read, self._options, convert))

    def _check(self, records: pa.Buffer, rows: pa.RecordBatch, fields: Sequence[Field]) -> None:
        """ValueError for values that pyarrow reads and SQL does not: hexadecimal integers, floats out of range."""
        is_hexadecimal = has_hexadecimal(np.frombuffer(records, np.uint8))
        suspect = [
            field
            for number, field in enumerate(fields)
            if (is_hexadecimal and field.data_type.kind in INTEGERS)
            or (field.data_type.kind in FLOATS and pc.any(pc.is_inf(rows.column(number))).as_py())
        ]
        if not suspect:
            return
        texts = pyarrow.csv.ConvertOptions(
            column_types={field.name: pa.utf8() for field in suspect},
            include_columns=[field.name for field in suspect],
        )
        for field, column in zip(suspect, self._read(records, texts).columns, strict=True):
            if field.data_type.kind in INTEGERS:
                is_valid = pc.invert(pc.match_substring(column, "x", ignore_case=True))
            else:
                is_finite = pc.invert(pc.is_inf(rows.column(rows.schema.get_field_index(field.name))))
                is_valid = pc.or_kleene(is_finite, pc.match_substring(column, "inf", ignore_case=True))
            if not pc.all(is_valid).as_py():
                raise ValueError(f"no number, or out of range, for {field.data_type}")


def named_columns(header: Sequence[str]) -> list[str]:
    """The names of the columns of a header."""
    return [name or f"column{position}" for position, name in enumerate(header)]


def parse_options(delimiter: str, quote: str, escape: str) -> pyarrow.csv.ParseOptions:
    """pyarrow's name for them; an empty text is no character."""
    return pyarrow.csv.ParseOptions(
        delimiter=delimiter, quote_char=quote or False, escape_char=escape or False, ignore_empty_lines=True
    )


def code_of(character: str) -> int:
    """The byte of an ASCII character; -1 for none."""
    return ord(character) if character else -1


def text_type(data_type: DataType) -> pa.DataType:
    """What pyarrow makes of a text: the column's type, but a text of JSON, and a DOUBLE for REAL, whose range it does
    not know."""
    return {TypeKind.JSONB: pa.utf8(), TypeKind.REAL: pa.float64()}.get(data_type.kind, data_type.arrow)


def _value(array: pa.Array, field: Field) -> pa.Array:
    """The column in its own type."""
    return array if array.type == field.data_type.arrow else imported(array, field.data_type, field.name)


def _cases(words: Sequence[str]) -> list[str]:
    return [each for word in words for each in dict.fromkeys((word, word.upper(), word.capitalize()))]


class CsvFilesConnector(FileConnector):
    """`WITH (connector = 'csv', path = …)`."""

    name = "csv"
    suffixes = with_compressed((".csv",))
    other_options = ("header", "delimiter", "quote", "escape", "null")

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        super().__init__(options, schema)
        for field in schema:
            if any(field.data_type.contains(kind) for kind in WITHOUT_TEXT):
                raise ConnectorError(self.name, f"column {field.name!r}: no CSV file has values of {field.data_type}")
        self.has_header = self.options.flag("header", True)
        self.form = {name: self.options.character(name, default)
                      for name, default in (("delimiter", ","), ("quote", '"'), ("escape", ""))}
        self.null = self.options.text("null", "")
        if not self.form["delimiter"]:
            raise ConnectorError(self.name, "the option delimiter is one ASCII character, not empty")

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        fields = tuple(self.schema[column] for column in columns)
        reader = RecordReader(self, split, self._format(self.schema.names, fields), [field.name for field in fields])
        if self.has_header:
            self._read_header(reader, fields)
        reader.close()
        return reader

    def _read_header(self, reader: RecordReader, fields: Sequence[Field]) -> None:
        """The reader begins behind the header, and finds the columns by it. ConnectorError if one is not there."""
        try:
            header = reader.first_record()
            names = self._names_in(header)
        except (pa.ArrowException, MalformedRows) as error:
            raise ConnectorError(self.name, f"the header of {reader.where} cannot be read: {error}") from error
        for field in fields if header else ():
            count = names.count(field.name)
            if count != 1:
                has = "no column" if not count else "several columns"
                reason = f"{reader.where} has {has} {field.name!r}; it has {', '.join(names)}"
                raise ConnectorError(self.name, reason[:1_000])
        if header:
            reader.form = self._format(names, fields)
            reader.begin_at_byte(len(header))

    def _format(self, names: Sequence[str], fields: Sequence[Field]) -> CsvFormat:
        return CsvFormat(names, fields, null=self.null, **self.form)

    def _names_in(self, header: bytes) -> list[str]:
        read = pyarrow.csv.ReadOptions(use_threads=False, autogenerate_column_names=True)
        most = header.count(self.form["delimiter"].encode()) + 1
        texts = pyarrow.csv.ConvertOptions(column_types={f"f{number}": pa.utf8() for number in range(most)})
        if not header.strip():
            return []
        found = pyarrow.csv.read_csv(pa.BufferReader(header + b"\n"), read, parse_options(**self.form), texts)
        return named_columns([str(column[0].as_py()) for column in found.columns])
