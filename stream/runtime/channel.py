"""Channel: a bounded queue of messages from one sender to one receiver.

An actor never waits in a channel: `try_send` refuses a message for which there is no room, `try_recv` returns None when
nothing is queued, and the actor is parked until the other end wakes it. Only threads that are no actors, such as those
of sessions, may wait, in `send`.

Chunks and statements cost as many permits as they have visible rows, and their bytes: this is the only backpressure.
The receiver may allow fewer rows than there are permits. Barriers and watermarks cost no permits, so a checkpoint is
never blocked behind data that is not consumed; the order of all messages is kept. Messages that a recovery sends again
are free too: they are in memory anyway, and a recovery waits for no actor. So are the parts of a block, of which a
session sends one at a time: no barrier comes between them, and a barrier waits for no actor. A message larger than what
is allowed is sent alone, when no other row is queued. A close with an error takes effect at both ends at once; a close
without one lets the receiver drain the queue first.

A receiver is woken at once for a barrier and for many rows. A few rows linger in the queue [Kafka's term]: what a
receiver does once per chunk and once per wake-up is then done for many small chunks together. Nobody waits for them
before their barrier, which is behind them in the queue and wakes the receiver.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from hummock.epoch import Epoch
from relational.chunk import StreamChunk
from stream.errors import ChannelClosed
from stream.message import STATEMENTS, Barrier, Decision, InsertRows, Message, Proposed, Replayed, Wait, Watermark

PERMITS_BYTES = 64 << 20
"""Maximum bytes queued in one channel."""
LINGER_SECONDS = 0.02
"""How long a few rows wait at most: short compared to a barrier interval, so that what follows from them is not left to
its end."""
LINGER_ROWS = 256
LINGER_BYTES = 64 << 10
"""Beyond so many rows or bytes the queue does not linger."""


def _nobody(within: float = 0.0) -> None:
    """The other end waits for nothing, or is no actor."""


def cost_of(message: Message) -> tuple[int, int]:
    """(rows, bytes) of permits that a message costs."""
    if isinstance(message, (Barrier, Watermark, Wait, Proposed, Decision)):
        return 0, 0
    if isinstance(message, InsertRows):
        return message.chunk.visible_rows, message.chunk.nbytes
    if isinstance(message, Replayed):
        return message.evaluation.rows, message.evaluation.nbytes
    if isinstance(message, STATEMENTS):
        return 1, 0
    return message.visible_rows, message.nbytes


class Channel:
    """Invariant: the queued rows and bytes are within the permits, or exactly one message with rows is queued. The
    receiver changes `limit_rows` at any time: no further message is accepted that would exceed it.

    `on_readable(within)` is called, without a lock, after a message or a close arrived that the receiver has to see
    `within` so many seconds, 0: at once; `on_writable()` after room was made for a sender that was refused. Both are
    set by the actors at the two ends before they begin."""

    def __init__(self, permits_rows: int, name: str = "channel", permits_bytes: int = PERMITS_BYTES) -> None:
        self.name = name
        self.on_readable: Callable[[float], None] = _nobody
        self.on_writable: Callable[[], None] = _nobody
        self.limit_rows = permits_rows
        self._permits_rows = permits_rows
        self._permits_bytes = permits_bytes
        self._queue: deque[tuple[Message, int, int]] = deque()
        self._rows = self._bytes = 0
        self._is_refusing = False  # a sender was refused since room was last made
        self._lingers = False  # the receiver was not woken at once for what was sent last
        self._last_barrier: Barrier | None = None
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def try_send(self, message: Message) -> bool:
        """Append `message` if there is room for it; otherwise `on_writable` is called later. ChannelClosed."""
        rows, size = cost_of(message)
        with self._changed:
            is_sent = self._fits(rows, size)
            if is_sent:
                self._put(message, rows, size)
                self._lingers = rows > 0 and self._rows <= LINGER_ROWS and self._bytes <= LINGER_BYTES
                within = LINGER_SECONDS if self._lingers else 0.0
            else:
                self._is_refusing = True
                was_lingering, self._lingers = self._lingers, False
        if is_sent:
            self.on_readable(within)
        elif was_lingering:
            self.on_readable(0.0)
        return is_sent

    def send(self, message: Message, timeout: float | None = None, *, free: bool = False) -> Barrier | None:
        """Append `message`, after waiting for permits unless it is `free`. Returns the last barrier sent before it,
        whose curr is the epoch of the message. ChannelClosed; TimeoutError after `timeout` seconds. Not for actors."""
        rows, size = (0, 0) if free else cost_of(message)
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(rows, size), timeout):
                raise TimeoutError(f"{self.name}: no room in {timeout} s")
            before = self._put(message, rows, size)
        self.on_readable(0.0)
        return before

    def try_recv(self) -> Message | None:
        """The next message, or None if the queue is empty. ChannelClosed after a close, with the error of the close, if
        any, as the cause."""
        with self._changed:
            if not self._queue:
                if self._closed:
                    raise self._closed_error()
                return None
            message, was_refusing = self._take()
        if was_refusing:
            self.on_writable()
        return message

    def try_recv_chunks(self, rows: int, size: int) -> list[StreamChunk]:
        """The chunks at the head of the queue that have at most `rows` visible rows and `size` bytes together; none if
        another message is there."""
        taken: list[StreamChunk] = []
        was_refusing = False
        with self._changed:
            while self._queue and isinstance(self._queue[0][0], StreamChunk):
                chunk = self._queue[0][0]
                rows, size = rows - chunk.visible_rows, size - chunk.nbytes
                if rows < 0 or size < 0:
                    break
                was_refusing |= self._take()[1]
                taken.append(chunk)
        if was_refusing:
            self.on_writable()
        return taken

    def close(self, error: BaseException | None = None) -> None:
        """Close both ends: with an error at once, without one after the queue is empty. Idempotent; the first error is
        kept."""
        with self._changed:
            self._closed = True
            if error is not None and self._error is None:
                self._error = error
                self._queue.clear()
                self._rows = self._bytes = 0
            self._changed.notify_all()
        self.on_readable(0.0)
        self.on_writable()

    @property
    def is_drained(self) -> bool:
        """Whether it is closed and empty."""
        return self._closed and not self._queue

    @property
    def last_epoch(self) -> Epoch:
        """The epoch that the last barrier sent opens, 0 before the first. Takes no lock."""
        barrier = self._last_barrier
        return Epoch(0) if barrier is None else barrier.epoch.curr

    @property
    def waiting_rows(self) -> int:
        """Rows in the queue."""
        return self._rows

    @property
    def waiting_bytes(self) -> int:
        """Bytes in the queue."""
        return self._bytes

    @property
    def fill(self) -> float:
        """The share of its permits that is taken, by rows or by bytes; above 1 for one large message."""
        return max(self._rows / self._permits_rows, self._bytes / self._permits_bytes)

    def _take(self) -> tuple[Message, bool]:
        """The first message, and whether a sender was refused that may have room now. REQUIRES the lock and a
        message."""
        message, rows, size = self._queue.popleft()
        self._rows -= rows
        self._bytes -= size
        if not rows:
            return message, False
        self._changed.notify_all()
        was_refusing, self._is_refusing = self._is_refusing, False
        return message, was_refusing

    def _put(self, message: Message, rows: int, size: int) -> Barrier | None:
        if self._closed:
            raise self._closed_error()
        before = self._last_barrier
        if isinstance(message, Barrier):
            self._last_barrier = message
        self._queue.append((message, rows, size))
        self._rows += rows
        self._bytes += size
        return before

    def _fits(self, rows: int, size: int) -> bool:
        if self._closed or not rows or not self._rows:
            return True
        most = min(self.limit_rows, self._permits_rows)
        return self._rows + rows <= most and self._bytes + size <= self._permits_bytes

    def _closed_error(self) -> ChannelClosed:
        error = ChannelClosed(f"{self.name} is closed")
        error.__cause__ = self._error
        return error
