"""Dispatcher: sends an actor's messages to the downstream actors.

A barrier is sent to every output before any later chunk, and outputs change only with a barrier: the barrier that adds
an output is its first message, the barrier that stops an output is its last. So every actor sees an unbroken sequence
of epochs."""

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
    """A receiving actor and the channel to it."""

    actor_id: int
    channel: Channel


class Dispatcher(ABC):
    """Sends the output of actor `actor_id`. Used by that actor's thread only."""

    def __init__(self, actor_id: int, outputs: Iterable[Output] = ()) -> None:
        self._actor_id = actor_id
        self._outputs = {output.actor_id: output.channel for output in outputs}

    @property
    def targets(self) -> tuple[int, ...]:
        """The current receivers, in the order they were added."""
        return tuple(self._outputs)

    @abstractmethod
    def dispatch(self, chunk: StreamChunk) -> None:
        """Send the chunk, or its parts. Waits for permits; ChannelClosed if a receiver has ended."""

    def broadcast(self, message: Barrier | Watermark) -> None:
        """Send to every output. The mutation of a barrier is applied: additions before, removals after."""
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
    """Sends every chunk to every output. Without outputs, chunks are dropped."""

    def dispatch(self, chunk: StreamChunk) -> None:
        for channel in self._outputs.values():
            channel.send(chunk)


class HashDispatcher(Dispatcher):
    """Sends each row to the output that owns the vnode of its key. An update whose halves have different outputs is
    split into a delete and an insert [R7], by `StreamChunk.split_by_vnode`."""

    def __init__(self, actor_id: int, outputs: Iterable[Output], key_columns: Sequence[int],
                 vnode_map: VnodeMap) -> None:
        super().__init__(actor_id, outputs)
        self._key_columns = tuple(key_columns)
        self._vnode_map = vnode_map

    def dispatch(self, chunk: StreamChunk) -> None:
        for actor_id, part in chunk.split_by_vnode(self._key_columns, self._vnode_map).items():
            self._outputs[actor_id].send(part)
