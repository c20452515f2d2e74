"""Executor: one operator of a streaming plan, a generator of messages, and what the operators share.

The contract of every executor, checked by `tests/support/suites/executor_suite.py`: the first message is a barrier;
between two barriers state changes only in memory; at a barrier the state tables are committed at its epoch and then
the barrier is passed on; per stream key the emitted changes alternate insert, delete, insert ...; a U- immediately
precedes its U+ and has the same stream key. An executor is used by one thread at a time and waits for nothing but the
state store: if its input has no message it yields a Wait, which every other executor passes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relational.chunk import Op, StreamChunk
from stream.errors import ChannelClosed, InconsistentStream
from stream.message import WAIT, Barrier, Message, Receiving, Wait
from stream.runtime.channel import Channel

if TYPE_CHECKING:
    from relational.memory_use import MemoryUse
    from relational.table.state_table import StateTable
    from relational.types.schema import Schema

CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What flows out of an executor: its columns, those that identify a row (None: a bag), its name."""

    schema: Schema
    stream_key: tuple[int, ...] | None
    identity: str


class Executor(ABC):
    """One operator. `execute()` is called once; its first message is a barrier."""

    info: ExecutorInfo

    @abstractmethod
    def execute(self) -> Iterator[Message]:
        """Messages in order, until the input ends."""

    def memory(self) -> Sequence[tuple[str, MemoryUse]]:
        """What each of its states takes in memory, by name; the same states at any time. From any thread, while the
        executor runs: figures of one state may then be of different moments."""
        return ()


def first_barrier(messages: Iterator[Message], identity: str) -> Generator[Wait, None, Barrier]:
    """Returns the barrier that a stream begins with, after yielding the Waits before it; InconsistentStream if it
    begins with anything else."""
    for message in messages:
        if isinstance(message, Barrier):
            return message
        if not isinstance(message, Wait):
            raise InconsistentStream(identity, f"must begin with a barrier, got {type(message).__name__}")
        yield message
    raise InconsistentStream(identity, "must begin with a barrier, got nothing")


def received(channel: Channel) -> Iterator[Message]:
    """The messages of `channel` until its sender closes it; ChannelClosed if it was closed with an error."""
    while True:
        try:
            message = channel.try_recv()
        except ChannelClosed as closed:
            if closed.__cause__ is not None:
                raise
            return
        yield WAIT if message is None else message


def next_of(channel: Receiving) -> Message | None:
    """The next message; None if there is none now, or no further one; ChannelClosed if it was closed with an error."""
    try:
        return channel.try_recv()
    except ChannelClosed as closed:
        if closed.__cause__ is not None:
            raise
        return None


def aligned(before: Barrier | None, barrier: Barrier, identity: str) -> Barrier:
    """The barrier of another channel of executor `identity`, after `before` of those that delivered it already.
    InconsistentStream if it is another one."""
    if before is not None and before.epoch != barrier.epoch:
        raise InconsistentStream(identity, f"barrier {barrier.epoch} beside {before.epoch}")
    return barrier


def store_rows(table: StateTable, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Writes the rows (key, value) of `wanted` to a table that has those of `stored`, where they differ."""
    for key in stored.keys() - wanted.keys():
        table.delete_row((key, stored[key]))
    for key, value in wanted.items():
        if key not in stored:
            table.insert_row((key, value))
        elif stored[key] != value:
            table.update_row((key, stored[key]), (key, value))


def slices(chunk: StreamChunk, rows: int) -> Iterator[StreamChunk]:
    """`chunk` in slices of at most `rows` rows (at least two) and about CHUNK_BYTES, small enough for a channel's
    permits. No update pair is split; the values are shared."""
    size = chunk.nbytes
    if size > CHUNK_BYTES:
        rows = max(2, min(rows, chunk.capacity * CHUNK_BYTES // size))
    start = 0
    while start < chunk.capacity:
        end = min(start + rows, chunk.capacity)
        if end < chunk.capacity and chunk.ops[end - 1] == Op.UPDATE_DELETE:
            end -= 1
        yield chunk if end - start == chunk.capacity else chunk.slice(start, end - start)
        start = end
