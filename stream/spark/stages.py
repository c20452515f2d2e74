"""Stages: how the actors of a graph are divided into tasks for one epoch.

The graph is given with one actor for each fragment. Fragments between which no row changes its vnode are one segment,
which a task runs as a whole for a range of vnodes; rows pass from segment to segment by shuffle files. A segment is in
the stage after the last one of those that send to it, and all segments of a stage run at once. Nothing outlives the
epoch, so any task serves any range of vnodes, and the number of tasks can follow the number of rows.

A fragment joins the segment that sends to it if all its rows come from there unmoved. So a path that leaves a segment
never comes back, and the stages are well ordered. What must run in the process of the driver is in segments of its own:
statements, the first rows of a table, sinks, and connectors that hold rows in this process. All that follows such a
segment unmoved is one segment again, and rows that several of its fragments receive from one actor are sent once.

Where rows pass to an aggregation, their sender may make groups of them first, and send the state of each instead. The
driver decides that for each epoch, so the partial aggregations of the plan are left out of the fragments (see
SparkWorker.build).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from hummock.base.key import KeyRange
from relational.catalog.objects import TableCatalog
from relational.chunk.vnode_map import VnodeMap
from relational.types import Field, Schema, VnodeRule
from stream.executor.hash_agg import agg_groups
from stream.plan.planner import states_add_up
from stream.plan.stream_plan import (
    DmlNode,
    HashAggNode,
    MergeNode,
    PartialAggNode,
    SinkNode,
    SourceNode,
    StreamScanNode,
    WatermarkFilterNode,
)
from stream.protocol import ActorSpec, EdgeSpec, InputSpec
from stream.spark.epoch_spec import shuffle_write
from stream.spark.shuffle_files import Partitioning, ShuffleBlock
from stream.spark.shuffle_nodes import SentEdge, ShuffleReadNode

BUNDLE_BYTES = 256 << 20
"""Of shuffle blocks that one task receives, unless one segment sends it more."""
FIRST_VIRTUAL_ACTOR = 1 << 40
"""Ids of the actors that read and write shuffle files, which exist in tasks only."""


class EdgeKind(Enum):
    FORWARD = auto()
    """Rows stay where their vnode is."""
    GATHER = auto()
    """All rows go to the only receiver."""
    HASH = auto()
    """Rows go to the owner of the vnode of a key."""


@dataclass(frozen=True, slots=True)
class StageEdge:
    """An edge between the fragments of two actors. `input`: of the receiver, None: the rows of a sink into its table.
    `key`, `vnode_count` and `rule` as in EdgeSpec."""

    number: int
    sender: int
    receiver: int
    input: int | None
    kind: EdgeKind
    key: tuple[int, ...] = ()
    vnode_count: int = 1
    rule: VnodeRule = VnodeRule.HASH


@dataclass(slots=True)
class Segment:
    """Fragments that one task runs for a range of `vnode_count` vnodes (None: there is one task), in the order of their
    rows; `incoming` and `outgoing` edges from and to other segments. `in_driver`: its task runs there."""

    number: int
    vnode_count: int | None
    in_driver: bool
    stage: int = 0
    specs: list[ActorSpec] = field(default_factory=list)
    incoming: list[StageEdge] = field(default_factory=list)
    outgoing: list[StageEdge] = field(default_factory=list)

    @property
    def source(self) -> ActorSpec | None:
        """The fragment that reads a connector."""
        return next((spec for spec in self.specs if spec.splits is not None), None)

    def most_tasks(self, wanted: int) -> int:
        """How many tasks run it, at most `wanted`. The watermark of a source is one bound for all its splits, so one
        task reads them."""
        source, most = self.source, self.vnode_count or 1
        if source is not None:
            has_watermark = any(isinstance(node, WatermarkFilterNode) for node in source.root.walk())
            most = 1 if has_watermark else min(most, len(source.all_splits))
        return max(1, min(most, wanted))


class StageGraph:
    """The segments of `specs`, the only actors of their fragments. `is_local(spec)`: whether the driver must run it.
    `is_shuffled`: segments may have several tasks each; otherwise what is connected is one segment, as far as one
    process can run it, and nothing is shuffled in it. `combines(actor_id)`: whether the actor's aggregation should be
    sent states of groups instead of rows, if possible."""

    def __init__(
        self,
        specs: Sequence[ActorSpec],
        is_local: Callable[[ActorSpec], bool],
        *,
        is_shuffled: bool = True,
        combines: Callable[[int], bool] = lambda actor_id: False,
    ) -> None:
        by_id = {spec.actor_id: spec for spec in specs}
        self.edges = tuple(_edges_of(by_id))
        self.segments: list[Segment] = []
        self._segment_of: dict[int, Segment] = {}
        self._arrivals: dict[int, list[tuple[ShuffleBlock, ...]]] = {}  # by edge: for each receiver
        self._followers: dict[tuple[int, bool], Segment] = {}  # by the segment that alone sends to them, unmoved
        incoming: dict[int, list[StageEdge]] = {spec.actor_id: [] for spec in specs}
        for edge in self.edges:
            incoming[edge.receiver].append(edge)
        partials = {spec.actor_id: partial_of(spec) for spec in specs if combines(spec.actor_id)}
        self._partials = {
            edge.number: partial
            for edge in self.edges
            if edge.kind is not EdgeKind.FORWARD and (partial := partials.get(edge.receiver)) is not None
            and set(edge.key) <= set(partial.group_by)
        }  # by edge, of those whose ends are in different segments
        ordered = _in_order(by_id, incoming)
        local = {spec.actor_id: is_local(spec) for spec in specs}
        if not is_shuffled:
            self._add_connected(ordered, incoming, local)
            return
        for spec in ordered:
            self._add(spec, incoming[spec.actor_id], local[spec.actor_id])

    def _add_connected(
        self, ordered: Sequence[ActorSpec], incoming: Mapping[int, Sequence[StageEdge]], local: Mapping[int, bool]
    ) -> None:
        """One segment for all that is connected within a stage; a stage ends where rows leave the driver or come to it.
        """
        stages: dict[int, int] = {}
        roots: dict[int, int] = {}  # by actor: another one of its segment, or itself

        def root(actor_id: int) -> int:
            while roots[actor_id] != actor_id:
                actor_id = roots[actor_id]
            return actor_id

        for spec in ordered:
            actor_id, edges = spec.actor_id, incoming[spec.actor_id]
            stages[actor_id] = max(
                (stages[edge.sender] + (local[edge.sender] != local[actor_id]) for edge in edges), default=0)
            roots[actor_id] = actor_id
            for edge in edges:
                if stages[edge.sender] == stages[actor_id] and local[edge.sender] == local[actor_id]:
                    roots[root(edge.sender)] = actor_id
        segments: dict[int, Segment] = {}
        for spec in ordered:
            first = root(spec.actor_id)
            if first not in segments:
                segments[first] = Segment(len(self.segments), None, local[first], stages[first])
                self.segments.append(segments[first])
            self._append(segments[first], spec, incoming[spec.actor_id])

    def _add(self, spec: ActorSpec, incoming: Sequence[StageEdge], is_local: bool) -> None:
        senders = {self._segment_of[edge.sender].number for edge in incoming}
        is_unmoved = len(senders) == 1 and all(edge.kind is EdgeKind.FORWARD for edge in incoming)
        if is_unmoved:
            sender = self.segments[min(senders)]
            segment = sender if sender.in_driver == is_local else self._followers.get((sender.number, is_local))
        else:
            segment = None
        if segment is None:
            vnode_count = None if spec.vnodes is None else len(spec.vnodes)
            segment = Segment(len(self.segments), vnode_count, is_local)
            segment.stage = 1 + max((self._segment_of[edge.sender].stage for edge in incoming), default=-1)
            self.segments.append(segment)
            if is_unmoved:
                self._followers[min(senders), is_local] = segment
        self._append(segment, spec, incoming)

    def _append(self, segment: Segment, spec: ActorSpec, incoming: Sequence[StageEdge]) -> None:
        segment.specs.append(spec)
        self._segment_of[spec.actor_id] = segment
        for edge in incoming:
            if self._segment_of[edge.sender] is not segment:
                segment.incoming.append(edge)
                self._segment_of[edge.sender].outgoing.append(edge)

    def stages(self) -> list[list[Segment]]:
        """The segments of each stage."""
        found: list[list[Segment]] = [[] for _ in range(1 + max((each.stage for each in self.segments), default=-1))]
        for segment in self.segments:
            found[segment.stage].append(segment)
        return found

    def sent_as(self, edge: StageEdge) -> StageEdge:
        """The edge with whose rows those of `edge` are sent: the first one on which a segment gets them unmoved."""
        if edge.kind is not EdgeKind.FORWARD:
            return edge
        return next(each for each in self._segment_of[edge.receiver].incoming
                    if each.sender == edge.sender and each.kind is EdgeKind.FORWARD)

    def combined(self, edge: StageEdge) -> bool:
        """Whether states of groups are sent on an edge between segments."""
        return edge.number in self._partials

    def schema_of(self, edge: StageEdge) -> Schema:
        """The columns of what is sent on an edge between segments."""
        if edge.number in self._partials:
            return state_schema(self._partials[edge.number])
        root = self._spec_of(edge.sender).root
        return root.input.schema if isinstance(root, SinkNode) else root.schema

    def sender_of(self, virtual: int) -> int | None:
        """The actor whose rows a virtual actor reads or writes; None for any other actor."""
        if virtual < FIRST_VIRTUAL_ACTOR:
            return None
        return self.edges[(virtual - FIRST_VIRTUAL_ACTOR) // 2].sender

    def task_counts(self, wanted: int) -> dict[int, int]:
        """The number of tasks of each segment, by number: `wanted`, or fewer. Segments between which rows stay with
        their vnodes have as many."""
        counts = {segment.number: segment.most_tasks(wanted) for segment in self.segments}
        tied = [(self._segment_of[edge.sender].number, self._segment_of[edge.receiver].number)
                for edge in self.edges if edge.kind is EdgeKind.FORWARD]
        is_settled = False
        while not is_settled:
            is_settled = True
            for one, other in tied:
                least = min(counts[one], counts[other])
                if counts[one] != counts[other]:
                    counts[one] = counts[other] = least
                    is_settled = False
        return counts

    def actors_of(
        self,
        segment: Segment,
        number: int,
        counts: Mapping[int, int],
        sent: Mapping[int, Sequence[SentEdge]],
    ) -> tuple[ActorSpec, ...]:
        """The actors of task `number` of a segment, with those at its ends. `counts`: of tasks, by segment. `sent`: on
        each incoming edge, by the tasks of its sender."""
        tasks = counts[segment.number]
        actors = [_part_of(spec, number, tasks) for spec in segment.specs]
        table = segment.specs[0].table
        for edge in segment.incoming:
            shared = self.sent_as(edge)
            virtual = FIRST_VIRTUAL_ACTOR + 2 * shared.number
            at = next(at for at, spec in enumerate(actors) if spec.actor_id == edge.receiver)
            writes, owner = None, table
            if edge.input is None:
                writes, owner = edge.receiver, self._spec_of(edge.sender).table
            else:
                inputs = list(actors[at].inputs)
                inputs[edge.input] = replace(inputs[edge.input], upstreams=(virtual,))
                actors[at] = replace(actors[at], inputs=tuple(inputs))
                if edge.number in self._partials:
                    came = sent.get(edge.number, ()) if number == 0 else ()
                    actors[at] = replace(actors[at], partial_errors=_sum_of(each.errors for each in came))
            if shared is edge:
                root = self._read_node(edge, sent.get(edge.number, ()), tasks, number)
                actors.append(ActorSpec(virtual, owner, root, writes=writes))
        for edge in (each for each in segment.outgoing if self.sent_as(each) is each):
            virtual = FIRST_VIRTUAL_ACTOR + 2 * edge.number + 1
            receivers = counts[self._segment_of[edge.receiver].number]
            how = _partitioning(edge, self._key_of(edge), receivers, number)
            written = shuffle_write(self.schema_of(edge), edge.number, how, self._partials.get(edge.number))
            input = InputSpec(EdgeSpec((virtual, 0)), (edge.sender,))
            actors.append(ActorSpec(virtual, self._spec_of(edge.sender).table, written, inputs=(input,)))
        return tuple(self._unwritten(actors, segment))

    def _key_of(self, edge: StageEdge) -> tuple[int, ...]:
        """The columns of what is sent whose hash says where it goes."""
        partial = self._partials.get(edge.number)
        return edge.key if partial is None else tuple(map(partial.group_by.index, edge.key))

    def _read_node(
        self, edge: StageEdge, sent: Sequence[SentEdge], receivers: int, receiver: int
    ) -> ShuffleReadNode:
        """What a task reads of an edge on which the tasks of its sender have `sent`."""
        arrivals = self._arrivals.get(edge.number)
        if arrivals is None:
            by_sender = [each.part.by_receiver(receivers) for each in sent]
            arrivals = self._arrivals[edge.number] = [
                tuple(block for blocks in by_sender for block in blocks[at]) for at in range(receivers)
            ]
        marks: dict[int, object] = {}
        for column in {column for each in sent for column in each.marks}:
            if all(column in each.marks for each in sent):
                marks[column] = min(each.marks[column] for each in sent)
        partial = self._partials.get(edge.number)
        group_by = None if partial is None else partial.group_by
        return ShuffleReadNode(self.schema_of(edge), None, arrivals[receiver], marks, group_by)

    def _unwritten(self, actors: Sequence[ActorSpec], segment: Segment) -> list[ActorSpec]:
        """Sinks whose table another task writes send to that task like any others."""
        here = {spec.actor_id for spec in segment.specs}
        return [replace(spec, writes=None) if spec.writes is not None and spec.writes not in here else spec
                for spec in actors]

    def _spec_of(self, actor_id: int) -> ActorSpec:
        return next(spec for spec in self._segment_of[actor_id].specs if spec.actor_id == actor_id)


def bundled(parts: Sequence[tuple[int, int]], slots: int) -> list[list[int]]:
    """Parts of segments, by index, as tasks: each the parts that one task runs. `parts`: the number of the segment, and
    the bytes that the part receives. A task costs as much as some ten thousand rows, so there are no more tasks than
    `slots`, unless they had more than BUNDLE_BYTES, or a segment has more parts. The heaviest part goes first, to the
    task with the least bytes that has no other part of its segment."""
    weights = [weight for _, weight in parts]
    most_parts = max(Counter(segment for segment, _ in parts).values(), default=0)
    wanted = min(len(parts), max(slots, most_parts, -(-sum(weights) // BUNDLE_BYTES)))
    tasks: list[list[int]] = [[] for _ in range(wanted)]
    loads, present = [0] * wanted, [set[int]() for _ in range(wanted)]
    for part in sorted(range(len(parts)), key=lambda part: -weights[part]):
        segment = parts[part][0]
        task = min((task for task in range(wanted) if segment not in present[task]), key=loads.__getitem__)
        tasks[task].append(part)
        present[task].add(segment)
        loads[task] += weights[part] + 1
    return tasks


def partial_of(spec: ActorSpec) -> PartialAggNode | None:
    """The first half of the aggregation of all that an actor receives, if the states of parts of its rows add up to
    that of all."""
    found = [node for node in spec.root.walk() if isinstance(node, HashAggNode)]
    if len(spec.inputs) != 1 or len(found) != 1 or not isinstance(found[0].input, MergeNode):
        return None
    (node,) = found
    if not states_add_up(node):
        return None
    input = MergeNode(node.input.schema, None, 0, None, 0)
    return PartialAggNode(input.schema, None, input, node.group_by, node.calls, node.state_table)


def state_schema(node: PartialAggNode) -> Schema:
    """The columns of the states that a partial aggregation sends."""
    groups = agg_groups(node.group_by, node.schema.types, node.calls, (), (), None, node.state_table)
    return Schema(tuple(Field(f"state_{at}", data_type) for at, data_type in enumerate(groups.state_types)))


def _sum_of(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """By reason."""
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(found)


def must_run_in_driver(spec: ActorSpec, holds_rows: Callable[[TableCatalog], bool]) -> bool:
    """Whether the process of the driver must run the fragment of `spec`, if anything. `holds_rows(table)`: the rows of
    the table's connector are in this process."""
    if spec.first_rows is not None:
        return True
    for node in spec.root.walk():
        if isinstance(node, DmlNode | SinkNode) or (isinstance(node, SourceNode) and holds_rows(node.table)):
            return True
    return False


def ranges_read(specs: Sequence[ActorSpec]) -> list[KeyRange]:
    """The key ranges of the store that the actors of a task read."""
    found: dict[tuple[int, int, int], KeyRange] = {}
    for spec in specs:
        looked_up = {table.id for node in spec.root.walk() for table in node.looked_up}
        for table in _tables_of(spec):
            is_whole = spec.vnodes is None or table.id in looked_up or not table.distribution_key
            if is_whole or spec.vnodes is None or table.vnode_count != len(spec.vnodes):
                found[table.id, 0, -1] = KeyRange.table(table.id)
            else:
                owned = spec.vnodes.nonzero()[0]
                first, last = int(owned[0]), int(owned[-1])
                start, end = KeyRange.vnode(table.id, first), KeyRange.vnode(table.id, last)
                found[table.id, first, last] = KeyRange(start.start, end.end)
    return list(found.values())


def _tables_of(spec: ActorSpec) -> list[TableCatalog]:
    found = [] if spec.error_table is None else [spec.error_table]
    for node in spec.root.walk():
        found += (*node.state_tables, *node.looked_up)
        table = getattr(node, "table", None)
        if table is not None and (spec.is_root or isinstance(node, StreamScanNode)):
            found.append(table)
    return found


def _edges_of(specs: Mapping[int, ActorSpec]) -> list[StageEdge]:
    """The edges between the actors, and from sinks to the tables that they write."""
    found: list[StageEdge] = []
    for receiver in specs.values():
        for at, input in enumerate(receiver.inputs):
            (upstream,) = input.upstreams
            sender, edge = specs[upstream], input.edge
            kind = EdgeKind.HASH
            if edge.vnode_map is None:
                is_gathered = receiver.vnodes is None and sender.vnodes is not None
                kind = EdgeKind.GATHER if is_gathered else EdgeKind.FORWARD
            count = 1 if edge.vnode_map is None else edge.vnode_map.vnode_count
            found.append(
                StageEdge(len(found), upstream, receiver.actor_id, at, kind, edge.key, count, edge.rule)
            )
    for spec in specs.values():
        if spec.writes is not None and spec.writes in specs:
            found.append(StageEdge(len(found), spec.actor_id, spec.writes, None, EdgeKind.GATHER))
    return found


def _in_order(specs: Mapping[int, ActorSpec], incoming: Mapping[int, Sequence[StageEdge]]) -> list[ActorSpec]:
    """The actors, each after those that send to it."""
    found: dict[int, ActorSpec] = {}
    left = list(specs.values())
    while left:
        ready = [spec for spec in left if all(edge.sender in found for edge in incoming[spec.actor_id])]
        assert ready, "a graph has no cycle"
        found |= {spec.actor_id: spec for spec in ready}
        left = [spec for spec in left if spec.actor_id not in found]
    return list(found.values())


def _part_of(spec: ActorSpec, number: int, tasks: int) -> ActorSpec:
    """The part of a fragment that task `number` of `tasks` runs: its share of the vnodes and splits."""
    inputs = tuple(InputSpec(replace(each.edge, vnode_map=None, table=None), each.upstreams) for each in spec.inputs)
    splits = None if spec.splits is None else spec.all_splits[number::tasks]
    vnodes = None if spec.vnodes is None else VnodeMap.even(range(tasks), len(spec.vnodes)).bitmap_of(number)
    return replace(spec, inputs=inputs, vnodes=vnodes, number=number, siblings=tasks, splits=splits)


def _partitioning(edge: StageEdge, key: tuple[int, ...], receivers: int, sender: int) -> Partitioning:
    """How task `sender` divides its rows, with the columns `key`."""
    if edge.kind is EdgeKind.HASH:
        return Partitioning(receivers, key, edge.vnode_count, edge.rule, None)
    return Partitioning(receivers, target=sender if edge.kind is EdgeKind.FORWARD else 0)
