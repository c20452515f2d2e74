"""Rows of the registry: dates, times and intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import EvalContext, Value, booleans, choose, from_numbers, numbers, valid_rows
from relational.expr.kernels import calendar, moment_format, number_format, temporal
from relational.expr.kernels.per_value import per_value
from relational.expr.kernels.temporal import in_zone
from relational.expr.registry.operators import over_args
from relational.expr.signature import Kernel, Overload, Types, fixed, merged, row
from relational.types.data_type import DataType
from relational.types.interval import Interval

INT, BIGINT, DOUBLE = DataType.INT, DataType.BIGINT, DataType.DOUBLE
DATE, TIME = DataType.DATE, DataType.TIME
TIMESTAMP, TIMESTAMPTZ, INTERVAL = DataType.TIMESTAMP, DataType.TIMESTAMPTZ, DataType.INTERVAL
MICROS = DataType.numeric(20, 6)
_TRUNCATED: tuple[Types, ...] = ((TIMESTAMP,), (TIMESTAMPTZ,), (INTERVAL,), (TIMESTAMPTZ, DataType.VARCHAR))
"""What date_trunc takes after the unit."""
VOLATILE = (
    "now",
    "current_timestamp",
    "random",
    "current_date",
    "current_time",
    "localtimestamp",
    "statement_timestamp",
    "transaction_timestamp",
    "clock_timestamp",
    "gen_random_uuid",
)
"""Functions with another answer each time."""


def _shifted(sign: int, moment: int = 0) -> Kernel:
    return lambda evaluation, args, result: temporal.shift(
        evaluation, args[moment], args[1 - moment], sign, result
    )


def _sums() -> dict[str, tuple[Overload, ...]]:
    """Overloads of + and - other than for numbers."""
    moments = (TIMESTAMP, TIMESTAMPTZ, TIME)
    plus = [
        fixed((DATE, INT), DATE, over_args(temporal.shift_date, sign=1)),
        fixed((INT, DATE), DATE, lambda e, args, _: temporal.shift_date(e, args[::-1], 1)),
        *(fixed((each, INTERVAL), each, _shifted(1)) for each in moments),
        *(fixed((INTERVAL, each), each, _shifted(1, moment=1)) for each in moments),
        fixed((INTERVAL, INTERVAL), INTERVAL, over_args(temporal.add_intervals, sign=1)),
    ]
    minus = [
        fixed((DATE, INT), DATE, over_args(temporal.shift_date, sign=-1)),
        fixed((DATE, DATE), INT, temporal.difference),
        *(fixed((each, INTERVAL), each, _shifted(-1)) for each in moments),
        *(fixed((each, each), INTERVAL, temporal.difference) for each in moments),
        fixed((INTERVAL, INTERVAL), INTERVAL, over_args(temporal.add_intervals, sign=-1)),
    ]
    times = [
        fixed((INTERVAL, DOUBLE), INTERVAL, lambda e, args, _: temporal.scale_interval(e, *args)),
        fixed((DOUBLE, INTERVAL), INTERVAL, lambda e, args, _: temporal.scale_interval(e, *args[::-1])),
    ]
    plus += [
        row("date, time -> timestamp", lambda e, args, _: temporal.at_clock(e, *args)),
        row("time, date -> timestamp", lambda e, args, _: temporal.at_clock(e, *args[::-1])),
    ]
    return {
        "add": tuple(plus),
        "subtract": tuple(minus),
        "multiply": tuple(times),
        "divide": (row("interval, double -> interval", per_value(calendar.divided)),),
        "negate": (fixed((INTERVAL,), INTERVAL, lambda e, args, _: temporal.negate_interval(e, args[0])),),
    }


def _fields_and_units() -> dict[str, tuple[Overload, ...]]:
    """`extract_<field>` and `date_trunc_<unit>`: the field is part of the name, since it determines the type."""
    found: dict[str, tuple[Overload, ...]] = {}
    for field in dict.fromkeys((*temporal.DATE_FIELDS, *temporal.CLOCK_FIELDS)):
        gives = MICROS if field in ("second", "epoch") else BIGINT
        takes: list[DataType] = [DATE] if field in temporal.DATE_FIELDS else []
        takes += [TIMESTAMP, TIMESTAMPTZ]
        takes += [TIME, INTERVAL] if field in temporal.CLOCK_FIELDS else []
        kernel = partial(temporal.extract, field)
        found[f"extract_{field}"] = tuple(fixed((each,), gives, kernel) for each in takes)
    for unit in temporal.TRUNCATIONS:
        cut = partial(temporal.truncate, unit)
        found[f"date_trunc_{unit}"] = tuple(fixed((each,), each, cut) for each in (TIMESTAMP, TIMESTAMPTZ))
    for unit in ("decade", "century", "millennium"):
        cut_years = per_value(partial(calendar.truncated, unit))
        found[f"date_trunc_{unit}"] = tuple(fixed((each,), each, cut_years) for each in (TIMESTAMP, TIMESTAMPTZ))
    for name in list(found):
        if name.startswith("date_trunc_"):
            unit = name.removeprefix("date_trunc_")
            found[name] += (
                row("interval -> interval", per_value(partial(calendar.truncated_interval, unit))),
                row("timestamptz, varchar -> timestamptz", per_value(partial(calendar.truncated_in_zone, unit))),
            )
    return found | {"date_trunc": tuple(_by_unit(found, types) for types in _TRUNCATED)}


def _by_unit(overloads: Mapping[str, Sequence[Overload]], types: Types) -> Overload:
    """date_trunc of a unit that is no constant, and of arguments of these types."""
    kernels: dict[str, Kernel] = {}
    for name, choices in overloads.items():
        if name.startswith("date_trunc_"):
            exact = [each.kernel for each in choices if (each.resolve(types) or ((),))[0] == types]
            assert exact[0] is not None
            kernels[name.removeprefix("date_trunc_")] = exact[0]

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        units = pc.utf8_lower(evaluation.column(args[0]))
        found = pa.nulls(evaluation.rows, result.arrow)
        for unit in pc.unique(units).drop_null().to_pylist():
            rows = booleans(pc.equal(units, unit))
            truncate = kernels.get(unit) or kernels.get(unit.removesuffix("s"))
            if truncate is None:
                evaluation.fail(rows, "there is no such unit")
            else:
                found = choose(rows, truncate(evaluation.narrowed(rows), args[1:], result), found)
        return found

    return fixed((DataType.VARCHAR, *types), types[0], kernel)


def _more_fields() -> dict[str, tuple[Overload, ...]]:
    """Fields of EXTRACT without a kernel of Arrow."""
    found: dict[str, tuple[Overload, ...]] = {}
    years: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "decade": lambda year: year // 10,
        "century": lambda year: (year + 99) // 100,
        "millennium": lambda year: (year + 999) // 1000,
    }
    for field, of_year in years.items():
        kernel = _of_year(of_year)
        found[f"extract_{field}"] = tuple(fixed((each,), BIGINT, kernel) for each in (DATE, TIMESTAMP, TIMESTAMPTZ))
    for field, gives, unit in (("milliseconds", MICROS, 1000), ("microseconds", BIGINT, 1)):
        kernel = per_value(lambda value, unit=unit: _second_part(value, unit))
        found[f"extract_{field}"] = tuple(
            fixed((each,), gives, kernel) for each in (TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL)
        )
    julian = per_value(lambda value: value.toordinal() + 1_721_425)
    found["extract_julian"] = (fixed((DATE,), BIGINT, julian),)
    for field in ("timezone", "timezone_hour", "timezone_minute"):
        found[f"extract_{field}"] = (fixed((TIMESTAMPTZ,), BIGINT, per_value(lambda value: 0)),)
    return found


def _of_year(function: Callable[[np.ndarray], np.ndarray]) -> Kernel:
    """The kernel of a function of the year."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        column = evaluation.column(args[0])
        return from_numbers(function(numbers(pc.year(column), "<i8")), result.arrow, valid_rows(column))

    return kernel


def _second_part(value: Any, unit: int) -> Decimal | int:
    """The seconds within the minute, in so many microseconds."""
    if isinstance(value, Interval):
        micros = abs(value.microseconds) % 60_000_000 * (-1 if value.microseconds < 0 else 1)
    else:
        micros = value.second * 1_000_000 + value.microsecond
    return micros if unit == 1 else Decimal(micros) / unit


def _interval_fields() -> dict[str, tuple[Overload, ...]]:
    fields = ("year", "month", "quarter", "day", "decade", "century", "millennium")
    return {
        f"extract_{field}": (row("interval -> bigint", per_value(partial(calendar.interval_field, field))),)
        for field in fields
    }


def _is_finite(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """True: a date or an interval without an end cannot be stored."""
    valid = valid_rows(evaluation.column(args[0]))
    return pa.array(valid, mask=~valid)


def _zones() -> tuple[Overload, ...]:
    """AT TIME ZONE: a clock without a zone becomes a moment, a moment the clock of the zone."""
    return (
        row("varchar, date -> timestamp", per_value(_day_in_zone)),
        row("varchar, timestamp -> timestamptz", in_zone(temporal.moment_of_zone, per_value(calendar.to_utc))),
        row("varchar, timestamptz -> timestamp", in_zone(temporal.clock_of_zone, per_value(calendar.from_utc))),
        row("interval, timestamp -> timestamptz", per_value(calendar.zone_by_offset)),
        row("interval, timestamptz -> timestamp", per_value(calendar.zone_by_offset)),
    )


def _day_in_zone(zone: str, day: date) -> datetime:
    return calendar.from_utc(zone, datetime.combine(day, time.min, UTC))


ROWS: dict[str, tuple[Overload, ...]] = merged(
    _sums(),
    _fields_and_units(),
    _more_fields(),
    _interval_fields(),
    {
        "age": (
            row("timestamp, timestamp -> interval", per_value(calendar.age)),
            row("timestamptz, timestamptz -> interval", per_value(calendar.age)),
        ),
        "date_bin": (
            row("interval, timestamp, timestamp -> timestamp", temporal.bin_moments),
            row("interval, timestamptz, timestamptz -> timestamptz", temporal.bin_moments),
        ),
        "isfinite": tuple(
            row(f"{each} -> boolean", _is_finite) for each in ("date", "timestamp", "timestamptz", "interval")
        ),
        "justify_days": (row("interval -> interval", per_value(calendar.justify_days)),),
        "justify_hours": (row("interval -> interval", per_value(calendar.justify_hours)),),
        "justify_interval": (row("interval -> interval", per_value(calendar.justify_interval)),),
        "make_date": (row("int, int, int -> date", per_value(calendar.make_date)),),
        "make_interval": (
            row("int?, int?, int?, int?, int?, int?, double? -> interval", per_value(calendar.make_interval)),
        ),
        "make_time": (row("int, int, double -> time", per_value(calendar.make_time)),),
        "make_timestamp": (
            row("int, int, int, int, int, double -> timestamp", per_value(calendar.make_timestamp)),
        ),
        "make_timestamptz": (
            row("int, int, int, int, int, double, varchar? -> timestamptz", per_value(calendar.make_timestamptz)),
        ),
        "timezone": _zones(),
        "to_char": (
            row("exact, varchar -> varchar", per_value(lambda x, text: number_format.number_text(Decimal(x), text))),
            row("double, varchar -> varchar", per_value(number_format.float_text)),
            row("timestamp, varchar -> varchar", moment_format.moment_texts),
            row("timestamptz, varchar -> varchar", moment_format.moment_texts),
            row("interval, varchar -> varchar", per_value(moment_format.interval_text)),
        ),
        "to_date": (row("varchar, varchar -> date", per_value(moment_format.read_date)),),
        "to_number": (row("varchar, varchar -> numeric", per_value(number_format.read_number)),),
        "to_timestamp": (
            row("double -> timestamptz", per_value(calendar.of_unix_time)),
            row("varchar, varchar -> timestamptz", per_value(moment_format.read_timestamp)),
        ),
    },
)
"""Functions of one family by their names, with an overload for each signature."""
