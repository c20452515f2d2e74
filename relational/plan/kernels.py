"""Expressions of a stored plan that the current kernels may evaluate differently from those that computed its rows."""

from __future__ import annotations

from relational.catalog.objects import TableCatalog
from relational.expr.expression import walk
from relational.expr.kernel_version import KERNEL_VERSION, change_of
from relational.plan.logical import LogicalPlan, nodes
from relational.plan.serialize import TableOfId, plan_from_text


def kernels_changed(plan: LogicalPlan, version: int) -> tuple[str, ...]:
    """The distinct casts and calls of `plan`, with the types of their operands, whose results may differ between the
    kernels of `version` and KERNEL_VERSION. If empty, rows computed by the former remain valid with the latter.
    """
    found = (change_of(part, version) for node in nodes(plan) for root in node.evaluated for part in walk(root))
    return tuple(dict.fromkeys(text for text in found if text is not None))


def view_kernels_changed(view: TableCatalog, table_of_id: TableOfId) -> tuple[str, ...]:
    """`kernels_changed` of a view or index with respect to its stored rows; () for a table."""
    if not view.plan or view.kernel_version >= KERNEL_VERSION:
        return ()
    return kernels_changed(plan_from_text(view.plan, table_of_id), view.kernel_version)
