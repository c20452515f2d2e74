"""ChunkSize: how many rows a source reads at a time.

As many as its actor reads and processes in a few milliseconds of CPU time, and as take CHUNK_BYTES at most: a longer
chunk costs less per row, a shorter one delays barriers less. Where the source waits until slower actors have room for a
chunk, it is as many as they process in a twentieth of a second. No more, about, than they may queue at present: a chunk
for which there is no room yet is one more that a barrier behind it waits for. Before a barrier is due each chunk takes
a part of the time that is left, until there is room for the next one, so that the barrier waits neither for the rest of
a long chunk, nor for what the actors below have not processed: a source that reads fast would fill their channels till
the end.
"""

from __future__ import annotations

import math
from typing import Protocol

from stream.executor.base import CHUNK_BYTES
from stream.runtime.barrier_forecast import BarrierForecast

SHORT_SECONDS, LONG_SECONDS = 0.02, 0.08
"""CPU time of the actor per chunk: chunks grow below the first, and shrink above the second."""
SLOW_SECONDS = 0.05
"""Between two chunks, all in all: chunks shrink above it, and do not grow above half of it ..."""
SLOW_CHUNKS = 4
"""... but not below so many times the least number of rows: many actors on few cores are slow whatever the size."""
REMEMBERED = 0.7
"""Weight of the chunks before, relative to the last one, in the time of a row and in what it becomes. One chunk alone
tells little: it may be sent at once, and the next one wait for both."""


class Receivers(Protocol):
    """The actors that receive what the source's actor sends."""

    sent_rows: int
    """So far."""

    @property
    def queue_rows(self) -> float:
        """That they may queue at present."""
        ...

    @property
    def has_queue(self) -> bool:
        """Whether one of them has yet to take something."""
        ...


class ChunkSize:
    """Between `least` and `most` rows, beginning with `least`. `receivers` None: nobody receives them."""

    def __init__(
        self, least: int, most: int, forecast: BarrierForecast, receivers: Receivers | None = None
    ) -> None:
        self._least, self._most = min(least, most), most
        self._receivers = receivers
        self._rows = self._seconds = 0.0  # of the last chunks, until there was room for the next one
        self._sent_rows = 0.0  # of the same
        self._sent_before = 0
        self._whole = self._least  # rows of a chunk when no barrier is due
        self._forecast = forecast
        self._row_bytes = 0.0  # of the last chunk

    @property
    def rows(self) -> int:
        """Of the next chunk."""
        rows = self._whole
        if rows * self._row_bytes > CHUNK_BYTES:
            rows = max(int(CHUNK_BYTES / self._row_bytes), 1)
        rows = min(rows, max(self._least, self._queue_rows))
        seconds = self._forecast.work_seconds
        row_seconds = self._seconds / self._rows if self._rows else 0.0
        if rows * row_seconds <= seconds:
            return rows
        return min(rows, max(self._least, round(seconds / row_seconds)))

    def note_chunk(self, rows: int, cpu_seconds: float, size: int, seconds: float = 0.0) -> None:
        """The actor took `cpu_seconds` for a chunk of `rows` rows, at least one, and `size` bytes; the next one could
        be read after `seconds`."""
        self._row_bytes = size / rows
        self._rows = REMEMBERED * self._rows + rows
        self._seconds = REMEMBERED * self._seconds + max(cpu_seconds, seconds)
        self._note_sent()
        if 2 * rows > self._whole and cpu_seconds < SHORT_SECONDS and seconds < SLOW_SECONDS / 2:
            self._whole = min(2 * self._whole, self._most)
        elif cpu_seconds > LONG_SECONDS:
            self._whole = max(self._whole // 2, self._least)
        elif seconds > SLOW_SECONDS:
            self._whole = min(self._whole, max(self._whole // 2, SLOW_CHUNKS * self._least))

    @property
    def _queue_rows(self) -> int:
        """Rows to read that become as many as the receivers may queue."""
        queue_rows = math.inf if self._receivers is None else self._receivers.queue_rows
        if queue_rows == math.inf or not self._sent_rows:
            return self._most
        return min(int(queue_rows * self._rows / self._sent_rows), self._most)

    def _note_sent(self) -> None:
        """What follows from a chunk was sent."""
        if self._receivers is not None:
            sent = self._receivers.sent_rows
            self._sent_rows = REMEMBERED * self._sent_rows + sent - self._sent_before
            self._sent_before = sent
