"""Functions of single dates, times and intervals: made of parts, differences on the calendar, time zones.

They are called once per distinct combination of arguments: Arrow has no such kernels. The zones are IANA's, by name,
and offsets such as `+02:00`, which count to the west in AT TIME ZONE, as in PostgreSQL (POSIX).
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from datetime import timezone as fixed_zone
from decimal import Decimal
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from relational.expr.kernels.per_value import NoValue
from relational.expr.kernels.temporal import zone_names
from relational.types.interval import DAYS_PER_MONTH, MICROSECONDS_PER_DAY, Interval

OUT_OF_RANGE = "date or time out of range"
EPOCH = datetime(1970, 1, 1)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_LONGEST_OFFSET = 24
_TRUNCATED_YEARS = {"decade": 10, "century": 100, "millennium": 1000}
_INTERVAL_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970, as written on the clock."""
    return (moment.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


def moment_of(micros: int) -> datetime:
    """The inverse of `micros_of`."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise NoValue(OUT_OF_RANGE) from None


def interval_of(months: int, days: int, micros: int) -> Interval:
    """An interval. NoValue if a column cannot hold it."""
    found = Interval(months, days, micros)
    if not found.fits_arrow:
        raise NoValue(OUT_OF_RANGE)
    return found


def make_date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except (ValueError, OverflowError):
        raise NoValue(OUT_OF_RANGE) from None


def _clock(hour: int, minute: int, second: float) -> int:
    """Microseconds of the day."""
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        raise NoValue(OUT_OF_RANGE)
    return (hour * 60 + minute) * 60_000_000 + round(second * 1_000_000)


def make_time(hour: int, minute: int, second: float) -> time:
    micros = _clock(hour, minute, second)
    if micros >= MICROSECONDS_PER_DAY:
        raise NoValue(OUT_OF_RANGE)
    return moment_of(micros).time()


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> datetime:
    midnight = datetime.combine(make_date(year, month, day), time.min)
    return moment_of(micros_of(midnight) + _clock(hour, minute, second))


def make_timestamptz(
    year: int, month: int, day: int, hour: int, minute: int, second: float, zone: str = "UTC"
) -> datetime:
    """The moment of a clock in a zone."""
    return to_utc(zone, make_timestamp(year, month, day, hour, minute, second), sign=1)


def make_interval(
    years: int = 0,
    months: int = 0,
    weeks: int = 0,
    days: int = 0,
    hours: int = 0,
    minutes: int = 0,
    seconds: float = 0.0,
) -> Interval:
    if not abs(seconds) < 1e13:
        raise NoValue(OUT_OF_RANGE)
    micros = (hours * 60 + minutes) * 60_000_000 + round(seconds * 1_000_000)
    return interval_of(years * 12 + months, weeks * 7 + days, micros)


def age(end: datetime, start: datetime) -> Interval:
    """The difference in years, months and days on the calendar, and the rest."""
    return -_age(start, end) if end < start else _age(end, start)


def _age(end: datetime, start: datetime) -> Interval:
    months = (end.year - start.year) * 12 + end.month - start.month
    days = end.day - start.day
    micros = micros_of(datetime.combine(date.min, end.time())) - micros_of(datetime.combine(date.min, start.time()))
    if micros < 0:
        micros, days = micros + MICROSECONDS_PER_DAY, days - 1
    if days < 0:
        days, months = days + monthrange(start.year, start.month)[1], months - 1
    return Interval(months, days, micros)


@lru_cache(maxsize=1024)
def _zone(name: str, sign: int) -> tzinfo:
    """A zone by name or offset; `sign` is -1 for POSIX offsets, which count to the west."""
    offset = _OFFSET.fullmatch(name.strip())
    if offset is not None and int(offset[2]) < _LONGEST_OFFSET and int(offset[3] or 0) < 60:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return fixed_zone(length * (sign if offset[1] == "+" else -sign))
    try:
        return ZoneInfo("UTC" if name.upper() in ("Z", "UTC") else zone_names().get(name.lower(), name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NoValue("there is no such time zone") from None


def to_utc(zone: str, moment: datetime, sign: int = -1) -> datetime:
    """The moment at which the clock of a zone shows `moment`; if it is set back, the second time."""
    try:
        return moment.replace(tzinfo=_zone(zone, sign), fold=_fold(moment, zone, sign)).astimezone(UTC)
    except OverflowError:
        raise NoValue(OUT_OF_RANGE) from None


def _fold(moment: datetime, zone: str, sign: int) -> int:
    """1 for a time that the clock shows twice, 0 for one that it skips: PostgreSQL takes standard time."""
    first, second = (moment.replace(tzinfo=_zone(zone, sign), fold=fold).utcoffset() for fold in (0, 1))
    return int(first is not None and second is not None and first > second)


def from_utc(zone: str, moment: datetime) -> datetime:
    """What the clock of a zone shows at a moment."""
    try:
        return moment.astimezone(_zone(zone, -1)).replace(tzinfo=None, fold=0)
    except OverflowError:
        raise NoValue(OUT_OF_RANGE) from None


def zone_by_offset(offset: Interval, moment: datetime) -> datetime:
    """AT TIME ZONE INTERVAL: between a moment and the clock so far to the east of UTC."""
    if offset.months:
        raise NoValue("the offset of a time zone has no months")
    micros = offset.total_microseconds
    if moment.tzinfo is None:
        return moment_of(micros_of(moment) - micros).replace(tzinfo=UTC)
    return moment_of(micros_of(moment) + micros)


def truncated_in_zone(unit: str, moment: datetime, zone: str) -> datetime:
    """date_trunc by the clock of a zone; of an hour that the clock shows twice the one in which the moment is."""
    shown = from_utc(zone, moment)
    if unit in _INTERVAL_UNITS:
        return moment_of(micros_of(moment) - micros_of(shown) + micros_of(truncated(unit, shown))).replace(tzinfo=UTC)
    return to_utc(zone, truncated(unit, shown))


def truncated(unit: str, moment: datetime) -> datetime:
    """The start of the unit that contains a timestamp."""
    if unit in _INTERVAL_UNITS:
        micros = micros_of(moment)
        return moment_of(micros - micros % _INTERVAL_UNITS[unit]).replace(tzinfo=moment.tzinfo)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "day":
        return midnight
    if unit == "week":
        return moment_of(micros_of(midnight) - midnight.weekday() * MICROSECONDS_PER_DAY).replace(tzinfo=moment.tzinfo)
    if unit == "month":
        return midnight.replace(day=1)
    if unit == "quarter":
        return midnight.replace(day=1, month=(moment.month - 1) // 3 * 3 + 1)
    if unit == "year":
        return midnight.replace(day=1, month=1)
    years = _TRUNCATED_YEARS[unit]
    year = moment.year // 10 * 10 if unit == "decade" else (moment.year - 1) // years * years + 1
    if year < 1:
        raise NoValue(OUT_OF_RANGE)
    return midnight.replace(day=1, month=1, year=year)


def truncated_interval(unit: str, value: Interval) -> Interval:
    """Without the parts below a unit."""
    if unit in _INTERVAL_UNITS:
        micros = _toward_zero(value.microseconds, _INTERVAL_UNITS[unit])
        return Interval(value.months, value.days, micros)
    if unit == "day":
        return Interval(value.months, value.days)
    if unit == "week":
        raise NoValue("weeks of an interval are not defined")
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}[unit]
    return Interval(_toward_zero(value.months, months))


def _toward_zero(value: int, unit: int) -> int:
    return abs(value) // unit * unit * (1 if value >= 0 else -1)


def justify_hours(value: Interval) -> Interval:
    """Whole days of its hours as days."""
    days, micros = _carried(value.days, value.microseconds, MICROSECONDS_PER_DAY)
    return interval_of(value.months, days, micros)


def justify_days(value: Interval) -> Interval:
    """Each 30 days as a month."""
    months, days = _carried(value.months, value.days, DAYS_PER_MONTH)
    return interval_of(months, days, value.microseconds)


def _carried(above: int, below: int, unit: int) -> tuple[int, int]:
    """Whole units of `below` as a part of `above`; what is left has the sign of that."""
    whole = _quotient(below, unit)
    above, below = above + whole, below - whole * unit
    if above > 0 > below:
        return above - 1, below + unit
    if above < 0 < below:
        return above + 1, below - unit
    return above, below


def justify_interval(value: Interval) -> Interval:
    """Days of its hours and months of its days, all parts with one sign."""
    total = value.total_microseconds
    sign = -1 if total < 0 else 1
    days, micros = divmod(abs(total), MICROSECONDS_PER_DAY)
    months, days = divmod(days, DAYS_PER_MONTH)
    return interval_of(sign * months, sign * days, sign * micros)


def _quotient(value: int, unit: int) -> int:
    return abs(value) // unit * (1 if value >= 0 else -1)


def divided(value: Interval, divisor: float) -> Interval:
    """An interval by a number: fractional months become days of 30, fractional days microseconds."""
    if divisor == 0 or divisor != divisor:
        raise NoValue("division by zero")
    months, days = value.months / divisor, value.days / divisor
    if not max(abs(months), abs(days), abs(value.microseconds / divisor)) < 2.0**62:
        raise NoValue(OUT_OF_RANGE)
    rest = round((months - int(months)) * DAYS_PER_MONTH, 6)
    more_days = days - int(days) + rest - int(rest)
    carried = int(more_days)
    seconds = round((more_days - carried) * 86_400, 6)
    micros = value.microseconds / divisor + seconds * 1_000_000
    return interval_of(int(months), int(days) + int(rest) + carried, round(micros))


def of_unix_time(seconds: float) -> datetime:
    """The moment so many seconds after 1970."""
    if not abs(seconds) < 1e12:
        raise NoValue(OUT_OF_RANGE)
    return moment_of(round(Decimal(repr(seconds)) * 1_000_000)).replace(tzinfo=UTC)



def interval_field(field: str, value: Interval) -> int:
    """A field of an interval that its months and days determine."""
    years, months = _quotient(value.months, 12), value.months - 12 * _quotient(value.months, 12)
    known = {
        "year": years,
        "month": months,
        "quarter": months // 3 + 1,
        "day": value.days,
        "decade": _quotient(years, 10),
        "century": _quotient(years, 100),
        "millennium": _quotient(years, 1000),
    }
    return known[field]
