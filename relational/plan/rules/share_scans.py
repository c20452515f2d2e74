"""Reads a table that occurs several times in a view once, and shares its rows.

A view reads a table as its existing rows and then its changes, which is one backfill for all of the occurrences; and a
source can be read once by a job, since its offsets belong to the job [R32].
"""

from __future__ import annotations

from collections import Counter

from relational.plan.descent import transformed
from relational.plan.logical import LogicalPlan, Scan, Share, nodes, only


def share_scans(plan: LogicalPlan) -> LogicalPlan:
    """The plan in which no two scans read the same table; shared scans read all columns that one of them reads."""
    scans = [node for node in nodes(plan) if isinstance(node, Scan)]
    reads = Counter(scan.table.id for scan in scans)
    shared: dict[int, Share] = {}
    for scan in scans:
        if reads[scan.table.id] > 1 and scan.table.id not in shared:
            columns = {column for each in scans if each.table.id == scan.table.id for column in each.columns}
            shared[scan.table.id] = Share(Scan(scan.table, tuple(sorted(columns))), len(shared))
    if not shared:
        return plan

    def replaced(node: LogicalPlan) -> LogicalPlan:
        if isinstance(node, Scan) and node.table.id in shared:
            share = shared[node.table.id]
            assert isinstance(share.input, Scan)
            return only(share, [share.input.columns.index(column) for column in node.columns])
        return node

    return transformed(plan, replaced, lambda number: number + len(shared))
