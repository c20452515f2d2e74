"""Scheduling: the actors of a job's fragments, the vnodes and splits of each, and the edges between them.

A fragment with vnodes gets as many actors as the parallelism of its job says, at most one for each vnode, and at most
one for each split of its source. Their vnodes are contiguous ranges of equal size. A fragment that only scans, filters
and projects has as many actors as write the table, unless another one has its actors from it. Where the actors that
write a table own the same ranges as those that scan it, each is followed by one; else the rows are distributed by the
table's distribution key [R35].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from relational.chunk.vnode_map import VnodeMap
from stream.plan.fragments import Fragment, fragments_of
from stream.plan.stream_plan import (
    FilterNode,
    MergeNode,
    PartialAggNode,
    ProjectNode,
    ProjectSetNode,
    ShareNode,
    SourceNode,
    StreamNode,
    StreamPlan,
    StreamScanNode,
)
from stream.protocol import ActorSpec, EdgeSpec, FirstRows, InputSpec

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from relational.chunk.stream_chunk import StreamChunk
    from stream.message import SkippedRows


STATELESS = (StreamScanNode, FilterNode, ProjectNode, ProjectSetNode, ShareNode, PartialAggNode)
"""What stores no state: where the rows of a table are read, they stay with its actors."""


@dataclass(frozen=True, slots=True)
class Job:
    """The plan of a table, view or sink. `splits`: of the connectors that it reads, by the id of their table or source;
    without those that cannot be read at present. `parallelism`: the actors of each of its fragments with vnodes.
    `skippable`: malformed rows by split, see JobRecord."""

    job_id: int
    plan: StreamPlan
    splits: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    parallelism: int = 1
    skippable: Mapping[str, int] = field(default_factory=dict)

    @property
    def written_table(self) -> int | None:
        """The id of the table that the job writes as a sink."""
        into = self.plan.root.table.sink_table
        return None if into is None else into.table_id


@dataclass(frozen=True, slots=True)
class Beginning:
    """A job to start, and what its actors have yet to read; see ActorSpec. `rows`: the first ones of a table.
    `is_detached`: it reads its tables apart from the graph."""

    job: Job
    since: Epoch | None = None
    is_loaded: bool = False
    skip: SkippedRows | None = None
    rows: StreamChunk | None = None
    is_resumed: bool = False
    is_detached: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The actors of a fragment, in the order of their vnodes. `vnodes`: None for one actor that owns all."""

    actors: tuple[int, ...]
    vnodes: VnodeMap | None = None

    def has_same_ranges(self, other: Layout) -> bool:
        """Whether the n-th actors of both own the same vnodes."""
        if self.vnodes is None or other.vnodes is None:
            return self.vnodes is other.vnodes
        return np.array_equal(self.vnodes.owner_indices, other.vnodes.owner_indices)


@dataclass(frozen=True, slots=True)
class ActorGraph:
    """The actors of one job: `specs`, each after those it receives from, and the layout of its last fragment."""

    specs: tuple[ActorSpec, ...]
    root: Layout


def schedule(beginning: Beginning, upstreams: Mapping[int, Layout], next_id: Callable[[], int]) -> ActorGraph:
    """The actors of a job that begins. `upstreams`: the layouts of the jobs that it reads, and of the table that it
    writes as a sink, by the id of the table; empty for a detached one.
    KeyError with the id of one that is missing."""
    job = beginning.job
    fragments = fragments_of(job.plan)
    followed = {leaf.fragment for fragment in fragments if fragment.vnode_count is not None
                for leaf in fragment.leaves if isinstance(leaf, MergeNode) and leaf.key is None}
    layouts: list[Layout] = []
    specs: list[ActorSpec] = []
    for number, fragment in enumerate(fragments):
        layout = _layout(fragment, job, layouts, upstreams, next_id, is_followed=number in followed)
        leaves = [leaf for leaf in fragment.leaves if not (beginning.is_detached and isinstance(leaf, StreamScanNode))]
        edges = [_edge(job, number, at, leaf, layout, layouts, upstreams) for at, leaf in enumerate(leaves)]
        layouts.append(layout)
        for at, actor_id in enumerate(layout.actors):
            inputs = tuple(
                InputSpec(edge, (sender.actors[at],) if edge.vnode_map is None and len(layout.actors) > 1
                          else sender.actors)
                for edge, sender in filter(None, edges)
            )
            spec = _spec(beginning, fragment, number, layout, at, actor_id, inputs)
            written = job.written_table if spec.is_root else None
            specs.append(spec if written is None else replace(spec, writes=upstreams[written].actors[0]))
    return ActorGraph(tuple(specs), layouts[-1])


def _layout(
    fragment: Fragment,
    job: Job,
    layouts: Sequence[Layout],
    upstreams: Mapping[int, Layout],
    next_id: Callable[[], int],
    *,
    is_followed: bool,
) -> Layout:
    followed = [layouts[leaf.fragment] for leaf in fragment.leaves if isinstance(leaf, MergeNode) and leaf.key is None]
    if fragment.vnode_count is None or any(each.vnodes is None for each in followed):
        return Layout((next_id(),))
    actors = min(job.parallelism, fragment.vnode_count)
    scans = [leaf for leaf in fragment.leaves if isinstance(leaf, StreamScanNode)]
    scanned = [upstreams[leaf.table.id] for leaf in scans] if upstreams else []
    if scanned and not is_followed and all(isinstance(node, STATELESS) for node in fragment.root.walk()):
        actors = len(scanned[0].actors)
        if scanned[0].vnodes is None:
            return Layout((next_id(),))
    if any(isinstance(leaf, SourceNode) for leaf in fragment.leaves):
        actors = max(1, min(actors, len(_splits(job, fragment) or ())))
    if followed:
        actors = len(followed[0].actors)
    ids = tuple(next_id() for _ in range(actors))
    return Layout(ids, VnodeMap.even(ids, fragment.vnode_count))


def _splits(job: Job, fragment: Fragment) -> tuple[str, ...] | None:
    """The splits of the source that a fragment reads; None without one, or if it cannot be read. A fragment has one
    source at most: it ends before each input of an executor of several."""
    sources = (leaf for leaf in fragment.leaves if isinstance(leaf, SourceNode))
    return next((job.splits.get(source.table.id) for source in sources), None)


def _edge(
    job: Job,
    fragment: int,
    number: int,
    leaf: StreamNode,
    layout: Layout,
    layouts: list[Layout],
    upstreams: Mapping[int, Layout],
) -> tuple[EdgeSpec, Layout] | None:
    """The edge to a leaf of a fragment and the actors that send on it; None for a leaf without senders."""
    edge = EdgeSpec((job.job_id, fragment, number, layout.actors[0]))
    if isinstance(leaf, MergeNode):
        sender = layouts[leaf.fragment]
        if layout.vnodes is None or leaf.key is None:
            return edge, sender
        return replace(edge, key=leaf.key, vnode_map=layout.vnodes, rule=leaf.rule), sender
    if not isinstance(leaf, StreamScanNode):
        return None
    sender = upstreams[leaf.table.id]
    if layout.vnodes is None or layout.has_same_ranges(sender):
        return edge, sender
    table = leaf.table
    hashed = replace(edge, key=table.distribution_key, vnode_map=layout.vnodes, rule=table.vnode_rule, table=table)
    return hashed, sender


def _spec(
    beginning: Beginning,
    fragment: Fragment,
    number: int,
    layout: Layout,
    at: int,
    actor_id: int,
    inputs: tuple[InputSpec, ...],
) -> ActorSpec:
    job, siblings = beginning.job, len(layout.actors)
    splits = _splits(job, fragment)
    return ActorSpec(
        actor_id,
        job.plan.root.table,
        fragment.root,
        number,
        inputs,
        None if layout.vnodes is None else layout.vnodes.bitmap_of(actor_id),
        at,
        siblings,
        job.plan.error_table,
        None if splits is None else splits[at::siblings],
        splits or (),
        beginning.since,
        beginning.is_loaded,
        beginning.skip,
        skippable=job.skippable,
        first_rows=None if beginning.rows is None else FirstRows(beginning.rows),
        is_resumed=beginning.is_resumed,
        is_detached=beginning.is_detached,
    )
