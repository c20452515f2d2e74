"""Removes columns that no node above needs from scans.

The stream key of an aggregation's input is kept where the aggregation must store its input rows (a minimum or maximum
that can be retracted): it identifies those rows.
"""

from __future__ import annotations

from relational.expr.aggregates import AggCall
from relational.expr.expression import input_columns, remap
from relational.plan.logical import Aggregate, Filter, Limit, LogicalPlan, Project, Scan, Sort
from relational.types.ordering import SortKey

Positions = dict[int, int]
"""Old column index → new one, for the remaining columns."""


def prune_columns(plan: LogicalPlan) -> LogicalPlan:
    """The plan whose inner nodes output needed columns only; the root's columns are unchanged."""
    pruned, positions = _pruned(plan, frozenset(range(len(plan.schema))))
    assert all(old == new for old, new in positions.items())
    return pruned


def _pruned(plan: LogicalPlan, needed: frozenset[int]) -> tuple[LogicalPlan, Positions]:
    """`plan` with at least the `needed` columns, and the new index of each remaining column."""
    if isinstance(plan, Scan):
        kept = sorted(needed) or [_key_column(plan)]  # rows without any column could not be counted
        return Scan(plan.table, tuple(plan.columns[position] for position in kept)), _renumbered(kept)
    if isinstance(plan, Filter):
        child, positions = _pruned(plan.input, needed | input_columns(plan.predicate))
        return Filter(child, remap(plan.predicate, positions)), positions
    if isinstance(plan, Project):
        return _pruned_project(plan, needed)
    if isinstance(plan, Aggregate):
        return _pruned_aggregate(plan, needed)
    if isinstance(plan, Sort):
        child, positions = _pruned(plan.input, needed | {key.column for key in plan.keys})
        return Sort(child, tuple(SortKey(positions[key.column], key.order) for key in plan.keys)), positions
    if isinstance(plan, Limit):
        child, positions = _pruned(plan.input, needed)
        return plan.with_inputs((child,)), positions
    return plan, _renumbered(range(len(plan.schema)))


def _key_column(scan: Scan) -> int:
    """The position of one of the key columns, which cannot be dropped from the table; else of the first column."""
    keys = (position for position, column in enumerate(scan.columns) if column in scan.table.stream_key)
    return next(keys, 0)


def _pruned_project(plan: Project, needed: frozenset[int]) -> tuple[LogicalPlan, Positions]:
    kept = sorted(needed) or [0]
    expressions = [plan.expressions[position] for position in kept]
    child, positions = _pruned(plan.input, frozenset().union(*map(input_columns, expressions)))
    concealed = frozenset(new for new, old in enumerate(kept) if old in plan.concealed)
    names = tuple(plan.names[position] for position in kept)
    moved = tuple(remap(each, positions) for each in expressions)
    return Project(child, moved, names, concealed), _renumbered(kept)


def _pruned_aggregate(plan: Aggregate, needed: frozenset[int]) -> tuple[LogicalPlan, Positions]:
    """All groups are kept, since they are the key; unused calls are removed."""
    groups = len(plan.group_by)
    kept = [number for number in range(len(plan.calls)) if groups + number in needed]
    calls = [plan.calls[number] for number in kept]
    wanted = set(plan.group_by)
    for call in calls:
        wanted |= set() if call.argument is None else {call.argument}
        wanted |= frozenset() if call.filter is None else input_columns(call.filter)
        if call.keeps_inputs(plan.input.is_append_only):
            wanted |= set(plan.input.stream_key or ())
    child, positions = _pruned(plan.input, frozenset(wanted))
    moved = tuple(_moved_call(call, positions) for call in calls)
    group_by = tuple(positions[column] for column in plan.group_by)
    names = tuple(plan.names[number] for number in kept)
    outputs = [*range(groups), *(groups + number for number in kept)]
    return Aggregate(child, group_by, moved, names), _renumbered(outputs)


def _moved_call(call: AggCall, positions: Positions) -> AggCall:
    argument = None if call.argument is None else positions[call.argument]
    condition = None if call.filter is None else remap(call.filter, positions)
    return AggCall(call.kind, argument, condition, call.distinct, call.data_type)


def _renumbered(kept: range | list[int]) -> Positions:
    return {old: new for new, old in enumerate(kept)}
