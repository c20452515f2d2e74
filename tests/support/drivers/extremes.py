"""Every function and cast over the extremes of its types, as bound expressions.

The cases come from the tables of functions and casts, so new functions and casts are covered without a change here.
HUMMOCK_TEST_SEED repeats a run, see tests/relational/conftest.py.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from math import inf, nan

from relational.expr.expression import Call, Case, Cast, Expression, InputRef, Literal
from relational.expr.functions import FUNCTIONS, resolve
from relational.expr.kernels.casting import can_cast
from relational.types import DataType, Interval

WIDE = Context(prec=100)
_BITS = {"smallint": 15, "int": 31, "bigint": 63}
_NINES = "9" * 38
_TEXTS = [
    # numbers
    "", " ", "0", "1", "-1", "+7", " 42\t", "0x10", "0X1F", "1_000", "12.5", "-.5", "5.", ".", "+", "1e5",
    "1E-5", "0.5",
    "1e400", "1e999", "-1e999", "1e-999", "4.9e-324", "1e99999999999999999999", "0e99999999999999999999",
    "99999999.995",
    "32767", "32768", "-32769", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", _NINES, "9" * 93, f"-{_NINES}.{_NINES}{_NINES}", "0." + "0" * 40 + "1", "0" * 60 + "7",
    "1.4999999999999999", "inf", "-Infinity", "NaN", "nan", "infinit",
    # characters beyond ASCII, and control characters
    "\u0663", "\u00a05\u00a0", "\u30005", "5\u0085", "a\x00b", "5\x00", "\x1c5", "\u212a", "\u00c4b", "\U0001f600",
    # timestamps and intervals
    "2020-02-30", "2020-02-29", "0001-01-01", "9999-12-31", "0000-12-31", "9999-12-31 24:00:00",
    "9999-12-31 23:59:59.9999999", "0001-01-01 00:00:00+14", "9999-12-31 23:59:59-14", "2020-1-1 1:02:03.5Z",
    "24:00:00",
    "23:59:60", "12:00", "1 day", "-1 mons", "1e5 days", "1.5 months", "2147483648 days", "\u0661 day",
    "9999999999 years", "99999999999999999999 hours", "300 years 9223372036854 seconds",
    # texts of other types
    "true", "off", "T", "\\x", "\\xAb0", "\\xdeadBEEF", "\\xg0", "null", "[1, 2]", '{"b":1, "a":2}', '"\\ud800"',
    "{}", "{1,2}", '{1,NULL,"x"}', "{70000}", "{{1},{2}}", "{" + _NINES + ",x}", "(1,a)", "(,)", "(x,y)",
    "(99999999999,z)", "%a_", "a" * 300,
]
_REALS = [
    0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 3.4028234663852886e38, -3.4028234663852886e38, 1.401298464324817e-45,
    0.10000000149011612, 16777216.0, inf, -inf, nan,
]
_DOUBLES = [
    0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 0.1, 1e38, 9.999e37, -1e38, 1.2345678901234567e-37, 1e-7, 1e16, 123456789.987654321,
    1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 2.0**63, -(2.0**63), 2.0**31, 32767.5, 3.5e38,
    inf, -inf, nan,
]
_MOST, _LEAST, _MOST_MICROS = 2**31 - 1, -(2**31), 2**63 // 1000
_INTERVALS = [
    Interval(), Interval(1), Interval(-1, 1, -1), Interval(_MOST), Interval(_LEAST), Interval(0, _MOST),
    Interval(0, _LEAST), Interval(0, 0, _MOST_MICROS), Interval(0, 0, -_MOST_MICROS), Interval(12 * 9998, 364),
    Interval(_MOST, _MOST, _MOST_MICROS),
]
_MOMENTS = [
    datetime(1970, 1, 1), datetime.min, datetime.max, datetime(2000, 2, 29, 23, 59, 59), datetime(2024, 1, 31),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
]
_VALUES: dict[str, list] = {
    "boolean": [True, False],
    "real": _REALS,
    "double": _DOUBLES,
    "varchar": _TEXTS,
    "date": [date(1970, 1, 1), date.min, date.max, date(2000, 2, 29), date(1900, 3, 1)],
    "time": [time.min, time.max, time(12, 30, 0, 5)],
    "timestamp": _MOMENTS,
    "timestamptz": [each.replace(tzinfo=UTC) for each in _MOMENTS],
    "interval": _INTERVALS,
    "bytea": [b"", b"\0", b"\\x", bytes(range(256))],
    "jsonb": ["null", "0", "1e+400", '"a"', "[]", '{"a":1}', '[1,[2,{"b":null}]]', "-0.5", '"' + "x" * 300 + '"'],
}
TYPES = tuple(
    DataType.parse(text)
    for text in (
        "boolean", "smallint", "int", "bigint", "numeric(38, 0)", "numeric(38, 10)", "numeric(38, 30)",
        "numeric(38, 38)",
        "numeric(10, 2)", "numeric(1, 1)", "real", "double", "varchar", "date", "time", "timestamp", "timestamptz",
        "interval", "bytea", "jsonb", "int[]", "varchar[]", "jsonb[]", "interval[]", "numeric(38, 10)[][]",
        "struct<a int, b varchar>", "struct<i interval, j jsonb>", "struct<x double, y timestamp[]>",
    )
)
THREES = ("boolean", "int", "numeric(38, 10)", "double", "varchar", "timestamptz", "interval", "jsonb", "int[]")
"""Types tried as all three arguments of a function."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An expression over columns of the given `types`."""

    name: str
    types: tuple[DataType, ...]
    expression: Expression

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.types))})"


def values_of(data_type: DataType) -> list[object]:
    """Extreme values of a type, without NULL."""
    if data_type.element is not None:
        inner = values_of(data_type.element)
        return [[], [None], inner[:1], inner[-2:], [*inner[:5], None], [inner[len(inner) // 2]] * 3]
    if data_type.fields:
        columns = {field.name: [None, *values_of(field.data_type)] for field in data_type.fields}
        count = max(map(len, columns.values()))
        return [{name: column[row % len(column)] for name, column in columns.items()} for row in range(count)]
    kind = data_type.kind.name.lower()
    if kind in _BITS:
        top = 1 << _BITS[kind]
        return [0, 1, -1, 2, 7, -7, 10, top - 1, -top, top // 2, -(top // 2) - 1]
    if kind == "numeric":
        unit = Decimal((0, (1,), -(data_type.scale or 0)))
        top = Decimal((0, (9,) * (data_type.precision or 0), -(data_type.scale or 0)))
        found = [Decimal(text) for text in ("0", "1", "-7", "-2.5", "0.5")]
        found += [unit, unit.copy_negate(), top, top.copy_negate()]
        return [value for value in found if value.copy_abs() <= top and value == value.quantize(unit, context=WIDE)]
    return _VALUES[kind]


def casts() -> Iterator[Sample]:
    """Each supported cast between two of TYPES."""
    for source, target in itertools.product(TYPES, TYPES):
        if source != target and can_cast(source, target):
            yield Sample(f"CAST AS {target} OF", (source,), Cast(InputRef(0, source), target))


def branches() -> Iterator[Sample]:
    """CASE over each type, with and without ELSE."""
    for data_type in TYPES:
        columns = InputRef(0, DataType.BOOLEAN), InputRef(1, data_type), InputRef(2, data_type)
        types = (DataType.BOOLEAN, data_type, data_type)
        yield Sample("case", types, Case(((columns[0], columns[1]),), columns[2], data_type))
        yield Sample("case", types, Case(((columns[0], columns[1]),), Literal(None, data_type), data_type))


def calls(rng: random.Random) -> Iterator[Sample]:
    """Each overload of each function that accepts some of TYPES without a cast, with random constants where it requires
    constants. Without series, whose extremes are long: see test_series."""
    for name in FUNCTIONS.keys() - {"generate_series", "range"}:
        for types in signatures():
            found = resolve(name, types)
            if found is None or found[1] != types:
                continue
            constants = found[0].constants
            columns = [at for at in range(len(types)) if at not in constants]
            args = tuple(
                Literal(constant(rng, each), each) if at in constants else InputRef(columns.index(at), each)
                for at, each in enumerate(types)
            )
            yield Sample(name, tuple(types[at] for at in columns), Call(name, args, found[2]))


def signatures() -> Iterator[tuple[DataType, ...]]:
    """Argument types to try with every function."""
    yield from ((each,) for each in TYPES)
    yield from itertools.product(TYPES, TYPES)
    yield from ((DataType.parse(each),) * 3 for each in THREES)
    yield (DataType.VARCHAR, DataType.INT, DataType.INT)


def constant(rng: random.Random, data_type: DataType) -> object:
    """A value of a type or NULL."""
    return rng.choice([None, *values_of(data_type)])


def rows_of(rng: random.Random, types: tuple[DataType, ...], most: int) -> list[tuple]:
    """At most `most` rows of extremes and NULLs: all combinations if they are few enough, else a random sample."""
    columns = [[None, *values_of(each)] for each in types]
    every = 1
    for column in columns:
        every *= len(column)
    if every <= most:
        rows = list(itertools.product(*columns))
    else:
        rows = [tuple(rng.choice(column) for column in columns) for _ in range(most)]
    rng.shuffle(rows)
    return rows
