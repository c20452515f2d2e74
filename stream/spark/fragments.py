"""Fragments: the parts of a stream plan that a bulk backfill runs one after the other.

A fragment is a chain of executors whose rows have one distribution; between two fragments is an exchange, a shuffle by
the vnode of columns. The plan is cut below each aggregation, by its groups, and below the Materialize node, unless its
input is distributed like the view already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from relational.expr.expression import InputRef
from stream.errors import BackfillRefused
from stream.plan.stream_plan import (
    FilterNode,
    HashAggNode,
    MaterializeNode,
    ProjectNode,
    StreamNode,
    StreamScanNode,
)

if TYPE_CHECKING:
    from stream.plan.stream_plan import StreamPlan

Distribution: TypeAlias = "tuple[tuple[int, ...], int] | None"
"""The columns whose vnode, out of so many, determines the task of a row; None if no columns of these rows do."""


@dataclass(frozen=True, slots=True)
class ArrivalNode(StreamNode):
    """The rows sent by the previous fragment."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The executors from `root` down to its leaf: a scan in the first fragment, else the arriving rows, distributed by
    the vnode of the columns `key`, out of those of the view's tables."""

    root: StreamNode
    key: tuple[int, ...] = ()

    @property
    def leaf(self) -> StreamNode:
        return list(self.root.walk())[-1]

    @property
    def table_ids(self) -> tuple[int, ...]:
        """Ids of the tables that its executors write, ascending."""
        ids = [table.id for node in self.root.walk() for table in node.state_tables]
        if isinstance(self.root, MaterializeNode):
            ids.append(self.root.table.id)
        return tuple(sorted(ids))


def fragments_of(plan: StreamPlan) -> tuple[Fragment, ...]:
    """The plan's fragments, beginning with the scan. BackfillRefused names an executor that cannot run in a task."""
    for node in plan.root.walk():
        if not isinstance(node, (StreamScanNode, FilterNode, ProjectNode, HashAggNode, MaterializeNode)):
            raise BackfillRefused(plan.root.table.name, f"{node.identity} cannot run in a task")
        if len(node.inputs) > 1:
            raise BackfillRefused(plan.root.table.name, f"{node.identity} has {len(node.inputs)} inputs")
    cutter = _Cutter(plan.root.table.vnode_count)
    root, _ = cutter.part(plan.root)
    cutter.end(root)
    return tuple(cutter.fragments)


class _Cutter:
    """Cuts a chain from its leaf up."""

    def __init__(self, vnode_count: int) -> None:
        self._vnode_count = vnode_count  # of all tables of the view
        self.fragments: list[Fragment] = []
        self._key: tuple[int, ...] = ()  # of the fragment under construction

    def part(self, node: StreamNode) -> tuple[StreamNode, Distribution]:
        """`node` within its fragment, and the distribution of its output."""
        if isinstance(node, StreamScanNode):
            return node, _among(node.table.distribution_key, node.table.vnode_count, node.columns)
        assert isinstance(node, (FilterNode, ProjectNode, HashAggNode, MaterializeNode))
        child, distribution = self.part(node.input)
        if isinstance(node, HashAggNode):
            child = self._cut(child, node.group_by)
            distribution = tuple(range(len(node.group_by))), self._vnode_count
        elif isinstance(node, MaterializeNode) and distribution != (node.table.distribution_key, self._vnode_count):
            child = self._cut(child, node.table.distribution_key)
        elif isinstance(node, ProjectNode) and distribution is not None:
            passed = [each.index if isinstance(each, InputRef) else -1 for each in node.expressions]
            distribution = _among(*distribution, passed)
        return replace(node, input=child), distribution

    def end(self, root: StreamNode) -> None:
        """Finish the fragment under construction with `root`."""
        self.fragments.append(Fragment(root, self._key))

    def _cut(self, root: StreamNode, key: tuple[int, ...]) -> ArrivalNode:
        self.end(root)
        self._key = key
        return ArrivalNode(root.schema, root.stream_key)


def _among(columns: tuple[int, ...], vnode_count: int, kept: tuple[int, ...] | list[int]) -> Distribution:
    """The positions of `columns` among the `kept` ones; None if one is missing."""
    return (tuple(kept.index(column) for column in columns), vnode_count) if set(columns) <= set(kept) else None
