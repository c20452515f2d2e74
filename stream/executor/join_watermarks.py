"""The watermarks of a join: which of its rows are final, and what that says about its result.

The least of the watermarks of both inputs counts, as far as they are known. At a barrier, after the last changes of the
epoch were emitted, the rows below it are dropped from the state of both sides; then the watermark is passed on, also
again if the inputs repeat theirs, which they do for receivers that are new [R29].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relational.expr.distance_bounds import DistanceBounds
from relational.types import DataType
from stream.executor.integer_form import integer_of, value_of
from stream.executor.join_side import JoinSide
from stream.message import Watermark


class JoinWatermarks(ABC):
    """`clean` is called at each barrier but the first, before the tables are committed."""

    @abstractmethod
    def note(self, input: int, watermark: Watermark) -> None:
        """A watermark of input number `input`."""

    @abstractmethod
    def clean(self, sides: tuple[JoinSide, JoinSide]) -> Iterator[Watermark]:
        """Drops rows that are final since the last call; the watermarks of the result, if inputs have noted theirs."""


@dataclass(frozen=True, slots=True)
class MarkedKey:
    """A key column of either input, both with a watermark, and the columns of the result that have their values and
    never NULL for want of a partner."""

    columns: tuple[int, int]
    outputs: tuple[int, ...]


class KeyWatermarks(JoinWatermarks):
    """Of equal columns, `keys`; the first is the first column of the key of the tables of both sides."""

    def __init__(self, keys: Sequence[MarkedKey]) -> None:
        self._keys = tuple(keys)
        self._known: list[list[Any]] = [[None, None] for _ in self._keys]
        self._dropped_below: Any = None
        self._is_noted = False

    def note(self, input: int, watermark: Watermark) -> None:
        self._is_noted = True
        for key, known in zip(self._keys, self._known, strict=True):
            if key.columns[input] == watermark.column:
                known[input] = watermark.value

    def clean(self, sides: tuple[JoinSide, JoinSide]) -> Iterator[Watermark]:
        is_noted, self._is_noted = self._is_noted, False
        for number, (key, known) in enumerate(zip(self._keys, self._known, strict=True)):
            if not is_noted or None in known:
                continue
            least = min(known)
            if number == 0 and least != self._dropped_below:
                self._dropped_below = least
                for side in sides:
                    side.drop_keys_below(least)
            yield from (Watermark(column, least) for column in key.outputs)


class IntervalWatermarks(JoinWatermarks):
    """Of columns whose distance has `bounds`, of `types`. `counts_partners`: as in DistanceBounds.limits. `outputs`:
    the columns of the result that have their values and never NULL for want of a partner, None: there is none."""

    def __init__(
        self,
        bounds: DistanceBounds,
        types: tuple[DataType, DataType],
        counts_partners: tuple[bool, bool],
        outputs: tuple[int | None, int | None],
    ) -> None:
        self._bounds, self._types = bounds, types
        self._counts_partners, self._outputs = counts_partners, outputs
        self._columns = bounds.left, bounds.right
        self._known: list[int | None] = [None, None]
        self._dropped_below: list[int | None] = [None, None]
        self._is_noted = False

    def note(self, input: int, watermark: Watermark) -> None:
        if self._columns[input] == watermark.column:
            self._known[input] = integer_of(watermark.value, self._types[input])
            self._is_noted = True

    def clean(self, sides: tuple[JoinSide, JoinSide]) -> Iterator[Watermark]:
        (left, right), is_noted, self._is_noted = self._known, self._is_noted, False
        if left is None or right is None or not is_noted:
            return
        limits = self._bounds.limits(left, right, self._counts_partners)
        for number, (side, limit) in enumerate(zip(sides, limits, strict=True)):
            value = None if limit is None else value_of(limit, self._types[number])
            if value is None:
                continue
            if limit != self._dropped_below[number]:
                self._dropped_below[number] = limit
                side.drop_times_below(value)
            output = self._outputs[number]
            if output is not None:
                yield Watermark(output, value)
