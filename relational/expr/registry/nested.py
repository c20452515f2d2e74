"""Rows of the registry: lists."""

from __future__ import annotations

from relational.expr.kernels import lists
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Overload, row

ROWS: dict[str, tuple[Overload, ...]] = {
    "array_append": (row("T[], T -> T[]", per_value(lists.appended, takes_nulls=True)),),
    "array_cat": (row("T[], T[] -> T[]", per_value(lists.joined, takes_nulls=True)),),
    "array_dims": (row("list -> varchar", per_value(lists.dimension_text)),),
    "array_fill": (row("T, int[] -> T[]", per_value(lists.filled, takes_nulls=True)),),
    "array_length": (row("list, int -> int", per_value(lists.length)),),
    "array_lower": (row("list, int -> int", per_value(lists.lower_bound)),),
    "array_ndims": (row("list -> int", per_value(lists.dimensions)),),
    "array_position": (row("T[], T, int? -> int", per_value(lists.position, takes_nulls=True)),),
    "array_positions": (row("T[], T -> int[]", per_value(lists.positions, takes_nulls=True)),),
    "array_prepend": (row("T, T[] -> T[]", per_value(lists.prepended, takes_nulls=True)),),
    "array_remove": (row("T[], T -> T[]", per_value(lists.removed, takes_nulls=True)),),
    "array_replace": (row("T[], T, T -> T[]", per_value(lists.replaced, takes_nulls=True)),),
    "array_to_string": (
        row("texts, varchar, varchar? -> varchar", per_value(lists.to_text, takes_nulls=True)),
    ),
    "array_upper": (row("list, int -> int", per_value(lists.length)),),
    "cardinality": (row("list -> int", lists.cardinality),),
    "overlaps": (row("T[], T[] -> boolean", per_value(lists.overlaps)),),
    "slice": (row("T[], int, int -> T[]", lists.sliced(True, True)),),
    "slice_from": (row("T[], int -> T[]", lists.sliced(True, False)),),
    "slice_to": (row("T[], int -> T[]", lists.sliced(False, True)),),
    "string_to_array": (
        row("varchar, varchar, varchar? -> varchar[]", per_value(lists.of_text, takes_nulls=True)),
    ),
    "subscript": (row("T[], int -> T", lists.subscript),),
    "trim_array": (row("T[], int -> T[]", per_value(lists.trimmed)),),
}
"""Functions of one family by their names, with an overload for each signature."""
