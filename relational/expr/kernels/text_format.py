"""Formatting and parsing of the types whose text form in Arrow differs from SQL's."""

from __future__ import annotations

import re
from math import modf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.column import Column
from relational.expr.eval_context import bitmap, booleans, from_numbers, valid_rows
from relational.expr.kernels import nested
from relational.expr.kernels.text_numbers import text_of_bytes
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import DAYS_PER_MONTH, MAX_DAYS, MICROSECONDS_PER_DAY, MIN_DAYS, Interval

_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_SECONDS = r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
_CLOCK = rf"(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-9]{{2}}){_SECONDS}"
_ZONE = r"(?P<zone>[zZ]|UTC|GMT|utc|gmt|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_PATTERNS = {
    TypeKind.DATE: rf"^{_DATE}(?:[ T]{_CLOCK} ?{_ZONE})?$",
    TypeKind.TIME: rf"^{_CLOCK}$",
    TypeKind.TIMESTAMP: rf"^{_DATE}(?:[ T]{_CLOCK} ?{_ZONE})?$",
    TypeKind.TIMESTAMPTZ: rf"^{_DATE}(?:[ T]{_CLOCK} ?{_ZONE})?$",
}
_PLAIN_BELOW = {TypeKind.REAL: 1e6, TypeKind.DOUBLE: 1e15}
"""Texts of numbers from here on have an exponent."""
_ARROW_PLAIN_BELOW = 1e10
"""And in Arrow some of these."""
MOST_OF_A_UNIT = 1e16  # of the smallest unit, and of any: more than an interval can represent
_UNITS = {
    "microsecond": (0, 0, 1),
    "millisecond": (0, 0, 1000),
    "second": (0, 0, 1_000_000),
    "sec": (0, 0, 1_000_000),
    "s": (0, 0, 1_000_000),
    "minute": (0, 0, 60_000_000),
    "min": (0, 0, 60_000_000),
    "m": (0, 0, 60_000_000),
    "hour": (0, 0, 3_600_000_000),
    "h": (0, 0, 3_600_000_000),
    "day": (0, 1, 0),
    "d": (0, 1, 0),
    "week": (0, 7, 0),
    "w": (0, 7, 0),
    "month": (1, 0, 0),
    "mon": (1, 0, 0),
    "year": (12, 0, 0),
    "yr": (12, 0, 0),
    "y": (12, 0, 0),
    "decade": (120, 0, 0),
    "century": (1200, 0, 0),
    "centurie": (1200, 0, 0),
    "": (0, 0, 1_000_000),
}
"""Months, days and microseconds of a unit, whose plural has an s; a number at the end is of seconds."""
_PART = re.compile(
    r"(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d{0,2})(:(?P<seconds>\d{1,2}(\.\d+)?))?"
    r"|(?P<amount>[+-]?\s*\d+(\.\d+)?)(\s*(?P<unit>[a-z]+)|$)",
    re.ASCII,
)
_ISO = re.compile(
    r"p(?=.)(?:(?P<year>-?\d+)y)?(?:(?P<month>-?\d+)m)?(?:(?P<week>-?\d+)w)?(?:(?P<day>-?\d+)d)?"
    r"(?:t(?=.)(?:(?P<hour>-?\d+)h)?(?:(?P<minute>-?\d+)m)?(?:(?P<second>-?\d+(?:\.\d+)?)s)?)?",
    re.ASCII,
)


def to_text(array: pa.Array, source: DataType) -> pa.Array:
    """Formats values of any type as VARCHAR, in the form that SQL parses."""
    if source.element is not None:
        return nested.list_text(array, source.element, to_text)
    if source.kind is TypeKind.STRUCT:
        return nested.struct_text(array, source.children, to_text)
    if source.kind is TypeKind.INTERVAL:
        texts = [None if v is None else str(Interval.from_arrow(v)) for v in array.to_pylist()]
        return pa.array(texts, pa.string())
    if source.kind is TypeKind.BYTEA:
        ends, text = text_of_bytes(Column(array))
        buffers = [bitmap(valid_rows(array)), pa.py_buffer(ends), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.string(), len(array), buffers)
    if source.kind is TypeKind.JSONB:
        return array.storage
    text = array.cast(pa.string())
    if source.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ, TypeKind.TIME):
        text = pc.replace_substring_regex(text, r"\.?0+(Z?)$", r"\1") if _has_fraction(text) else text
        return pc.replace_substring_regex(text, "Z$", "+00")
    return _float_text(array, text, _PLAIN_BELOW[source.kind]) if source.is_float else text


def _float_text(array: pa.Array, text: pa.Array, plain_below: float) -> pa.Array:
    """The shortest text of a REAL or DOUBLE, from Arrow's; with an exponent of two digits at least if it is below
    0.0001, or not below `plain_below`."""
    values = np.abs(array.to_numpy(zero_copy_only=False))
    is_finite = np.isfinite(values)
    if not is_finite.all():
        values[~is_finite] = 0.0
        for spelled, standard in (("nan", "NaN"), ("inf", "Infinity")):
            text = pc.replace_substring(text, spelled, standard)
    is_short = ((values > 0) & (values < 1e-4)) | (values >= plain_below)
    is_other = is_short | (values >= _ARROW_PLAIN_BELOW)
    if not is_other.any():
        return text
    other, short = array.filter(pa.array(is_other)).to_numpy(), is_short[is_other]
    texts = [
        np.format_float_scientific(value, trim="-", exp_digits=2) if is_scientific
        else np.format_float_positional(value, trim="-")
        for value, is_scientific in zip(other, short, strict=True)
    ]
    return pc.replace_with_mask(text, pa.array(is_other), pa.array(texts, pa.string()))


def _has_fraction(text: pa.Array) -> bool:
    return pc.any(pc.match_substring(text, ".")).as_py() is True


def parse_moments(array: pa.Array, target: DataType) -> tuple[pa.Array, np.ndarray]:
    """DATE, TIME, TIMESTAMP, TIMESTAMPTZ or INTERVAL of texts, and bool[rows] of the malformed texts."""
    if target.kind is TypeKind.INTERVAL:
        return _parse_intervals(array)
    valid = valid_rows(array)
    parts = pc.extract_regex(array, _PATTERNS[target.kind])
    matched = booleans(parts.is_valid()) & valid
    clock, clock_fits = _clock(parts, matched)
    if target.kind is TypeKind.TIME:
        good = matched & clock_fits & (clock < MICROSECONDS_PER_DAY)
        return from_numbers(clock, target.arrow, good), valid & ~good
    days, days_fit = _days(parts, matched)
    good = matched & clock_fits & days_fit
    if target.kind is TypeKind.DATE:
        return from_numbers(days.astype(np.int32), target.arrow, good), valid & ~good
    moments = days * MICROSECONDS_PER_DAY + clock
    if target.kind is TypeKind.TIMESTAMPTZ:
        moments -= _zone(parts)
    good &= (moments >= MIN_DAYS * MICROSECONDS_PER_DAY) & (moments < (MAX_DAYS + 1) * MICROSECONDS_PER_DAY)
    return from_numbers(moments, target.arrow, good), valid & ~good


def _number(parts: pa.StructArray, name: str) -> np.ndarray:
    """int64[rows] of a matched group; 0 if the group is missing."""
    texts = parts.field(name)
    filled = pc.if_else(pc.fill_null(pc.equal(texts, ""), True), "0", texts)
    return filled.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _clock(parts: pa.StructArray, matched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds of the day, and whether hour, minute and second are in range."""
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    fraction = pc.fill_null(parts.field("fraction"), "")
    if pc.any(pc.greater(pc.utf8_length(fraction), 6)).as_py():
        seconds = pc.binary_join_element_wise("0", pc.utf8_rpad(fraction, 1, "0"), ".").cast(pa.float64())
        micros = np.rint(seconds.to_numpy(zero_copy_only=False) * 1e6).astype(np.int64)
    else:
        micros = pc.utf8_rpad(fraction, 6, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    clock = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    return clock, (hour <= 24) & (minute < 60) & (second < 60) & (clock <= MICROSECONDS_PER_DAY) & matched


def _days(parts: pa.StructArray, matched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970-01-01, and whether the date exists."""
    year, month, day = (_number(parts, name) for name in ("year", "month", "day"))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    return first + day - 1, (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (
        day <= length
    ) & matched


def _zone(parts: pa.StructArray) -> np.ndarray:
    """The zone's offset in microseconds; a missing zone and Z are UTC."""
    digits = pc.replace_substring(pc.fill_null(parts.field("zone"), ""), ":", "")
    digits = pc.utf8_rpad(pc.replace_substring_regex(digits, "^([zZ]|UTC|GMT|utc|gmt)?$", "+"), 5, "0")
    number = pc.utf8_slice_codeunits(digits, 1, 5).cast(pa.int64()).to_numpy(zero_copy_only=False)
    offset = (number // 100 * 60 + number % 100) * 60_000_000
    return np.where(booleans(pc.starts_with(digits, "-")), -offset, offset)


def _parse_intervals(array: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Parses each distinct text once."""
    encoded = array.dictionary_encode()
    values = [parse_interval(text) for text in encoded.dictionary.to_pylist()]
    known = pa.array([None if v is None else v.to_arrow() for v in values], pa.month_day_nano_interval())
    result = known.take(encoded.indices)
    return result, valid_rows(array) & ~valid_rows(result)


def parse_interval(text: str) -> Interval | None:
    """`1 year 2 mons -3 days 04:05:06.7`, `90 minutes`, `1.5 hours`; None if the text is not an interval, or not one
    that can be stored.
    """
    rest = text.strip().lower()
    iso = _ISO.fullmatch(rest)
    if iso is not None:
        rest = " ".join(f"{amount} {unit}" for unit, amount in iso.groupdict().items() if amount is not None)
    months = days = microseconds = 0
    if not rest:
        return None
    while rest:
        match = _PART.match(rest)
        if match is None:
            return None
        if match["hours"] is not None:
            clock = (int(match["hours"]) * 60 + int(match["minutes"] or 0)) * 60_000_000
            clock += round(float(match["seconds"] or 0) * 1_000_000)
            microseconds += -clock if match["sign"] == "-" else clock
        else:
            written = match["unit"] or ""
            unit = written if written in _UNITS else written.removesuffix("s")
            if unit not in _UNITS:
                return None
            of_months, of_days, of_micros = _UNITS[unit]
            amount = float(match["amount"].replace(" ", ""))
            if not abs(amount) < MOST_OF_A_UNIT:
                return None
            spare_months, whole_months = modf(amount * of_months)
            spare_days, whole_days = modf(spare_months * DAYS_PER_MONTH + amount * of_days)
            months += int(whole_months)
            days += int(whole_days)
            microseconds += round(amount * of_micros + spare_days * MICROSECONDS_PER_DAY)
        rest = rest[match.end() :].lstrip(" ,")
    found = Interval(months, days, microseconds)
    return found if found.fits_arrow else None


def intervals(months: np.ndarray, days: np.ndarray, microseconds: np.ndarray, like: pa.Array) -> pa.Array:
    """INTERVAL from its parts, NULL where `like` is."""
    data = np.zeros(len(like), [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    data["months"], data["days"], data["nanoseconds"] = months, days, microseconds * 1000
    return from_numbers(data, pa.month_day_nano_interval(), valid_rows(like))
