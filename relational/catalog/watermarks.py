"""The catalog's record of a column with a watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hummock.base.json_fields import natural
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import MICROSECONDS_PER_DAY, Interval


@dataclass(frozen=True, slots=True)
class WatermarkCatalog:
    """A column in which later rows have no values below some moving bound. `delay`: the bound is the greatest value so
    far minus so many microseconds, days of a DATE, or units of a whole number, and rows below it are dropped; None: it
    follows from a watermark of the tables that a view reads."""

    column_id: int
    delay: int | None = None

    def to_json(self) -> list[int | None]:
        return [self.column_id, self.delay]

    @classmethod
    def from_json(cls, record: Sequence[Any]) -> WatermarkCatalog:
        column_id, delay = record
        return cls(natural(column_id), None if delay is None else natural(delay))


def watermark_text(name: str, delay: int, data_type: DataType) -> str:
    """The expression of a watermark of column `name`, in SQL syntax."""
    return moved_text(name, -delay, data_type)


def moved_text(name: str, distance: int, data_type: DataType) -> str:
    """A column of `data_type` plus so many microseconds, days of a DATE, or units of a whole number, in SQL syntax."""
    if not distance:
        return name
    sign, length = "+" if distance > 0 else "-", abs(distance)
    if data_type.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ):
        return f"{name} {sign} INTERVAL '{Interval(0, *divmod(length, MICROSECONDS_PER_DAY))}'"
    return f"{name} {sign} {length}"
