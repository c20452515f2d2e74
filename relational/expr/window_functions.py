"""Window functions: of a row and the rows around it in the order of its group, the partition.

A call is a function over columns of its input: a number in the order (row_number, ntile, …), the value of another row
(lag, first_value, …), or an aggregate of the frame of the row. A frame is a range of the ordered partition, from one
bound to another one, both included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from relational.expr.aggregates import AggKind
from relational.types.data_type import DataType

RANK_TYPE = DataType.BIGINT


class RankKind(StrEnum):
    """How rows that are equal in the order are numbered: one after the other, in the order of the stream key; all like
    the first of them; or so without gaps behind them."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"


class WindowKind(StrEnum):
    """The functions that are no aggregates, see PostgreSQL."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    NTILE = "ntile"
    LAG = "lag"
    LEAD = "lead"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"

    @property
    def is_number(self) -> bool:
        """Whether it depends on the order alone, and has no argument."""
        return self not in VALUE_KINDS

    @property
    def has_frame(self) -> bool:
        """Whether its value depends on the frame; the others ignore it."""
        return self in (WindowKind.FIRST_VALUE, WindowKind.LAST_VALUE, WindowKind.NTH_VALUE)


VALUE_KINDS = (
    WindowKind.LAG, WindowKind.LEAD, WindowKind.FIRST_VALUE, WindowKind.LAST_VALUE, WindowKind.NTH_VALUE,
)  # fmt: skip
"""Functions whose value is that of the argument in another row."""


WINDOW_AGGREGATES = frozenset((
    AggKind.COUNT, AggKind.SUM, AggKind.AVG, AggKind.MIN, AggKind.MAX, AggKind.BOOL_AND, AggKind.BOOL_OR,
    AggKind.VAR_POP, AggKind.VAR_SAMP, AggKind.STDDEV_POP, AggKind.STDDEV_SAMP,
))  # fmt: skip
"""Aggregates of the frame of a row."""


class FrameUnit(StrEnum):
    """What the offsets of a frame's bounds count: rows; groups of rows that are equal in the order; or differences of
    the values of its only sort key."""

    ROWS = "ROWS"
    RANGE = "RANGE"
    GROUPS = "GROUPS"


class BoundKind(IntEnum):
    """In the order of what they bound."""

    UNBOUNDED_PRECEDING = 0
    PRECEDING = 1
    CURRENT_ROW = 2
    FOLLOWING = 3
    UNBOUNDED_FOLLOWING = 4

    @property
    def has_offset(self) -> bool:
        return self in (BoundKind.PRECEDING, BoundKind.FOLLOWING)

    def __str__(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a frame. `offset`: of ROWS and GROUPS the number; of RANGE the input column of the greatest, or least,
    value that is within the frame, in the type of the frame's `key`. None: the kind has none."""

    kind: BoundKind
    offset: int | None = None


UNBOUNDED_PRECEDING, CURRENT_ROW = Bound(BoundKind.UNBOUNDED_PRECEDING), Bound(BoundKind.CURRENT_ROW)
UNBOUNDED_FOLLOWING = Bound(BoundKind.UNBOUNDED_FOLLOWING)


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows from `start` to `end`. CURRENT ROW of RANGE and GROUPS means all rows that are equal to it in the order.
    `key`: the input column with which the offsets of RANGE are compared, None: it has none."""

    unit: FrameUnit
    start: Bound
    end: Bound
    key: int | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """The input columns that it needs."""
        if self.key is None:
            return ()
        return self.key, *(each.offset for each in (self.start, self.end) if each.offset is not None)

    @property
    def has_current_row(self) -> bool:
        """Whether the frame of each row has that row."""
        return self.start.kind <= BoundKind.CURRENT_ROW <= self.end.kind

    @property
    def begins_with_partition(self) -> bool:
        """Whether it has all rows up to some bound, and does not depend on where the partition ends."""
        kinds = self.start.kind, self.end.kind
        return kinds[0] is BoundKind.UNBOUNDED_PRECEDING and kinds[1] is not BoundKind.UNBOUNDED_FOLLOWING

    def describe(self, names: Sequence[str]) -> str:
        """SQL-like text over the names of the input columns."""
        start, end = (self._bound_text(each, names) for each in (self.start, self.end))
        return f"{self.unit} {start} TO {end}"

    def _bound_text(self, bound: Bound, names: Sequence[str]) -> str:
        if bound.offset is None:
            return str(bound.kind)
        return names[bound.offset] if self.unit is FrameUnit.RANGE else f"{bound.offset} {bound.kind}"


WHOLE_PARTITION = Frame(FrameUnit.ROWS, UNBOUNDED_PRECEDING, UNBOUNDED_FOLLOWING)
UP_TO_PEERS = Frame(FrameUnit.RANGE, UNBOUNDED_PRECEDING, CURRENT_ROW)
"""What is meant without a frame, where the rows have an order."""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One window function over columns of its input.

    `argument`: None for numbers and count(*). `frame`: None for functions that ignore it. `number`: n of ntile and
    nth_value; how many rows before the row lag looks, and how many behind it lead, which may be negative. `default`:
    the column that lag and lead have where there is no such row, None: NULL. `filter`: of an aggregate, the column that
    is true for the rows that count, None: all. `data_type`: of the result.
    """

    kind: WindowKind | AggKind
    data_type: DataType
    argument: int | None = None
    frame: Frame | None = None
    number: int = 0
    default: int | None = None
    filter: int | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """The input columns that it needs."""
        own = (each for each in (self.argument, self.default, self.filter) if each is not None)
        return (*own, *(() if self.frame is None else self.frame.columns))

    @property
    def is_running(self) -> bool:
        """Whether the value of a row follows from a state of an earlier row, and the rows between them."""
        if self.frame is None:
            return self.kind in (WindowKind.ROW_NUMBER, WindowKind.RANK, WindowKind.DENSE_RANK)
        return self.kind is not WindowKind.LAST_VALUE and self.frame.begins_with_partition

    @property
    def shift(self) -> int:
        """Of lag and lead: how many rows behind the row the other one is."""
        return -self.number if self.kind is WindowKind.LAG else self.number

    def describe(self, names: Sequence[str]) -> str:
        """SQL-like text over the names of the input columns."""
        args = [] if self.argument is None else [names[self.argument]]
        if self.kind in (WindowKind.NTILE, WindowKind.NTH_VALUE, WindowKind.LAG, WindowKind.LEAD):
            args.append(str(self.number))
        if self.default is not None:
            args.append(names[self.default])
        star = "*" if self.kind is AggKind.COUNT and not args else ""
        text = f"{self.kind}({star}{', '.join(args)})" if args or star else str(self.kind)
        if self.filter is not None:
            text = f"{text} FILTER (WHERE {names[self.filter]})"
        return text if self.frame is None else f"{text} {self.frame.describe(names)}"


def number_type(kind: WindowKind) -> DataType:
    """The type of a number."""
    if kind in (WindowKind.PERCENT_RANK, WindowKind.CUME_DIST):
        return DataType.DOUBLE
    return DataType.INT if kind is WindowKind.NTILE else RANK_TYPE
