"""Rows of the registry: set-returning functions. A call gives the rows as a list, which a ProjectSet unnests."""

from __future__ import annotations

from functools import partial

from relational.expr.coercion import common_type, is_exact
from relational.expr.kernels import json_rows, lists, regex, series
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Overload, Types, row
from relational.types.data_type import DataType


def _series(*, is_open: bool) -> tuple[Overload, ...]:
    """(first, last [, step]) of numbers, and of moments with an interval."""
    integers, decimals, moments = (
        partial(kernel, is_open=is_open) for kernel in (series.integers, series.decimals, series.moments)
    )
    return (
        row("int, int, int? -> int[]", integers),
        row("bigint, bigint, bigint? -> bigint[]", integers),
        Overload(_decimal_series, decimals),
        row("timestamp, timestamp, interval -> timestamp[]", moments),
        row("timestamptz, timestamptz, interval -> timestamptz[]", moments),
    )


def _decimal_series(types: Types) -> tuple[Types, DataType] | None:
    """Numbers of which one is a NUMERIC at least, in their common type."""
    found = common_type(types) if len(types) in (2, 3) and all(map(is_exact, types)) else None
    return None if found is None else ((found,) * len(types), DataType.list_of(found))


def _unnested(types: Types) -> tuple[Types, DataType] | None:
    """A list, of the elements of the innermost lists."""
    if len(types) != 1 or types[0].element is None:
        return None
    element = types[0].element
    while element.element is not None:
        element = element.element
    return types, DataType.list_of(element)


ROWS: dict[str, tuple[Overload, ...]] = {
    "generate_series": _series(is_open=False),
    "generate_subscripts": (row("list, int, boolean? -> int[]", per_value(lists.subscripts)),),
    "jsonb_array_elements": (row("jsonb -> jsonb[]", json_rows.json_rows(json_rows.elements)),),
    "jsonb_array_elements_text": (row("jsonb -> varchar[]", json_rows.json_rows(json_rows.element_texts)),),
    "jsonb_each": (row("jsonb -> struct<key varchar, value jsonb>[]", json_rows.json_rows(json_rows.members)),),
    "jsonb_each_text": (
        row("jsonb -> struct<key varchar, value varchar>[]", json_rows.json_rows(json_rows.member_texts)),
    ),
    "jsonb_object_keys": (row("jsonb -> varchar[]", json_rows.json_rows(json_rows.names)),),
    "range": _series(is_open=True),
    "regexp_matches": (row("varchar, varchar, varchar? -> varchar[][]", per_value(regex.regexp_matches)),),
    "regexp_split_to_table": (row("varchar, varchar, varchar? -> varchar[]", per_value(regex.regexp_split)),),
    "string_to_table": (row("varchar, varchar, varchar? -> varchar[]", per_value(lists.of_text, takes_nulls=True)),),
    "unnest": (Overload(_unnested, lists.flattened),),
}
"""Functions of one family by their names, with an overload for each signature."""
