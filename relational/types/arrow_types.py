"""Mapping between SQL types and Arrow types: the plain Arrow type of each kind, JSONB as an extension, and hints for
unsupported types.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


class JsonbType(pa.ExtensionType):
    """UTF-8 text that is canonical JSON (see chunk/json). The extension name guarantees the form: foreign JSON is plain
    text or `pa.json_()`, and becomes canonical on import.
    """

    NAME = "hummock.jsonb"

    def __init__(self) -> None:
        super().__init__(pa.utf8(), self.NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> JsonbType:
        return cls()

    def __hash__(self) -> int:
        return hash(self.NAME)

    def __reduce__(self) -> tuple:
        return JsonbType, ()


JSONB_ARROW = JsonbType()
pa.register_extension_type(JSONB_ARROW)

_KIND_OF_ARROW = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.uint8(): "SMALLINT",
    pa.int32(): "INT",
    pa.uint16(): "INT",
    pa.int64(): "BIGINT",
    pa.uint32(): "BIGINT",
    pa.float16(): "REAL",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.utf8(): "VARCHAR",
    pa.large_utf8(): "VARCHAR",
    pa.string_view(): "VARCHAR",
    pa.binary(): "BYTEA",
    pa.large_binary(): "BYTEA",
    pa.binary_view(): "BYTEA",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
    pa.time32("s"): "TIME",
    pa.time32("ms"): "TIME",
    pa.time64("us"): "TIME",
    pa.time64("ns"): "TIME",
    pa.month_day_nano_interval(): "INTERVAL",
    pa.duration("s"): "INTERVAL",
    pa.duration("ms"): "INTERVAL",
    pa.duration("us"): "INTERVAL",
    pa.duration("ns"): "INTERVAL",
}

UUID = "arrow.uuid"
_KIND_OF_EXTENSION = {JsonbType.NAME: "JSONB", "arrow.json": "JSONB", UUID: "VARCHAR"}

_ADVICE = (
    (pa.types.is_null, "cast the column to the type that its values would have"),
    (pa.types.is_union, "make it a struct with a field per member"),
    (pa.types.is_decimal, "cast it to a decimal of at most 38 digits and a scale between 0 and its precision"),
    (pa.types.is_struct, "a STRUCT has at least one field"),
)


def plain_kind(arrow: pa.DataType) -> str | None:
    """The name of the kind of a plain Arrow type, whatever its layout; None if there is none."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _KIND_OF_EXTENSION.get(arrow.extension_name)
    if pa.types.is_fixed_size_binary(arrow):
        return "BYTEA"
    return _KIND_OF_ARROW.get(arrow)


def with_texts(
    arrow: pa.DataType, is_text: Callable[[pa.DataType], bool] = pa.types.is_null
) -> pa.DataType:
    """The type with texts for what `is_text` is true of, at any level; by default for values that are all NULL."""
    if is_text(arrow):
        return pa.utf8()
    if pa.types.is_list(arrow):
        return pa.list_(with_texts(arrow.value_type, is_text))
    if pa.types.is_large_list(arrow):
        return pa.large_list(with_texts(arrow.value_type, is_text))
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(with_texts(arrow.value_type, is_text), arrow.list_size)
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(with_texts(field.type, is_text)) for field in arrow])
    return arrow


def what_to_do(arrow: pa.DataType) -> str:
    """A hint for converting values of an unsupported Arrow type."""
    if isinstance(arrow, pa.BaseExtensionType):
        return "take its storage, or cast it to text"
    return next((text for is_it, text in _ADVICE if is_it(arrow)), "cast it to a type that has a kind")
