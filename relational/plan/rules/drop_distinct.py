"""Replaces a DISTINCT of rows that are distinct already by a projection: it would keep a state and never drop a row."""

from __future__ import annotations

from relational.expr.expression import InputRef
from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, LogicalPlan, Project


def drop_distinct(plan: LogicalPlan) -> LogicalPlan:
    """The plan without aggregations that have no calls and group by a unique key of their input."""
    return transformed(plan, _dropped)


def _dropped(plan: LogicalPlan) -> LogicalPlan:
    if not isinstance(plan, Aggregate) or plan.calls or not plan.group_by:
        return plan
    if not plan.input.properties.is_unique(frozenset(plan.group_by)):
        return plan
    schema = plan.schema
    columns = tuple(InputRef(column, kind) for column, kind in zip(plan.group_by, schema.types, strict=True))
    return Project(plan.input, columns, schema.names)
