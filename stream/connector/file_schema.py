"""The columns of a file, with types that hold its values: of Parquet and Arrow files as they say, of CSV and JSON files
as the first SAMPLE_BYTES of their text tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from relational.chunk.text_records import record_ends
from relational.errors import BindError, shortened
from relational.types import DataType, Field, Schema
from stream.connector.csv_files import CsvFilesConnector, code_of, parse_options, text_type
from stream.connector.decompressed import DecompressedFile, codec_of_name
from stream.connector.directory import READ_ERRORS
from stream.connector.files import FileConnector, GroupedConnector
from stream.connector.ndjson_files import NdjsonFilesConnector, json_type
from stream.errors import ConnectorError

SAMPLE_BYTES = 4 << 20


def schema_of(
    connector: FileConnector, name: str, options: Mapping[str, str], types: Mapping[str, DataType]
) -> Schema:
    """The columns of the file `name`; those of `types` have these types. ConnectorError; BindError for a column that no
    type holds."""
    try:
        with connector.directory.open(name) as source:
            if isinstance(connector, GroupedConnector):
                found = connector.open_file(source).fields
            elif isinstance(connector, CsvFilesConnector):
                found = _of_csv(_sample(source, name), connector, options, types)
            else:
                assert isinstance(connector, NdjsonFilesConnector), connector
                found = _of_json(_sample(source, name), types)
    except READ_ERRORS as error:
        reason = f"{connector.directory.where(name)} cannot be read: {shortened(str(error), 300)}"
        raise ConnectorError(connector.name, reason) from error
    return Schema(tuple(Field(field.name, types.get(field.name) or _type_of(field)) for field in _checked(found)))


def _checked(fields: pa.Schema) -> pa.Schema:
    """BindError for names that a query cannot tell apart, or the readers cannot find."""
    twice = [name for name, count in Counter(fields.names).items() if count > 1]
    if twice:
        raise BindError(f"two columns are called {shortened(twice[0])!r}")
    for name in fields.names:
        if not name or "." in name:
            raise BindError(f"column {name!r}: names of columns have no dots, and are not empty")
    if not fields.names:
        raise BindError("it has no columns")
    return fields


def _type_of(field: pa.Field) -> DataType:
    try:
        return DataType.from_arrow(_with_texts(field.type))
    except BindError as error:
        raise BindError(f"column {field.name!r}: {error.message}") from error


def _with_texts(arrow: pa.DataType) -> pa.DataType:
    """The type with texts for values that are all NULL."""
    if pa.types.is_null(arrow):
        return pa.utf8()
    if pa.types.is_list(arrow):
        return pa.list_(_with_texts(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in arrow])
    return arrow


def _sample(source: pa.NativeFile, name: str) -> pa.Buffer:
    codec = codec_of_name(name)
    if codec is None:
        return source.read_buffer(SAMPLE_BYTES)
    return DecompressedFile(source, codec).read(0, SAMPLE_BYTES)


def _of_csv(
    sample: pa.Buffer, connector: CsvFilesConnector, options: Mapping[str, str], types: Mapping[str, DataType]
) -> pa.Schema:
    form = connector.form
    ends = record_ends(np.frombuffer(sample, np.uint8), is_last=sample.size < SAMPLE_BYTES, has_returns=True,
                       **{part: code_of(character) for part, character in form.items()})
    whole = sample.slice(0, int(ends[-1])) if len(ends) else sample
    names = [name.strip() for name in options["names"].split(",")] if "names" in options else None
    if names is not None and connector.has_header:
        raise ConnectorError(connector.name, "names are those of a file without a header: header => false")
    if not whole.size:
        return pa.schema([(name, pa.utf8()) for name in names or ()])
    read = pyarrow.csv.ReadOptions(
        use_threads=False, column_names=names, autogenerate_column_names=names is None and not connector.has_header,
        block_size=max(2 * whole.size, 1 << 16),
    )
    convert = pyarrow.csv.ConvertOptions(
        null_values=[connector.null], strings_can_be_null=True, quoted_strings_can_be_null=False,
        column_types={name: text_type(data_type) for name, data_type in types.items()},
    )
    return pyarrow.csv.read_csv(pa.BufferReader(whole), read, parse_options(**form), convert).schema


def _of_json(sample: pa.Buffer, types: Mapping[str, DataType]) -> pa.Schema:
    text = memoryview(sample).tobytes()
    if text.lstrip()[:1] == b"[":
        raise ConnectorError(NdjsonFilesConnector.name, "the file is an array; it has to have an object a line")
    whole = text[: text.rfind(b"\n") + 1] if len(text) == SAMPLE_BYTES and b"\n" in text else text
    if not whole.strip():
        return pa.schema([(name, data_type.arrow) for name, data_type in types.items()])
    known = pa.schema([(name, json_type(data_type)) for name, data_type in types.items()])
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(2 * len(whole), 1 << 16))
    return pyarrow.json.read_json(
        pa.BufferReader(whole), read, pyarrow.json.ParseOptions(explicit_schema=known)
    ).schema
