from relational.state.agg_groups import AggChange, AggGroups, Located
from relational.state.agg_spec import AggSpec

__all__ = ["AggChange", "AggGroups", "AggSpec", "Located"]
