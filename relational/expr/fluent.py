"""Functions of the fluent API: `from relational import functions as f`, then `f.sum("amount")`,
`f.lower(col("x"))`.

A string is the name of a column where one is expected: in aggregates, as in `select`, `group_by` and `order_by`.
Elsewhere a plain value, a string too, is a constant: `f.coalesce(col("note"), "none")`. A function of one text, number
or time takes a term and refuses a string, which could be meant as either: `f.upper(col("region"))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from relational.errors import BindError
from relational.expr.unbound import (
    Ordered,
    UnboundAggregate,
    UnboundCall,
    UnboundCase,
    UnboundExpr,
    UnboundGrouping,
    apply,
    as_unbound,
    col,
)

OrderKey: TypeAlias = "str | UnboundExpr | Ordered"
"""A column by its name, a term, or either with its order: `col("at").desc()`."""


def _argument(value: UnboundExpr | str) -> UnboundExpr:
    return col(value) if isinstance(value, str) else value


def _term(value: UnboundExpr) -> UnboundExpr:
    """BindError for a string, which is a name in aggregates and a constant in operators."""
    if isinstance(value, str):
        raise BindError(f"col({value!r}) is the column of this name, lit({value!r}) the text: write one of them")
    return value


def count(argument: UnboundExpr | str | None = None, *, distinct: bool = False) -> UnboundAggregate:
    """Rows of the group; with an argument, those where it is not NULL. `distinct`: its different values."""
    return UnboundAggregate("count", None if argument is None else _argument(argument), distinct=distinct)


def sum(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The exact sum, `distinct`: of different values; NULL for a group without values."""
    return UnboundAggregate("sum", _argument(argument), distinct=distinct)


def avg(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The mean, `distinct`: of different values; NULL for a group without values."""
    return UnboundAggregate("avg", _argument(argument), distinct=distinct)


def min(argument: UnboundExpr | str) -> UnboundAggregate:
    """The smallest value."""
    return UnboundAggregate("min", _argument(argument))


def max(argument: UnboundExpr | str) -> UnboundAggregate:
    """The largest value."""
    return UnboundAggregate("max", _argument(argument))


def bool_and(argument: UnboundExpr | str) -> UnboundAggregate:
    """Whether all values are true; NULL for a group without values."""
    return UnboundAggregate("bool_and", _argument(argument))


def bool_or(argument: UnboundExpr | str) -> UnboundAggregate:
    """Whether any value is true; NULL for a group without values."""
    return UnboundAggregate("bool_or", _argument(argument))


def variance(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The variance of a sample, divided by n - 1; NULL for fewer than two values."""
    return UnboundAggregate("var_samp", _argument(argument), distinct=distinct)


def var_pop(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The variance of all values, divided by n; NULL for a group without values."""
    return UnboundAggregate("var_pop", _argument(argument), distinct=distinct)


def stddev(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The standard deviation of a sample: the root of `variance`."""
    return UnboundAggregate("stddev_samp", _argument(argument), distinct=distinct)


def stddev_pop(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The standard deviation of all values: the root of `var_pop`."""
    return UnboundAggregate("stddev_pop", _argument(argument), distinct=distinct)


def bit_and(argument: UnboundExpr | str) -> UnboundAggregate:
    """The bits that all values have."""
    return UnboundAggregate("bit_and", _argument(argument))


def bit_or(argument: UnboundExpr | str) -> UnboundAggregate:
    """The bits that some value has."""
    return UnboundAggregate("bit_or", _argument(argument))


def bit_xor(argument: UnboundExpr | str, *, distinct: bool = False) -> UnboundAggregate:
    """The bits that an odd number of values has."""
    return UnboundAggregate("bit_xor", _argument(argument), distinct=distinct)


def any_value(argument: UnboundExpr | str) -> UnboundAggregate:
    """A value that is not NULL: the least one."""
    return min(argument)


def approx_count_distinct(argument: UnboundExpr | str) -> UnboundAggregate:
    """About how many different values there are; in a view of rows that are only appended."""
    return UnboundAggregate("approx_count_distinct", _argument(argument))


def of_pairs(function: str, y: UnboundExpr | str, x: UnboundExpr | str) -> UnboundAggregate:
    """corr, covar_pop, covar_samp or a regr_… of the pairs (y, x): `f.of_pairs("corr", "price", "weight")`."""
    return UnboundAggregate(function, _argument(y), more=(_argument(x),))


def array_agg(
    argument: UnboundExpr | str, *, order_by: OrderKey | Sequence[OrderKey] = (), distinct: bool = False
) -> UnboundAggregate:
    """The values as a list, NULL too, in the order of the keys; NULL for a group without rows."""
    return _ordered("array_agg", (_argument(argument),), order_by, distinct)


def string_agg(
    argument: UnboundExpr | str, separator: str, *, order_by: OrderKey | Sequence[OrderKey] = (), distinct: bool = False
) -> UnboundAggregate:
    """The texts that are not NULL, joined in the order of the keys; NULL for a group without any."""
    return _ordered("string_agg", (_argument(argument), as_unbound(separator)), order_by, distinct)


def jsonb_agg(
    argument: UnboundExpr | str, *, order_by: OrderKey | Sequence[OrderKey] = (), distinct: bool = False
) -> UnboundAggregate:
    """The values as an array of JSON."""
    return _ordered("jsonb_agg", (_argument(argument),), order_by, distinct)


def jsonb_object_agg(
    key: UnboundExpr | str, value: UnboundExpr | str, *, order_by: OrderKey | Sequence[OrderKey] = ()
) -> UnboundAggregate:
    """An object of JSON; of several values of a key the last one."""
    return _ordered("jsonb_object_agg", (_argument(key), _argument(value)), order_by)


def first_value(argument: UnboundExpr | str, *, order_by: OrderKey | Sequence[OrderKey]) -> UnboundAggregate:
    """The value of the first row in the order of the keys."""
    return _ordered("first_value", (_argument(argument),), order_by)


def last_value(argument: UnboundExpr | str, *, order_by: OrderKey | Sequence[OrderKey]) -> UnboundAggregate:
    """The value of the last row in the order of the keys."""
    return _ordered("last_value", (_argument(argument),), order_by)


def arg_min(argument: UnboundExpr | str, by: UnboundExpr | str) -> UnboundAggregate:
    """The value where `by` is the smallest."""
    return UnboundAggregate("arg_min", _argument(argument), more=(_argument(by),))


def arg_max(argument: UnboundExpr | str, by: UnboundExpr | str) -> UnboundAggregate:
    """The value where `by` is the largest."""
    return UnboundAggregate("arg_max", _argument(argument), more=(_argument(by),))


def mode(argument: OrderKey) -> UnboundAggregate:
    """The most frequent value, of several the first one."""
    return UnboundAggregate("mode", order=(_key(argument),), is_within_group=True)


def percentile_cont(fraction: float, argument: OrderKey) -> UnboundAggregate:
    """The value at this fraction of the way through the sorted numbers, between two of them if need be."""
    return UnboundAggregate("percentile_cont", as_unbound(fraction), order=(_key(argument),), is_within_group=True)


def percentile_disc(fraction: float, argument: OrderKey) -> UnboundAggregate:
    """The first of the sorted values up to which there is this fraction of the rows."""
    return UnboundAggregate("percentile_disc", as_unbound(fraction), order=(_key(argument),), is_within_group=True)


def grouping(*groups: UnboundExpr | str) -> UnboundGrouping:
    """For each group column a bit, the last one the lowest, that is 1 if it is not in the grouping set of the row."""
    return UnboundGrouping(tuple(map(_argument, groups)))


def _ordered(
    function: str, arguments: tuple[UnboundExpr, ...], order_by: OrderKey | Sequence[OrderKey], distinct: bool = False
) -> UnboundAggregate:
    first, *more = arguments
    keys = [order_by] if isinstance(order_by, str | UnboundExpr | Ordered) else order_by
    return UnboundAggregate(function, first, distinct=distinct, more=tuple(more), order=tuple(map(_key, keys)))


def _key(value: OrderKey) -> Ordered:
    return value if isinstance(value, Ordered) else Ordered(_argument(value))


def when(condition: UnboundExpr, result: object) -> UnboundCase:
    """CASE WHEN condition THEN result; continued by `.when` and `.default`."""
    return UnboundCase(((condition, as_unbound(result)),))


def call(function: str, *args: object) -> UnboundCall:
    """Any function of SQL by its name: `f.call("split_part", col("t"), ",", 1)`."""
    return apply(function, *args)


def coalesce(*args: object) -> UnboundCall:
    """The first non-NULL argument."""
    return apply("coalesce", *args)


def nullif(value: object, other: object) -> UnboundCall:
    """NULL if both are equal, else the value."""
    return apply("nullif", value, other)


def greatest(*args: object) -> UnboundCall:
    """The largest of the arguments that are not NULL."""
    return apply("greatest", *args)


def least(*args: object) -> UnboundCall:
    """The smallest of the arguments that are not NULL."""
    return apply("least", *args)


def lower(text: UnboundExpr) -> UnboundCall:
    """The text in small letters."""
    return apply("lower", _term(text))


def upper(text: UnboundExpr) -> UnboundCall:
    """The text in capital letters."""
    return apply("upper", _term(text))


def length(text: UnboundExpr) -> UnboundCall:
    """The number of characters."""
    return apply("length", _term(text))


def substring(text: UnboundExpr, start: int, length: int | None = None) -> UnboundCall:
    """Characters from position `start` (the first is 1)."""
    return apply("substring", _term(text), start, *(() if length is None else (length,)))


def trim(text: UnboundExpr, characters: str = " ") -> UnboundCall:
    """The text without any of `characters` at its ends."""
    return apply("trim", _term(text), characters)


def replace(text: UnboundExpr, pattern: str, replacement: str) -> UnboundCall:
    """The text with each `pattern`, taken literally, replaced."""
    return apply("replace", _term(text), pattern, replacement)


def concat(*args: object) -> UnboundCall:
    """`||` of all arguments: NULL if any is."""
    return apply("concat", *args)


def abs(value: UnboundExpr) -> UnboundCall:
    """The value without its sign."""
    return apply("abs", _term(value))


def round(value: UnboundExpr, digits: int = 0) -> UnboundCall:
    """Rounds half away from zero to `digits` digits after the point."""
    return apply("round", _term(value), *((digits,) if digits else ()))


def floor(value: UnboundExpr) -> UnboundCall:
    """The largest whole number that is not above the value."""
    return apply("floor", _term(value))


def ceil(value: UnboundExpr) -> UnboundCall:
    """The smallest whole number that is not below the value."""
    return apply("ceil", _term(value))


def sqrt(value: UnboundExpr) -> UnboundCall:
    """The square root; a negative value has none."""
    return apply("sqrt", _term(value))


def extract(field: str, value: UnboundExpr) -> UnboundCall:
    """A field of a date, time or interval: year, month, dow, hour, epoch, …"""
    return apply("extract", field, _term(value))


def date_trunc(unit: str, value: UnboundExpr) -> UnboundCall:
    """The start of the unit (hour, day, week, …) that contains the timestamp."""
    return apply("date_trunc", unit, _term(value))
