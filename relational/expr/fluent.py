"""Functions of the fluent API: `from relational import functions as f`, then `f.sum("amount")`,
`f.lower(col("x"))`.

An argument is a term or a plain value; where a column is expected (aggregates), a string is its name.
"""

from __future__ import annotations

from relational.expr.unbound import UnboundAggregate, UnboundCall, UnboundCase, UnboundExpr, apply, as_unbound, col


def _argument(value: UnboundExpr | str) -> UnboundExpr:
    return col(value) if isinstance(value, str) else value


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
    return apply("greatest", *args)


def least(*args: object) -> UnboundCall:
    return apply("least", *args)


def lower(text: UnboundExpr) -> UnboundCall:
    return apply("lower", text)


def upper(text: UnboundExpr) -> UnboundCall:
    return apply("upper", text)


def length(text: UnboundExpr) -> UnboundCall:
    """The number of characters."""
    return apply("length", text)


def substring(text: UnboundExpr, start: int, length: int | None = None) -> UnboundCall:
    """Characters from position `start` (the first is 1)."""
    return apply("substring", text, start) if length is None else apply("substring", text, start, length)


def trim(text: UnboundExpr, characters: str = " ") -> UnboundCall:
    return apply("trim", text, characters)


def replace(text: UnboundExpr, pattern: str, replacement: str) -> UnboundCall:
    return apply("replace", text, pattern, replacement)


def concat(*args: object) -> UnboundCall:
    """`||` of all arguments: NULL if any is."""
    return apply("concat", *args)


def abs(value: UnboundExpr) -> UnboundCall:
    return apply("abs", value)


def round(value: UnboundExpr, digits: int = 0) -> UnboundCall:
    """Rounds half away from zero to `digits` digits after the point."""
    return apply("round", value, digits) if digits else apply("round", value)


def floor(value: UnboundExpr) -> UnboundCall:
    return apply("floor", value)


def ceil(value: UnboundExpr) -> UnboundCall:
    return apply("ceil", value)


def sqrt(value: UnboundExpr) -> UnboundCall:
    return apply("sqrt", value)


def extract(field: str, value: UnboundExpr) -> UnboundCall:
    """A field of a date, time or interval: year, month, dow, hour, epoch, …"""
    return apply("extract", field, value)


def date_trunc(unit: str, value: UnboundExpr) -> UnboundCall:
    """The start of the unit (hour, day, week, …) that contains the timestamp."""
    return apply("date_trunc", unit, value)
