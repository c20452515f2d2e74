"""Kernels of dates, times and intervals: sums and differences, EXTRACT, DATE_TRUNC.

Arrow has no kernels for intervals of months. Months are added on the calendar, and the day is clamped to the length of
the resulting month (31 January + 1 month is the last of February); then days are added, then microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from zoneinfo import available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import EvalContext, Value, from_numbers, numbers, valid_rows
from relational.expr.kernels.arithmetic import decimal_result
from relational.expr.kernels.comparison import INTERVAL_LAYOUT
from relational.expr.kernels.decimal import ADD, decimal_arithmetic
from relational.expr.signature import Kernel
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import DAYS_PER_MONTH, MAX_DAYS, MICROSECONDS_PER_DAY, MIN_DAYS

OUT_OF_RANGE = "date or time out of range"
SECONDS_PER_DAY = 86_400
SECONDS_PER_YEAR = 1461 * SECONDS_PER_DAY // 4  # of 365.25 days
FIRST_MOMENT, END_OF_MOMENTS = MIN_DAYS * MICROSECONDS_PER_DAY, (MAX_DAYS + 1) * MICROSECONDS_PER_DAY
"""Microseconds from 1970-01-01 to the first moment of a TIMESTAMP, and to the end of the last one."""
LAST_CHANGES = 66 * 365 * MICROSECONDS_PER_DAY
"""At the end of 2035: Arrow has no changes of clocks after 2037."""
TRUNCATIONS = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)
_FIELDS = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "isoyear": pc.iso_year,
    "day": pc.day,
    "doy": pc.day_of_year,
    "dow": lambda array: pc.day_of_week(array, count_from_zero=True, week_start=7),
    "isodow": lambda array: pc.day_of_week(array, count_from_zero=False, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
}
DATE_FIELDS = ("year", "quarter", "month", "week", "isoyear", "day", "doy", "dow", "isodow", "epoch")
CLOCK_FIELDS = ("hour", "minute", "second", "epoch")


def interval_parts(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Months, days and microseconds of an INTERVAL, each int64[rows]."""
    raw = np.frombuffer(
        array.buffers()[1], INTERVAL_LAYOUT, len(array), array.offset * INTERVAL_LAYOUT.itemsize
    )
    months, days = (raw[name].astype(np.int64) for name in ("months", "days"))
    return months, days, raw["nanoseconds"] // 1000


def _intervals(
    evaluation: EvalContext, parts: tuple[np.ndarray, np.ndarray, np.ndarray], valid: np.ndarray
) -> pa.Array:
    """INTERVAL of int64 months, days, microseconds; fails where a part does not fit."""
    months, days, micros = parts
    limit = np.iinfo(np.int32).max
    beyond = (np.abs(months) > limit) | (np.abs(days) > limit)
    beyond |= np.abs(micros) > np.iinfo(np.int64).max // 1000
    evaluation.fail(beyond & valid, OUT_OF_RANGE)
    data = np.zeros(len(months), INTERVAL_LAYOUT)
    data["months"], data["days"], data["nanoseconds"] = months, days, np.where(beyond, 0, micros) * 1000
    return from_numbers(data, pa.month_day_nano_interval(), valid & ~beyond)


def shift(evaluation: EvalContext, moment: Value, interval: Value, sign: int, data_type: DataType) -> pa.Array:
    """A TIMESTAMP, TIMESTAMPTZ or TIME plus (sign 1) or minus (sign -1) an INTERVAL."""
    length = None if data_type.kind is TypeKind.TIME else _constant_length(interval)
    if length is not None and isinstance(moment, pa.Array):
        return _moved(evaluation, moment, sign * length, data_type)
    moment, interval = evaluation.column(moment), evaluation.column(interval)
    valid = valid_rows(moment) & valid_rows(interval)
    values = numbers(moment, "<i8")
    months, days, micros = (part * sign for part in interval_parts(interval))
    if data_type.kind is TypeKind.TIME:
        return from_numbers((values + micros) % MICROSECONDS_PER_DAY, data_type.arrow, valid)
    day, clock = np.divmod(np.where(valid, values, 0), MICROSECONDS_PER_DAY)
    day = day.astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    of_month = (day - month.astype("datetime64[D]")).astype(np.int64)
    reached = month + np.where(valid, months, 0).astype("timedelta64[M]")
    first = reached.astype("datetime64[D]").astype(np.int64)
    last = (reached + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first - 1
    over, clock = np.divmod(clock + np.where(valid, micros, 0), MICROSECONDS_PER_DAY)
    total = first + np.minimum(of_month, last) + np.where(valid, days, 0) + over
    beyond = (total > MAX_DAYS) | (total < MIN_DAYS)
    evaluation.fail(beyond & valid, OUT_OF_RANGE)
    result = np.where(beyond, 0, total) * MICROSECONDS_PER_DAY + clock
    return from_numbers(result, data_type.arrow, valid & ~beyond)


def _moved(evaluation: EvalContext, moment: pa.Array, length: int, data_type: DataType) -> pa.Array:
    """A TIMESTAMP or TIMESTAMPTZ plus microseconds."""
    result, valid = numbers(moment, "<i8") + length, valid_rows(moment)
    beyond = valid & ((result < FIRST_MOMENT) | (result >= END_OF_MOMENTS))
    evaluation.fail(beyond, OUT_OF_RANGE)
    return from_numbers(result, data_type.arrow, valid & ~beyond)


def _constant_length(interval: Value) -> int | None:
    """The microseconds of an INTERVAL that is a constant without months, of at most MAX_DAYS days; else None."""
    if not isinstance(interval, pa.Scalar) or not interval.is_valid:
        return None
    months, days, nanoseconds = interval.value
    return None if months or abs(days) > MAX_DAYS else int(days * MICROSECONDS_PER_DAY + nanoseconds // 1000)


def at_clock(evaluation: EvalContext, day: Value, clock: Value) -> pa.Array:
    """A DATE and a TIME as a TIMESTAMP."""
    day, clock = evaluation.column(day), evaluation.column(clock)
    micros = numbers(day, "<i4").astype(np.int64) * MICROSECONDS_PER_DAY + numbers(clock, "<i8")
    return from_numbers(micros, DataType.TIMESTAMP.arrow, valid_rows(day) & valid_rows(clock))


def bin_moments(evaluation: EvalContext, args: list[Value], data_type: DataType) -> pa.Array:
    """date_bin: the start of the stride, counted from the origin, that contains a moment."""
    by, moment, since = args
    size = _constant_length(by)
    is_constant = isinstance(since, pa.Scalar) and since.is_valid
    if size is not None and size > 0 and is_constant and isinstance(moment, pa.Array):
        return _binned(evaluation, moment, size, int(since.value), data_type)
    stride, moment, origin = (evaluation.column(arg) for arg in args)
    valid = valid_rows(stride) & valid_rows(moment) & valid_rows(origin)
    months, days, micros = interval_parts(stride)
    length = days * MICROSECONDS_PER_DAY + micros
    bad = valid & ((months != 0) | (length <= 0) | (np.abs(days) > MAX_DAYS))
    evaluation.fail(bad, "the stride is a length above 0 without months")
    valid &= ~bad
    start, length = numbers(origin, "<i8"), np.where(valid, length, 1)
    found = np.where(valid, start + (numbers(moment, "<i8") - start) // length * length, 0)
    beyond = found < FIRST_MOMENT
    evaluation.fail(beyond, OUT_OF_RANGE)
    return from_numbers(found, data_type.arrow, valid & ~beyond)


def _binned(evaluation: EvalContext, moment: pa.Array, size: int, origin: int, data_type: DataType) -> pa.Array:
    """date_bin by a constant number of microseconds, from a constant origin on."""
    found, valid = numbers(moment, "<i8") - origin, valid_rows(moment)
    found //= size  # numpy divides by a constant without a division
    found *= size
    found += origin
    beyond = valid & (found < FIRST_MOMENT)
    evaluation.fail(beyond, OUT_OF_RANGE)
    return from_numbers(found, data_type.arrow, valid & ~beyond)


@lru_cache(maxsize=1)
def zone_names() -> Mapping[str, str]:
    """The names of the time zones, which are files, by these in lower case."""
    return {name.lower(): name for name in available_timezones()}


def in_zone(columnar: Callable[[np.ndarray, str], np.ndarray | None], other: Kernel) -> Kernel:
    """The kernel of AT TIME ZONE: `columnar`, of microseconds and the name of a zone, for a zone that is a constant and
    times from 1970 on for which Arrow knows the changes of clocks; `other` for all else, with the same results.
    """

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        zone, moment = args
        written = zone.as_py() if isinstance(zone, pa.Scalar) else None
        name = zone_names().get((written or "").lower())
        if name is None or isinstance(moment, pa.Scalar):
            return other(evaluation, args, result)
        valid = valid_rows(moment)
        micros = np.where(valid, numbers(moment, "<i8"), 0)
        is_known = micros.min() >= 0 and micros.max() < LAST_CHANGES
        found = columnar(micros, name) if is_known else None
        return other(evaluation, args, result) if found is None else from_numbers(found, result.arrow, valid)

    return kernel


def clock_of_zone(moments: np.ndarray, zone: str) -> np.ndarray:
    """What the clock of a zone shows at moments."""
    return numbers(pc.local_timestamp(pa.array(moments).view(pa.timestamp("us", zone))), "<i8")


def moment_of_zone(clock: np.ndarray, zone: str) -> np.ndarray | None:
    """The moments at which the clock of a zone shows these times: the second one if it is set back; the time before the
    change if it is skipped. None if it changes twice within two days of one of them.
    """
    before, after = (
        clock_of_zone(clock + side, zone) - (clock + side) for side in (-MICROSECONDS_PER_DAY, MICROSECONDS_PER_DAY)
    )
    first, second = clock - before, clock - after
    is_first, is_second = clock_of_zone(first, zone) == clock, clock_of_zone(second, zone) == clock
    if (~is_first & (before == after)).any():
        return None
    return np.where(is_second, second, first)


def shift_date(evaluation: EvalContext, args: list[Value], sign: int) -> pa.Array:
    """A DATE plus or minus an INT of days."""
    date, days = (evaluation.column(arg) for arg in args)
    valid = valid_rows(date) & valid_rows(days)
    total = numbers(date, "<i4").astype(np.int64) + sign * numbers(days, "<i4").astype(np.int64)
    beyond = (total > MAX_DAYS) | (total < MIN_DAYS)
    evaluation.fail(beyond & valid, OUT_OF_RANGE)
    return from_numbers(np.where(beyond, 0, total).astype(np.int32), pa.date32(), valid & ~beyond)


def difference(evaluation: EvalContext, args: list[Value], data_type: DataType) -> pa.Array:
    """DATE - DATE in days (INT); TIMESTAMP or TIME minus the same as an INTERVAL of days and microseconds."""
    left, right = (evaluation.column(arg) for arg in args)
    valid = valid_rows(left) & valid_rows(right)
    if data_type.kind is TypeKind.INT:
        return from_numbers(numbers(left, "<i4") - numbers(right, "<i4"), pa.int32(), valid)
    span = np.where(valid, numbers(left, "<i8") - numbers(right, "<i8"), 0)
    days = np.abs(span) // MICROSECONDS_PER_DAY * np.sign(span)
    return _intervals(evaluation, (np.zeros_like(span), days, span - days * MICROSECONDS_PER_DAY), valid)


def add_intervals(evaluation: EvalContext, args: list[Value], sign: int) -> pa.Array:
    """The sum or difference of two INTERVALs, part by part."""
    left, right = (evaluation.column(arg) for arg in args)
    valid = valid_rows(left) & valid_rows(right)
    pairs = zip(interval_parts(left), interval_parts(right), strict=True)
    months, days, micros = (np.where(valid, a + sign * b, 0) for a, b in pairs)
    return _intervals(evaluation, (months, days, micros), valid)


def negate_interval(evaluation: EvalContext, interval: Value) -> pa.Array:
    """An INTERVAL with the sign of each part inverted."""
    array = evaluation.column(interval)
    months, days, micros = interval_parts(array)
    return _intervals(evaluation, (-months, -days, -micros), valid_rows(array))


def scale_interval(evaluation: EvalContext, interval: Value, factor: Value) -> pa.Array:
    """An INTERVAL times a DOUBLE; fractional months become days (of 30), fractional days become microseconds."""
    interval, factor = evaluation.column(interval), evaluation.column(factor)
    numbers_of = factor.to_numpy(zero_copy_only=False)
    valid = valid_rows(interval) & valid_rows(factor)
    evaluation.fail(~np.isfinite(numbers_of) & valid, OUT_OF_RANGE)
    valid &= np.isfinite(numbers_of)
    limit = float(2**52)
    with np.errstate(over="ignore", invalid="ignore"):
        months, days, micros = (
            np.where(valid, part * np.where(valid, numbers_of, 0), 0) for part in interval_parts(interval)
        )
        whole_months, whole_days = np.trunc(months), np.trunc(days)
        rest = np.round((months - whole_months) * 30, 6)
        seconds = np.round((days - whole_days + rest - np.trunc(rest)) * SECONDS_PER_DAY, 6)
        carried = np.trunc(seconds / SECONDS_PER_DAY)
        whole_days = whole_days + np.trunc(rest) + carried
        micros = np.rint(micros + (seconds - carried * SECONDS_PER_DAY) * 1_000_000)
        fits = (np.abs(whole_months) <= limit) & (np.abs(whole_days) <= limit) & (np.abs(micros) <= 2.0**62)
    beyond = ~fits  # NaN too
    months, days, micros = (
        np.where(beyond, 2.0**40, part).astype(np.int64) for part in (whole_months, whole_days, micros)
    )
    return _intervals(evaluation, (months, days, micros), valid)


def truncate(unit: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> pa.Array:
    """The start of the `unit` (of TRUNCATIONS) that contains a TIMESTAMP or TIMESTAMPTZ; weeks start on Monday.

    A TIMESTAMPTZ is truncated in UTC, without a look at Arrow's time zones for each row.
    """
    array = evaluation.column(args[0])
    return pc.floor_temporal(array.view(DataType.TIMESTAMP.arrow), unit=unit).view(array.type)


def extract(field: str, evaluation: EvalContext, args: list[Value], data_type: DataType) -> pa.Array:
    """A field as BIGINT, or `second` and `epoch` as NUMERIC of scale 6."""
    array = evaluation.column(args[0])
    if field in _FIELDS and not pa.types.is_interval(array.type):
        return _FIELDS[field](array).cast(data_type.arrow)
    valid = valid_rows(array)
    if field == "epoch" and pa.types.is_interval(array.type):
        return _length_in_seconds(evaluation, array, data_type)
    micros = _micros(array)
    if field in ("hour", "minute"):
        unit, cycle = (3_600_000_000, None) if field == "hour" else (60_000_000, 60)
        whole = np.abs(micros) // unit
        return from_numbers((whole if cycle is None else whole % cycle) * np.sign(micros), pa.int64(), valid)
    if field == "second":
        cycle = 60_000_000
        micros = (
            np.abs(micros) % cycle * np.sign(micros) if pa.types.is_interval(array.type) else micros % cycle
        )
    unscaled = np.zeros((len(array), 2), np.int64)
    unscaled[:, 0], unscaled[:, 1] = micros, micros >> 63
    return from_numbers(unscaled.reshape(-1).view("V16"), data_type.arrow, valid)


def _micros(array: pa.Array) -> np.ndarray:
    """Microseconds since 1970, of the day, or of an interval's time part."""
    if pa.types.is_date(array.type):
        return numbers(array, "<i4").astype(np.int64) * MICROSECONDS_PER_DAY
    if not pa.types.is_interval(array.type):
        return numbers(array, "<i8")
    return interval_parts(array)[2]


def _length_in_seconds(evaluation: EvalContext, array: pa.Array, data_type: DataType) -> pa.Array:
    """The length of an INTERVAL, in which a year is 365.25 days and each further month 30, unlike where intervals are
    compared [R4]; fails where the seconds have more digits than the result."""
    months, days, time = interval_parts(array)
    years = np.sign(months) * (np.abs(months) // 12)
    seconds, micros = np.divmod(time, 1_000_000)
    seconds += years * SECONDS_PER_YEAR + ((months - 12 * years) * DAYS_PER_MONTH + days) * SECONDS_PER_DAY
    whole = pa.array(seconds).cast(pa.decimal128(19, 0))
    fraction = from_numbers(np.stack((micros, np.zeros_like(micros)), axis=1).reshape(-1).view("V16"), data_type.arrow)
    data, faults = decimal_arithmetic(
        ADD, whole, fraction, len(array), 0, data_type.scale, data_type.precision, data_type.scale
    )
    return decimal_result(evaluation, data, faults, [array], data_type)
