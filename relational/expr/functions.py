"""The function catalog: for each name its overloads, each with its argument types, its result type and its kernel.

`resolve` selects an overload by the argument types and returns the types they are converted to first. Kernels see
converted arguments only. Functions evaluated by branches (AND, OR, CASE, COALESCE) have their types here and their
evaluation in `eval`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow.compute as pc

from relational.expr.coercion import arithmetic_type, can_widen, common_type, digits, is_exact
from relational.expr.eval_context import EvalContext, Value
from relational.expr.kernels import arithmetic, comparison, nested, strings, temporal
from relational.types.data_type import DataType, Field, TypeKind

Types = tuple[DataType, ...]
Kernel = Callable[[EvalContext, list[Value], DataType], Value]

BOOLEAN, INT, BIGINT, DOUBLE = DataType.BOOLEAN, DataType.INT, DataType.BIGINT, DataType.DOUBLE
VARCHAR, DATE, TIME = DataType.VARCHAR, DataType.DATE, DataType.TIME
TIMESTAMP, TIMESTAMPTZ, INTERVAL = DataType.TIMESTAMP, DataType.TIMESTAMPTZ, DataType.INTERVAL
MICROS = DataType.numeric(20, 6)

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
MAX_MEMBERS = 1_000_000
"""Limit on the values of an IN list, and of their lookup set."""
VOLATILE = (
    "now",
    "current_timestamp",
    "random",
    "current_date",
    "current_time",
    "localtimestamp",
    "gen_random_uuid",
)


@dataclass(frozen=True, slots=True)
class Overload:
    """`resolve`: argument types → (converted argument types, result type), None if the overload does not apply."""

    resolve: Callable[[Types], tuple[Types, DataType] | None]
    kernel: Kernel | None
    constants: tuple[int, ...] = ()


def resolve(name: str, types: Types) -> tuple[Overload, Types, DataType] | None:
    """The first overload of `name` that accepts `types`, None without one. KeyError for an unknown name."""
    for overload in FUNCTIONS[name]:
        found = overload.resolve(types)
        if found is not None:
            return overload, *found
    return None


@lru_cache(maxsize=1024)
def kernel_of(name: str, types: Types) -> Kernel:
    """The kernel of a bound call, whose argument types are already converted."""
    found = resolve(name, types)
    assert found is not None, (name, types)
    assert found[0].kernel is not None, name
    return found[0].kernel


def _fixed(takes: Types, gives: DataType, kernel: Kernel, constants: tuple[int, ...] = ()) -> Overload:
    """An overload with one signature, to which arguments widen."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        if len(types) != len(takes) or not all(map(can_widen, types, takes)):
            return None
        return takes, gives

    return Overload(fits, kernel, constants)


def _over_values(function: Callable[[Value], Value]) -> Kernel:
    """Adapts an Arrow kernel of one value."""
    return lambda evaluation, args, _: function(args[0])


def _over_args(function: Callable[..., Value], **options: object) -> Kernel:
    """Adapts a kernel that does not need the result type."""
    return lambda evaluation, args, _: function(evaluation, args, **options)


def _arithmetic(operation: str) -> Overload:
    def fits(types: Types) -> tuple[Types, DataType] | None:
        result = arithmetic_type(operation, *types) if len(types) == 2 else None
        if result is None:
            return None
        return types if result.kind is TypeKind.NUMERIC else (result, result), result

    return Overload(fits, partial(arithmetic.arithmetic, operation))


def _same_number(kernel: Kernel, drop_scale: bool = False, keep_whole: bool = False) -> Overload:
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

    return Overload(fits, _over_args(comparison.is_listed), constants=(1,))


def _concat() -> Overload:
    """|| of text and any other type, which is converted to text."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        return ((VARCHAR,) * len(types), VARCHAR) if len(types) >= 2 and VARCHAR in types else None

    return Overload(fits, _over_args(strings.concat))


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


def _compared(operation: str) -> Kernel:
    return lambda evaluation, args, _: comparison.compare(operation, evaluation, *args)


def _distinct(negated: bool) -> Kernel:
    def kernel(evaluation: EvalContext, args: list[Value], _: DataType) -> Value:
        differs = comparison.is_distinct(evaluation, *args)
        return pc.invert(differs) if negated else differs

    return kernel


def _shifted(sign: int, moment: int = 0) -> Kernel:
    return lambda evaluation, args, result: temporal.shift(
        evaluation, args[moment], args[1 - moment], sign, result
    )


def _temporal_sums() -> dict[str, tuple[Overload, ...]]:
    """Overloads of + and - other than for numbers."""
    moments = (TIMESTAMP, TIMESTAMPTZ, TIME)
    plus = [
        _fixed((DATE, INT), DATE, _over_args(temporal.shift_date, sign=1)),
        _fixed((INT, DATE), DATE, lambda e, args, _: temporal.shift_date(e, args[::-1], 1)),
        *(_fixed((each, INTERVAL), each, _shifted(1)) for each in moments),
        *(_fixed((INTERVAL, each), each, _shifted(1, moment=1)) for each in moments),
        _fixed((INTERVAL, INTERVAL), INTERVAL, _over_args(temporal.add_intervals, sign=1)),
    ]
    minus = [
        _fixed((DATE, INT), DATE, _over_args(temporal.shift_date, sign=-1)),
        _fixed((DATE, DATE), INT, temporal.difference),
        *(_fixed((each, INTERVAL), each, _shifted(-1)) for each in moments),
        *(_fixed((each, each), INTERVAL, temporal.difference) for each in moments),
        _fixed((INTERVAL, INTERVAL), INTERVAL, _over_args(temporal.add_intervals, sign=-1)),
    ]
    times = [
        _fixed((INTERVAL, DOUBLE), INTERVAL, lambda e, args, _: temporal.scale_interval(e, *args)),
        _fixed((DOUBLE, INTERVAL), INTERVAL, lambda e, args, _: temporal.scale_interval(e, *args[::-1])),
    ]
    return {"add": tuple(plus), "subtract": tuple(minus), "multiply": tuple(times)}


def _fields_and_units() -> dict[str, tuple[Overload, ...]]:
    """`extract_<field>` and `date_trunc_<unit>`: the field is part of the name, since it determines the type."""
    found: dict[str, tuple[Overload, ...]] = {}
    for field in dict.fromkeys((*temporal.DATE_FIELDS, *temporal.CLOCK_FIELDS)):
        gives = MICROS if field in ("second", "epoch") else BIGINT
        takes: list[DataType] = [DATE] if field in temporal.DATE_FIELDS else []
        takes += [TIMESTAMP, TIMESTAMPTZ]
        takes += [TIME, INTERVAL] if field in temporal.CLOCK_FIELDS else []
        kernel = partial(temporal.extract, field)
        found[f"extract_{field}"] = tuple(_fixed((each,), gives, kernel) for each in takes)
    for unit in temporal.TRUNCATIONS:
        cut = partial(temporal.truncate, unit)
        found[f"date_trunc_{unit}"] = tuple(_fixed((each,), each, cut) for each in (TIMESTAMP, TIMESTAMPTZ))
    return found


def _text_functions() -> dict[str, tuple[Overload, ...]]:
    found = {
        "lower": (_fixed((VARCHAR,), VARCHAR, _over_values(pc.utf8_lower)),),
        "upper": (_fixed((VARCHAR,), VARCHAR, _over_values(pc.utf8_upper)),),
        "length": (_fixed((VARCHAR,), INT, _over_values(pc.utf8_length)),),
        "concat": (_concat(),),
        "concat_known": (_all_of(VARCHAR, VARCHAR, _over_args(strings.concat_known)),),
        "replace": (_fixed((VARCHAR,) * 3, VARCHAR, _over_args(strings.replace), (1, 2)),),
        "substring": tuple(
            _fixed(
                (VARCHAR, *(INT,) * count),
                VARCHAR,
                _over_args(strings.substring),
                (1, 2)[:count],
            )
            for count in (1, 2)
        ),
    }
    for name, ignore_case in (("like", False), ("ilike", True)):
        matches = _over_args(strings.like, ignore_case=ignore_case)
        found[name] = (_fixed((VARCHAR, VARCHAR), BOOLEAN, matches, (1,)),)
    for name, side in (("trim", ""), ("ltrim", "l"), ("rtrim", "r")):
        cut = _over_args(strings.trim, side=side)
        found[name] = (
            _fixed((VARCHAR,), VARCHAR, cut),
            _fixed((VARCHAR, VARCHAR), VARCHAR, cut, (1,)),
        )
    return found


def _table() -> dict[str, tuple[Overload, ...]]:
    sums = _temporal_sums()
    found = {name: (_arithmetic(name), *sums.get(name, ())) for name in arithmetic.OPERATIONS}
    found |= {name: (_comparison(_compared(name)),) for name in COMPARISONS}
    found |= _text_functions() | _fields_and_units()
    found |= {
        "is_distinct": (_comparison(_distinct(False)),),
        "is_not_distinct": (_comparison(_distinct(True)),),
        "in": (_comparison(comparison.is_member, 2, MAX_MEMBERS),),
        "in_list": (_in_list(),),
        "and": (_all_of(BOOLEAN, BOOLEAN, None, 2),),
        "or": (_all_of(BOOLEAN, BOOLEAN, None, 2),),
        "not": (_fixed((BOOLEAN,), BOOLEAN, _over_values(pc.invert)),),
        "is_null": (_any_value(_over_values(pc.is_null)),),
        "is_not_null": (_any_value(_over_values(pc.is_valid)),),
        "array": (_array(),),
        "row": (_row(),),
        "single_value": (Overload(lambda types: (types, types[0]) if types[1:] == (BIGINT,) else None,
                                  comparison.single_value),),
        "coalesce": (_common(None),),
        "greatest": (_common(lambda e, args, _: comparison.extreme("greater", e, args)),),
        "least": (_common(lambda e, args, _: comparison.extreme("less", e, args)),),
        "negate": (
            _same_number(arithmetic.negate),
            _fixed((INTERVAL,), INTERVAL, lambda e, args, _: temporal.negate_interval(e, args[0])),
        ),
        "abs": (_same_number(arithmetic.absolute),),
        "round": (_same_number(arithmetic.round_half_away, drop_scale=True),),
        "floor": (_same_number(arithmetic.floor, drop_scale=True, keep_whole=True),),
        "ceil": (_same_number(arithmetic.ceil, drop_scale=True, keep_whole=True),),
        "sqrt": (_fixed((DOUBLE,), DOUBLE, arithmetic.square_root),),
    }
    return found


FUNCTIONS: dict[str, tuple[Overload, ...]] = _table()
