"""Fragments: the parts of a stream plan that a bulk backfill runs one after the other.

A fragment is a chain of executors whose rows have one distribution; between two fragments is an exchange, a shuffle by
the vnode of columns. The plan is cut below each aggregation, by its groups, and below the Materialize node, unless its
input is distributed like the view already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from relational.expr.expression import InputRef
from relational.types import VnodeRule
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

Distribution: TypeAlias = "tuple[tuple[int, ...], VnodeRule] | None"
"""The columns whose vnode determines the task of a row, and the rule of the vnode; None if no columns of these rows
do."""


@dataclass(frozen=True, slots=True)
class ArrivalNode(StreamNode):
    """The rows sent by the previous fragment."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The executors from `root` down to its leaf: a scan in the first fragment, else the arriving rows, distributed by
    the vnode of the columns `key` by `rule`."""

    root: StreamNode
    key: tuple[int, ...] = ()
    rule: VnodeRule = VnodeRule.HASH

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
    cutter = _Cutter()
    root, _ = cutter.part(plan.root)
    cutter.end(root)
    return tuple(cutter.fragments)


class _Cutter:
    """Cuts a chain from its leaf up."""

    def __init__(self) -> None:
        self.fragments: list[Fragment] = []
        self._key: tuple[int, ...] = ()  # of the fragment under construction
        self._rule = VnodeRule.HASH

    def part(self, node: StreamNode) -> tuple[StreamNode, Distribution]:
        """`node` within its fragment, and the distribution of its output."""
        if isinstance(node, StreamScanNode):
            return node, _among(node.table.distribution_key, node.columns, node.table.vnode_rule)
        assert isinstance(node, (FilterNode, ProjectNode, HashAggNode, MaterializeNode))
        child, distribution = self.part(node.input)
        if isinstance(node, HashAggNode):
            child = self._cut(child, node.group_by, VnodeRule.HASH)
            distribution = tuple(range(len(node.group_by))), VnodeRule.HASH
        elif isinstance(node, MaterializeNode):
            wanted = node.table.distribution_key, node.table.vnode_rule
            child = child if distribution == wanted else self._cut(child, *wanted)
        elif isinstance(node, ProjectNode) and distribution is not None:
            passed = [each.index if isinstance(each, InputRef) else -1 for each in node.expressions]
            distribution = _among(distribution[0], passed, distribution[1])
        return replace(node, input=child), distribution

    def end(self, root: StreamNode) -> None:
        """Finish the fragment under construction with `root`."""
        self.fragments.append(Fragment(root, self._key, self._rule))

    def _cut(self, root: StreamNode, key: tuple[int, ...], rule: VnodeRule) -> ArrivalNode:
        self.end(root)
        self._key, self._rule = key, rule
        return ArrivalNode(root.schema, root.stream_key)


def _among(columns: tuple[int, ...], kept: tuple[int, ...] | list[int], rule: VnodeRule) -> Distribution:
    """The positions of `columns` among the `kept` ones; None if one is missing."""
    return (tuple(kept.index(column) for column in columns), rule) if set(columns) <= set(kept) else None
