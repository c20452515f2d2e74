"""Values of columns with a watermark as integers: microseconds, days of a DATE, or the whole number itself."""

from __future__ import annotations

import pyarrow as pa

from relational.chunk import Column
from relational.types import DataType, TypeKind


def integers(array: pa.Array) -> pa.Array:
    """The values of moments or whole numbers as integers."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date32(array.type) else array


def integer_of(value: object, data_type: DataType) -> int:
    """The integer of a Python value that is not NULL."""
    return int(integers(Column.from_pylist([value], data_type).array)[0].as_py())


def value_of(number: int, data_type: DataType) -> object:
    """The Python value of an integer; None if the type has no such value: then no row is below it."""
    form = pa.int32() if data_type.kind is TypeKind.DATE else pa.int64()
    try:
        return Column(pa.array([number], form).cast(data_type.arrow), data_type)[0]
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None
