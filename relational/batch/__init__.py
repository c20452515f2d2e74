"""Queries at one epoch: the batch plan of a logical plan, and its evaluation over committed rows."""

from relational.batch.planner import plan_query
from relational.batch.prepared import PreparedQuery, run_query
from relational.batch.query_memory import QueryMemory
from relational.batch.recursion import RecursionLimits

__all__ = ["PreparedQuery", "QueryMemory", "RecursionLimits", "plan_query", "run_query"]
