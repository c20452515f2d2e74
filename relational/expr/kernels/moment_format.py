"""to_char, to_timestamp and to_date: dates, times and intervals by PostgreSQL's template patterns, in English.

A template is split into patterns once; each distinct value is formatted or read once per chunk. Not supported are TM
(names in a locale), eras (BC) of dates read, and patterns of Roman numerals that are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import Attempt, EvalContext, Value
from relational.expr.kernels.calendar import make_date, make_timestamp, micros_of, moment_of
from relational.expr.kernels.per_value import NoValue, per_value
from relational.types.data_type import DataType
from relational.types.interval import Interval

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ROMAN_MONTHS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_PATTERN = re.compile(
    r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<fill>FM|fm|TM|tm)?(?P<word>'
    r"HH24|HH12|HH|MI|SSSSS|SSSS|SS|MS|US|FF[1-6]|A\.M\.|P\.M\.|a\.m\.|p\.m\.|AM|PM|am|pm|Y,YYY|YYYY|IYYY|YYY|IYY|"
    r"YY|IY|IDDD|ID|IW|I|Y|B\.C\.|A\.D\.|b\.c\.|a\.d\.|BC|AD|bc|ad|MONTH|Month|month|MON|Mon|mon|MM|DAY|Day|day|"
    r"DY|Dy|dy|DDD|DD|D|WW|W|CC|J|Q|RM|rm|TZH|TZM|TZ|OF|"
    r"hh24|hh12|hh|mi|sssss|ssss|ss|ms|us|ff[1-6]|y,yyy|yyyy|iyyy|yyy|iyy|yy|iy|iddd|id|iw|i|y|mm|ddd|dd|d|ww|w|cc|j|"
    r"q|tzh|tzm|tz|of)(?P<ordinal>TH|th)?|(?P<other>FX|fx|TM|tm|.)",
    re.DOTALL,
)
_STYLED = ("am", "pm", "a.m.", "p.m.", "bc", "ad", "b.c.", "a.d.", "month", "mon", "day", "dy", "rm", "tz")
"""Patterns whose case is that of their texts."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_MAX_TEMPLATE = 1_000


@dataclass(frozen=True, slots=True)
class _Clock:
    """The parts of a value: those of a timestamp, or the fields of an interval, whose date is not one."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    micros: int
    date: date | None
    is_utc: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """A pattern of a template, or a text between patterns."""

    word: str = ""
    text: str = ""
    is_filled: bool = True
    ordinal: str = ""


@lru_cache(maxsize=256)
def _template(text: str) -> tuple[_Part, ...]:
    if len(text) > _MAX_TEMPLATE:
        raise NoValue("the template is too long")
    parts = []
    for match in _PATTERN.finditer(text):
        if match["word"]:
            word = match["word"] if match["word"].lower() in _STYLED else match["word"].upper()
            parts.append(_Part(word, "", match["fill"] is None, match["ordinal"] or ""))
        elif match["quoted"] is not None:
            parts.append(_Part(text=re.sub(r"\\(.)", r"\1", match["quoted"])))
        elif match["other"].upper() not in ("FX", "TM"):
            parts.append(_Part(text=match["other"]))
    return tuple(parts)


_UNITS = (("second", ("SS", "SSSS", "SSSSS")), ("minute", ("MI",)), ("hour", ("HH24", "HH12", "HH")))
_HALVES = ("am", "pm", "a.m.", "p.m.")
"""Patterns that differ by the hour."""


def moment_texts(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """to_char of timestamps. They are cut off at what the template shows: a chunk has few days, and few minutes, mostly
    one, whose text is a constant."""
    moments, template = args
    if isinstance(moments, pa.Array) and isinstance(template, pa.Scalar) and template.is_valid:
        unit = _finest_unit(template.as_py())
        if unit is not None:
            only, one = _only(moments, unit), Attempt(1)
            text = None if only is None else _MOMENT_TEXTS(one, [pa.repeat(only, 1), template], result)
            if text is not None and not one.failures:
                return text[0]
            moments = pc.floor_temporal(moments, unit=unit)
    return _MOMENT_TEXTS(evaluation, [moments, template], result)


def _only(moments: pa.Array, unit: str) -> pa.Scalar | None:
    """What all of the moments are if they are cut off at a unit; None if they differ, or one is NULL."""
    if moments.null_count:
        return None
    bounds = pc.min_max(moments)
    least, greatest = (pc.floor_temporal(bounds[name], unit=unit) for name in ("min", "max"))
    return least if least.equals(greatest) else None


def _finest_unit(template: str) -> str | None:
    """The least unit of time that a template shows; None if it shows parts of a second."""
    if len(template) > _MAX_TEMPLATE:
        return None
    words = {part.word for part in _template(template)}
    if any(word in ("MS", "US") or word.startswith("FF") for word in words):
        return None
    for unit, of_unit in _UNITS:
        if not words.isdisjoint(of_unit):
            return unit
    return "hour" if any(word.lower() in _HALVES for word in words) else "day"


def moment_text(value: datetime | date, template: str) -> str:
    """to_char of a timestamp."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time.min)
    clock = _Clock(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond,
        moment.date(), moment.tzinfo is not None,
    )
    return _formatted(clock, template)


_MOMENT_TEXTS = per_value(moment_text)


def interval_text(value: Interval, template: str) -> str:
    """to_char of an interval: its own years, months, days and hours."""
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    clock_sign = -1 if value.microseconds < 0 else 1
    seconds, micros = divmod(abs(value.microseconds), 1_000_000)
    clock = _Clock(
        sign * years, sign * months, value.days, clock_sign * (seconds // 3600), clock_sign * (seconds // 60 % 60),
        clock_sign * (seconds % 60), clock_sign * micros, None,
    )
    return _formatted(clock, template)


def _formatted(clock: _Clock, template: str) -> str:
    return "".join(part.text or _ordinal(part, _field(part, clock)) for part in _template(template))


def _ordinal(part: _Part, text: str) -> str:
    if not part.ordinal or not text.strip().lstrip("-").isdigit():
        return text
    number = int(text)
    ending = "th" if 10 < abs(number) % 100 < 20 else _ORDINALS.get(abs(number) % 10, "th")
    return text + (ending.upper() if part.ordinal == "TH" else ending)


def _field(part: _Part, clock: _Clock) -> str:
    word = part.word
    name = _name(word, clock)
    if name is not None:
        return name.ljust(9) if word.upper() in ("MONTH", "DAY") and part.is_filled else name
    if word.startswith("FF"):
        return f"{clock.micros:06}"[: int(word[2])]
    if word in ("TZ", "tz"):
        return {"TZ": "UTC", "tz": "utc"}[word] if clock.is_utc else ""
    if word in ("OF", "TZH", "TZM"):
        return {"OF": "+00", "TZH": "+00", "TZM": "00"}[word]
    if word == "Y,YYY":
        return f"{clock.year // 1000},{clock.year % 1000:03}"
    width, number = _number(word, clock)
    if not part.is_filled:
        return str(number)
    return f"{number:0{width + (number < 0)}}"


def _name(word: str, clock: _Clock) -> str | None:
    """The text of a pattern of letters, None for a number."""
    upper = word.upper().replace(".", "")
    if upper in ("AM", "PM"):
        return _styled("A.M." if "." in word else "AM", word) if clock.hour % 24 < 12 else _styled(
            "P.M." if "." in word else "PM", word
        )
    if upper in ("BC", "AD"):
        return _styled("A.D." if "." in word else "AD", word)
    if upper in ("MONTH", "MON"):
        if not clock.month:
            return ""
        return _styled(_MONTHS[clock.month - 1][: 9 if upper == "MONTH" else 3], word)
    if upper in ("DAY", "DY"):
        if clock.date is None:
            raise NoValue("an interval has no day of the week")
        return _styled(_DAYS[clock.date.isoweekday() % 7][: 9 if upper == "DAY" else 3], word)
    if upper == "RM":
        return (_styled(_ROMAN_MONTHS[clock.month - 1], word) if clock.month else "").ljust(4)
    return None


def _styled(text: str, like: str) -> str:
    """In the case of a pattern: MON, Mon or mon."""
    letters = like.replace(".", "")
    return text.upper() if letters.isupper() else text.lower() if letters.islower() else text.capitalize()


def _number(word: str, clock: _Clock) -> tuple[int, int]:
    """The width and the number of a pattern."""
    day, hour = clock.date, clock.hour
    twelve = (abs(hour) - 1) % 12 + 1
    if hour < 0 and hour % 12:
        twelve = -twelve
    millis = abs(clock.micros) // 1000 * (-1 if clock.micros < 0 else 1)
    plain = {
        "YYYY": (4, clock.year), "YYY": (3, clock.year % 1000), "YY": (2, clock.year % 100), "Y": (1, clock.year % 10),
        "MM": (2, clock.month), "DD": (2, clock.day), "HH24": (2, hour), "HH12": (2, twelve), "HH": (2, twelve),
        "MI": (2, clock.minute), "SS": (2, clock.second), "MS": (3, millis), "US": (6, clock.micros),
        "SSSS": (1, (hour * 60 + clock.minute) * 60 + clock.second), "Q": (1, (clock.month + 2) // 3),
        "CC": (2, (clock.year + 99) // 100),
    }
    word = "SSSS" if word == "SSSSS" else word
    if word in plain:
        return plain[word]
    if day is None:
        raise NoValue("an interval has no day of the year")
    iso = day.isocalendar()
    dated = {
        "IYYY": (4, iso.year), "IYY": (3, iso.year % 1000), "IY": (2, iso.year % 100), "I": (1, iso.year % 10),
        "DDD": (3, day.timetuple().tm_yday), "IDDD": (3, (iso.week - 1) * 7 + iso.weekday), "ID": (1, iso.weekday),
        "D": (1, day.isoweekday() % 7 + 1), "WW": (2, (day.timetuple().tm_yday - 1) // 7 + 1), "IW": (2, iso.week),
        "W": (1, (day.day - 1) // 7 + 1), "J": (7, day.toordinal() + 1_721_425),
    }
    return dated[word]


_DIGITS = {
    "YYYY": 4, "YYY": 3, "YY": 2, "Y": 1, "IYYY": 4, "MM": 2, "DD": 2, "DDD": 3, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2,
    "SS": 2, "MS": 3, "US": 6, "SSSS": 5, "SSSSS": 5, "IW": 2, "ID": 1, "J": 7, "Q": 1, "WW": 2, "D": 1, "W": 1,
}


def _names_of(values: tuple[str, ...], length: int | None) -> Callable[[str], tuple[int, int] | None]:
    def find(text: str) -> tuple[int, int] | None:
        for at, name in enumerate(values, 1):
            if text.lower().startswith(name[:length].lower()):
                return at, len(name[:length])
        return None

    return find


_NAMES = {
    "MONTH": _names_of(_MONTHS, None),
    "MON": _names_of(_MONTHS, 3),
    "DAY": _names_of(_DAYS, None),
    "DY": _names_of(_DAYS, 3),
}


def read_timestamp(text: str, template: str) -> datetime:
    """to_timestamp: the moment that a text shows in a template, in UTC without a zone."""
    fields = _read(text, template)
    day = _date_of(fields)
    hour = fields.get("HH24", 0)
    if "HH12" in fields:
        hour = fields["HH12"] % 12 + 12 * fields.get("PM", 0)
        if not 1 <= fields["HH12"] <= 12:
            raise NoValue("an hour of a 12-hour clock is 1 to 12")
    if "SSSS" in fields:
        return moment_of(micros_of(datetime.combine(day, time.min)) + fields["SSSS"] * 1_000_000).replace(tzinfo=UTC)
    seconds = fields.get("SS", 0)
    moment = make_timestamp(day.year, day.month, day.day, hour, fields.get("MI", 0), seconds)
    shifted = micros_of(moment) + fields.get("US", 0) - fields.get("TZ", 0) * 60_000_000
    return moment_of(shifted).replace(tzinfo=UTC)


def read_date(text: str, template: str) -> date:
    """to_date."""
    return _date_of(_read(text, template))


def _date_of(fields: dict[str, int]) -> date:
    if "J" in fields:
        try:
            return date.fromordinal(fields["J"] - 1_721_425)
        except (ValueError, OverflowError):
            raise NoValue("date or time out of range") from None
    year = fields.get("YYYY", 1)
    if "DDD" in fields:
        start = make_date(year, 1, 1)
        found = moment_of(micros_of(datetime.combine(start, time.min)) + (fields["DDD"] - 1) * 86_400_000_000).date()
        if found.year != year or fields["DDD"] < 1:
            raise NoValue("date or time out of range")
        return found
    if "IW" in fields:
        try:
            return date.fromisocalendar(year, fields["IW"], fields.get("ID", 1))
        except ValueError:
            raise NoValue("date or time out of range") from None
    return make_date(year, fields.get("MM", 1), fields.get("DD", 1))


def _read(text: str, template: str) -> dict[str, int]:
    """The numbers of the fields of a template in a text. NoValue where it does not fit."""
    fields: dict[str, int] = {}
    at = 0
    parts = _template(template)
    for number, part in enumerate(parts):
        if part.text:
            at = _after_separator(text, at, part.text)
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        following = parts[number + 1 : number + 2]
        is_last_digit = not following or not following[0].word or following[0].word not in _DIGITS
        if at < len(text):
            at = _read_field(text, at, part.word, is_last_digit, fields)
    return fields


def _after_separator(text: str, at: int, separator: str) -> int:
    """After the characters that a text between patterns stands for."""
    for each in separator:
        if each.isspace() or not each.isalnum():
            while at < len(text) and text[at].isspace():
                at += 1
            if at < len(text) and not text[at].isalnum() and not (text[at] in "+-" and text[at] != each):
                at += 1
            while at < len(text) and text[at].isspace():
                at += 1
        else:
            at += 1
    return at


def _read_field(text: str, at: int, word: str, is_open: bool, fields: dict[str, int]) -> int:
    """Reads one field. Returns the position after it."""
    upper = word.upper().replace(".", "")
    if upper in ("AM", "PM"):
        match = re.compile(r"([ap])\.?m\.?", re.IGNORECASE).match(text, at)
        if match is None:
            raise NoValue("the text does not fit its template")
        fields["PM"] = int(match[1].lower() == "p")
        return match.end()
    if upper in _NAMES:
        found = _NAMES[upper](text[at:])
        if found is None:
            raise NoValue("the text does not fit its template")
        if upper in ("MONTH", "MON"):
            fields["MM"] = found[0]
        return at + found[1]
    if upper in ("TZH", "OF", "TZ"):
        return _read_offset(text, at, fields)
    if word.startswith("FF"):
        word = "US"
    if word not in _DIGITS:
        raise NoValue("this pattern cannot be read")
    most = "" if word in ("YYYY", "IYYY", "J") and is_open else _DIGITS[word]
    match = re.compile(rf"\d{{1,{most}}}", re.ASCII).match(text, at)
    if match is None or len(match[0]) > 9:
        raise NoValue("the text does not fit its template")
    _keep(word, match[0], fields)
    return match.end()


def _read_offset(text: str, at: int, fields: dict[str, int]) -> int:
    match = re.compile(r"([+-]?)(\d{1,2})(?::?(\d{2}))?", re.ASCII).match(text, at)
    if match is None:
        raise NoValue("the text does not fit its template")
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    fields["TZ"] = -minutes if match[1] == "-" else minutes
    return match.end()


def _keep(word: str, digits: str, fields: dict[str, int]) -> None:
    number = int(digits)
    if word in ("MS", "US"):
        fields["US"] = fields.get("US", 0) + int(digits.ljust(3 if word == "MS" else 6, "0")) * (
            1000 if word == "MS" else 1
        )
    elif word in ("YY", "Y", "YYY"):
        base = 1970 if word == "YY" else 2000
        fields["YYYY"] = number + (2000 if number < 70 or base == 2000 else 1900) if len(digits) < 4 else number
    else:
        same = {"HH": "HH12", "IYYY": "YYYY", "SSSSS": "SSSS"}
        fields[same.get(word, word)] = number

