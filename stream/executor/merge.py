"""Merge: the messages of several upstream actors as one stream, aligned at barriers.

The channels are polled in turn, one message from each, until each has delivered the barrier; a channel that has
delivered it is not read again before the barrier was passed on. So all messages of an epoch precede its barrier,
whichever actor sent them, and no channel starves the others [R11, R24]. The order of messages from one actor is kept.

Before the barrier comes the watermark of each column in which one has arrived: the least of those of all channels. A
channel that has not delivered one yet holds it back [R29].

Chunks that a hash edge split share the columns of the whole chunk: where all of these are needed, they are compacted
here, on the receiver's CPU time, and joined with those that wait behind them in the channel, up to JOINED_SHARE chunks:
what a receiver does once per chunk should not multiply with the number of receivers. A few rows that have lingered in
the channel are joined in any case.

How many rows wait in the channels, and are joined, depends on the time that the executors above take for a row, and on
the time until the next barrier. Of states of groups the groups count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relational.chunk import StreamChunk
from stream.executor.base import CHUNK_BYTES, Executor, ExecutorInfo, aligned, next_of
from stream.message import PAUSE, WAIT, Barrier, GroupStates, Message, Watermark
from stream.runtime.barrier_forecast import BarrierForecast
from stream.runtime.channel import LINGER_BYTES, LINGER_ROWS, Channel
from stream.runtime.debloat import BufferDebloater

JOINED_SHARE = 2.25
"""Of the size of a chunk, up to which chunks are joined: four halves of whole chunks are rarely just two whole ones."""


class MergeExecutor(Executor):
    """The leaf of a chain whose rows other actors of this process send: the messages of `channels`, at least one.
    `chunk_rows`: chunks are compacted, and joined up to JOINED_SHARE times as many rows and CHUNK_BYTES; None: passed
    on as they are, unless they are small. `forecast`: of its barriers, None: they come at no known times."""

    def __init__(
        self,
        info: ExecutorInfo,
        channels: Sequence[Channel],
        chunk_rows: int | None,
        forecast: BarrierForecast | None = None,
    ) -> None:
        self.info = info
        self._channels = tuple(channels)
        self._forecast = BarrierForecast() if forecast is None else forecast
        self._debloater = BufferDebloater(self._channels, self._forecast)
        self._joined_rows = None if chunk_rows is None else int(chunk_rows * JOINED_SHARE)
        self._watermarks: dict[int, dict[Channel, Any]] = {}  # by column

    def execute(self) -> Iterator[Message]:
        unaligned = list(self._channels)
        barrier: Barrier | None = None
        moved: set[int] = set()  # columns in which a watermark has arrived since the last barrier
        while True:
            is_idle = True
            for channel in tuple(unaligned):
                message = next_of(channel)
                if message is None:
                    continue
                is_idle = False
                if isinstance(message, Barrier):
                    barrier = aligned(barrier, message, self.info.identity)
                    unaligned.remove(channel)
                elif isinstance(message, Watermark):
                    self._watermarks.setdefault(message.column, {})[channel] = message.value
                    moved.add(message.column)
                elif isinstance(message, (StreamChunk, GroupStates)):
                    rows = self._joined(message, channel) if isinstance(message, StreamChunk) else message
                    self._debloater.begin()
                    yield rows
                    self._debloater.end(rows.visible_rows)
                    yield PAUSE
                else:
                    yield message
            if not unaligned and barrier is not None:
                self._forecast.note_barrier(barrier.epoch.curr)
                yield from self._least(moved)
                yield barrier
                unaligned, barrier = list(self._channels), None
                moved.clear()
            elif is_idle:
                if self._is_ended(unaligned):
                    return
                yield WAIT

    def _joined(self, chunk: StreamChunk, channel: Channel) -> StreamChunk:
        """The chunk, with those that wait behind it, as far as they are processed in a short time."""
        if self._joined_rows is None:
            behind = channel.try_recv_chunks(LINGER_ROWS - chunk.visible_rows, LINGER_BYTES - chunk.nbytes)
            return StreamChunk.compacted([chunk, *behind]) if behind else chunk
        rest = min(self._joined_rows, self._debloater.limit_rows) - chunk.visible_rows, CHUNK_BYTES - chunk.nbytes
        return StreamChunk.compacted([chunk, *channel.try_recv_chunks(*rest)])

    def _least(self, columns: Iterable[int]) -> Iterator[Watermark]:
        """The watermarks of those columns in which all channels have one."""
        for column in sorted(columns):
            values = self._watermarks[column]
            if len(values) == len(self._channels):
                yield Watermark(column, min(values.values()))

    def _is_ended(self, unaligned: Sequence[Channel]) -> bool:
        """Whether a channel that would have to deliver a barrier was closed by its sender."""
        return any(channel.is_drained for channel in unaligned)
