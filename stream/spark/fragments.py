"""The fragments that a bulk backfill runs, one after the other: those of the view's stream plan, if tasks can run them.

The rows of a fragment are read from the table, or arrive from the fragment before it, shuffled by the vnode of its key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stream.errors import BackfillRefused
from stream.plan.fragments import Fragment, fragments_of
from stream.plan.stream_plan import (
    ExchangeNode,
    ExpandNode,
    FilterNode,
    HashAggNode,
    MaterializeNode,
    PartialAggNode,
    ProjectNode,
    ProjectSetNode,
    StreamScanNode,
    without_partial_agg,
)

if TYPE_CHECKING:
    from stream.plan.stream_plan import StreamPlan

RUNNABLE = (
    StreamScanNode, FilterNode, ProjectNode, ProjectSetNode, ExpandNode, HashAggNode, PartialAggNode, MaterializeNode,
    ExchangeNode,
)  # fmt: skip


def backfill_fragments(plan: StreamPlan) -> tuple[Fragment, ...]:
    """The plan's fragments, which send rows, beginning with the scan. BackfillRefused names an executor that cannot run
    in a task."""
    for node in plan.root.walk():
        if not isinstance(node, RUNNABLE):
            raise BackfillRefused(plan.root.table.name, f"{node.identity} cannot run in a task")
        if isinstance(node, HashAggNode) and node.ordered:
            calls = ", ".join(dict.fromkeys(node.calls[call].name for each in node.ordered for call in each.calls))
            raise BackfillRefused(plan.root.table.name, f"{calls} cannot run in a task")
        if len(node.inputs) > 1:
            raise BackfillRefused(plan.root.table.name, f"{node.identity} has {len(node.inputs)} inputs")
    return tuple(replace(each, root=without_partial_agg(each.root)) for each in fragments_of(plan))
