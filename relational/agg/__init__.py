"""Aggregation in memory: groups by dense id, their aggregates in columns."""

from relational.agg.distinct import DistinctValues
from relational.agg.groups import NO_CHANGE, AggGroups
from relational.agg.spec import AggSpec
from relational.agg.top_values import MOST_VALUES, REFILLED_VALUES

__all__ = ["MOST_VALUES", "NO_CHANGE", "REFILLED_VALUES", "AggGroups", "AggSpec", "DistinctValues"]
