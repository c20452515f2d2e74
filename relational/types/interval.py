"""A span of time in months, days and microseconds, which are stored separately because neither a month nor a day has a
fixed length. Order and equality are SQL's: 1 month = 30 days, 1 day = 24 hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

import pyarrow as pa

MICROSECONDS_PER_DAY = 86_400_000_000
DAYS_PER_MONTH = 30
MIN_DAYS = -719_162  # 0001-01-01, counted from 1970-01-01
MAX_DAYS = 3_652_059 - 719_163  # 9999-12-31, the last day of Python's datetime
_INT32, _INT64 = 1 << 31, 1 << 63


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Months, days (both int32) and microseconds; each may have its own sign."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    @property
    def total_microseconds(self) -> int:
        """The length by which intervals compare."""
        return (self.months * DAYS_PER_MONTH + self.days) * MICROSECONDS_PER_DAY + self.microseconds

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        return self.total_microseconds == other.total_microseconds

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        return self.total_microseconds < other.total_microseconds

    def __hash__(self) -> int:
        return hash(self.total_microseconds)

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)

    def __str__(self) -> str:
        """As PostgreSQL: a part after a negative one has its sign."""
        parts: list[str] = []
        follows_negative = False
        years, months = _split(self.months, 12)
        for count, unit in ((years, "year"), (months, "mon"), (self.days, "day")):
            if count:
                sign = "+" if follows_negative and count > 0 else ""
                parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
                follows_negative = count < 0
        if self.microseconds or not parts:
            seconds, fraction = divmod(abs(self.microseconds), 1_000_000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            digits = f".{fraction:06}".rstrip("0") if fraction else ""
            sign = "-" if self.microseconds < 0 else "+" if follows_negative else ""
            parts.append(f"{sign}{clock}{digits}")
        return " ".join(parts)

    @classmethod
    def from_arrow(cls, value: pa.MonthDayNano) -> Interval:
        """The interval of an Arrow scalar, rounded down to whole microseconds."""
        return cls(value.months, value.days, value.nanoseconds // 1000)

    @property
    def fits_arrow(self) -> bool:
        """Whether Arrow's form, and so a column, can represent it."""
        fits = all(-_INT32 <= part < _INT32 for part in (self.months, self.days))
        return fits and -_INT64 <= self.microseconds * 1000 < _INT64

    def to_arrow(self) -> pa.MonthDayNano:
        """Arrow's form, with int64 nanoseconds: OverflowError for more than 292 years of microseconds."""
        return pa.MonthDayNano([self.months, self.days, self.microseconds * 1000])


def _split(value: int, unit: int) -> tuple[int, int]:
    """Quotient and remainder, both with the sign of `value`."""
    quotient, remainder = divmod(abs(value), unit)
    return (-quotient, -remainder) if value < 0 else (quotient, remainder)
