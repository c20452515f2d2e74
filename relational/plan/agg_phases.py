"""The phases of the aggregations of a job, as its session wants them.

The partial aggregation before an exchange is planned with the stream plan, see stream/plan/planner.py; here its plan
only says whether it may be. `enable_two_phase_agg` and `force_two_phase_agg` are RisingWave's settings.
"""

from __future__ import annotations

from dataclasses import replace

from relational.plan.descent import transformed
from relational.plan.logical import AggPhases, Aggregate, LogicalPlan


def phases_of(*, is_enabled: bool, is_forced: bool) -> AggPhases:
    """By the two settings; one that is forced needs to be enabled too."""
    if not is_enabled:
        return AggPhases.ONE
    return AggPhases.TWO if is_forced else AggPhases.ADAPTIVE


def with_phases(plan: LogicalPlan, phases: AggPhases) -> LogicalPlan:
    """The optimized plan of a job, whose aggregations have these phases."""
    return transformed(plan, lambda node: replace(node, phases=phases) if isinstance(node, Aggregate) else node)
