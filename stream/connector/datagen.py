"""Generated rows of any schema: `WITH (connector = 'datagen', …)`.

    rows               of all splits together; without it there is no end
    rows_per_second    of all splits together; 0: as many as are read
    splits             1 by default
    seed               of random columns, 0 by default

and of each column `c`, whatever its type:

    fields.c.kind      random (the default), or sequence: start, start + step, … up to end, then again from start
    fields.c.min, max  of a random value, both included: by default 0 and 1000, 2024-01-01 and 2024-12-31, a whole day
    fields.c.start     of a sequence, its `end`, and its `step`: a number, days for a DATE, microseconds for a TIME or
    fields.c.step      TIMESTAMP; by default 0 or 2024-01-01, the largest value, and 1, 1 day, 1 second
    fields.c.length    of a random text: so many letters, 10 by default; a sequence of texts is one of numbers
    fields.c.nulls     the share of NULL, from 0 to 1
    fields.c.seed      of this column alone

There are no values of INTERVAL, BYTEA, JSONB, lists and structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from relational.chunk.random_values import random_fractions, random_integers, random_texts
from relational.expr.comparisons import Comparison
from relational.types import DataType, Field, Schema, TypeKind
from stream.connector.base import Connector, SplitEnumerator, SplitNames, SplitReader
from stream.connector.generated import (
    MOST_ROWS,
    MOST_SPLITS,
    GeneratedReader,
    split_names,
    split_number,
)
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError

NAME = "datagen"
OPTIONS = ("rows", "rows_per_second", "splits", "seed")
FIELD_OPTIONS = ("kind", "min", "max", "start", "end", "step", "length", "nulls", "seed")
MOST_LENGTH = 1_000_000
MOST_SEED = (1 << 63) - 1
MOST_RATE = 1 << 40
SECOND_US = 1_000_000
EPOCH = date(1970, 1, 1)
INTEGERS: Mapping[TypeKind, np.dtype] = {
    TypeKind.SMALLINT: np.dtype("i2"), TypeKind.INT: np.dtype("i4"), TypeKind.BIGINT: np.dtype("i8"),
}
MOMENTS = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
FLOATS = (TypeKind.REAL, TypeKind.DOUBLE)
Values = Callable[[int, int, int], pa.Array]
"""As `Rows`, of one column."""


@dataclass(frozen=True, slots=True)
class Units:
    """Values of a type as whole numbers: the unit of a NUMERIC is its last digit, that of a date a day, of a time a
    microsecond. `parse` may raise ValueError; `array` makes the column of int64[rows]."""

    least: int
    most: int
    first: int
    last: int
    step: int
    parse: Callable[[str], int]
    array: Callable[[np.ndarray], pa.Array]


def units_of(data_type: DataType) -> Units | None:
    """How values of a type are numbered; `first` and `last` are the default bounds. None for other types."""
    kind, arrow = data_type.kind, data_type.arrow
    if kind in INTEGERS:
        dtype = INTEGERS[kind]
        half = 1 << (8 * dtype.itemsize - 1)
        return Units(-half, half - 1, 0, 1_000, 1, int, lambda raw: pa.array(raw.astype(dtype)))
    if kind is TypeKind.BOOLEAN:
        return Units(0, 1, 0, 1, 1, _parse_boolean, lambda raw: pa.array(raw != 0))
    if kind is TypeKind.NUMERIC:
        unit = 10 ** (data_type.scale or 0)
        most = min(10 ** (data_type.precision or 0) - 1, (1 << 63) - 1)
        last = min(1_000 * unit, most)
        return Units(-most, most, 0, last, unit, lambda text: _parse_decimal(text, unit),
                     lambda raw: _decimals(raw, arrow))
    if kind is TypeKind.DATE:
        low, high = _days(date(1, 1, 1)), _days(date(9999, 12, 31))
        bounds = _days(date(2024, 1, 1)), _days(date(2024, 12, 31))
        return Units(low, high, *bounds, 1, lambda text: _days(date.fromisoformat(text)),
                     lambda raw: pa.array(raw.astype(np.int32)).cast(arrow))
    if kind is TypeKind.TIME:
        return Units(0, 86_400 * SECOND_US - 1, 0, 86_400 * SECOND_US - 1, SECOND_US,
                     lambda text: _microseconds(datetime.combine(EPOCH, time.fromisoformat(text))),
                     lambda raw: pa.array(raw).cast(arrow))
    if kind in MOMENTS:
        low, high = _microseconds(datetime(1, 1, 1)), _microseconds(datetime(9999, 12, 31))
        bounds = _microseconds(datetime(2024, 1, 1)), _microseconds(datetime(2024, 12, 31))
        return Units(low, high, *bounds, SECOND_US, lambda text: _microseconds(datetime.fromisoformat(text)),
                     lambda raw: pa.array(raw).cast(arrow))
    return None


class FieldGenerator:
    """The values of one column; `number` tells columns of one seed apart. ConnectorError for an invalid option."""

    def __init__(self, field: Field, number: int, options: OptionValues, seed: int) -> None:
        self._field, self._options, self._number = field, options, number
        self._seed = options.integer(self._name("seed"), seed, 0, MOST_SEED)
        self._nulls = self._share()
        self._is_sequence = options.choice(self._name("kind"), "random", ("random", "sequence")) == "sequence"

    def rows(self) -> Values:
        """The function that computes the column."""
        values = self._values()
        if not self._nulls:
            return values

        def with_nulls(first: int, step: int, rows: int) -> pa.Array:
            is_null = random_fractions(self._seed, 3 * self._number + 2, first, step, rows) < self._nulls
            return values(first, step, rows).take(pa.array(np.arange(rows), mask=is_null))

        return with_nulls

    def _values(self) -> Values:
        kind = self._field.data_type.kind
        if kind is TypeKind.VARCHAR and not self._is_sequence:
            length = self._options.integer(self._name("length"), 10, 0, MOST_LENGTH)
            return lambda first, step, rows: random_texts(self._seed, self._number, first, step, rows, length, length)
        if kind in FLOATS and not self._is_sequence:
            return self._random_floats()
        if kind is TypeKind.VARCHAR or kind in FLOATS:
            kind = TypeKind.BIGINT
        units = units_of(DataType.BIGINT if kind is TypeKind.BIGINT else self._field.data_type)
        if units is None:
            raise ConnectorError(NAME, f"column {self._field.name!r}: there are no values of {self._field.data_type}")
        numbers, array, target = self._numbers(units), units.array, self._field.data_type.arrow
        if kind is not self._field.data_type.kind:
            return lambda first, step, rows: array(numbers(first, step, rows)).cast(target)
        return lambda first, step, rows: array(numbers(first, step, rows))

    def _numbers(self, units: Units) -> Callable[[int, int, int], np.ndarray]:
        seed, column = self._seed, 3 * self._number
        if not self._is_sequence:
            least, most = self._bounds(units, "min", "max", units.first, units.last)
            return lambda first, step, rows: random_integers(seed, column, first, step, rows, least, most)
        start, end = self._bounds(units, "start", "end", units.first, units.most)
        by = self._number_of("step", units.step, 1, units.most - units.least)
        steps = min((end - start) // by + 1, MOST_ROWS)

        def sequence(first: int, step: int, rows: int) -> np.ndarray:
            return start + (first + step * np.arange(rows, dtype=np.int64)) % steps * by

        return sequence

    def _random_floats(self) -> Values:
        least, most = (self._float(name, default) for name, default in (("min", 0.0), ("max", 1_000.0)))
        if not least <= most:
            raise self._refused("max", str(most), f"at least {least}")
        target = self._field.data_type.arrow

        def floats(first: int, step: int, rows: int) -> pa.Array:
            fractions = random_fractions(self._seed, 3 * self._number, first, step, rows)
            return pa.array(least * (1 - fractions) + most * fractions).cast(target)

        return floats

    def _bounds(self, units: Units, low: str, high: str, first: int, last: int) -> tuple[int, int]:
        least = self._value(low, units, first)
        most = self._value(high, units, max(last, least))
        if most < least:
            raise self._refused(high, self._options.text(self._name(high)), f"not below {low}")
        return least, most

    def _value(self, name: str, units: Units, default: int) -> int:
        text = self._options.text(self._name(name), "")
        if not text:
            return default
        try:
            value = units.parse(text)
        except (ValueError, InvalidOperation, OverflowError):
            raise self._refused(name, text, f"a value of {self._field.data_type}") from None
        if not units.least <= value <= units.most:
            raise self._refused(name, text, f"a value of {self._field.data_type}")
        return value

    def _number_of(self, name: str, default: int, least: int, most: int) -> int:
        return self._options.integer(self._name(name), default, least, most)

    def _float(self, name: str, default: float) -> float:
        text = self._options.text(self._name(name), str(default))
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if abs(value) == float("inf") or value != value:
            raise self._refused(name, text, "a finite number")
        return value

    def _share(self) -> float:
        share = self._float("nulls", 0.0)
        if not 0 <= share <= 1:
            raise self._refused("nulls", str(share), "a number from 0 to 1")
        return share

    def _name(self, option: str) -> str:
        return f"fields.{self._field.name}.{option}"

    def _refused(self, option: str, value: str, wanted: str) -> ConnectorError:
        return ConnectorError(NAME, f"the option {self._name(option)} is {wanted}, not {value[:100]!r}")


class DatagenConnector(Connector):
    """`WITH (connector = 'datagen', …)`."""

    is_append_only = is_consistent = is_remote = True

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        known = [f"fields.{name}.{option}" for name in schema.names for option in FIELD_OPTIONS]
        values = OptionValues(NAME, options, (*OPTIONS, *known))
        self._rows = values.integer("rows", MOST_ROWS, 0, MOST_ROWS)
        self._rate = values.integer("rows_per_second", 0, 0, MOST_RATE)
        self._splits = values.integer("splits", 1, 1, MOST_SPLITS)
        seed = values.integer("seed", 0, 0, MOST_SEED)
        self._columns = [FieldGenerator(field, number, values, seed).rows() for number, field in enumerate(schema)]

    def enumerator(self) -> SplitEnumerator:
        return SplitNames(split_names(self._splits))

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        number, rate = split_number(NAME, split, self._splits), self._rate / self._splits
        chosen = [self._columns[column] for column in columns]
        return GeneratedReader(
            NAME, number, self._splits, self._rows, lambda *rows: [compute(*rows) for compute in chosen], rate
        )


def _parse_boolean(text: str) -> int:
    return ("false", "true").index(text.lower())


def _parse_decimal(text: str, unit: int) -> int:
    scaled = Decimal(text) * unit
    if scaled != int(scaled):
        raise ValueError(text)
    return int(scaled)


def _decimals(raw: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """Unscaled values in the two words of a decimal128."""
    words = np.empty((len(raw), 2), np.int64)
    words[:, 0], words[:, 1] = raw, raw >> 63
    return pa.Array.from_buffers(arrow, len(raw), [None, pa.py_buffer(words)])


def _days(day: date) -> int:
    return (day - EPOCH).days


def _microseconds(moment: datetime) -> int:
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    past = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (past.days * 86_400 + past.seconds) * SECOND_US + past.microseconds
