"""Removes the order of SELECT DISTINCT ON from a view: it has decided which rows come first, and rows of a view have no
order.
"""

from __future__ import annotations

from relational.plan.descent import transformed
from relational.plan.logical import LogicalPlan, Sort, TopN


def drop_order_of_groups(plan: LogicalPlan) -> LogicalPlan:
    """The plan without sorts of the first rows of groups, where no limit makes a TopN of them."""
    return transformed(plan, _dropped)


def _dropped(plan: LogicalPlan) -> LogicalPlan:
    is_of_groups = isinstance(plan, Sort) and isinstance(plan.input, TopN) and bool(plan.input.groups)
    return plan.inputs[0] if is_of_groups else plan
