"""Channel: a bounded queue of messages from one sender to one receiver.

Channels are the only point where a thread of this package waits for another. Chunks and statements cost as many permits
as they have rows and wait while the receiver is behind: this is the only backpressure. Barriers and watermarks cost no
permits, so a checkpoint is never blocked behind data that is not consumed; the order of all messages is kept. Messages
that a recovery sends again are free too: they are in memory anyway, and a recovery waits for no actor. A message larger
than all permits is sent alone, when no other row is queued. A close with an error takes effect at both ends at once; a
close without one lets the receiver drain the queue first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from stream.errors import ChannelClosed
from stream.message import STATEMENTS, Barrier, InsertRows, Message, Replayed, Watermark
from stream.runtime.run_slots import RunSlots, unlimited


def rows_of(message: Message) -> int:
    """Permits that a message costs: rows of a chunk, including hidden ones, which occupy memory too."""
    if isinstance(message, (Barrier, Watermark)):
        return 0
    if isinstance(message, InsertRows):
        return message.chunk.capacity
    if isinstance(message, Replayed):
        return message.evaluation.rows
    if isinstance(message, STATEMENTS):
        return 1
    return message.capacity


class Channel:
    """Invariant: rows queued <= permits_rows, or exactly one message with rows is queued. A thread that waits here
    releases its slot of `run_slots` meanwhile."""

    def __init__(self, permits_rows: int, name: str = "channel", run_slots: RunSlots | None = None) -> None:
        self.name = name
        self._permits_rows = permits_rows
        self._queue: deque[tuple[Message, int]] = deque()
        self._rows = 0
        self._last_barrier: Barrier | None = None
        self._closed = False
        self._error: BaseException | None = None
        lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._lock = lock
        self._parked = unlimited if run_slots is None else run_slots.parked
        self._watchers: list[threading.Event] = []

    def send(self, message: Message, timeout: float | None = None, *, free: bool = False) -> Barrier | None:
        """Append `message`, after waiting for permits unless it is `free`. Returns the last barrier sent before it,
        whose curr is the epoch of the message. ChannelClosed; TimeoutError after `timeout` seconds."""
        rows = 0 if free else rows_of(message)
        while True:
            with self._lock:
                if self._fits(rows):
                    return self._put(message, rows)
            self._wait(self._writable, lambda: self._fits(rows), timeout)

    def recv(self, timeout: float | None = None) -> Message:
        """Wait for the next message. ChannelClosed after a close, with the error of the close, if any, as the cause;
        TimeoutError after `timeout` seconds."""
        while True:
            with self._lock:
                if self._is_ready():
                    return self._take()
            self._wait(self._readable, self._is_ready, timeout)

    def try_recv(self) -> Message | None:
        """The next message, or None if the queue is empty. ChannelClosed as in recv."""
        with self._lock:
            return self._take() if self._is_ready() else None

    def close(self, error: BaseException | None = None) -> None:
        """Close both ends: with an error at once, without one after the queue is empty. Idempotent; the first error is
        kept."""
        with self._lock:
            self._closed = True
            if error is not None and self._error is None:
                self._error = error
                self._queue.clear()
                self._rows = 0
            self._readable.notify_all()
            self._writable.notify_all()
            self._wake_watchers()

    @property
    def waiting_rows(self) -> int:
        """Rows in the queue."""
        return self._rows

    @property
    def waiting_messages(self) -> int:
        """Messages in the queue."""
        return len(self._queue)

    def _wait(self, condition: threading.Condition, ready: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `ready()`, without a run slot; TimeoutError after `timeout` seconds. The slot is acquired again
        after the lock is released: a thread that holds a slot may wait for the lock."""
        with self._parked(), self._lock:
            if not condition.wait_for(ready, timeout):
                raise TimeoutError(f"{self.name}: nothing moved in {timeout} s")

    def _put(self, message: Message, rows: int) -> Barrier | None:
        if self._closed:
            raise self._closed_error()
        before = self._last_barrier
        if isinstance(message, Barrier):
            self._last_barrier = message
        self._queue.append((message, rows))
        self._rows += rows
        self._readable.notify()
        self._wake_watchers()
        return before

    def _fits(self, rows: int) -> bool:
        return self._closed or not rows or not self._rows or self._rows + rows <= self._permits_rows

    def _is_ready(self) -> bool:
        return bool(self._queue) or self._closed

    def _take(self) -> Message:
        if not self._queue:
            raise self._closed_error()
        message, rows = self._queue.popleft()
        self._rows -= rows
        if rows:
            self._writable.notify_all()
        return message

    def _closed_error(self) -> ChannelClosed:
        error = ChannelClosed(f"{self.name} is closed")
        error.__cause__ = self._error
        return error

    def _wake_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    def _watch(self, event: threading.Event) -> None:
        with self._lock:
            self._watchers.append(event)
            if self._is_ready():
                event.set()

    def _unwatch(self, event: threading.Event) -> None:
        with self._lock:
            self._watchers.remove(event)


def select(channels: Sequence[Channel], timeout: float | None = None) -> int | None:
    """Index of the first channel, in the order given, whose recv() would not wait; None after `timeout` seconds. A
    closed channel counts as ready. REQUIRES that the caller is the only receiver of all channels."""
    for index, channel in enumerate(channels):
        if channel._is_ready():
            return index
    deadline = None if timeout is None else time.monotonic() + timeout
    event = threading.Event()
    for channel in channels:
        channel._watch(event)
    try:
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            with channels[0]._parked():
                event.wait(left)
            event.clear()
            for index, channel in enumerate(channels):
                if channel._is_ready():
                    return index
    finally:
        for channel in channels:
            channel._unwatch(event)
