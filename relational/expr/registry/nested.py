"""Rows of the registry: lists."""

from __future__ import annotations

from relational.expr.aggregates import AggKind, aggregate_type
from relational.expr.coercion import common_type
from relational.expr.kernels import lists
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Kernel, Overload, Types, row
from relational.types.data_type import DataType, TypeKind


def _of_ordered(kernel: Kernel, gives_list: bool) -> Overload:
    """Of a list whose elements have an order in Python: one of them, or a list of them."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        element = types[0].element if len(types) == 1 else None
        if element is None or element.is_nested or element.kind is TypeKind.JSONB:
            return None
        return types, types[0] if gives_list else element

    return Overload(fits, kernel)


def _array_sum() -> Overload:
    """Of a list of numbers: of the type of SUM."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        element = types[0].element if len(types) == 1 else None
        gives = None if element is None else aggregate_type(AggKind.SUM, element)
        return None if gives is None else (types, gives)

    return Overload(fits, per_value(lists.total))


def _array_flatten() -> Overload:
    def fits(types: Types) -> tuple[Types, DataType] | None:
        element = types[0].element if len(types) == 1 else None
        return None if element is None or element.element is None else (types, element)

    return Overload(fits, per_value(lists.all_joined))


def _array_cat() -> tuple[Overload, ...]:
    """Two lists of one type, or a list and one of the elements of a list of lists."""

    def fits(types: Types, is_first: bool) -> tuple[Types, DataType] | None:
        whole, inner = types if is_first else types[::-1]
        element = None if whole.element is None else common_type([whole.element, inner])
        if element is None or element.element is None or len(types) != 2:
            return None
        whole, inner = DataType.list_of(element), element
        return ((whole, inner) if is_first else (inner, whole)), whole

    return (
        row("T[], T[] -> T[]", per_value(lists.joined, takes_nulls=True)),
        Overload(lambda types: fits(types, True) if len(types) == 2 else None,
                 per_value(lists.appended, takes_nulls=True)),
        Overload(lambda types: fits(types, False) if len(types) == 2 else None,
                 per_value(lists.prepended, takes_nulls=True)),
    )


ROWS: dict[str, tuple[Overload, ...]] = {
    "array_append": (row("T[], T -> T[]", per_value(lists.appended, takes_nulls=True)),),
    "array_cat": _array_cat(),
    "array_contains": (row("T[], T[] -> boolean", per_value(lists.contains)),),
    "array_dims": (row("list -> varchar", per_value(lists.dimension_text)),),
    "array_distinct": (row("T[] -> T[]", per_value(lists.distinct)),),
    "array_fill": (row("T, int[] -> T[]", per_value(lists.filled, takes_nulls=True)),),
    "array_flatten": (_array_flatten(),),
    "array_length": (row("list, int -> int", per_value(lists.length)),),
    "array_lower": (row("list, int -> int", per_value(lists.lower_bound)),),
    "array_max": (_of_ordered(per_value(lists.greatest), gives_list=False),),
    "array_min": (_of_ordered(per_value(lists.least), gives_list=False),),
    "array_ndims": (row("list -> int", per_value(lists.dimensions)),),
    "array_position": (row("T[], T, int? -> int", per_value(lists.position, takes_nulls=True)),),
    "array_positions": (row("T[], T -> int[]", per_value(lists.positions, takes_nulls=True)),),
    "array_prepend": (row("T, T[] -> T[]", per_value(lists.prepended, takes_nulls=True)),),
    "array_remove": (row("T[], T -> T[]", per_value(lists.removed, takes_nulls=True)),),
    "array_replace": (row("T[], T, T -> T[]", per_value(lists.replaced, takes_nulls=True)),),
    "array_reverse": (row("T[] -> T[]", per_value(lists.reversed_list)),),
    "array_sort": (_of_ordered(per_value(lists.ascending), gives_list=True),),
    "array_sum": (_array_sum(),),
    "array_to_string": (
        row("boolean[], varchar, varchar? -> varchar", per_value(lists.truths_to_text, takes_nulls=True)),
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
