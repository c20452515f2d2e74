"""State in memory: groups by number, their aggregates in columns, a hash index over key bytes."""

from relational.state.agg_groups import AggChange, AggGroups, Located
from relational.state.agg_spec import AggSpec

__all__ = ["AggChange", "AggGroups", "AggSpec", "Located"]
