"""Maps the columns of a DataFrame to those of a table, and reports all mismatches, before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.errors import BindError
from relational.types.data_type import DataType, TypeKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHOLE = {TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}      # digits of the largest number
SPARK_NAMES = {TypeKind.INT: "int", TypeKind.BIGINT: "bigint", TypeKind.DOUBLE: "double"}


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """`selected` columns of the frame are sent; `column_indices`: the index of each table column among those, or -1."""

    selected: tuple[Column, ...]
    column_indices: tuple[int, ...]


def frame_types(frame: DataFrame) -> dict[str, DataType]:
    """The columns of a frame by name. ValueError naming those that no table can store, or what is no frame of Spark."""
    if not hasattr(getattr(frame, "schema", None), "fields"):
        kind = type(frame).__name__
        raise ValueError(f"it loads a DataFrame of Spark, not a {kind}: table(name).insert(rows) takes other rows")
    from pyspark.sql.pandas.types import to_arrow_type

    types, faults = {}, []
    for field in frame.schema.fields:
        if field.name in types:
            faults.append(f"two columns are called {field.name!r}")
            continue
        try:
            types[field.name] = DataType.from_arrow(pa.field("", to_arrow_type(field.dataType, timezone="UTC")).type)
        except (BindError, TypeError) as error:
            faults.append(f"column {field.name!r} is {field.dataType.simpleString()}: {error}")
    if faults:
        raise ValueError("; ".join(faults))
    return types


def matched_columns(frame: DataFrame, table: TableCatalog) -> FrameColumns:
    """The frame's columns as `table` needs them, cast if lossless. ValueError that names every mismatch."""
    types = frame_types(frame)
    visible = {column.name: column.data_type for column in table.columns if not column.is_hidden}
    faults = [f"column {name!r} is none of the table's: {', '.join(visible)}" for name in types if name not in visible]
    missing = [name for name in (table.columns[index].name for index in table.pk_indices) if name not in types]
    faults += [f"column {name!r} is part of the key and is missing" for name in missing]
    names = [name for name in visible if name in types]
    selected = []
    for name in names:
        cast = cast_of(types[name], visible[name])
        if cast is None:
            faults.append(f"column {name!r} is {types[name]} where the table has {visible[name]}: cast it")
        else:
            selected.append(frame[_quoted(name)].cast(cast).alias(name) if cast else frame[_quoted(name)])
    if faults:
        raise ValueError("; ".join(faults))
    return FrameColumns(tuple(selected), _column_indices(table, names))


def cast_of(given: DataType, wanted: DataType) -> str | None:
    """The Spark type of a lossless cast; "": no cast is needed; None: there is none."""
    if given == wanted or (given.kind, wanted.kind) == (TypeKind.VARCHAR, TypeKind.JSONB):
        return ""
    if wanted.kind in SPARK_NAMES and ((given.kind in WHOLE and wanted.kind in WHOLE
                                       and WHOLE[given.kind] < WHOLE[wanted.kind])
                                       or (given.kind, wanted.kind) == (TypeKind.REAL, TypeKind.DOUBLE)):
        return SPARK_NAMES[wanted.kind]
    if wanted.kind is TypeKind.NUMERIC:
        assert wanted.precision is not None and wanted.scale is not None
        whole, scale = WHOLE.get(given.kind), 0
        if given.kind is TypeKind.NUMERIC:
            assert given.precision is not None and given.scale is not None
            whole, scale = given.precision - given.scale, given.scale
        if whole is not None and scale <= wanted.scale and whole <= wanted.precision - wanted.scale:
            return f"decimal({wanted.precision},{wanted.scale})"
    return None


def _column_indices(table: TableCatalog, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(names.index(column.name) if column.name in names else -1 for column in table.columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
