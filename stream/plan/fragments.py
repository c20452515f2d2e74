"""Fragments: the parts of a stream plan whose executors run in the same actors, between two exchanges.

The planner inserts an exchange where the distribution of rows changes:

    below an aggregation          by its groups, unless its input is distributed by some of these columns already, with
                                  as many vnodes: then its state is as well
    below a dynamic filter, and   by the key of its rows, unless the input is distributed by it already
    below EMIT ON WINDOW CLOSE
    below one without groups      to one actor. Where states of parts of the rows add up, a partial aggregation may
                                  end the fragment below the exchange
    below the Materialize node    by the distribution key of the view, unless the input is distributed by it already
    below a top-n, over-window    by its groups, as below an aggregation; without groups to one actor
    below each input of a join    by the join key; without equal columns to one actor. An input that is distributed by
                                  it already ends its fragment as well: its rows stay with the owner of their vnode
    below a temporal join         by the key of the table, on both sides
    below a delta join            by the join key, on both sides
    below a branch of a union     by what is needed above the union, else by the key of the union
    below the sink                to one actor, unless its job is a single fragment
    above a share                 for each reader, as it needs it: the fragment below is executed once

A scan is distributed like the table that it reads: an edge from that table's actors by its distribution key. A source
is distributed by its splits. All tables of a fragment have the same vnodes [R35], so the owner of a vnode finds in its
tables the state of every row that it receives. The job of a table is one fragment with one actor, because its
statements are evaluated one after the other [R21]. The tasks of a Spark job run the same fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from relational.catalog.objects import DEFAULT_VNODE_COUNT
from relational.expr.expression import InputRef
from relational.plan.logical import JoinKind
from relational.types import VnodeRule
from stream.plan.stream_plan import (
    DeltaJoinNode,
    DynamicFilterNode,
    EmitOnWindowCloseNode,
    ExchangeNode,
    HashAggNode,
    HashJoinNode,
    MaterializeNode,
    MergeNode,
    OverWindowNode,
    PartialAggNode,
    ProjectNode,
    ProjectSetNode,
    ShareNode,
    SinkNode,
    SourceNode,
    StreamNode,
    StreamPlan,
    StreamScanNode,
    TemporalJoinNode,
    TopNNode,
    UnionNode,
)


class Single(Enum):
    """All rows are in one actor."""

    SINGLE = auto()


SINGLE = Single.SINGLE
Distribution: TypeAlias = "Single | tuple[tuple[int, ...], int, VnodeRule] | None"
"""The columns whose vnode, out of so many and by this rule, determines the actor of a row; None if no columns of these
rows do."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The executors from `root` down to its leaves: sources, scans, and the rows of other fragments.

    `vnode_count`: its actors own the vnodes of so many; None: it has one actor."""

    root: StreamNode
    vnode_count: int | None

    @property
    def leaves(self) -> tuple[StreamNode, ...]:
        """In pre-order."""
        return tuple(node for node in self.root.walk() if not node.inputs)

    @property
    def leaf(self) -> StreamNode:
        """The only leaf. REQUIRES that there is one."""
        (leaf,) = self.leaves
        return leaf

    @property
    def key(self) -> tuple[int, ...]:
        """The columns by which the rows of its leaf arrive distributed; empty: from a table, or to one actor."""
        return (self.leaf.key or ()) if isinstance(self.leaf, MergeNode) else ()

    @property
    def rule(self) -> VnodeRule:
        """How the vnodes of the rows of its leaf follow from `key`."""
        return self.leaf.rule if isinstance(self.leaf, MergeNode) else VnodeRule.HASH

    @property
    def table_ids(self) -> tuple[int, ...]:
        """Ids of the tables that its executors write, ascending."""
        ids = [table.id for node in self.root.walk() for table in node.state_tables]
        if isinstance(self.root, MaterializeNode | SinkNode):
            ids.append(self.root.table.id)
        return tuple(sorted(ids))


def with_exchanges(root: StreamNode) -> StreamNode:
    """The plan of a view, index or sink, with an exchange wherever the distribution of rows changes."""
    return _parted(root)[0]


def fragments_of(plan: StreamPlan) -> tuple[Fragment, ...]:
    """The fragments, each after those whose rows it receives; the last one has the plan's root."""
    found: list[Fragment] = []
    shared: dict[int, int] = {}  # number of a Share -> its fragment

    def cut(node: StreamNode) -> StreamNode:
        if isinstance(node, ExchangeNode):
            number = fragment_below(node.input)
            vnodes = (found[number].vnode_count or 0) if node.key is None else node.vnode_count
            return MergeNode(node.schema, node.stream_key, number, node.key, vnodes, node.rule)
        return _with_inputs(node, [cut(child) for child in node.inputs])

    def fragment_below(node: StreamNode) -> int:
        if isinstance(node, ShareNode) and node.number in shared:
            return shared[node.number]
        below = cut(node)
        found.append(Fragment(below, _vnode_count(below)))
        if isinstance(node, ShareNode):
            shared[node.number] = len(found) - 1
        return len(found) - 1

    root = cut(plan.root)
    return (*found, Fragment(root, None if plan.is_single else _vnode_count(root)))


def explained(plan: StreamPlan) -> str:
    """The plan as text, and below it each fragment: its executors from the leaf up, and its distribution."""
    lines = [plan.explain()]
    for number, fragment in enumerate(fragments_of(plan)):
        names = " > ".join(node.identity for node in reversed(list(fragment.root.walk())))
        lines.append(f"fragment {number} ({_distribution_text(fragment)}): {names}")
    return "\n".join(lines)


def _distribution_text(fragment: Fragment) -> str:
    if fragment.vnode_count is None:
        return "one actor"
    leaf = fragment.leaves[0]
    if isinstance(leaf, SourceNode):
        return "by split"
    if isinstance(leaf, MergeNode) and leaf.key is None:
        return f"{fragment.vnode_count} vnodes as fragment {leaf.fragment}"
    key = leaf.table.distribution_key if isinstance(leaf, StreamScanNode) else getattr(leaf, "key", ())
    names = leaf.table.schema.names if isinstance(leaf, StreamScanNode) else leaf.schema.names
    return f"{fragment.vnode_count} vnodes by {', '.join(names[column] for column in key)}"


def scan_distribution(node: StreamScanNode) -> Distribution:
    """The distribution of a scan's output."""
    table = node.table
    if not table.distribution_key:
        return SINGLE
    return _among(table.distribution_key, table.vnode_count, table.vnode_rule, node.columns)


def _parted(node: StreamNode) -> tuple[StreamNode, Distribution]:
    """The node over inputs with exchanges, and the distribution of its output."""
    if isinstance(node, StreamScanNode):
        return node, scan_distribution(node)
    if not node.inputs:
        return node, None
    if isinstance(node, UnionNode):
        return _union(node)
    if isinstance(node, HashJoinNode):
        return _join(node)
    if isinstance(node, TemporalJoinNode):
        inputs = _exchanged((node.left, node.key), (node.right, node.pk), node.vnode_count)
        is_known = max(node.key) < node.width
        return _with_inputs(node, inputs), (node.key, node.vnode_count, VnodeRule.HASH) if is_known else None
    if isinstance(node, DeltaJoinNode):
        left, right = zip(*node.keys, strict=True)
        inputs = _exchanged((node.left, left), (node.right, right), node.vnode_count)
        return _with_inputs(node, inputs), (left, node.vnode_count, VnodeRule.HASH)
    child, distribution = _parted(node.inputs[0])
    if isinstance(node, ShareNode):
        shared = replace(node, input=child)
        return ExchangeNode(node.schema, node.stream_key, shared, None, 0), distribution
    if isinstance(node, HashAggNode):
        return _aggregation(node, child, distribution)
    if isinstance(node, TopNNode | OverWindowNode):
        columns = _distributing(node.table.distribution_key, node.table.vnode_count, distribution)
        node = replace(node, table=replace(node.table, distribution_key=columns))
        child, distribution = _distributed(child, distribution, (columns, node.table.vnode_count, VnodeRule.HASH))
        if node.groups and max(node.groups) >= node.width:
            distribution = SINGLE
    elif isinstance(node, DynamicFilterNode | EmitOnWindowCloseNode):
        wanted = node.table.distribution_key, node.table.vnode_count, VnodeRule.HASH
        child, distribution = _distributed(child, distribution, wanted)
    elif isinstance(node, MaterializeNode):
        table = node.table
        wanted = table.distribution_key, table.vnode_count, table.vnode_rule
        child, distribution = _distributed(child, distribution, wanted)
    elif isinstance(node, SinkNode) and any(isinstance(each, ExchangeNode | StreamScanNode) for each in child.walk()):
        child, distribution = _distributed(child, distribution, ((), node.table.vnode_count, VnodeRule.HASH))
    elif isinstance(node, ProjectNode) and isinstance(distribution, tuple):
        passed = [each.index if isinstance(each, InputRef) else -1 for each in node.expressions]
        distribution = _among(*distribution, passed)
    elif isinstance(node, ProjectSetNode) and isinstance(distribution, tuple):
        distribution = _among(*distribution, node.passed)
    return _with_inputs(node, [child]), distribution


def _aggregation(node: HashAggNode, child: StreamNode, distribution: Distribution) -> tuple[StreamNode, Distribution]:
    """An aggregation over its input, whose groups are the first columns of its output and of all its tables."""
    vnode_count = node.state_table.vnode_count
    columns = _distributing(node.group_by, vnode_count, distribution)
    groups = tuple(map(node.group_by.index, columns))
    part = child if isinstance(child, PartialAggNode) else None
    child, _ = _distributed(
        child if part is None else part.input, distribution, (columns, vnode_count, VnodeRule.HASH))
    node = node.with_distribution(groups)
    if part is not None:
        child = _with_partial_agg(child, replace(part, state_table=node.state_table))
    node = replace(node, input=child)
    return node, (groups, vnode_count, VnodeRule.HASH) if groups else SINGLE


def _with_partial_agg(child: StreamNode, part: PartialAggNode) -> StreamNode:
    """The input of an aggregation, where it has exchanges with `part` before them. A fragment that is executed once for
    several readers sends them the same rows."""
    if isinstance(child, UnionNode):
        if any(isinstance(each.inputs[0], ShareNode) for each in child.branches):
            return child
        return replace(child, branches=tuple(_with_partial_agg(each, part) for each in child.branches))
    if not isinstance(child, ExchangeNode) or isinstance(child.input, ShareNode):
        return child
    below = child.input
    return replace(child, input=replace(part, schema=below.schema, stream_key=below.stream_key, input=below))


def _distributing(groups: tuple[int, ...], vnode_count: int, distribution: Distribution) -> tuple[int, ...]:
    """The columns by which rows are distributed to an operator whose groups have those columns: some of them, where the
    rows are distributed by these already, so that all rows of a group are in one actor."""
    if isinstance(distribution, tuple) and distribution[1:] == (vnode_count, VnodeRule.HASH):
        columns = distribution[0]
        if columns and set(columns) <= set(groups):
            return columns
    return groups


def _union(node: UnionNode) -> tuple[StreamNode, Distribution]:
    """A union with an exchange below, for each branch, by the key of the union; without a key to one actor. What needs
    another distribution replaces these exchanges."""
    branches = [_parted(branch)[0] for branch in node.branches]
    wanted = node.stream_key or (), DEFAULT_VNODE_COUNT, VnodeRule.HASH
    parts = [_distributed(branch, None, wanted)[0] for branch in branches]
    return replace(node, branches=tuple(parts)), wanted if node.stream_key else SINGLE


def _join(node: HashJoinNode) -> tuple[StreamNode, Distribution]:
    """A join over an exchange for each input; no fragment reads two inputs otherwise [R11]."""
    inputs = []
    for child, table in zip(node.inputs, node.tables, strict=True):
        part = child if isinstance(child, PartialAggNode) else None
        below, distribution = _parted(child if part is None else part.input)
        below, _ = _distributed(below, distribution, (table.distribution_key, table.vnode_count, VnodeRule.HASH))
        if not isinstance(below, ExchangeNode | UnionNode):
            below = ExchangeNode(below.schema, below.stream_key, below, None, 0)
        elif part is not None:
            below = _with_partial_agg(below, part)
        inputs.append(below)
    return _with_inputs(node, inputs), _distribution_of_join(node)


def _exchanged(
    left: tuple[StreamNode, tuple[int, ...]], right: tuple[StreamNode, tuple[int, ...]], vnode_count: int
) -> list[StreamNode]:
    """Both inputs by their keys, so that each row of a table is looked up by one actor, which gets its changes."""
    inputs: list[StreamNode] = []
    for child, key in (left, right):
        below = _parted(child)[0]
        if isinstance(below, ExchangeNode) and below.key is None:
            below = below.input
        inputs.append(ExchangeNode(child.schema, child.stream_key, below, key, vnode_count))
    return inputs


def _distribution_of_join(node: HashJoinNode) -> Distribution:
    """By the key of the side whose columns are never NULL for want of a partner."""
    if not node.tables[0].distribution_key:
        return SINGLE
    if node.kind is JoinKind.FULL:
        return None
    shift = 0
    (left, right), (width, right_width) = zip(*node.keys, strict=True), node.widths
    if node.kind is JoinKind.RIGHT:
        left, width, shift = right, right_width, width
    if max(left) >= width:
        return None
    return tuple(shift + column for column in left), node.tables[0].vnode_count, VnodeRule.HASH


def _distributed(
    child: StreamNode, distribution: Distribution, by: tuple[tuple[int, ...], int, VnodeRule]
) -> tuple[StreamNode, Distribution]:
    """The input with the distribution `by` these columns, no columns: in one actor."""
    key, vnode_count, rule = by
    wanted: Distribution = by if key else SINGLE
    if distribution == wanted:
        return child, wanted
    if isinstance(child, UnionNode):
        exchanges = [branch for branch in child.branches if isinstance(branch, ExchangeNode)]
        assert len(exchanges) == len(child.branches), "each branch of a union has an exchange"
        parts = tuple(replace(exchange, key=key, vnode_count=vnode_count, rule=rule) for exchange in exchanges)
        return replace(child, branches=parts), wanted
    if isinstance(child, ExchangeNode) and child.key is None:
        return replace(child, key=key, vnode_count=vnode_count, rule=rule), wanted
    return ExchangeNode(child.schema, child.stream_key, child, key, vnode_count, rule), wanted


def _among(columns: tuple[int, ...], vnode_count: int, rule: VnodeRule, kept: Sequence[int]) -> Distribution:
    """The distribution by `columns`, by their positions among the `kept` ones; None if one is missing."""
    return (tuple(map(kept.index, columns)), vnode_count, rule) if set(columns) <= set(kept) else None


def _with_inputs(node: StreamNode, inputs: Sequence[StreamNode]) -> StreamNode:
    if isinstance(node, UnionNode):
        return replace(node, branches=tuple(inputs))
    if isinstance(node, HashJoinNode | TemporalJoinNode | DeltaJoinNode):
        left, right = inputs
        return replace(node, left=left, right=right)
    return replace(node, input=inputs[0]) if inputs else node  # type: ignore[call-arg]


def _vnode_count(root: StreamNode) -> int | None:
    """The number of vnodes of a fragment; None: it runs in one actor."""
    for node in root.walk():
        if isinstance(node, MergeNode):
            return node.vnode_count or None if node.key is None or node.key else None
        if isinstance(node, StreamScanNode):
            return node.table.vnode_count if node.table.distribution_key else None
        if isinstance(node, SourceNode):
            return DEFAULT_VNODE_COUNT
    raise AssertionError(f"{root.identity} has no leaf")
