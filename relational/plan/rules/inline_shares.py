"""Replaces a Share by its input where sharing saves nothing."""

from __future__ import annotations

from relational.plan.descent import transformed
from relational.plan.logical import Filter, LogicalPlan, Project, Scan, Share, Values
from relational.plan.logical.share import readers_of_shares


def inline_shares(plan: LogicalPlan) -> LogicalPlan:
    """The plan without the Shares that have one reader; the others are numbered from 0."""
    if not plan.properties.shares:
        return plan
    readers = readers_of_shares(plan)
    kept = [number for number in sorted(plan.properties.shares) if readers[number] > 1]
    single = plan.properties.shares.difference(kept)

    def inlined(node: LogicalPlan) -> LogicalPlan:
        return node.input if isinstance(node, Share) and node.number in single else node

    plan = transformed(plan, inlined)
    return transformed(plan, lambda node: node, kept.index) if kept else plan


def repeat_cheap_shares(plan: LogicalPlan) -> LogicalPlan:
    """The plan of a query without the Shares of filtered and projected stored rows: each reader reads what it needs."""
    if not plan.properties.shares:
        return plan
    return transformed(plan, lambda node: node.input if isinstance(node, Share) and _is_cheap(node.input) else node)


def _is_cheap(plan: LogicalPlan) -> bool:
    while isinstance(plan, Filter | Project):
        plan = plan.input
    return isinstance(plan, Scan | Values)
