"""WritePath: the path of a batch from `ingest` to the version that holds it.

Writers add to the shared buffer; syncs and flushes take upload tasks out of it and run a few of them concurrently,
while later epochs are written; commits are serialised in the order of their epochs. Writers are delayed gradually while
the buffer fills or level 0 grows, and those that find no space enter in order of arrival. A failed upload loses
nothing: its task keeps its position for the next sync or flush.
"""

from __future__ import annotations

import logging
import threading
from bisect import insort
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto

from hummock.base.key_watermark import KeyWatermark
from hummock.base.logs import Event
from hummock.base.table_rules import NO_RULES, Tables, check_tables, check_watermark
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch, monotonic_seconds
from hummock.errors import (
    Fenced,
    HummockError,
    InvalidEpoch,
    OutcomeUnknown,
    SharedBufferFull,
    StoreClosed,
    without_frames,
)
from hummock.meta.upload_registry import UploadRegistry
from hummock.metrics import Metrics
from hummock.options import INLINE_BYTES, CompactionOptions, StorageOptions
from hummock.shared_buffer.buffer import SharedBuffer, UploadTask
from hummock.shared_buffer.flush import Flusher, UploadCancelled
from hummock.sstable.info import SstableInfo
from hummock.sstable.inline import INLINE_TOTAL_BYTES
from hummock.state_store import SyncResult
from hummock.store.backpressure import EASY_SHARE, DrainRate, QueueTicket, WriterGate
from hummock.store.pending_watermarks import PendingWatermarks
from hummock.store.sync_forecast import SyncForecast
from hummock.version import HummockVersion

ROOM_WAIT_SECONDS = 30.0  # limit of a writer's wait for the shared buffer to drain
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 2.0  # between failing flushes; doubled each time
COMMIT_ATTEMPTS = 3  # for a commit with unknown outcome
log = logging.getLogger(__name__)

CommitFiles = Callable[[Epoch, tuple[SstableInfo, ...], Mapping[int, KeyWatermark]], object]


class WriteState(Enum):
    """What the next write meets; states only advance."""

    OPEN = auto()
    REFUSING = auto()       # it raises the recorded error: the store has no writer role, or a newer writer took it
    CLOSED = auto()


@dataclass(slots=True)
class FlushBackoff:
    """Consecutive failures of flushes, and the pause that they cause."""

    error: HummockError | None = None       # of the last flush; None if it succeeded
    failures: int = 0
    not_before: float = 0.0                 # monotonic seconds

    def note_failure(self) -> None:
        wait = min(FIRST_RETRY_SECONDS * 2**self.failures, LAST_RETRY_SECONDS)
        self.failures += 1
        self.not_before = monotonic_seconds() + wait


class WritePath:
    """`changed` is the store's lock; `show(run)` is called under it when the visible data changed.

    `run` are the files of a new run. Thread safe, except where a method REQUIRES the lock.
    """

    def __init__(
        self,
        options: StorageOptions,
        uploader: Flusher,
        registry: UploadRegistry,
        metrics: Metrics,
        changed: threading.Condition,
        version: Callable[[], HummockVersion],
        show: Callable[[tuple[SstableInfo, ...]], None],
        compaction: CompactionOptions | None = None,
    ):
        self.buffer = SharedBuffer(options.shared_buffer_bytes, version().max_committed_epoch)
        self.rate = DrainRate()
        self._options, self._uploader, self._registry, self._metrics = options, uploader, registry, metrics
        self.ingested_batches = self.ingested_rows = self.ingested_bytes = 0
        self._changed, self._version, self._show = changed, version, show
        self._gate = WriterGate(self.buffer, self.rate, metrics, changed, version, compaction)
        self._committing: list[Epoch] = []  # ascending
        self._clearing = 0  # running calls of `clear`, during which nothing is uploaded
        self._cleared = 0  # calls of `clear` so far
        self._state = WriteState.OPEN
        self._refusal: HummockError | None = None  # raised while REFUSING
        self._backoff = FlushBackoff()
        self._forecast = SyncForecast()
        self._flusher: ThreadPoolExecutor | None = None
        self._watermarks = PendingWatermarks(options.watermark_interval_ms)
        self._announced: Tables = NO_RULES  # rules that the version has not yet; replaced, never changed

    @property
    def writers_waiting(self) -> int:
        return self._gate.writers_waiting

    # -- batches -------------------------------------------------------------------------------------------

    def ingest(self, rows: WriteBatch, epoch: Epoch, is_local: bool) -> int:
        size = rows.size_bytes
        ticket = QueueTicket()
        with self._changed:
            self._check(epoch)
            if len(rows) == 0:
                return 0
            if not is_local:
                self._gate.slow_down(size)
        deadline = monotonic_seconds() + ROOM_WAIT_SECONDS
        try:
            while True:
                with self._changed:
                    self._check(epoch)
                    if self._gate.may_enter(ticket, size, is_local):
                        self.buffer.add(rows, epoch, is_local)
                        self.ingested_batches += 1
                        self.ingested_rows += len(rows)
                        self.ingested_bytes += size
                        self._added()
                        return size
                    task = self._wait_for_room(deadline)
                if task is not None:
                    self._upload(task)
        finally:
            if ticket.is_taken:
                with self._changed:
                    self._gate.leave(ticket)

    def wait_for_level0(self, size: int) -> None:
        """Waits as a writer of `size` bytes does, for bytes that arrive as files."""
        with self._changed:
            self._check_open()
            self._gate.wait_for_level0(size)

    def refuse(self, error: HummockError) -> None:
        """Every later write raises `error`."""
        with self._changed:
            self._refusal = error
            if self._state is WriteState.OPEN:
                self._state = WriteState.REFUSING

    def seal(self, epoch: Epoch) -> None:
        with self._changed:
            self._check_writing()
            self.buffer.seal(epoch)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def expect_sync(self, epoch: Epoch, seconds: float) -> None:
        with self._changed:
            self._forecast.expect(epoch, seconds)
            if not self._is_closed():
                self._flush_if_much()

    def sync(self, epoch: Epoch) -> SyncResult:
        with self._changed:
            self._check_writing()
            if epoch > self.buffer.sealed_epoch:
                raise InvalidEpoch(epoch, f"cannot be synced while only {self.buffer.sealed_epoch} is sealed")
            cleared = self._cleared
            self._forecast.note_sync(epoch)
            self.buffer.cut_through(epoch)
        try:
            while (task := self._next_task(epoch, cleared)) is not None:
                self._upload(task)
        except BaseException:
            with self._changed:
                if cleared == self._cleared:
                    self.buffer.unassign(epoch)
            raise
        with self._changed:
            self._check_cleared(epoch, cleared)
            return SyncResult(epoch, self.buffer.files_of_sync(epoch), self._due_watermarks(epoch))

    def commit(self, epoch: Epoch, commit_files: CommitFiles) -> None:
        """Seals and syncs `epoch`, then calls `commit_files` with it, its files and the watermarks that are due, once
        all earlier commits have ended.
        """
        with self._changed:
            self._check_writing()
            self.buffer.seal(epoch)
            insort(self._committing, epoch)
        try:
            self.sync(epoch)
            with self._changed:
                self._changed.wait_for(lambda: self._committing[0] == epoch or self._is_closed())
            self.sync(epoch)  # includes what an earlier commit failed to upload
            with self._changed:
                sstables, watermarks = self.buffer.staged_through(epoch), self._due_watermarks(epoch)
            self._commit(epoch, lambda: commit_files(epoch, sstables, watermarks))
        except Fenced as error:
            self.refuse(error)
            raise
        finally:
            with self._changed:
                self._committing.remove(epoch)
                self._changed.notify_all()

    def clear(self) -> None:
        """Drops everything above the committed epoch, after the running uploads have ended."""
        with self._changed:
            self._check_writing()
            self._cleared += 1
            self._clearing += 1
            try:
                self._changed.wait_for(lambda: self.buffer.running_tasks == 0)
                committed = self._version().max_committed_epoch
                self.buffer.clear(committed)
                self._watermarks.clear()
                self._show(())
            finally:
                self._clearing -= 1
                self._changed.notify_all()
        self._registry.release()

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        """Keeps a table's watermark until a version has it."""
        check_watermark(table_id, watermark)
        with self._changed:
            self._check(watermark.epoch)
            self._watermarks.add(table_id, watermark)

    def announce(self, tables: Tables) -> None:
        """Adds the prefixes of these tables to filters until a version has rules of them."""
        check_tables(tables)
        with self._changed:
            self._check_open()
            known = self._version().tables
            self._announced = {**self._announced, **{
                table_id: rules for table_id, rules in tables.items()
                if rules is not None and rules.prefix and table_id not in known}}

    def advance(self, version: HummockVersion) -> tuple[str, ...]:
        """Drops what `version` holds, everything up to its epoch; returns the file names that need no registration.
        REQUIRES the lock.
        """
        self._watermarks.advance(version.tables, version.dropped_tables)
        if self._announced:
            self._announced = {table_id: rules for table_id, rules in self._announced.items()
                               if table_id not in version.tables and table_id not in version.dropped_tables}
        return tuple(info.name for info in self.buffer.drop_through(version.max_committed_epoch))

    def close(self) -> None:
        """Ends the running uploads; every later write raises StoreClosed."""
        with self._changed:
            self._state, self._gate.is_open_to_all = WriteState.CLOSED, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.buffer.running_tasks == 0)
            flusher = self._flusher
        if flusher is not None:
            flusher.shutdown()
        self._registry.release()

    # -- internals -----------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed():
            raise StoreClosed("the store")

    def _check_writing(self) -> None:
        self._check_open()
        if self._state is WriteState.REFUSING:
            assert self._refusal is not None
            raise self._refusal.with_traceback(None)

    def _check(self, epoch: Epoch) -> None:
        self._check_writing()
        self.buffer.check_open(epoch)

    def _check_cleared(self, epoch: Epoch, cleared: int) -> None:
        self._check_writing()
        if cleared != self._cleared:
            raise InvalidEpoch(epoch, "was cleared while it was synced")

    def _wait_for_room(self, deadline: float) -> UploadTask | None:
        """A task that the writer must upload itself, or None after a wait. REQUIRES the lock."""
        now = monotonic_seconds()
        if now >= deadline:
            raise SharedBufferFull(self.buffer.waiting_bytes, self.buffer.limit_bytes) from self._backoff.error
        if self._options.flush_threads == 0:
            task = self._start_flush()
            if task is not None:
                return task
        else:
            self._flush_behind()
        until = min(deadline, self._backoff.not_before) if self._backoff.not_before > now else deadline
        self._changed.wait(until - now)
        self._metrics.writer_delay_seconds.labels("room").inc(monotonic_seconds() - now)
        return None

    def _added(self) -> None:
        """REQUIRES the lock."""
        self._show(())
        self._flush_if_much()

    def _flush_if_much(self) -> None:
        """REQUIRES the lock."""
        if self._options.flush_threads and self._has_much():
            self._flush_behind()

    def _has_much(self) -> bool:
        """Whether to upload before a sync does. REQUIRES the lock."""
        buffer = self.buffer
        return (buffer.uncut_bytes > self._options.flush_bytes
                or buffer.waiting_bytes > EASY_SHARE * buffer.limit_bytes
                or self._forecast.wants_flush(buffer.uncut_bytes))

    def _start_flush(self) -> UploadTask | None:
        """The task of the oldest epoch, unless running uploads will free space or the last one has just failed."""
        if self.buffer.running_tasks or self._clearing or monotonic_seconds() < self._backoff.not_before:
            return None
        task = self.buffer.start()
        if task is None:
            self.buffer.cut_oldest()
            task = self.buffer.start()
        return task

    def _flush_behind(self) -> None:
        """Uploads the oldest epoch on a background thread. REQUIRES the lock."""
        task = self._start_flush()
        if task is not None:
            if self._flusher is None:
                self._flusher = ThreadPoolExecutor(self._options.flush_threads, thread_name_prefix="flush")
            self._flusher.submit(self._flush, task)

    def _flush(self, task: UploadTask) -> None:
        try:
            self._upload(task)
        except HummockError as error:  # retried by the next flush or sync
            self._backoff.error = error
            return
        with self._changed:
            if not self._is_closed():
                self._flush_if_much()

    def _next_task(self, epoch: Epoch, cleared: int) -> UploadTask | None:
        """The next task at or below `epoch`, started; None once all of it is durable."""

        def is_due() -> bool:
            return (self._is_closed() or cleared != self._cleared or not self.buffer.is_pending(epoch)
                    or (self.buffer.is_startable(epoch)
                        and self.buffer.running_tasks < self._options.uploads_in_flight))  # fmt: skip

        with self._changed:
            self._changed.wait_for(is_due)
            self._check_cleared(epoch, cleared)
            return self.buffer.start(epoch)

    def _upload(self, task: UploadTask) -> None:
        """REQUIRES `task` started."""
        began = monotonic_seconds()
        try:
            tables = {**self._announced, **self._version().tables}
            readers = self._uploader.upload(task, tables, self._is_unwanted, self._inline_room())
        except BaseException as error:
            without_frames(error)
            with self._changed:
                self.buffer.fail(task)
                self._note_failure(error)
                self._changed.notify_all()
            if isinstance(error, UploadCancelled):
                self._check_writing()
                raise InvalidEpoch(task.max_epoch, "was cleared while it was uploaded") from error
            raise
        sstables = tuple(reader.info for reader in readers)
        with self._changed:
            self.rate.note(task.size_bytes, monotonic_seconds() - began)
            self._metrics.upload_seconds.observe(monotonic_seconds() - began)
            self._backoff = FlushBackoff()
            self.buffer.finish(task, sstables)
            self._show(sstables)
            self._changed.notify_all()

    def _inline_room(self) -> int:
        """Bytes of inline files that one upload may add, whatever the concurrent ones do."""
        with self._changed:
            room = INLINE_TOTAL_BYTES - self._version().inline_bytes - self.buffer.inline_bytes
        return room - (self._options.uploads_in_flight + self._options.flush_threads) * INLINE_BYTES

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, UploadCancelled):
            return
        log.warning(Event("upload failed", error=error))
        self._metrics.upload_failures.labels(type(error).__name__).inc()
        self._backoff.note_failure()

    def _is_closed(self) -> bool:
        return self._state is WriteState.CLOSED

    def _is_unwanted(self) -> bool:
        return self._is_closed() or self._clearing > 0

    def _due_watermarks(self, epoch: Epoch) -> dict[int, KeyWatermark]:
        """Those that the commit of `epoch` is to register. REQUIRES the lock."""
        return self._watermarks.due(epoch, self._version().tables)

    def _commit(self, epoch: Epoch, commit_files: Callable[[], object]) -> None:
        """Repeats a commit whose outcome is unknown: the manager recognises a call that did succeed."""
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            try:
                commit_files()
                return
            except OutcomeUnknown:
                if attempt == COMMIT_ATTEMPTS:
                    raise
