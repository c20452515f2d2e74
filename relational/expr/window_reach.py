"""How far window functions look from a row, and how far a changed row changes the values of others.

Of a partition that changes only the rows between these distances need to be read and computed again. What a function
needs of all rows before, it knows from the state of one of them, see relational/order/over_window.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from relational.expr.window_functions import Bound, BoundKind, Frame, FrameUnit, WindowCall, WindowKind
from relational.types.ordering import SortKey


@dataclass(frozen=True, slots=True)
class Reach:
    """Numbers of rows. `before`, `behind`: the value of a row needs no others than so many before, and behind, it and
    its peers. `changes_before`, `changes_behind`: no other values than those of so many rows before the peers of a
    changed row, and behind them, depend on it; None: all those behind may. `since`: the columns that are the first
    value, of the only sort key, whose rows are needed, in addition to the rows `before`. `has_peers`: without it no
    other row counts as a peer."""

    before: int = 0
    behind: int = 0
    changes_before: int = 0
    changes_behind: int | None = 0
    since: tuple[int, ...] = ()
    has_peers: bool = False

    @property
    def first_row(self) -> int:
        """How many rows before the peers of the first changed row are needed."""
        return self.before + self.changes_before

    @property
    def last_row(self) -> int | None:
        """How many rows behind the peers of the last changed row are needed, None: all."""
        return None if self.changes_behind is None else self.behind + self.changes_behind


def reach_within(
    calls: Iterable[WindowCall], groups: Collection[int], keys: Iterable[SortKey]
) -> Reach | None:
    """The reach of all calls together, of rows that are equal in `groups`, in the order `keys`; None if a value may
    depend on any row of the partition."""
    has_order = any(key.column not in groups for key in keys)  # else all rows of a partition are peers
    found = Reach()
    for call in calls:
        one = _reach(call)
        if one is None:
            return None
        open_ended = found.changes_behind is None or one.changes_behind is None
        found = Reach(
            max(found.before, one.before),
            max(found.behind, one.behind),
            max(found.changes_before, one.changes_before),
            None if open_ended else max(found.changes_behind or 0, one.changes_behind or 0),
            found.since + one.since,
            found.has_peers or _needs_peers(call),
        )
    if found.has_peers and not has_order:
        return None
    return None if found.since and found.changes_before else found


def _needs_peers(call: WindowCall) -> bool:
    """Whether rows that are equal in the order have something in common."""
    if call.frame is None:
        return call.kind in (WindowKind.RANK, WindowKind.DENSE_RANK)
    return call.frame.unit is not FrameUnit.ROWS


def _reach(call: WindowCall) -> Reach | None:
    frame = call.frame
    if call.is_running:
        return Reach(before=1, changes_behind=None) if frame is None else _running_reach(frame)
    if call.kind in (WindowKind.LAG, WindowKind.LEAD):
        back, ahead = max(-call.shift, 0), max(call.shift, 0)
        return Reach(back, ahead, ahead, back)
    if frame is None:
        return None
    if frame.unit is FrameUnit.RANGE and frame.start.offset is not None:
        is_up_to_row = frame.end.kind is BoundKind.CURRENT_ROW and frame.start.kind is BoundKind.PRECEDING
        return Reach(changes_behind=None, since=(frame.start.offset,)) if is_up_to_row else None
    if frame.unit is not FrameUnit.ROWS or _is_unbounded(frame.start) or _is_unbounded(frame.end):
        return None
    back, ahead = max(-_distance(frame.start), 0), max(_distance(frame.end), 0)
    return Reach(back, ahead, ahead, back)


def _running_reach(frame: Frame) -> Reach | None:
    """Of a frame that begins with the partition: the state of the row before, and the rows up to its end."""
    if frame.end.kind is BoundKind.CURRENT_ROW:
        return Reach(before=1, changes_behind=None)
    if frame.unit is not FrameUnit.ROWS:
        return None
    distance = _distance(frame.end)
    return Reach(max(1 - distance, 1), max(distance, 0), max(distance, 0), None)


def _is_unbounded(bound: Bound) -> bool:
    return bound.kind in (BoundKind.UNBOUNDED_PRECEDING, BoundKind.UNBOUNDED_FOLLOWING)


def _distance(bound: Bound) -> int:
    """From a row to the bound of its frame, in rows."""
    offset = bound.offset or 0
    return -offset if bound.kind is BoundKind.PRECEDING else offset
