"""Delivery of committed changes to the outside: one thread per sink, none of which is an actor [R27].

After each commit the threads read the closed batches of their sinks' logs, in order, and pass them to the targets. A
target that hangs or fails keeps its own thread only: commits, actors and other sinks go on, and the log grows, up to
its limit. What was delivered is noted in the `SinkProgress` of the sink, which outlives its actors; the next actor that
passes a barrier deletes it from the log, and after the death of the process what was not deleted is delivered again
[R36]. A sink that was set aside is delivered nevertheless: its log is committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hummock.base.logs import Event
from hummock.epoch import to_unix_ms, wall_clock_ms
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import shortened
from stream.connector.sink import SinkIdentity, SinkTarget, open_target
from stream.connector.sink_log import LogBatch, LogReader, SinkProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from hummock.epoch import Epoch
    from hummock.state_store import StateStore
    from relational.catalog.manager import CatalogManager

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 1.0
JOIN_SECONDS = 5.0
"""How long closing waits for a target that is in use."""
REASON_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """How far a sink is behind. `rows`, `bytes`: committed in closed batches and not delivered; `behind_ms`: the age of
    the oldest of them, 0 without any; `delivered_epoch`: of the last delivery of this process, 0 before the first;
    `error`: of the last attempt, if it failed; `is_full`: sources wait for the log."""

    rows: int = 0
    bytes: int = 0
    behind_ms: int = 0
    delivered_epoch: int = 0
    error: str | None = None
    is_full: bool = False


class _Stopped(Exception):
    """The delivery ends, in the middle of a batch or not."""


class SinkDelivery:
    """The delivering thread of one sink. Thread safe."""

    def __init__(
        self,
        name: str,
        progress: SinkProgress,
        reader: LogReader,
        open_sink: Callable[[], SinkTarget],
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.name, self.progress = name, progress
        self._reader, self._open_sink, self._clock_ms = reader, open_sink, clock_ms
        self._target: SinkTarget | None = None
        self._changed = threading.Condition()
        self._is_notified = self._is_stopping = self._is_busy = False
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        """There may be more that is committed."""
        with self._changed:
            self._is_notified = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask the thread to end; `join` waits for it."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until everything that was committed before is delivered; False if that takes longer, or failed."""
        self.notify()
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle or self._error is not None or self._is_stopping, seconds)
            return self._is_idle

    def status(self) -> DeliveryStatus:
        """As of the last commit."""
        waiting = self._reader.closed(self.progress.delivered)
        return DeliveryStatus(
            sum(batch.rows for batch in waiting),
            sum(batch.bytes for batch in waiting),
            max(0, self._clock_ms() - to_unix_ms(waiting[0].epoch)) if waiting else 0,
            self.progress.delivered,
            self._error,
            self.progress.is_full,
        )

    @property
    def _is_idle(self) -> bool:
        return not self._is_notified and not self._is_busy

    def _run(self) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        while self._awaits_work():
            try:
                self._deliver()
            except _Stopped:
                break
            except Exception as error:  # of a target, of any type, or of the store, which is retried as well
                self._failed(error)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, retry_seconds)
                    self._is_notified = True
                retry_seconds = min(2 * retry_seconds, LAST_RETRY_SECONDS)
            else:
                retry_seconds = FIRST_RETRY_SECONDS
                self._error = None
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
        self._close_target()

    def _awaits_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_notified or self._is_stopping)
            self._is_notified, self._is_busy = False, True
            return not self._is_stopping

    def _deliver(self) -> None:
        for batch in self._reader.closed(self.progress.delivered):
            self._check_running()
            if self._target is None:
                self._target = self._open_sink()
            self._target.deliver(batch.epoch, self._changes(batch))
            self.progress.delivered = batch.epoch
            self._error = None

    def _changes(self, batch: LogBatch) -> Iterator[pa.RecordBatch]:
        for changes in self._reader.changes(batch):
            self._check_running()
            yield changes

    def _check_running(self) -> None:
        if self._is_stopping:
            raise _Stopped

    def _failed(self, error: Exception) -> None:
        """The target is opened anew for the next attempt."""
        reason = shortened(f"{type(error).__name__}: {error}", REASON_BYTES)
        if reason != self._error and not self._is_stopping:
            log.warning(Event("sink not delivered", sink=self.name, reason=reason))
        self._error = reason
        self._close_target()

    def _close_target(self) -> None:
        if self._target is not None:
            target, self._target = self._target, None
            try:
                target.close()
            except Exception as error:
                log.warning(Event("sink target does not close", sink=self.name, error=error))


class SinkDeliveries:
    """The delivering threads of all sinks that have logs. Thread safe. `pin()`: as in LogReader."""

    def __init__(
        self, catalog: CatalogManager, store: StateStore, pin: Callable[[], AbstractContextManager[Epoch]]
    ) -> None:
        self._catalog, self._store, self._pin = catalog, store, pin
        self._lock = threading.Lock()
        self._progress: dict[int, SinkProgress] = {}  # by job
        self._running: dict[int, SinkDelivery] = {}
        self._known_version = -1  # of the catalog
        self._is_closed = False

    def progress(self, job_id: int) -> SinkProgress:
        """What the actor of a sink shares with its delivering thread."""
        with self._lock:
            return self._progress.setdefault(job_id, SinkProgress())

    def committed(self) -> None:
        """An epoch was committed. Called by the thread that commits: starts threads, wakes them, waits for nothing."""
        with self._lock:
            if self._is_closed:
                return
            if self._catalog.version != self._known_version:
                self._known_version = self._catalog.version
                self._follow_catalog()
            for delivery in self._running.values():
                delivery.notify()

    def status(self) -> Mapping[int, DeliveryStatus]:
        """By job, of sinks that have logs."""
        with self._lock:
            running = dict(self._running)
        return {job_id: delivery.status() for job_id, delivery in running.items()}

    def drain(self, seconds: float) -> bool:
        """Wait until everything that was committed before is delivered, at most so long; whether anything was delivered
        that the logs do not know yet."""
        with self._lock:
            running = list(self._running.values())
        deadline = time.monotonic() + seconds
        for delivery in running:
            delivery.wait_idle(max(0.0, deadline - time.monotonic()))
        return any(delivery.progress.delivered for delivery in running)

    def close(self) -> None:
        """End all threads; a target that does not return in JOIN_SECONDS keeps its thread, which does nothing more."""
        with self._lock:
            self._is_closed = True
            running = list(self._running.values())
        for delivery in running:
            delivery.stop()
        deadline = time.monotonic() + JOIN_SECONDS
        for delivery in running:
            if not delivery.join(max(0.0, deadline - time.monotonic())):
                log.warning(Event("sink target does not return", sink=delivery.name))

    def _follow_catalog(self) -> None:
        """One thread for each sink of the catalog that has a log. REQUIRES the lock."""
        known = self._catalog.snapshot
        sinks = {table.id: table for table in known.jobs() if table.kind is TableKind.SINK}
        for job_id in self._running.keys() - sinks.keys():
            self._running.pop(job_id).stop()
            self._progress.pop(job_id, None)
        for job_id in sinks.keys() - self._running.keys():
            tables = {table.name: table for table in known.internal_tables(job_id)}
            sink = sinks[job_id]
            if f"{sink.name}.log" in tables:
                self._running[job_id] = self._started(sink, tables)

    def _started(self, sink: TableCatalog, tables: Mapping[str, TableCatalog]) -> SinkDelivery:
        options, identity = sink.sink or {}, SinkIdentity(sink.name, sink.id)
        progress = self._progress.setdefault(sink.id, SinkProgress())
        reader = LogReader(tables[f"{sink.name}.log"], tables[f"{sink.name}.batches"], self._store, self._pin)
        delivery = SinkDelivery(sink.name, progress, reader, lambda: open_target(options, identity))
        delivery.start()
        return delivery
