"""Counts and sums of windows that overlap, from those of the panes that they have in common.

    Aggregate [k, w] count(*) over          Aggregate [k, w] sum(n) over
      Union of Projects of S                  Project CASE number
        bin(t) AS w                             WHEN 1 THEN p
        bin(t) - 2 s AS w                       WHEN 2 THEN p - 2 s
        ...                                     ... AS w
                                                Expand: each row once for each number
                                                  Aggregate [k, bin(t) AS p] count(*) AS n over S

HOP has a row once for each of its windows. All of them begin at a pane's distance from the pane that the row is in, so
the rows of a pane are counted once, and the few groups of panes come once for each window instead. This is done where S
is shared by these windows alone. The panes are shared by a union, too, where a watermark has to pass through it, and
where the windows are so many that to find the number of each row takes longer than a branch for each.
Source: J. Li et al., "No pane, no gain: efficient evaluation of sliding-window aggregates over data streams", SIGMOD
Record 34(1), 2005.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.bind import call
from relational.expr.expression import (
    Case,
    Cast,
    Expression,
    InputRef,
    Literal,
    input_columns,
    input_refs,
    substitute,
)
from relational.expr.monotone import INTEGERS
from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, LogicalPlan, Project, Share, Union
from relational.plan.logical.expand import SET_TYPE, Expand
from relational.plan.logical.project import hidden_name, over_base
from relational.plan.logical.share import readers_of_shares
from relational.plan.rules.window_extremes import after, window_of
from relational.types.data_type import DataType

MOST_EXPANDED = 12
"""Windows of a row: CASE compares each of so many rows with as many numbers."""


def window_panes(plan: LogicalPlan) -> LogicalPlan:
    """The plan with aggregations of panes below those of their windows."""
    readers = readers_of_shares(plan)
    return transformed(plan, lambda node: _changed(node, readers) if isinstance(node, Aggregate) else node)


@dataclass(frozen=True, slots=True)
class _Windows:
    """The rows of `share`, once for each window. `groups`: over its columns; of each group None, or of each branch the
    microseconds from the start of the pane."""

    share: Share
    shown: Sequence[Expression]
    groups: tuple[Expression, ...]
    shifts: tuple[tuple[int, ...] | None, ...]
    count: int


def _changed(plan: Aggregate, readers: Counter[int]) -> LogicalPlan:
    if not all(_is_summed(each, plan.input.schema.types) for each in plan.calls):
        return plan
    found = _windows(plan, readers)
    if found is None:
        return plan
    panes, width = _panes(plan, found), len(found.groups)
    sums = tuple(
        AggCall(AggKind.SUM, width + at, None, False, aggregate_type(AggKind.SUM, each.data_type) or each.data_type)
        for at, each in enumerate(plan.calls)
    )
    is_united = bool(panes.properties.watermarks) or found.count > MOST_EXPANDED
    rows = _united(panes, found) if is_united else _expanded(panes, found)
    whole = Aggregate(rows, tuple(range(width)), sums, plan.names)
    refs = input_refs(whole.schema.types)
    given = (ref if ref.data_type == each.data_type else Cast(ref, each.data_type)
             for ref, each in zip(refs[width:], plan.calls, strict=True))
    return Project(whole, (*refs[:width], *given), plan.schema.names, plan.hidden)


def _expanded(panes: Aggregate, found: _Windows) -> LogicalPlan:
    """Each pane once for each window."""
    rows = Expand(panes, (), ((),) * found.count)
    *shown, number = input_refs(rows.schema.types)

    def start(at: int, shifts: tuple[int, ...] | None) -> Expression:
        if shifts is None:
            return shown[at]
        *others, last = (after(shown[at], shift) for shift in shifts)
        branches = (
            (call("equal", [number, Literal(which, SET_TYPE)]), other) for which, other in enumerate(others, 1)
        )
        return Case(tuple(branches), last, last.data_type)

    starts = (start(at, shifts) for at, shifts in enumerate(found.shifts))
    return Project(rows, (*starts, *shown[len(found.groups) :]), panes.schema.names)


def _united(panes: Aggregate, found: _Windows) -> LogicalPlan:
    """The same with a branch for each window, through which watermarks pass."""
    shared, shown = Share(panes, found.share.number), input_refs(panes.schema.types)
    branches = []
    for number in range(found.count):
        starts = (shown[at] if shifts is None else after(shown[at], shifts[number])
                  for at, shifts in enumerate(found.shifts))
        branches.append(Project(shared, (*starts, *shown[len(found.groups) :]), panes.schema.names))
    return Union(tuple(branches))


def _panes(plan: Aggregate, found: _Windows) -> Aggregate:
    """The aggregation of the panes."""
    columns: list[Expression] = list(found.groups)
    calls = []
    for each in plan.calls:
        argument = None if each.argument is None else found.shown[each.argument]
        passes = None if each.filter is None else substitute(each.filter, found.shown)
        place = None
        if argument is not None:
            place = len(columns)
            columns.append(argument)
        kept = None
        if passes is not None:
            kept = InputRef(len(columns), DataType.BOOLEAN)
            columns.append(passes)
        calls.append(AggCall(each.kind, place, kept, False, each.data_type))
    width, taken = len(found.groups), list(plan.schema.names)
    names = [*plan.schema.names[:width]]
    for _ in columns[width:]:
        names.append(hidden_name("_part", taken))
        taken.append(names[-1])
    below = Project(found.share.input, tuple(columns), tuple(names))
    return Aggregate(below, tuple(range(width)), tuple(calls), plan.names)


def _windows(plan: Aggregate, readers: Counter[int]) -> _Windows | None:
    rows, columns = over_base(plan.input)
    if not isinstance(rows, Union) or len(rows.branches) < 2:
        return None
    bases = [over_base(branch) for branch in rows.branches]
    share = bases[0][0]
    if not isinstance(share, Share) or readers[share.number] != len(bases):
        return None
    if not all(base is share for base, _ in bases):
        return None
    every = [[substitute(each, shown) for each in columns] for _, shown in bases]
    used = {column for each in plan.calls for column in each.columns}
    used |= {column for each in plan.calls if each.filter is not None for column in input_columns(each.filter)}
    if any(shown[column] != every[0][column] for shown in every for column in used):
        return None
    groups: list[Expression] = []
    shifts: list[tuple[int, ...] | None] = []
    for column in plan.group_by:
        values = [shown[column] for shown in every]
        if all(value == values[0] for value in values):
            groups.append(values[0])
            shifts.append(None)
            continue
        parts = [window_of(value) for value in values]
        starts = {part[0] for part in parts if part is not None}
        if None in parts or len(starts) != 1:
            return None
        groups.append(starts.pop())
        shifts.append(tuple(part[1] for part in parts if part is not None))
    if all(shift is None for shift in shifts):
        return None
    return _Windows(share, every[0], tuple(groups), tuple(shifts), len(bases))


def _is_summed(each: AggCall, types: Sequence[DataType]) -> bool:
    """Whether the call of a window follows exactly from those of its panes, as a sum."""
    if each.distinct:
        return False
    is_sum = each.kind is AggKind.SUM and each.argument is not None and types[each.argument].kind in INTEGERS
    return is_sum or each.kind is AggKind.COUNT
