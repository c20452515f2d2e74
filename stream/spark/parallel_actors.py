"""The actors of a task, divided among its threads.

A task is given one actor of each fragment, with the vnodes and splits of the task. Here such an actor becomes several,
each with a part of them, as the meta side divides the fragments of a job among the actors of one process. Between them
rows pass by channels. Reports are about the actors that the task was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from relational.chunk.vnode_map import VnodeMap
from stream.plan.stream_plan import WatermarkFilterNode
from stream.protocol import ActorSpec, EdgeSpec, InputSpec

FIRST_PART = 1 << 30
"""Ids of the actors that exist in a task only, besides those that it was given: int32, as in a vnode map."""


class ParallelActors:
    """`specs` are the parts of the `actors` of a task; each actor is divided into `threads` parts, or into fewer."""

    def __init__(self, actors: Sequence[ActorSpec], threads: int) -> None:
        self._whole: dict[int, int] = {}  # id of a part -> of its actor
        counts = _part_counts(actors, threads)
        ids: dict[int, tuple[int, ...]] = {}
        for spec in actors:
            first = FIRST_PART + len(self._whole)
            ids[spec.actor_id] = spec.actor_id, *range(first, first + counts[spec.actor_id] - 1)
            self._whole |= dict.fromkeys(ids[spec.actor_id], spec.actor_id)
        self._ids: Mapping[int, tuple[int, ...]] = ids
        self.specs = tuple(part for spec in actors for part in _parts_of(spec, ids))

    def whole(self, actor_id: int) -> int:
        """The id of the actor of which `actor_id` is a part."""
        return self._whole[actor_id]

    def parts(self, actor_id: int) -> tuple[int, ...]:
        """The ids of the parts of an actor of the task."""
        return self._ids[actor_id]


def _part_counts(actors: Sequence[ActorSpec], threads: int) -> dict[int, int]:
    """By id, into how many parts each actor is divided. Actors between which rows stay with their vnodes have as many.
    """
    counts = {spec.actor_id: _most_parts(spec, threads) for spec in actors}
    tied = [(upstream, spec.actor_id) for spec in actors if spec.vnodes is not None
            for input in spec.inputs if not input.edge.key for upstream in input.upstreams]
    for spec in actors:
        if spec.writes in counts:
            counts[spec.actor_id] = counts[spec.writes] = 1
    is_settled = False
    while not is_settled:
        is_settled = True
        for one, other in tied:
            if counts[one] != counts[other]:
                counts[one] = counts[other] = min(counts[one], counts[other])
                is_settled = False
    return counts


def _most_parts(spec: ActorSpec, threads: int) -> int:
    """The watermark of a source is one bound for all its splits."""
    if spec.vnodes is None or spec.first_rows is not None:
        return 1
    most = min(threads, int(np.count_nonzero(spec.vnodes)))
    if spec.splits is not None:
        has_watermark = any(isinstance(node, WatermarkFilterNode) for node in spec.root.walk())
        most = 1 if has_watermark else min(most, len(spec.splits))
    return max(1, most)


def _parts_of(spec: ActorSpec, ids: Mapping[int, tuple[int, ...]]) -> list[ActorSpec]:
    """The parts of an actor, connected with those of its upstreams."""
    own = ids[spec.actor_id]
    owners = None if spec.vnodes is None or len(own) == 1 else _owners(spec.vnodes, own)
    found = []
    for at, actor_id in enumerate(own):
        found.append(replace(
            spec,
            actor_id=actor_id,
            inputs=tuple(_input_of(input, [ids[upstream] for upstream in input.upstreams], at, owners)
                         for input in spec.inputs),
            vnodes=spec.vnodes if owners is None else owners.bitmap_of(actor_id) * spec.vnodes,
            number=spec.number * len(own) + at,
            siblings=spec.siblings * len(own),
            splits=None if spec.splits is None else spec.splits[at :: len(own)],
            partial_errors=spec.partial_errors if at == 0 or spec.partial_errors is None else {},
        ))
    return found


def _input_of(
    input: InputSpec, senders: Sequence[tuple[int, ...]], at: int, owners: VnodeMap | None
) -> InputSpec:
    """The input of part number `at`. `senders`: the parts of each upstream; `owners`: of vnodes, None: it is the only
    part, and receives all rows."""
    edge_id = input.edge.edge_id
    if owners is None:
        return InputSpec(EdgeSpec(edge_id), tuple(part for parts in senders for part in parts))
    if input.edge.key:
        hashed = EdgeSpec(edge_id, input.edge.key, owners, input.edge.rule)
        return InputSpec(hashed, tuple(part for parts in senders for part in parts))
    return InputSpec(EdgeSpec(edge_id), tuple(parts[at] for parts in senders))


def _owners(vnodes: np.ndarray, parts: Sequence[int]) -> VnodeMap:
    """Even ranges of the vnodes of an actor (uint8[vnode_count]) for its parts; the rest, for which no row comes, is
    the first one's."""
    owned = np.flatnonzero(vnodes)
    targets = np.full(len(vnodes), parts[0], np.int32)
    targets[owned] = np.asarray(parts, np.int32)[np.arange(len(owned)) * len(parts) // len(owned)]
    return VnodeMap(targets)
