"""The order of a column: its direction, and the position of NULL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OrderType:
    """Direction and position of NULL; by default NULL is the largest: last ascending, first descending."""

    descending: bool = False
    nulls_first: bool | None = None

    def __post_init__(self) -> None:
        if self.nulls_first is None:
            object.__setattr__(self, "nulls_first", self.descending)

    @property
    def nulls_are_largest(self) -> bool:
        """Whether NULL compares above every value, before the direction is applied."""
        return self.nulls_first == self.descending

    def __str__(self) -> str:
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


ASCENDING = OrderType()
DESCENDING = OrderType(descending=True)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of an ordering: its position in the row and its order."""

    column: int
    order: OrderType = ASCENDING
