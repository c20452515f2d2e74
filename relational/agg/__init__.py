"""Aggregation in memory: groups by dense id, their aggregates in columns."""

from relational.agg.groups import AggGroups
from relational.agg.spec import AggSpec

__all__ = ["AggGroups", "AggSpec"]
