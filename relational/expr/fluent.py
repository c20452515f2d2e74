"""Functions for the Python face: `from relational import functions as f`, then `f.sum("amount")`,
`f.lower(col("x"))`.

An argument is a term or a plain value; where a column is expected (aggregates), a string is its name.
"""

from __future__ import annotations

from relational.expr.unbound import Apply, Choose, Summary, Term, apply, as_term, col


def _argument(value: Term | str) -> Term:
    return col(value) if isinstance(value, str) else value


def count(argument: Term | str | None = None) -> Summary:
    """Rows of the group; with an argument, those where it is not NULL."""
    return Summary("count", None if argument is None else _argument(argument))


def sum(argument: Term | str) -> Summary:
    """The exact sum; NULL for a group without values."""
    return Summary("sum", _argument(argument))


def avg(argument: Term | str) -> Summary:
    """The mean; NULL for a group without values."""
    return Summary("avg", _argument(argument))


def min(argument: Term | str) -> Summary:
    """The smallest value."""
    return Summary("min", _argument(argument))


def max(argument: Term | str) -> Summary:
    """The largest value."""
    return Summary("max", _argument(argument))


def when(condition: Term, result: object) -> Choose:
    """CASE WHEN condition THEN result; go on with `.when` and `.default`."""
    return Choose(((condition, as_term(result)),))


def coalesce(*args: object) -> Apply:
    """The first that is not NULL."""
    return apply("coalesce", *args)


def nullif(value: object, other: object) -> Apply:
    """NULL where both are equal, else the value."""
    return apply("nullif", value, other)


def greatest(*args: object) -> Apply:
    return apply("greatest", *args)


def least(*args: object) -> Apply:
    return apply("least", *args)


def lower(text: Term) -> Apply:
    return apply("lower", text)


def upper(text: Term) -> Apply:
    return apply("upper", text)


def length(text: Term) -> Apply:
    """Characters."""
    return apply("length", text)


def substring(text: Term, start: int, length: int | None = None) -> Apply:
    """Characters from position `start` (the first is 1)."""
    return apply("substring", text, start) if length is None else apply("substring", text, start, length)


def trim(text: Term, characters: str = " ") -> Apply:
    return apply("trim", text, characters)


def replace(text: Term, pattern: str, replacement: str) -> Apply:
    return apply("replace", text, pattern, replacement)


def concat(*args: object) -> Apply:
    """`||` of all arguments: NULL if one is."""
    return apply("concat", *args)


def abs(value: Term) -> Apply:
    return apply("abs", value)


def round(value: Term, digits: int = 0) -> Apply:
    """Half away from zero at `digits` after the point."""
    return apply("round", value, digits) if digits else apply("round", value)


def floor(value: Term) -> Apply:
    return apply("floor", value)


def ceil(value: Term) -> Apply:
    return apply("ceil", value)


def sqrt(value: Term) -> Apply:
    return apply("sqrt", value)


def extract(field: str, value: Term) -> Apply:
    """A field of a date, time or interval: year, month, dow, hour, epoch, …"""
    return apply("extract", field, value)


def date_trunc(unit: str, value: Term) -> Apply:
    """The start of the unit (hour, day, week, …) that the timestamp lies in."""
    return apply("date_trunc", unit, value)
