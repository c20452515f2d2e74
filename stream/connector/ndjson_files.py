"""Files of newline-delimited JSON as sources: `WITH (connector = 'ndjson', path = …)`, one object per line.

    format     append: each object is a row, its members are the columns; a missing member is NULL
               upsert, debezium: changes of a table with a primary key, see `change_formats`

Dates and times are ISO texts, NUMERIC values numbers or texts, JSONB columns any value. INTERVAL, TIME and BYTEA have
no JSON form here. Blank lines are skipped, members that are no column ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.json

from relational.chunk import Column, DataChunk, StreamChunk
from relational.chunk.arrow_import import imported
from relational.chunk.json_members import json_members
from relational.chunk.text_records import edge_bytes, record_ends
from relational.expr.comparisons import Comparison
from relational.types import DataType, Field, Schema, TypeKind
from stream.connector.base import SplitReader
from stream.connector.change_formats import CHANGE_FORMATS, ChangeFormat, OtherLayout
from stream.connector.decompressed import with_compressed
from stream.connector.files import FileConnector
from stream.connector.text_files import BLOCK_BYTES, RecordFormat, RecordReader, batch_of, one_batch
from stream.errors import ConnectorError

if TYPE_CHECKING:
    from relational.catalog.objects import TableCatalog

APPEND = "append"
WITHOUT_JSON = (TypeKind.INTERVAL, TypeKind.TIME, TypeKind.BYTEA)


class JsonRecords:
    """Parsed records: members of their objects, at any depth, as columns. `ends`: of each record in `text`."""

    def __init__(self, text: pa.Buffer, ends: np.ndarray, rows: pa.StructArray) -> None:
        self._text, self._ends, self._rows = text, ends, rows
        self._texts: pa.Array | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def member(self, *path: str) -> pa.Array:
        """The values of a member, NULL where an object on the way to it is."""
        found = self._rows
        for name in path:
            found = found.flatten()[found.type.get_field_index(name)]
        return found

    def columns(self, fields: Sequence[Field], *path: str) -> list[pa.Array]:
        """The members named as `fields` of the object at `path`, each in the type of its field. InvalidValue,
        EncodingError."""
        found = self.member(*path)
        given = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
        return [self._column(given, field, path) for field in fields]

    def _column(self, given: Mapping[str, pa.Array], field: Field, path: Sequence[str]) -> pa.Array:
        if field.data_type.kind is TypeKind.JSONB:
            return imported(json_members(self._text_of_records(), [*path, field.name]), field.data_type, field.name)
        array = given[field.name]
        return array if array.type == field.data_type.arrow else imported(array, field.data_type, field.name)

    def _text_of_records(self) -> pa.Array:
        if self._texts is None:
            offsets = pa.py_buffer(np.concatenate([[0], self._ends]).astype(np.int32))
            self._texts = pa.Array.from_buffers(pa.binary(), len(self._ends), [None, offsets, self._text])
        return self._texts


class NdjsonFormat(RecordFormat):
    """Objects with members named as `fields`; `changes` None: each is a row."""

    def __init__(self, fields: Sequence[Field], changes: ChangeFormat | None) -> None:
        self._fields, self._changes = fields, changes
        self._options = self._options_of(fields)
        self._layout = 0  # of changes: the first one that had all records so far
        self.rows_of_record = 1 if changes is None else changes.rows_of_record

    def ends(self, block: np.ndarray, is_last: bool) -> np.ndarray:
        return record_ends(block, is_last=is_last, skips_blank=True)

    def parse(self, records: pa.Buffer, ends: np.ndarray, only: int | None = None) -> pa.RecordBatch:
        fields = self._fields if only is None else self._fields[only : only + 1] if only >= 0 else ()
        options = self._options if only is None else self._options_of(fields)
        records, tombstones = self._objects(records, ends)
        if self._changes is None:
            parsed = self._read(records, ends, options[0])
            return batch_of(parsed.columns(fields), [field.name for field in fields], len(parsed))
        for layout in range(self._layout, len(options) - 1):
            with suppress(OtherLayout):
                return self._changes.parsed(self._read(records, ends, options[layout]), fields, layout, tombstones)
            self._layout = layout + 1
        return self._changes.parsed(self._read(records, ends, options[-1]), fields, len(options) - 1, tombstones)

    def _read(self, records: pa.Buffer, ends: np.ndarray, options: pyarrow.json.ParseOptions) -> JsonRecords:
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(BLOCK_BYTES, 2 * records.size))
        table = pyarrow.json.read_json(pa.BufferReader(records), read, options)
        return JsonRecords(records, ends, pa.RecordBatch.to_struct_array(one_batch(table)))

    def _objects(self, records: pa.Buffer, ends: np.ndarray) -> tuple[pa.Buffer, int]:
        """(the records, each of which begins and ends as an object does, the number of nulls among them, which are now
        objects without members). ValueError for another value, or for null where that is no change: pyarrow's reader
        crashes if all values are null, and would join the lines of an object to one row."""
        first, last = edge_bytes(np.frombuffer(records, np.uint8), ends)
        others = (first != ord("{")) | (last != ord("}"))
        if not others.any():
            return records, 0
        text = bytearray(memoryview(records))
        for record in np.flatnonzero(others).tolist():
            begin, end = int(ends[record - 1]) if record else 0, int(ends[record])
            if self._changes is None or not self._changes.has_tombstones or text[begin:end].strip() != b"null":
                raise ValueError("it is no object")
            text[begin:end] = text[begin:end].replace(b"null", b"{}  ")
        return pa.py_buffer(text), int(np.count_nonzero(others))

    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        if self._changes is not None:
            return self._changes.chunk(rows)
        return StreamChunk.inserts(DataChunk([Column(column) for column in rows.columns], capacity=rows.num_rows))

    def _options_of(self, fields: Sequence[Field]) -> list[pyarrow.json.ParseOptions]:
        """For each layout."""
        members = [(field.name, json_type(field.data_type)) for field in fields
                   if field.data_type.kind is not TypeKind.JSONB]
        layouts = [pa.schema(members)] if self._changes is None else self._changes.layouts(pa.struct(members))
        return [pyarrow.json.ParseOptions(explicit_schema=layout, unexpected_field_behavior="ignore")
                for layout in layouts]


def json_type(data_type: DataType) -> pa.DataType:
    """What pyarrow makes of a JSON value before it is converted to the type."""
    if data_type.kind is TypeKind.STRUCT:
        return pa.struct([(field.name, json_type(field.data_type)) for field in data_type.fields])
    if data_type.element is not None:
        return pa.list_(json_type(data_type.element))
    return {TypeKind.DATE: pa.utf8(), TypeKind.REAL: pa.float64()}.get(data_type.kind, data_type.arrow)


class NdjsonFilesConnector(FileConnector):
    """`WITH (connector = 'ndjson', path = …, format = …)`."""

    name = "ndjson"
    suffixes = with_compressed((".ndjson", ".jsonl", ".json"))
    other_options = ("format",)

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        super().__init__(options, schema)
        self._format = self.options.choice("format", APPEND, (APPEND, *CHANGE_FORMATS))
        self.is_append_only = self.is_consistent = self._format == APPEND
        self._key: tuple[str, ...] = ()
        for field in schema:
            nested = field.data_type.kind is not TypeKind.JSONB and field.data_type.contains(TypeKind.JSONB)
            if nested or any(field.data_type.contains(kind) for kind in WITHOUT_JSON):
                raise ConnectorError(self.name, f"column {field.name!r}: no JSON value is read as {field.data_type}")

    def check_table(self, table: TableCatalog) -> None:
        if self._format != APPEND:
            CHANGE_FORMATS[self._format].check_table(self.name, table)
            self._key = tuple(table.schema.names[column] for column in table.pk_indices)

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        fields = tuple(self.schema[column] for column in columns)
        changes = None if self._format == APPEND else CHANGE_FORMATS[self._format](fields, self._key)
        reader = RecordReader(self, split, NdjsonFormat(fields, changes), [field.name for field in fields])
        reader.close()
        return reader
