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
from relational.types import DataType, Field, Schema, TypeKind
from relational.types.arrow_types import with_texts
from stream.connector.csv_files import CsvFilesConnector, code_of, named_columns, parse_options, text_type
from stream.connector.decompressed import DecompressedFile, codec_of_name
from stream.connector.directory import READ_ERRORS
from stream.connector.files import FileConnector, GroupedConnector
from stream.connector.ndjson_files import NdjsonFilesConnector, json_type
from stream.connector.text_types import (
    has_doubles,
    has_long_numbers,
    json_objects,
    number_type,
    with_long_numbers,
    with_moments,
)
from stream.errors import ConnectorError

SAMPLE_BYTES = 4 << 20
ENCODING = "convert the file to that encoding"


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
    except UnicodeDecodeError as error:
        reason = f"the names of the columns of {connector.directory.where(name)} are not UTF-8: {ENCODING}"
        raise ConnectorError(connector.name, reason) from error
    except READ_ERRORS as error:
        reason = f"{connector.directory.where(name)} cannot be read: {shortened(str(error), 300)}"
        raise ConnectorError(connector.name, reason) from error
    return Schema(tuple(Field(field.name, types.get(field.name) or _type_of(field)) for field in _checked(found)))


def _checked(fields: pa.Schema) -> pa.Schema:
    """BindError for names that a query cannot tell apart."""
    twice = [name for name, count in Counter(fields.names).items() if count > 1]
    if twice:
        raise BindError(f"two columns are called {shortened(twice[0])!r}")
    if "" in fields.names:
        raise BindError(f"column {fields.names.index('') + 1} has no name")
    if not fields.names:
        raise BindError("it has no columns")
    return fields


def _type_of(field: pa.Field) -> DataType:
    try:
        return DataType.from_arrow(with_texts(field.type))
    except BindError as error:
        advice = f"or name a type that it can be, as in types => '{field.name} NUMERIC'"
        raise BindError(f"column {field.name!r}: {error.message}, {advice}") from error


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

    def table(column_types: Mapping[str, pa.DataType]) -> pa.Table:
        convert = pyarrow.csv.ConvertOptions(
            null_values=[connector.null], strings_can_be_null=True, quoted_strings_can_be_null=False,
            column_types=column_types,
        )
        return pyarrow.csv.read_csv(pa.BufferReader(whole), read, parse_options(**form), convert)

    known = {name: text_type(data_type) for name, data_type in types.items()}
    found = table(known).schema
    guessed = [field for field in found if field.name not in known and pa.types.is_floating(field.type)]
    if guessed and has_long_numbers(whole):
        texts = table(known | {field.name: pa.utf8() for field in guessed})
        numbers = {field.name: number_type(texts.column(found.names.index(field.name))) for field in guessed}
        found = pa.schema([field.with_type(numbers.get(field.name, field.type)) for field in found])
    for field in found:
        if pa.types.is_binary(field.type) and field.name not in known:
            raise BindError(f"the values of column {field.name!r} are not UTF-8: {ENCODING}")
    return pa.schema([field.with_name(name) for field, name in zip(found, named_columns(found.names), strict=True)])


def _of_json(sample: pa.Buffer, types: Mapping[str, DataType]) -> pa.Schema:
    text = memoryview(sample).tobytes()
    if text.lstrip()[:1] == b"[":
        raise ConnectorError(NdjsonFilesConnector.name, "the file is an array; it has to have an object a line")
    whole = text[: text.rfind(b"\n") + 1] if len(text) == SAMPLE_BYTES and b"\n" in text else text
    if not whole.strip():
        return pa.schema([(name, data_type.arrow) for name, data_type in types.items()])
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(2 * len(whole), 1 << 16))

    def table(layout: Mapping[str, pa.DataType]) -> pa.Table:
        options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(layout.items())))
        return pyarrow.json.read_json(pa.BufferReader(whole), read, options)

    known = {name: json_type(data_type) for name, data_type in types.items() if data_type.kind is not TypeKind.JSONB}
    rows = table(known)
    found = {field.name: field.type for field in rows.schema}
    if len(found) < rows.num_columns:
        return rows.schema
    texts = {name: with_texts(arrow, pa.types.is_timestamp) for name, arrow in found.items() if name not in types}
    if read_again := {name: arrow for name, arrow in texts.items() if arrow != found[name]}:
        rows = table(known | read_again)
    for name in texts:
        found[name] = with_moments(rows.column(name).combine_chunks())
    if has_long_numbers(whole) and any(has_doubles(found[name]) for name in texts):
        objects = json_objects(whole)
        for name in texts:
            try:
                found[name] = with_long_numbers(found[name], [each.get(name) for each in objects])
            except BindError as error:
                advice = f"name one, as in types => '{name} DOUBLE'"
                raise BindError(f"column {name!r}: {error.message}; {advice}") from error
    return pa.schema(list(found.items()))
