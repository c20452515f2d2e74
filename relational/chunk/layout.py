"""The door of columns: any Arrow array in the one layout of its type, and Python values as Arrow has them.

Nothing is copied where the layouts agree up to names and nullability of nested fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.json_text import canonical_json
from relational.errors import BindError, EncodingError
from relational.types import DataType, Interval, TypeKind
from relational.types.arrow_types import JSONB_ARROW

MOST_ELEMENTS = 2**31 - 1


def in_layout(array: pa.Array, data_type: DataType) -> pa.Array:
    """`array` in the layout of `data_type`. pa.ArrowInvalid where a value does not fit, BindError where there is no
    way, EncodingError for a text that is no JSON.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if array.type == data_type.arrow:
        return array
    if data_type.kind is TypeKind.STRUCT:
        return _struct(array, data_type)
    if data_type.element is not None:
        return _list(array, data_type, data_type.element)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if data_type.kind is TypeKind.JSONB:
        return pa.ExtensionArray.from_storage(JSONB_ARROW, canonical_json(array.cast(pa.utf8())))
    return array.cast(data_type.arrow, safe=not pa.types.is_temporal(array.type))


def _struct(array: pa.Array, data_type: DataType) -> pa.Array:
    names = [field.name for field in array.type] if pa.types.is_struct(array.type) else []
    if sorted(names) != sorted(field.name for field in data_type.fields):
        raise BindError(f"{array.type} does not have the fields of {data_type}")
    parts = dict(zip(names, array.flatten() if array.null_count else map(array.field, names), strict=True))
    children = [in_layout(parts[field.name], field.data_type) for field in data_type.fields]
    return pa.Array.from_buffers(data_type.arrow, len(array), [_validity(array)], children=children)


def _list(array: pa.Array, data_type: DataType, element: DataType) -> pa.Array:
    offsets, values = _elements(array, data_type)
    if len(offsets) and offsets[-1] > MOST_ELEMENTS:
        raise BindError(f"a column of lists holds 2**31 - 1 elements, not {offsets[-1]}")
    buffers = [_validity(array), pa.py_buffer(np.ascontiguousarray(offsets, np.int32))]
    return pa.Array.from_buffers(data_type.arrow, len(array), buffers, children=[in_layout(values, element)])


def _elements(array: pa.Array, data_type: DataType) -> tuple[np.ndarray, pa.Array]:
    """(offsets, the elements that they point into) of an array of any kind of list."""
    arrow, types = array.type, pa.types
    if types.is_fixed_size_list(arrow):
        size = arrow.list_size
        return np.arange(len(array) + 1) * size, array.values.slice(array.offset * size, len(array) * size)
    if types.is_list_view(arrow) or types.is_large_list_view(arrow):
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.where(valid, array.sizes.to_numpy(zero_copy_only=False), 0).astype(np.int64)
        ends = np.cumsum(sizes)
        starts = array.offsets.to_numpy(zero_copy_only=False) - (ends - sizes)
        return np.append(0, ends), array.values.take(pa.array(np.repeat(starts, sizes) + np.arange(sizes.sum())))
    if not (types.is_list(arrow) or types.is_large_list(arrow) or types.is_map(arrow)):
        raise BindError(f"{arrow} is no list, so it cannot be {data_type}")
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = (offsets[0], offsets[-1]) if len(array) else (0, 0)
    values = (
        pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"]) if types.is_map(arrow) else array.values
    )
    if not types.is_large_list(arrow):
        return (offsets if len(array) else np.zeros(1)), values
    return (offsets - first if len(array) else np.zeros(1)), values.slice(first, last - first)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """The bitmap of an array, row 0 at bit 0; None where no row is NULL."""
    if not array.null_count:
        return None
    buffer = array.buffers()[0]
    if array.offset % 8 == 0 and buffer is not None:
        return buffer.slice(array.offset // 8)
    return pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))


def array_of_values(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """One row per Python value, None for NULL. EncodingError where a value is not of the type.

    A STRUCT's value is a dict, or a tuple in the order of its fields; JSONB's is JSON text.
    """
    try:
        plain = [_arrow_value(value, data_type) for value in values] if _is_special(data_type) else values
        return in_layout(pa.array(plain, type=_stored(data_type)), data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, EncodingError):
            raise
        raise EncodingError(f"not a value of {data_type}: {error}") from error


def python_values(values: list[Any], data_type: DataType) -> list[Any]:
    """What Arrow's `to_pylist` gave, with intervals as Interval."""
    return [_python_value(value, data_type) for value in values] if data_type.contains(TypeKind.INTERVAL) else values


def _is_special(data_type: DataType) -> bool:
    return data_type.contains(TypeKind.INTERVAL) or data_type.contains(TypeKind.STRUCT)


def _stored(data_type: DataType) -> pa.DataType:
    """The type of `data_type.arrow` with JSONB as the text that it is stored as; `pa.array` makes no extensions."""
    if data_type.kind is TypeKind.JSONB:
        return pa.utf8()
    if data_type.element is not None:
        return pa.list_(_stored(data_type.element))
    if data_type.kind is TypeKind.STRUCT:
        return pa.struct([pa.field(field.name, _stored(field.data_type)) for field in data_type.fields])
    return data_type.arrow


def _arrow_value(value: Any, data_type: DataType) -> Any:
    if value is None:
        return None
    if data_type.kind is TypeKind.INTERVAL:
        return value.to_arrow() if isinstance(value, Interval) else value
    if data_type.element is not None:
        return [_arrow_value(each, data_type.element) for each in value]
    if data_type.kind is not TypeKind.STRUCT:
        return value
    names = [field.name for field in data_type.fields]
    if isinstance(value, dict):
        if set(value) - set(names):
            raise EncodingError(f"{data_type} has no field {', '.join(map(repr, set(value) - set(names)))}")
        value = [value.get(name) for name in names]
    parts = zip(data_type.fields, value, strict=True)
    return {field.name: _arrow_value(each, field.data_type) for field, each in parts}


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
