"""Values of a type as JSON and back: the storage format of constants in plans and of column defaults.

Lossless: floats are text, to represent NaN, infinity and the last digit; so are NUMERIC, dates and times; BYTEA is
hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval


def value_to_json(value: Any, data_type: DataType) -> Any:
    """A JSON-able record of a Python value of `data_type`."""
    if value is None:
        return None
    if data_type.element is not None:
        return [value_to_json(each, data_type.element) for each in value]
    if data_type.fields:
        return [value_to_json(value.get(field.name), field.data_type) for field in data_type.fields]
    return _WRITERS.get(data_type.kind, _same)(value)


def value_from_json(record: Any, data_type: DataType) -> Any:
    """The value that `value_to_json` wrote."""
    if record is None:
        return None
    if data_type.element is not None:
        return [value_from_json(each, data_type.element) for each in record]
    if data_type.fields:
        pairs = zip(data_type.fields, record, strict=True)
        return {field.name: value_from_json(each, field.data_type) for field, each in pairs}
    return _READERS.get(data_type.kind, _same)(record)


def _same(value: Any) -> Any:
    return value


_WRITERS: dict[TypeKind, Callable[[Any], Any]] = {
    TypeKind.NUMERIC: str,
    TypeKind.REAL: lambda value: repr(float(value)),
    TypeKind.DOUBLE: lambda value: repr(float(value)),
    TypeKind.DATE: date.isoformat,
    TypeKind.TIME: time.isoformat,
    TypeKind.TIMESTAMP: datetime.isoformat,
    TypeKind.TIMESTAMPTZ: datetime.isoformat,
    TypeKind.INTERVAL: lambda value: [value.months, value.days, value.microseconds],
    TypeKind.BYTEA: bytes.hex,
}
_READERS: dict[TypeKind, Callable[[Any], Any]] = {
    TypeKind.NUMERIC: Decimal,
    TypeKind.REAL: float,
    TypeKind.DOUBLE: float,
    TypeKind.DATE: date.fromisoformat,
    TypeKind.TIME: time.fromisoformat,
    TypeKind.TIMESTAMP: datetime.fromisoformat,
    TypeKind.TIMESTAMPTZ: datetime.fromisoformat,
    TypeKind.INTERVAL: lambda record: Interval(*record),
    TypeKind.BYTEA: bytes.fromhex,
}
