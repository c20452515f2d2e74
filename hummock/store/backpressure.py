"""Backpressure: how long a writer waits before its bytes enter the shared buffer, and which writer enters first.

There are two delays, both pure functions, smooth and bounded. The first depends on how full the shared buffer is. Below
`EASY_SHARE` of the limit it is 0. Above it, each byte costs a growing multiple of the time in which uploads drain a
byte: 1 halfway between there and the limit, so that a steady stream settles there at about the pace of the uploads, and
ever more towards the limit, which writers approach but do not reach. The second depends on how much deeper level 0 is
than compaction keeps it. Up to a debt that compaction is expected to have it is 0; from there the wait for each byte
grows with the square of the debt, so that writers settle at the rate that compaction sustains, and are never stopped.

Each writer waits for its own bytes. Writers that find the buffer full enter in the order of their arrival.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from hummock.base.logs import Event
from hummock.epoch import monotonic_seconds
from hummock.errors import SharedBufferFull
from hummock.metrics import Metrics
from hummock.options import MIB, CompactionOptions
from hummock.shared_buffer.buffer import SharedBuffer
from hummock.version import HummockVersion

LONGEST_SECONDS = 1.0                   # of one delay; a batch that finds the buffer full waits for space in addition
EASY_SHARE = 0.5                        # of the buffer's limit
SLOWEST_BYTES_PER_SECOND = 4 * MIB      # the rate at the limit of level 0 and beyond
BYTES_SLOWDOWN, BYTES_LIMIT = 1.5, 3    # of `l0_most_bytes` in level 0: where the delay begins, and its maximum
LOGGED_SECONDS = 60.0                   # at most one record of each reason in so long
log = logging.getLogger(__name__)


def buffer_delay_seconds(held_bytes: int, limit_bytes: int, size_bytes: int, drain_bytes_per_second: float) -> float:
    """Delay of a batch of `size_bytes` before it enters a buffer that holds `held_bytes`.

    0 while the speed of uploads is unknown (`drain_bytes_per_second` is 0).
    """
    filled = held_bytes / limit_bytes
    if filled <= EASY_SHARE or drain_bytes_per_second <= 0:
        return 0.0
    over = (filled - EASY_SHARE) / (1 - EASY_SHARE)
    if over >= 1:
        return LONGEST_SECONDS
    return min(size_bytes / drain_bytes_per_second * over / (1 - over), LONGEST_SECONDS)


def level0_delay_seconds(version: HummockVersion, options: CompactionOptions, size_bytes: int) -> float:
    """Delay before so many bytes are accepted."""
    share = debt_share(len(version.levels[0].runs), version.levels[0].data_bytes, options)
    return min(LONGEST_SECONDS, share * share * size_bytes / SLOWEST_BYTES_PER_SECOND)


def debt_share(runs: int, data_bytes: int, options: CompactionOptions) -> float:
    """0 where writers are not delayed, 1 where they are delayed most; the worse of runs and bytes."""
    by_runs = (runs - options.l0_runs_slowdown) / (options.l0_runs_limit - options.l0_runs_slowdown)
    slowdown_bytes = BYTES_SLOWDOWN * options.l0_most_bytes
    by_bytes = (data_bytes - slowdown_bytes) / (BYTES_LIMIT * options.l0_most_bytes - slowdown_bytes)
    return min(1.0, max(0.0, by_runs, by_bytes))


class DrainRate:
    """Bytes of batches that uploads drain per second: an exponential moving average."""

    WEIGHT = 0.3  # of the newest upload

    def __init__(self) -> None:
        self.bytes_per_second = 0.0

    def note(self, size_bytes: int, seconds: float) -> None:
        if seconds <= 0:
            return
        seen = size_bytes / seconds
        known = self.bytes_per_second
        self.bytes_per_second = seen if known == 0 else known + self.WEIGHT * (seen - known)


class QueueTicket:
    """A writer's position in the queue for space."""

    __slots__ = ("is_taken",)

    def __init__(self) -> None:
        self.is_taken = False


class WriterGate:
    """Delays writers, and admits them to the shared buffer in order. Every method REQUIRES the lock of `changed`.

    `compaction` describes the shape of the tree whose debt delays writers; None: no delay by level 0.
    """

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
        self._writers: deque[QueueTicket] = deque()  # in order of arrival
        self._logged_at: dict[str, float] = {}  # by reason
        self.is_open_to_all = False  # no writer waits any more

    @property
    def writers_waiting(self) -> int:
        return len(self._writers)

    def slow_down(self, size: int) -> None:
        """Waits as long as `size` bytes must wait now, less if the reason disappears; releases the lock meanwhile."""
        self.wait_for_level0(size)
        self._wait("buffer", self._buffer_delay, size)

    def wait_for_level0(self, size: int) -> None:
        """As `slow_down`, for bytes that bypass the buffer."""
        self._wait("level 0", self._level0_delay, size)

    def may_enter(self, ticket: QueueTicket, size: int, is_local: bool) -> bool:
        """Whether a writer may add now; otherwise its ticket is queued."""
        has_room = self._buffer.has_room(size, is_local)
        if is_local:
            if not has_room:  # only a commit frees local rows
                raise SharedBufferFull(self._buffer.local_bytes, self._buffer.limit_bytes)
            return True
        if not ticket.is_taken:
            if has_room and not self._writers:
                return True
            self._writers.append(ticket)
            ticket.is_taken = True
        return has_room and self._writers[0] is ticket

    def leave(self, ticket: QueueTicket) -> None:
        """Removes the ticket from the queue, whether the writer entered or not."""
        self._writers.remove(ticket)
        self._changed.notify_all()

    def _wait(self, reason: str, delay: Callable[[int], float], size: int) -> None:
        seconds = delay(size)
        if seconds > 0:
            self._metrics.writer_delay_seconds.labels(reason).inc(seconds)
            self._log(reason, seconds)
            self._changed.wait_for(lambda: self.is_open_to_all or delay(size) == 0, seconds)

    def _log(self, reason: str, seconds: float) -> None:
        now = monotonic_seconds()
        if now - self._logged_at.get(reason, -LOGGED_SECONDS) >= LOGGED_SECONDS:
            self._logged_at[reason] = now
            log.info(Event("writers delayed", by=reason, seconds=seconds, buffered=self._buffer.waiting_bytes,
                           runs=len(self._version().levels[0].runs)))

    def _level0_delay(self, size: int) -> float:
        return 0.0 if self._compaction is None else level0_delay_seconds(self._version(), self._compaction, size)

    def _buffer_delay(self, size: int) -> float:
        if not self._buffer.running_tasks:  # waiting would not free space
            return 0.0
        held = self._buffer.waiting_bytes
        return buffer_delay_seconds(held, self._buffer.limit_bytes, size, self._rate.bytes_per_second)
