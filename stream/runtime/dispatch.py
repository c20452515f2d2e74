"""Dispatch: sends an actor's messages along its edges to the downstream actors.

An edge leads to all actors of one input of a downstream fragment; two edges may lead to the same fragment. A barrier is
sent on every edge before any later chunk, and edges change only with a barrier: the barrier that adds a target is its
first message, the barrier that stops a target is its last. So every actor sees an unbroken sequence of epochs.

What a channel has no room for is kept in the outbox, and the actor processes nothing more until the outbox is empty. So
at most one chunk waits there for each target. A barrier needs no room. This cannot deadlock: a receiver that has all
barriers of an epoch but one waits for messages that precede the missing barrier. Where these and what it refuses come
from the same sender, the sender has sent that barrier on all its edges before it sent anything that is refused, so the
missing barrier is on its way through actors that need nothing more from the sender [R11].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from relational.types import VnodeRule
from stream.message import Add, Barrier, GroupStates, Message, Watermark
from stream.runtime.channel import Channel

if TYPE_CHECKING:
    from relational.chunk.stream_chunk import StreamChunk
    from relational.chunk.vnode_map import VnodeMap

EdgeId: TypeAlias = "tuple[int, ...]"
"""Job, fragment and input of the receivers, and the first of them."""
Changes: TypeAlias = "StreamChunk | GroupStates"
"""What goes to the receivers by its columns."""


class Edge(ABC):
    """The targets of one edge: actor id -> channel. Used by the sending actor only."""

    def __init__(self, targets: Mapping[int, Channel]) -> None:
        self.targets = dict(targets)

    @abstractmethod
    def parts(self, chunk: Changes) -> Iterable[tuple[Channel, Changes]]:
        """What to send to which target."""

    @property
    @abstractmethod
    def queue_rows(self) -> int:
        """Rows of a chunk whose parts the targets may queue at present."""

    def follow(self, barrier: Barrier) -> None:  # noqa: B027  most edges do not depend on columns
        """The chunks after `barrier` may have other columns."""


class SimpleEdge(Edge):
    """Every chunk goes to every target: there is one, unless several actors need all rows."""

    def parts(self, chunk: Changes) -> Iterator[tuple[Channel, Changes]]:
        return ((channel, chunk) for channel in self.targets.values())

    @property
    def queue_rows(self) -> int:
        return min(channel.limit_rows for channel in self.targets.values())


class HashEdge(Edge):
    """Each row goes to the target that owns the vnode of its key, at column indices `key`, by `rule`. An update whose
    halves have different targets is split into a delete and an insert [R7]. The parts share the columns of the chunk
    and differ in visibility.

    `table_id`: the table whose rows these are, if an ALTER can move its columns; then `column_ids` are the ids of the
    key columns."""

    def __init__(
        self,
        targets: Mapping[int, Channel],
        key: Iterable[int],
        vnode_map: VnodeMap,
        rule: VnodeRule = VnodeRule.HASH,
        table_id: int | None = None,
        column_ids: tuple[int, ...] = (),
    ) -> None:
        super().__init__(targets)
        self._key = tuple(key)
        self._vnode_map = vnode_map
        self._rule = rule
        self._table_id = table_id
        self._column_ids = column_ids

    def parts(self, chunk: Changes) -> Iterator[tuple[Channel, Changes]]:
        if len(self.targets) == 1:
            yield next(iter(self.targets.values())), chunk
            return
        for actor_id, part in chunk.split_by_vnode(self._key, self._vnode_map, self._rule).items():
            yield self.targets[actor_id], part

    @property
    def queue_rows(self) -> int:
        return sum(channel.limit_rows for channel in self.targets.values())

    def follow(self, barrier: Barrier) -> None:
        altered = None if self._table_id is None else barrier.altered(self._table_id)
        if altered is not None:
            self._key = tuple(map(altered.column_ids.index, self._column_ids))


class Outputs:
    """The edges of actor `actor_id`, and its outbox. Used by that actor only."""

    def __init__(self, actor_id: int, edges: Mapping[EdgeId, Edge] | None = None) -> None:
        self._actor_id = actor_id
        self._edges = dict(edges or {})
        self._outbox: deque[tuple[Channel, Message]] = deque()
        self.sent_rows = 0
        """Changes so far, whatever the number of edges."""

    @property
    def queue_rows(self) -> float:
        """Rows of a chunk that all receivers may queue at present; infinite without any."""
        return min((edge.queue_rows for edge in self._edges.values() if edge.targets), default=math.inf)

    @property
    def has_queue(self) -> bool:
        """Whether a receiver has yet to take something that was sent."""
        return any(channel.waiting_rows for edge in self._edges.values() for channel in edge.targets.values())

    @property
    def targets(self) -> tuple[int, ...]:
        """The current receivers, edge by edge in the order in which they were added."""
        return tuple(target for edge in self._edges.values() for target in edge.targets)

    def dispatch(self, chunk: Changes) -> bool:
        """Send the chunk, or its parts. Whether all was sent; the rest is in the outbox. ChannelClosed if a receiver
        has ended. REQUIRES an empty outbox."""
        self.sent_rows += chunk.visible_rows
        for edge in self._edges.values():
            for channel, part in edge.parts(chunk):
                if not channel.try_send(part):
                    self._outbox.append((channel, part))
        return not self._outbox

    def flush(self) -> bool:
        """Send what is in the outbox; whether it is empty."""
        for _ in range(len(self._outbox)):
            channel, message = self._outbox.popleft()
            if not channel.try_send(message):
                self._outbox.append((channel, message))
        return not self._outbox

    def broadcast(self, message: Barrier | Watermark) -> None:
        """Send to every target. The mutation of a barrier is applied: additions before, removals after."""
        mutation = message.mutation if isinstance(message, Barrier) else None
        if isinstance(mutation, Add):
            for edge_id, edge in mutation.outputs.get(self._actor_id, ()):
                assert isinstance(edge, Edge)
                self._edges[edge_id] = edge
        for edge in self._edges.values():
            for channel in edge.targets.values():
                channel.try_send(message)
        if isinstance(message, Barrier):
            for edge in self._edges.values():
                edge.follow(message)
            self._remove(message.stopped)

    def _remove(self, actors: frozenset[int]) -> None:
        """An edge ends with all of its targets: the actors of a fragment end together."""
        self._edges = {edge_id: edge for edge_id, edge in self._edges.items() if actors.isdisjoint(edge.targets)}
