"""How far the values of two columns are apart in the pairs of rows for which a condition is true.

    a.at BETWEEN b.at - INTERVAL '5 minutes' AND b.at      a.at - b.at is -300,000,000 to 0 microseconds

A pair that the condition may be true for is within the bounds; they say nothing of NULL, for which no comparison is
true. Months are no distance: their length depends on the date.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from relational.expr.comparisons import Relation
from relational.expr.expression import Call, Cast, Expression, InputRef, Literal
from relational.expr.monotone import INTEGERS
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval

_AT_LEAST = (Relation.GREATER, Relation.GREATER_EQUAL)
_AT_MOST = (Relation.LESS, Relation.LESS_EQUAL)
_INSTANTS = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class DistanceBounds:
    """The value of column `left` minus that of column `right` is at least `least` and at most `most`; None: any
    distance. In microseconds, days of a DATE, or units of a whole number. One of them is not None."""

    left: int
    right: int
    least: int | None
    most: int | None

    def limits(
        self, left_mark: int, right_mark: int, counts_partners: tuple[bool, bool]
    ) -> tuple[int | None, int | None]:
        """Below which values the rows of the left and of the right input can be forgotten, None: they are all needed,
        where none below the marks changes any more. No pair of a row below its limit changes, so nothing that comes or
        goes has a value below it. `counts_partners`: for each input whether it matters if a row has a partner: then the
        rows that may be its partners are kept as long as the row itself; for both inputs such a chain never ends."""
        if all(counts_partners):
            return None, None
        left = None if self.least is None else min(left_mark, right_mark + self.least)
        right = None if self.most is None else min(right_mark, left_mark - self.most)
        if counts_partners[0] and right is not None:
            right = None if left is None or self.most is None else min(right, left - self.most)
        if counts_partners[1] and left is not None:
            left = None if right is None or self.least is None else min(left, right + self.least)
        return left, right

    def within(self, other: DistanceBounds) -> DistanceBounds:
        """The bounds of pairs of the same columns that are within both."""
        least = [each.least for each in (self, other) if each.least is not None]
        most = [each.most for each in (self, other) if each.most is not None]
        return DistanceBounds(self.left, self.right, max(least, default=None), min(most, default=None))


def distance_bounds(
    terms: Iterable[Expression], left: Collection[int], right: Collection[int]
) -> DistanceBounds | None:
    """What `terms`, all of which are true, imply for a column of `left` and one of `right`: of several such pairs the
    first one with both bounds, or else the first one. None if there is none."""
    found: dict[tuple[int, int], DistanceBounds] = {}
    for term in terms:
        bounds = _of_term(term, left, right)
        if bounds is not None:
            pair = bounds.left, bounds.right
            found[pair] = found[pair].within(bounds) if pair in found else bounds
    whole = (each for each in found.values() if each.least is not None and each.most is not None)
    return next(whole, next(iter(found.values()), None))


def _of_term(term: Expression, left: Collection[int], right: Collection[int]) -> DistanceBounds | None:
    """Of `column + distance` compared with `column + distance`."""
    if not isinstance(term, Call) or term.function not in (*_AT_LEAST, *_AT_MOST):
        return None
    one, other = map(_moved_column, term.args)
    relation = Relation(term.function)
    if one is None or other is None:
        return None
    if one.column in right:
        one, other, relation = other, one, relation.turned
    if one.column not in left or other.column not in right or not _is_one_unit(one.data_type, other.data_type):
        return None
    bound = other.distance - one.distance
    is_least = relation in _AT_LEAST
    return DistanceBounds(one.column, other.column, bound if is_least else None, None if is_least else bound)


@dataclass(frozen=True, slots=True)
class _MovedColumn:
    """The value of a column of `data_type` plus a distance."""

    column: int
    data_type: DataType
    distance: int


def _moved_column(value: Expression) -> _MovedColumn | None:
    if isinstance(value, InputRef):
        return _MovedColumn(value.index, value.data_type, 0)
    if isinstance(value, Cast) and {value.data_type.kind, value.operand.data_type.kind} <= INTEGERS:
        return _moved_column(value.operand)
    if not isinstance(value, Call) or value.function not in ("add", "subtract") or len(value.args) != 2:
        return None
    moved, distance = value.args
    sign = 1 if value.function == "add" else -1
    if sign > 0 and isinstance(moved, Literal):
        moved, distance = distance, moved
    of_moved, length = _moved_column(moved), fixed_distance(distance, value.data_type)
    if of_moved is None or length is None:
        return None
    return _MovedColumn(of_moved.column, of_moved.data_type, of_moved.distance + sign * length)


def fixed_distance(term: Expression, moved: DataType) -> int | None:
    """The distance by which a constant moves a value of type `moved`, in the units of DistanceBounds; None for anything
    else."""
    if not isinstance(term, Literal) or term.value is None:
        return None
    if isinstance(term.value, Interval):
        is_fixed = moved.kind in _INSTANTS and not term.value.months
        return term.value.total_microseconds if is_fixed else None
    is_whole = term.data_type.kind in INTEGERS and (moved.kind in INTEGERS or moved.kind is TypeKind.DATE)
    return int(term.value) if is_whole else None


def _is_one_unit(one: DataType, other: DataType) -> bool:
    if {one.kind, other.kind} <= INTEGERS:
        return True
    return one.kind == other.kind and (one.kind in _INSTANTS or one.kind is TypeKind.DATE)
