"""Rows of the registry: operators of numbers and truth values, comparisons, conditions, constructors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.coercion import arithmetic_type, common_type, digits, is_exact
from relational.expr.eval_context import EvalContext, Value
from relational.expr.kernels import arithmetic, comparison, json_values, lists, mathematics, nested, strings
from relational.expr.kernels.binary import bit_count
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Kernel, Overload, Types, merged, row
from relational.types.data_type import DataType, Field, TypeKind

BOOLEAN, VARCHAR = DataType.BOOLEAN, DataType.VARCHAR
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
MAX_MEMBERS = 1_000_000
"""Limit on the values of an IN list, and of their lookup set."""
INTEGERS = ("smallint", "int", "bigint")
MAX_FIELDS = 100
"""Fields of a row that can be accessed by name."""


def over_values(function: Callable[[Value], Value]) -> Kernel:
    """Adapts an Arrow kernel of one value."""
    return lambda evaluation, args, _: function(args[0])


def over_args(function: Callable[..., Value], **options: object) -> Kernel:
    """Adapts a kernel that does not need the result type."""
    return lambda evaluation, args, _: function(evaluation, args, **options)


def _arithmetic(operation: str) -> Overload:
    def fits(types: Types) -> tuple[Types, DataType] | None:
        result = arithmetic_type(operation, *types) if len(types) == 2 else None
        if result is None:
            return None
        return types if result.kind is TypeKind.NUMERIC else (result, result), result

    return Overload(fits, partial(arithmetic.arithmetic, operation))


def same_number(kernel: Kernel, drop_scale: bool = False, keep_whole: bool = False) -> Overload:
    """From one number to the same type; NUMERIC loses its fraction if `drop_scale`, and gains a digit for a carry
    unless its scale is 0 and `keep_whole`.
    """

    def fits(types: Types) -> tuple[Types, DataType] | None:
        if len(types) != 1 or not types[0].is_numeric:
            return None
        if drop_scale and types[0].kind is TypeKind.NUMERIC and not (keep_whole and types[0].scale == 0):
            return types, DataType.numeric(min(digits(types[0])[0] + 1, 38), 0)
        return types, types[0]

    return Overload(fits, kernel)


def _comparable(types: Types) -> Types | None:
    """The types that the sides of a comparison are converted to: exact numbers keep their own scale, others use the
    common type.
    """
    common = common_type(types)
    if common is None:
        return None
    if is_exact(common) and common.kind is TypeKind.NUMERIC:
        return tuple(DataType.numeric(19, 0) if each.is_integer else each for each in types)
    return (common,) * len(types)


def _comparison(kernel: Kernel, least: int = 2, most: int = 2) -> Overload:
    def fits(types: Types) -> tuple[Types, DataType] | None:
        sides = _comparable(types) if least <= len(types) <= most else None
        return None if sides is None else (sides, BOOLEAN)

    return Overload(fits, kernel)


def _common(kernel: Kernel | None) -> Overload:
    """From one or more values with a common type to that type."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        common = common_type(types) if types else None
        return None if common is None else ((common,) * len(types), common)

    return Overload(fits, kernel)


def _all_of(takes: DataType, gives: DataType, kernel: Kernel | None, least: int = 1) -> Overload:
    """Any number of arguments of one type, at least `least`."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        return (types, gives) if len(types) >= least and all(each == takes for each in types) else None

    return Overload(fits, kernel)


def _any_value(kernel: Kernel) -> Overload:
    return Overload(lambda types: (types, BOOLEAN) if len(types) == 1 else None, kernel)


def _in_list() -> Overload:
    """A value and a constant list of its type, if Arrow compares that type as SQL does."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        is_pair = len(types) == 2 and types[1].element == types[0]
        return (types, BOOLEAN) if is_pair and comparison.is_listable(types[0]) else None

    return Overload(fits, over_args(comparison.is_listed), constants=(1,))


def _concat() -> Overload:
    """|| of text and any other type, which is converted to text."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        is_text = len(types) >= 2 and VARCHAR in types and all(each.element is None for each in types)
        return ((VARCHAR,) * len(types), VARCHAR) if is_text else None

    return Overload(fits, over_args(strings.concat))


def _array() -> Overload:
    """ARRAY[…] of elements with a common type."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        element = common_type(types) if types else None
        return None if element is None else ((element,) * len(types), DataType.list_of(element))

    return Overload(fits, nested.make_list)


def _row() -> Overload:
    """ROW(…) with fields named f1, f2 …"""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        fields = [Field(f"f{at}", each) for at, each in enumerate(types, 1)]
        return (types, DataType.struct(fields)) if fields else None

    return Overload(fits, nested.make_struct)


def _single_value() -> Overload:
    """The value of a subquery, given the number of its rows."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        return (types, types[0]) if len(types) == 2 and types[1] == DataType.BIGINT else None

    return Overload(fits, comparison.single_value)


def _compared(operation: str) -> Kernel:
    return lambda evaluation, args, _: comparison.compare(operation, evaluation, *args)


def _distinct(negated: bool) -> Kernel:
    def kernel(evaluation: EvalContext, args: list[Value], _: DataType) -> Value:
        differs = comparison.is_distinct(evaluation, *args)
        return pc.invert(differs) if negated else differs

    return kernel


def _count_of(is_counted: Callable[[Value], Value]) -> Kernel:
    """The kernel of the number of arguments of a row that are counted."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        flags = [is_counted(evaluation.column(arg)).to_numpy(zero_copy_only=False) for arg in args]
        return pa.array(np.sum(flags, axis=0, dtype=np.int32))

    return kernel


def _field(position: int) -> Overload:
    """The field of a row at a position."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        is_row = len(types) == 1 and len(types[0].fields) >= position
        return (types, types[0].fields[position - 1].data_type) if is_row else None

    return Overload(fits, lists.field(position))


def _bits(name: str, kernel: Kernel) -> dict[str, tuple[Overload, ...]]:
    """An operator of two integers of one type."""
    return {name: tuple(row(f"{each}, {each} -> {each}", kernel) for each in INTEGERS)}


def _shifts(name: str, to_left: bool) -> dict[str, tuple[Overload, ...]]:
    kernel = mathematics.shifted(to_left)
    return {name: tuple(row(f"{each}, int -> {each}", kernel) for each in INTEGERS)}


def quantified(name: str, takes: str, compare: Kernel) -> dict[str, tuple[Overload, ...]]:
    """The comparison `name` with ANY and with ALL elements of a list."""
    return {
        f"{name}_{word}": (row(f"{takes}, {takes}[] -> boolean", lists.quantified(compare, word == "all")),)
        for word in ("any", "all")
    }


ROWS: dict[str, tuple[Overload, ...]] = {
    **{name: (_arithmetic(name),) for name in arithmetic.OPERATIONS},
    **{name: (_comparison(_compared(name)),) for name in COMPARISONS},
    **merged(*(quantified(name, "T", _compared(name)) for name in COMPARISONS)),
    "booleq": (row("boolean, boolean -> boolean", _compared("equal")),),
    "boolne": (row("boolean, boolean -> boolean", _compared("not_equal")),),
    **_bits("bit_and", mathematics.bitwise(np.bitwise_and)),
    **_bits("bit_or", mathematics.bitwise(np.bitwise_or)),
    **_bits("bit_xor", mathematics.bitwise(np.bitwise_xor)),
    **_shifts("shift_left", True),
    **_shifts("shift_right", False),
    "bit_not": tuple(row(f"{each} -> {each}", mathematics.bitwise(np.invert)) for each in INTEGERS),
    "bit_count": (row("bytea -> bigint", per_value(bit_count)),),
    "is_distinct": (_comparison(_distinct(False)),),
    "is_not_distinct": (_comparison(_distinct(True)),),
    "in": (_comparison(comparison.is_member, 2, MAX_MEMBERS),),
    "in_list": (_in_list(),),
    "and": (_all_of(BOOLEAN, BOOLEAN, None, 2),),
    "or": (_all_of(BOOLEAN, BOOLEAN, None, 2),),
    "not": (row("boolean -> boolean", over_values(pc.invert)),),
    "is_null": (_any_value(over_values(pc.is_null)),),
    "is_not_null": (_any_value(over_values(pc.is_valid)),),
    "num_nulls": (row("any, any... -> int", _count_of(pc.is_null)),),
    "num_nonnulls": (row("any, any... -> int", _count_of(pc.is_valid)),),
    "array": (_array(),),
    "row": (_row(),),
    **{f"field_{position}": (_field(position),) for position in range(1, MAX_FIELDS + 1)},
    "coalesce": (_common(None),),
    "single_value": (_single_value(),),
    "greatest": (_common(lambda e, args, _: comparison.extreme("greater", e, args)),),
    "least": (_common(lambda e, args, _: comparison.extreme("less", e, args)),),
    "concat": (
        _concat(),
        row("T[], T[] -> T[]", per_value(lists.joined, takes_nulls=True)),
        row("T[], T -> T[]", per_value(lists.appended, takes_nulls=True)),
        row("T, T[] -> T[]", per_value(lists.prepended, takes_nulls=True)),
        row("jsonb, jsonb -> jsonb", per_value(json_values.concatenated)),
        row("bytea, bytea -> bytea", over_args(strings.concat_bytes)),
    ),
    "concat_known": (_all_of(VARCHAR, VARCHAR, over_args(strings.concat_known)),),
    "negate": (same_number(arithmetic.negate),),
}
"""Functions of one family by their names, with an overload for each signature."""
