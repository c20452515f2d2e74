"""Adds the stream key: key columns that a projection drops are kept, hidden [R8].

The root of a plan needs its stream key, and so does the input of an aggregation that stores its rows. Hidden columns
are appended, so the indices of all others are unchanged. The key of a group is its group columns, which are always
present.
"""

from __future__ import annotations

from relational.plan.descent import Descent
from relational.plan.logical import LogicalPlan, only


def add_stream_key(plan: LogicalPlan) -> LogicalPlan:
    """The plan with a stream key at its root and wherever state must identify input rows."""
    return _ADDING.run(plan, True)


def add_state_keys(plan: LogicalPlan) -> LogicalPlan:
    """`plan` with the stream keys that the aggregations in it need; its own columns are unchanged."""
    return only(_ADDING.run(plan, False), range(len(plan.schema)))


_ADDING: Descent[bool, LogicalPlan] = Descent(
    visit=lambda node, is_needed, add: node.keyed(is_needed, add),
    merge=any,
    adapt=lambda result, is_needed, merged: result,
    keep=lambda share, is_needed: share,
)
