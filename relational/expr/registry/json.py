"""Rows of the registry: JSONB."""

from __future__ import annotations

from relational.expr.kernels import json_values, lists
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Overload, Types, row
from relational.types.data_type import DataType

JSONB = DataType.JSONB


def _pairs() -> Overload:
    """Keys and values in turns."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        return (types, JSONB) if len(types) % 2 == 0 else None

    return Overload(fits, json_values.build_object)


_MEMBER = per_value(json_values.get)
_MEMBER_TEXT = per_value(json_values.get_text)
_WITHOUT = per_value(json_values.without)

ROWS: dict[str, tuple[Overload, ...]] = {
    "json_at": (row("jsonb, varchar[] -> jsonb", per_value(json_values.at_path)),),
    "json_at_text": (row("jsonb, varchar[] -> varchar", per_value(json_values.at_path_text)),),
    "json_delete_at": (row("jsonb, varchar[] -> jsonb", per_value(json_values.without_path)),),
    "json_exists": (row("jsonb, varchar -> boolean", per_value(json_values.exists)),),
    "json_exists_all": (row("jsonb, varchar[] -> boolean", per_value(json_values.exists_all)),),
    "json_exists_any": (row("jsonb, varchar[] -> boolean", per_value(json_values.exists_any)),),
    "json_get": (
        row("jsonb, varchar -> jsonb", json_values.member(False, _MEMBER)),
        row("jsonb, int -> jsonb", _MEMBER),
    ),
    "json_get_text": (
        row("jsonb, varchar -> varchar", json_values.member(True, _MEMBER_TEXT)),
        row("jsonb, int -> varchar", _MEMBER_TEXT),
    ),
    "subtract": (
        row("jsonb, varchar -> jsonb", _WITHOUT),
        row("jsonb, int -> jsonb", _WITHOUT),
        row("jsonb, varchar[] -> jsonb", per_value(json_values.without_all)),
    ),
    "contains": (
        row("jsonb, jsonb -> boolean", per_value(json_values.contains)),
        row("T[], T[] -> boolean", per_value(lists.contains)),
    ),
    "is_contained": (
        row("jsonb, jsonb -> boolean", per_value(lambda part, whole: json_values.contains(whole, part))),
        row("T[], T[] -> boolean", per_value(lists.is_contained)),
    ),
    "jsonb_array_length": (row("jsonb -> int", per_value(json_values.array_length)),),
    "jsonb_build_array": (row("any... -> jsonb", json_values.build_array),),
    "jsonb_build_object": (_pairs(),),
    "jsonb_extract_path": (row("jsonb, varchar... -> jsonb", per_value(json_values.extract_path)),),
    "jsonb_extract_path_text": (row("jsonb, varchar... -> varchar", per_value(json_values.extract_path_text)),),
    "jsonb_insert": (row("jsonb, varchar[], jsonb, boolean? -> jsonb", per_value(json_values.inserted)),),
    "jsonb_object": (row("varchar[], varchar[]? -> jsonb", per_value(json_values.object_of_texts)),),
    "jsonb_pretty": (row("jsonb -> varchar", per_value(json_values.pretty)),),
    "jsonb_set": (row("jsonb, varchar[], jsonb, boolean? -> jsonb", per_value(json_values.with_path)),),
    "jsonb_strip_nulls": (row("jsonb -> jsonb", per_value(json_values.strip_nulls)),),
    "jsonb_typeof": (row("jsonb -> varchar", per_value(json_values.type_of)),),
    "to_jsonb": (row("any -> jsonb", json_values.to_json),),
}
"""Functions of one family by their names, with an overload for each signature."""
