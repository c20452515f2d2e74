"""Rewrites a logical plan into an equivalent one, by rules in an explicit order.

A rule is a function of a whole plan in its own file, with before/after pairs in `tests/rules`. Every rule preserves the
visible columns of the root; `add_stream_key` may append hidden ones.
"""

from __future__ import annotations

from collections.abc import Callable

from relational.plan.logical import LogicalPlan
from relational.plan.rules.add_stream_key import add_state_keys, add_stream_key
from relational.plan.rules.merge_projects import merge_projects
from relational.plan.rules.prune_columns import prune_columns
from relational.plan.rules.push_down_filter import push_down_filter
from relational.plan.rules.use_point_get import use_point_get

Rule = Callable[[LogicalPlan], LogicalPlan]

RULES: tuple[Rule, ...] = (push_down_filter, prune_columns, merge_projects, use_point_get)
"""For a query at one epoch."""

VIEW_RULES: tuple[Rule, ...] = (push_down_filter, add_stream_key, prune_columns, merge_projects)
"""For a view: no batch-only nodes, and every row is identifiable."""

SINK_RULES: tuple[Rule, ...] = (push_down_filter, add_state_keys, prune_columns, merge_projects)
"""For a sink: as for a view, but only the inputs of stateful nodes have keys."""


def optimize(plan: LogicalPlan, rules: tuple[Rule, ...] = RULES) -> LogicalPlan:
    """The plan after each rule in order."""
    for rule in rules:
        plan = rule(plan)
    return plan
