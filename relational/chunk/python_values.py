"""Conversion between Python values and Arrow's.

A value that its type cannot represent exactly is rejected, with its row: no float for an integer unless it is whole, no
number for a date, no boolean for a number. Values of numpy and pandas are accepted as the Python values that they
equal; NaT and NA are NULL.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from relational.chunk.arrow_import import imported
from relational.errors import EncodingError, InvalidValue, shortened
from relational.types import DataType, Interval, TypeKind

NOTHING = type(None)
MISSING = ("NaTType", "NAType")  # of pandas, which need not be installed
FAILURES = (pa.ArrowException, OverflowError, TypeError, AttributeError, ValueError, RecursionError)
EXACT: dict[TypeKind, set[type]] = {
    TypeKind.BOOLEAN: {bool},
    TypeKind.SMALLINT: {int},
    TypeKind.INT: {int},
    TypeKind.BIGINT: {int},
    TypeKind.NUMERIC: {int, Decimal},
    TypeKind.REAL: {int, float},
    TypeKind.DOUBLE: {int, float},
    TypeKind.VARCHAR: {str},
    TypeKind.DATE: {dt.date},
    TypeKind.TIMESTAMP: {dt.datetime},
    TypeKind.TIMESTAMPTZ: {dt.datetime},
    TypeKind.BYTEA: {bytes},
    TypeKind.JSONB: {str},
}
"""Types whose values `pa.array` accepts unchanged."""
UNCHANGED = {
    kind: EXACT[kind] | {NOTHING}
    for kind in (TypeKind.BOOLEAN, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.DOUBLE, TypeKind.VARCHAR,
                 TypeKind.BYTEA)
}
"""Those among them of which every value that Arrow accepts is in our layout and range."""


def array_of_values(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """One row per Python value, None for NULL. InvalidValue names the first row whose value is not of the type.

    A STRUCT's value is a dict, or a tuple in the order of its fields; JSONB's is JSON text, or a dict or list of values
    that JSON has.
    """
    if data_type.kind in UNCHANGED and set(map(type, values)) <= UNCHANGED[data_type.kind]:
        try:
            return pa.array(values, data_type.arrow)
        except FAILURES:  # as below, which names the row
            pass
    stored = _stored(data_type)
    try:
        if set(map(type, values)) <= EXACT.get(data_type.kind, set()) | {NOTHING}:
            plain = values
        else:
            plain = [_arrow_value(value, data_type) for value in values]
        array = pa.array(plain, type=stored)
    except FAILURES:
        array = None
    return imported(_in_parts(values, data_type, stored) if array is None else array, data_type)


def _in_parts(values: Sequence[Any], data_type: DataType, stored: pa.DataType) -> pa.ChunkedArray:
    """Converts values that failed as a batch one by one, so that the first failing one is identified."""
    parts = []
    for row, value in enumerate(values):
        try:
            parts.append(pa.array([_arrow_value(value, data_type)], type=stored))
        except FAILURES as error:
            reason = error.reason if isinstance(error, EncodingError) else str(error)
            shown = f"{_shown(value)} is not a value of {shortened(str(data_type))}"
            raise InvalidValue(f"{shown}: {shortened(reason, 300)}", row=row) from error
    return pa.chunked_array(parts, type=stored)


def _shown(value: Any) -> str:
    try:
        return shortened(ascii(value))
    except RecursionError:
        return f"a {type(value).__name__}, which is nested too deeply,"


def python_values(values: list[Any], data_type: DataType) -> list[Any]:
    """The result of Arrow's `to_pylist`, with intervals as Interval."""
    return [_python_value(value, data_type) for value in values] if data_type.contains(TypeKind.INTERVAL) else values


def _stored(data_type: DataType) -> pa.DataType:
    """The type of `data_type.arrow` with JSONB as its storage type, text; `pa.array` does not build extensions. A REAL
    is built from doubles, to detect overflow.
    """
    if data_type.kind is TypeKind.JSONB:
        return pa.utf8()
    if data_type.kind is TypeKind.REAL:
        return pa.float64()
    if data_type.element is not None:
        return pa.list_(_stored(data_type.element))
    if data_type.kind is TypeKind.STRUCT:
        return pa.struct([pa.field(field.name, _stored(field.data_type)) for field in data_type.fields])
    return data_type.arrow


def _arrow_value(value: Any, data_type: DataType) -> Any:
    if isinstance(value, np.generic):
        value = _of_numpy(value)
    if value is None or type(value).__name__ in MISSING:
        return None
    if data_type.element is not None:
        if isinstance(value, (str, bytes, dict)):
            raise EncodingError("a list is expected")
        return [_arrow_value(each, data_type.element) for each in value]
    if data_type.kind is TypeKind.STRUCT:
        return _struct_value(value, data_type)
    return _PLAIN[data_type.kind](value)


def _of_numpy(value: np.generic) -> Any:
    """The Python value of a numpy scalar; times in nanoseconds are rounded down to microseconds."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        return value.astype("datetime64[us]").item() if np.datetime_data(value.dtype)[0] in ("ns", "ps", "fs", "as") \
            else value.item()
    return value.item()


def _struct_value(value: Any, data_type: DataType) -> dict[str, Any]:
    names = [field.name for field in data_type.fields]
    if isinstance(value, dict):
        if set(value) - set(names):
            raise EncodingError(f"there is no field {', '.join(map(repr, set(value) - set(names)))}")
        value = [value.get(name) for name in names]
    parts = zip(data_type.fields, value, strict=True)
    return {field.name: _arrow_value(each, field.data_type) for field, each in parts}


def _boolean(value: Any) -> Any:
    if not isinstance(value, bool):
        raise EncodingError("True or False is expected")
    return value


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise EncodingError("a whole number is expected")
    if isinstance(value, int):
        return int(value)
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise EncodingError("a whole number is expected")
    return int(value)


def _decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise EncodingError("a Decimal or a whole number is expected")
    if isinstance(value, Decimal) and not value.is_finite():
        raise EncodingError("a NUMERIC is neither NaN nor infinite")
    return value


def _double(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise EncodingError("a float is expected")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise EncodingError("a str is expected")
    return str(value)


def _json_text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _text(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodingError("bytes are expected")
    return bytes(value)


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        if value.time() != dt.time():
            raise EncodingError("it has a time of day")
        return value.date()
    if not isinstance(value, dt.date):
        raise EncodingError("a date is expected")
    return value


def _time(value: Any) -> dt.time:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        raise EncodingError("a time without a time zone is expected")
    return value


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if not isinstance(value, dt.date):
        raise EncodingError("a datetime is expected")
    return dt.datetime.combine(value, dt.time())


def _interval(value: Any) -> Any:
    if isinstance(value, Interval):
        return value.to_arrow()
    if not isinstance(value, (dt.timedelta, pa.MonthDayNano)):
        raise EncodingError("an Interval or a timedelta is expected")
    return value


_PLAIN: dict[TypeKind, Callable[[Any], Any]] = {
    TypeKind.BOOLEAN: _boolean,
    TypeKind.SMALLINT: _whole_number,
    TypeKind.INT: _whole_number,
    TypeKind.BIGINT: _whole_number,
    TypeKind.NUMERIC: _decimal,
    TypeKind.REAL: _double,
    TypeKind.DOUBLE: _double,
    TypeKind.VARCHAR: _text,
    TypeKind.JSONB: _json_text,
    TypeKind.BYTEA: _bytes,
    TypeKind.DATE: _date,
    TypeKind.TIME: _time,
    TypeKind.TIMESTAMP: _moment,
    TypeKind.TIMESTAMPTZ: _moment,
    TypeKind.INTERVAL: _interval,
}


def _python_value(value: Any, data_type: DataType) -> Any:
    if value is None:
        return None
    if data_type.kind is TypeKind.INTERVAL:
        return Interval.from_arrow(value)
    if data_type.element is not None:
        return python_values(value, data_type.element)
    if data_type.kind is TypeKind.STRUCT:
        return {field.name: _python_value(value[field.name], field.data_type) for field in data_type.fields}
    return value
