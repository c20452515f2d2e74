"""Removes what sorting cannot change: keys that decide nothing, and sorts of rows that are in that order already or
whose order is lost above.
"""

from __future__ import annotations

from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, Filter, LogicalPlan, Project, Sort
from relational.types.ordering import SortKey


def drop_sort(plan: LogicalPlan) -> LogicalPlan:
    """The plan with as few sorts and sort keys as give the same order."""
    return transformed(plan, _dropped)


def _dropped(plan: LogicalPlan) -> LogicalPlan:
    if isinstance(plan, Aggregate | Sort):
        plan = plan.over((_unsorted(plan.input),))
    if not isinstance(plan, Sort):
        return plan
    keys = _deciding(plan)
    if plan.input.properties.order[: len(keys)] == keys:
        return plan.input
    return plan if keys == plan.keys else Sort(plan.input, keys)


def _unsorted(plan: LogicalPlan) -> LogicalPlan:
    """The plan in any order."""
    if isinstance(plan, Sort):
        return _unsorted(plan.input)
    return plan.over((_unsorted(plan.input),)) if isinstance(plan, Filter | Project) else plan


def _deciding(plan: Sort) -> tuple[SortKey, ...]:
    """The keys without constants and repetitions, up to the first that make rows unique."""
    known = plan.input.properties
    keys: list[SortKey] = []
    columns = known.constants
    for key in plan.keys:
        if known.is_unique(columns):
            break
        if key.column not in columns:
            keys.append(key)
            columns |= {key.column}
    return tuple(keys)
