"""Removes columns that no node above needs from scans, calls and projections.

The stream key of an aggregation's input is kept where the aggregation must store its input rows (a minimum or maximum
of texts that can be retracted): it identifies those rows.
"""

from __future__ import annotations

from relational.plan.descent import Descent
from relational.plan.logical import LogicalPlan
from relational.plan.logical.node import Positions, unchanged


def prune_columns(plan: LogicalPlan) -> LogicalPlan:
    """The plan whose inner nodes output needed columns only; the root's columns are unchanged."""
    pruned, positions = _PRUNING.run(plan, frozenset(range(len(plan.schema))))
    assert all(old == new for old, new in positions.items())
    return pruned


_PRUNING: Descent[frozenset[int], tuple[LogicalPlan, Positions]] = Descent(
    visit=lambda node, wanted, prune: node.pruned(wanted, prune),
    merge=lambda demands: frozenset().union(*demands),
    adapt=lambda result, wanted, merged: result,
    keep=lambda share, wanted: (share, unchanged(len(share.schema))),
)
