"""Dispatcher: hands an actor's messages to the actors after it.

A barrier goes to every output before any later chunk does, and outputs change only with a barrier: a new one
receives the barrier that adds it as its first message, a removed one receives the barrier that stops it as
its last. So every actor sees an unbroken run of epochs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stream.message import Add, Barrier, Stop, Watermark
from stream.runtime.channel import Channel

if TYPE_CHECKING:
    from relational.chunk.stream_chunk import StreamChunk
    from relational.chunk.vnode_map import VnodeMap


@dataclass(frozen=True, slots=True)
class Output:
    """Where an actor sends: the receiving actor and the channel that leads there."""

    actor_id: int
    channel: Channel


class Dispatcher(ABC):
    """Sends what actor `actor_id` produces. One thread, the actor's, uses it."""

    def __init__(self, actor_id: int, outputs: Iterable[Output] = ()) -> None:
        self._actor_id = actor_id
        self._outputs = {output.actor_id: output.channel for output in outputs}

    @property
    def targets(self) -> tuple[int, ...]:
        """Actors that receive now, in the order they were added."""
        return tuple(self._outputs)

    @abstractmethod
    def dispatch(self, chunk: StreamChunk) -> None:
        """Send the chunk, or its parts. Waits for permits; ChannelClosed when a receiver is gone."""

    def broadcast(self, message: Barrier | Watermark) -> None:
        """Send to every output, applying the mutation of a barrier: additions before, removals after."""
        mutation = message.mutation if isinstance(message, Barrier) else None
        if isinstance(mutation, Add):
            for output in mutation.outputs.get(self._actor_id, ()):
                assert isinstance(output, Output)
                self._outputs[output.actor_id] = output.channel
        for channel in self._outputs.values():
            channel.send(message)
        if isinstance(mutation, Stop):
            for actor_id in mutation.actors & self._outputs.keys():
                del self._outputs[actor_id]


class BroadcastDispatcher(Dispatcher):
    """Every output receives every chunk. With no output, chunks end here."""

    def dispatch(self, chunk: StreamChunk) -> None:
        for channel in self._outputs.values():
            channel.send(chunk)


class HashDispatcher(Dispatcher):
    """A row goes to the one output that owns the vnode of its key. An update whose halves part becomes a
    delete and an insert [R7], done where the chunk is split."""

    def __init__(self, actor_id: int, outputs: Iterable[Output], key_columns: Sequence[int],
                 vnode_map: VnodeMap) -> None:
        super().__init__(actor_id, outputs)
        self._key_columns = tuple(key_columns)
        self._vnode_map = vnode_map

    def dispatch(self, chunk: StreamChunk) -> None:
        for actor_id, part in chunk.split_by_vnode(self._key_columns, self._vnode_map).items():
            self._outputs[actor_id].send(part)
