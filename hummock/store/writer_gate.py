"""WriterGate: when a writer may enter the shared buffer.

Writers are slowed down by degrees while the buffer fills or level 0 is deeper than compaction keeps it, whichever of
them writes: each waits for its own bytes. Those that find no room enter in the order in which they came.

Every method REQUIRES the lock of `changed`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from hummock.errors import SharedBufferFull
from hummock.metrics import Metrics
from hummock.options import CompactionOptions
from hummock.shared_buffer.buffer import SharedBuffer
from hummock.store import throttle
from hummock.store.backpressure import DrainRate, delay_seconds
from hummock.version import HummockVersion


class Place:
    """Of a writer among those that wait for room."""

    __slots__ = ("is_taken",)

    def __init__(self) -> None:
        self.is_taken = False


class WriterGate:
    """`compaction` is the shape of the tree whose debt slows writers down; None: of none."""

    def __init__(
        self,
        buffer: SharedBuffer,
        rate: DrainRate,
        metrics: Metrics,
        changed: threading.Condition,
        version: Callable[[], HummockVersion],
        compaction: CompactionOptions | None,
    ):
        self._buffer, self._rate, self._metrics, self._changed = buffer, rate, metrics, changed
        self._version, self._compaction = version, compaction
        self._writers: deque[Place] = deque()  # the first to come first
        self.is_open_to_all = False  # nobody is to wait any more

    @property
    def writers_waiting(self) -> int:
        return len(self._writers)

    def slow_down(self, size: int) -> None:
        """Waits as long as `size` bytes must wait now, less if the reason goes; others have the lock meanwhile."""
        self.wait_for_level0(size)
        self._wait("buffer", self._buffer_delay, size)

    def wait_for_level0(self, size: int) -> None:
        """As `slow_down`, for bytes that do not come through the buffer."""
        self._wait("level 0", self._level0_delay, size)

    def may_enter(self, place: Place, size: int, is_local: bool) -> bool:
        """Whether a writer may add now; else it has its place among those that wait."""
        has_room = self._buffer.has_room(size, is_local)
        if is_local:
            if not has_room:  # nothing but a commit takes local rows away
                raise SharedBufferFull(self._buffer.local_bytes, self._buffer.limit_bytes)
            return True
        if not place.is_taken:
            if has_room and not self._writers:
                return True
            self._writers.append(place)
            place.is_taken = True
        return has_room and self._writers[0] is place

    def leave(self, place: Place) -> None:
        """Gives a place up, with or without having entered."""
        self._writers.remove(place)
        self._changed.notify_all()

    def _wait(self, reason: str, delay: Callable[[int], float], size: int) -> None:
        seconds = delay(size)
        if seconds > 0:
            self._metrics.writer_delay_seconds.labels(reason).inc(seconds)
            self._changed.wait_for(lambda: self.is_open_to_all or delay(size) == 0, seconds)

    def _level0_delay(self, size: int) -> float:
        return 0.0 if self._compaction is None else throttle.delay_seconds(self._version(), self._compaction, size)

    def _buffer_delay(self, size: int) -> float:
        if not self._buffer.running_tasks:  # a wait would not make room
            return 0.0
        held = self._buffer.waiting_bytes
        return delay_seconds(held, self._buffer.limit_bytes, size, self._rate.bytes_per_second)
