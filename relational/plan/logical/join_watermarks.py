"""Watermarks of a join: what the conditions of a join and the watermarks of its inputs say about rows that are final.

Where a column with a watermark is equal to one of the other input, rows whose value is below both watermarks find no
further partner, and none of their partners changes. Where the distance of two such columns is bounded, this is so for
rows that are too far below the watermark of the other input. What can still change is not below the limits of these
rows, so these are the watermarks of the result [R29].
"""

from __future__ import annotations

from collections.abc import Sequence

from relational.expr.distance_bounds import DistanceBounds, distance_bounds
from relational.expr.expression import Expression, InputRef
from relational.expr.monotone import monotone_column
from relational.plan.logical.equalities import Equality


def marked_pairs(
    pairs: Sequence[Equality], left: frozenset[int], right: frozenset[int]
) -> tuple[int, ...]:
    """The numbers of the equalities both sides of which have a watermark, where columns of the inputs do: `left`,
    `right`."""
    if not left or not right:
        return ()
    return tuple(
        number for number, each in enumerate(pairs)
        if monotone_column(each.left) in left and monotone_column(each.right) in right
    )


def marked_distance(
    terms: Sequence[Expression], left: frozenset[int], right: frozenset[int], width: int
) -> DistanceBounds | None:
    """The bounded distance of a column of `left` from one of `right`, columns of the inputs with a watermark, by
    conditions over the columns of both, of which the left one has `width`. Its `right` is a column of the right input.
    """
    if not left or not right:
        return None
    found = distance_bounds(terms, left, frozenset(width + column for column in right))
    return None if found is None else DistanceBounds(found.left, found.right - width, found.least, found.most)


def marked_columns(
    pairs: Sequence[Equality], marked: Sequence[int], distance: DistanceBounds | None
) -> tuple[frozenset[int], frozenset[int]]:
    """The columns of the left and of the right input that have a watermark in the result, where they have values."""
    if marked:
        sides = [(pairs[number].left, pairs[number].right) for number in marked]
        left, right = ([each.index for each in side if isinstance(each, InputRef)] for side in zip(*sides, strict=True))
        return frozenset(left), frozenset(right)
    if distance is None:
        return frozenset(), frozenset()
    return (
        frozenset() if distance.least is None else frozenset((distance.left,)),
        frozenset() if distance.most is None else frozenset((distance.right,)),
    )
