"""The rows of a logical plan, with hidden columns."""

from __future__ import annotations

from collections.abc import Iterator

from hummock.epoch import Epoch
from hummock.state_store import StateStore
from relational.batch.planner import plan_query
from relational.batch.run import chunks_of
from relational.chunk import DataChunk
from relational.plan.logical import LogicalPlan


def query_chunks(plan: LogicalPlan, store: StateStore, epoch: Epoch) -> Iterator[DataChunk]:
    """All columns of the plan's rows at `epoch`, as chunks without hidden rows."""
    return chunks_of(plan_query(plan), store, epoch)
