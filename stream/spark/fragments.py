"""Fragments: a stream plan in the pieces that a bulk backfill runs one after the other.

A fragment is a chain of executors whose rows are distributed in one way; between two of them lies an exchange, a
shuffle by the vnode of columns. It is cut below each aggregation, by its groups, and below what writes the view, unless
its rows come distributed like the view already.
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

Distribution: TypeAlias = "tuple[int, ...] | None"
"""Columns whose vnode says where a row lies; None where no columns of these rows do."""


@dataclass(frozen=True, slots=True)
class ArrivalNode(StreamNode):
    """What the fragment before sent."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The executors of `root` down to its leaf: a scan in the first fragment, else what arrives, distributed by the
    vnode of the columns `key`."""

    root: StreamNode
    key: tuple[int, ...] = ()

    @property
    def leaf(self) -> StreamNode:
        return list(self.root.walk())[-1]

    @property
    def table_ids(self) -> tuple[int, ...]:
        """The tables that its executors write, ascending."""
        ids = [table.id for node in self.root.walk() for table in node.state_tables]
        if isinstance(self.root, MaterializeNode):
            ids.append(self.root.table.id)
        return tuple(sorted(ids))


def fragments_of(plan: StreamPlan) -> tuple[Fragment, ...]:
    """The plan's fragments, the one that scans first. BackfillRefused names an executor that no fragment can have."""
    for node in plan.root.walk():
        if not isinstance(node, (StreamScanNode, FilterNode, ProjectNode, HashAggNode, MaterializeNode)):
            raise BackfillRefused(plan.root.table.name, f"{node.identity} cannot run in a task")
        if len(node.inputs) > 1:
            raise BackfillRefused(plan.root.table.name, f"{node.identity} has {len(node.inputs)} inputs")
    cutter = _Cutter()
    root, _ = cutter.part(plan.root)
    cutter.end(root)
    return tuple(cutter.fragments)


class _Cutter:
    """Cuts a chain from its leaf up."""

    def __init__(self) -> None:
        self.fragments: list[Fragment] = []
        self._key: tuple[int, ...] = ()  # of the fragment that grows

    def part(self, node: StreamNode) -> tuple[StreamNode, Distribution]:
        """`node` in the fragment that is its own, and how the rows lie that come out of it."""
        if isinstance(node, StreamScanNode):
            return node, _among(node.table.distribution_key, node.columns)
        assert isinstance(node, (FilterNode, ProjectNode, HashAggNode, MaterializeNode))
        child, distribution = self.part(node.input)
        if isinstance(node, HashAggNode):
            child = self._cut(child, node.group_by)
            distribution = tuple(range(len(node.group_by)))
        elif isinstance(node, MaterializeNode) and distribution != node.table.distribution_key:
            child = self._cut(child, node.table.distribution_key)
        elif isinstance(node, ProjectNode) and distribution is not None:
            passed = [each.index if isinstance(each, InputRef) else -1 for each in node.expressions]
            distribution = _among(distribution, passed)
        return replace(node, input=child), distribution

    def end(self, root: StreamNode) -> None:
        """The fragment that grew ends with `root`."""
        self.fragments.append(Fragment(root, self._key))

    def _cut(self, root: StreamNode, key: tuple[int, ...]) -> ArrivalNode:
        self.end(root)
        self._key = key
        return ArrivalNode(root.schema, root.stream_key)


def _among(columns: tuple[int, ...], kept: tuple[int, ...] | list[int]) -> Distribution:
    """Where `columns` stand among the `kept` ones; None where one is not there."""
    return tuple(kept.index(column) for column in columns) if set(columns) <= set(kept) else None
