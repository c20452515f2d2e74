"""Relational algebra as a tree of immutable nodes: the meaning of a query or a view, independent of its execution.

One file per kind of node. Column indices are positions in the output of a node's input.
"""

from relational.plan.logical.aggregate import AggPhases, Aggregate
from relational.plan.logical.emit_on_window_close import EmitOnWindowClose
from relational.plan.logical.expand import Expand
from relational.plan.logical.external_scan import ExternalScan
from relational.plan.logical.filter import Filter
from relational.plan.logical.join import Join, JoinKind
from relational.plan.logical.node import LogicalPlan, nodes, positions_of
from relational.plan.logical.over_window import OverWindow, TopN
from relational.plan.logical.project import Project, only
from relational.plan.logical.project_set import ProjectSet
from relational.plan.logical.recursive import Recursive, WorkingTable
from relational.plan.logical.scan import Scan, table_schema
from relational.plan.logical.share import Share
from relational.plan.logical.sort_limit import Limit, Sort
from relational.plan.logical.union import Union
from relational.plan.logical.values import ColumnValues, Values

__all__ = [
    "AggPhases",
    "Aggregate",
    "ColumnValues",
    "EmitOnWindowClose",
    "Expand",
    "ExternalScan",
    "Filter",
    "Join",
    "JoinKind",
    "Limit",
    "LogicalPlan",
    "OverWindow",
    "Project",
    "ProjectSet",
    "Recursive",
    "Scan",
    "Share",
    "Sort",
    "TopN",
    "Union",
    "Values",
    "WorkingTable",
    "only",
    "positions_of",
    "table_schema",
    "nodes",
]
