"""Tables that are described by a schema or by rows: the columns of `create_table`, and the rows that come with them.

A schema is Arrow's, or any object that exports one, or `relational.Schema`. Rows are a frame of pandas or Polars, or
any other object that exports Arrow columns. Of the index of a pandas frame the levels that have a name are columns. A
column without any value, which has no type, is one of texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from relational.chunk.arrow_import import check_frame
from relational.errors import BindError, shortened
from relational.types import DataType, Schema
from relational.types.arrow_types import with_texts
from stream.session.rows import is_lazy

Columns = Mapping[str, str | DataType]
OTHERWISE = "or leave the column out"
UNNAMED_LEVEL = "__index_level_"
"""What pandas calls an index without a name."""


class ArrowRows(Protocol):
    """A frame: what exports a stream of Arrow columns."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """In a PyCapsule."""


class ArrowSchema(Protocol):
    """What exports names and types of Arrow columns."""

    def __arrow_c_schema__(self) -> object:
        """In a PyCapsule."""


ArrowColumns = Schema | ArrowRows | ArrowSchema
"""A schema, or rows, as columns of a table."""


def columns_and_rows(given: Any) -> tuple[Columns, pa.Table | None]:
    """The columns by name, and the rows if `given` has some; None for a schema. BindError for columns that no type
    holds, that share a name, and for an object that describes none."""
    if isinstance(given, Mapping):
        return given, None
    if isinstance(given, Schema):
        return _by_name(given), None
    if is_lazy(given):
        given = given.collect()
    try:
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            check_frame(given)
            rows = _without_unnamed_index(pa.table(given))
            wanted = _with_texts(rows.schema)
            rows = rows.replace_schema_metadata() if wanted.equals(rows.schema) else rows.cast(wanted)
            return _by_name(_schema(rows.schema)), rows
        if hasattr(given, "__arrow_c_schema__"):
            return _by_name(_schema(_with_texts(pa.schema(given)))), None
    except pa.ArrowException as error:
        raise BindError(f"{shortened(str(error), 1_000)}; convert the column, {OTHERWISE}") from error
    kind = type(given).__name__
    raise BindError(f"columns are a mapping of names to types, a schema, or a frame with its rows, not {kind}")


def _with_texts(arrow: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(with_texts(field.type)) for field in arrow])


def _schema(arrow: pa.Schema) -> Schema:
    """BindError names the column that no type holds."""
    for field in arrow:
        try:
            DataType.from_arrow(field.type)
        except BindError as error:
            raise BindError(f"column {field.name!r}: {error.message}, {OTHERWISE}") from error
    return Schema.from_arrow(arrow)


def _by_name(schema: Schema) -> Columns:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise BindError(f"two columns are called {shortened(twice[0])!r}")
    return dict(zip(schema.names, schema.types, strict=True))


def _without_unnamed_index(rows: pa.Table) -> pa.Table:
    """The table of a pandas frame with the named levels of its index first, and without others."""
    note = (rows.schema.metadata or {}).get(b"pandas")
    levels = [] if note is None else json.loads(note).get("index_columns", ())
    index = []
    for level in levels:
        if isinstance(level, str):
            if not level.startswith(UNNAMED_LEVEL):
                index.append((level, rows.column(level)))
            rows = rows.drop_columns(level)
        elif level.get("name") is not None:
            numbers = level["start"] + level["step"] * np.arange(rows.num_rows, dtype=np.int64)
            index.append((str(level["name"]), pa.chunked_array([pa.array(numbers)])))
    for at, (name, column) in enumerate(index):
        rows = rows.add_column(at, name, column)
    return rows
