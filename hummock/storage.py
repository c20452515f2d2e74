"""HummockStorage: the StateStore on SSTs. It only composes the rooms below.

Writes go to the shared buffer and are readable at once; `sync` makes sealed epochs durable; a version that
holds them takes their place. What a read sees is one ReadView, taken by one reference: every change of
buffer or version makes a new view and assigns it once. Any thread may call any method; `sync` uploads on the
caller's thread while others write and read.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self
from weakref import WeakSet

import numpy as np

from hummock.binary_column import BinaryColumn
from hummock.epoch import Epoch, monotonic_seconds, pure_epoch
from hummock.errors import (
    HummockError,
    InvalidEpoch,
    ObjectNotFound,
    SharedBufferFull,
    SnapshotExpired,
    StoreClosed,
    WaitEpochTimeout,
)
from hummock.iterator.collect import BatchCollector
from hummock.key import KeyRange
from hummock.local_version import LocalVersionManager, PinnedVersion
from hummock.meta_client import HummockMetaClient, WriterSession
from hummock.object_store.base import ObjectStore, RandomBytes, mint_sstable_name
from hummock.options import StorageOptions
from hummock.point_read import read_many, read_one
from hummock.read_ranges import read_prefixes, read_starts
from hummock.read_view import ReadView, SortedRun
from hummock.scan import HummockScan
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.shared_buffer.buffer import SharedBuffer, UploadTask
from hummock.shared_buffer.uploader import Uploader
from hummock.sstable.info import SstableInfo
from hummock.sstable.store import SstableStore
from hummock.state_store import DEFAULT, ReadOptions, SyncResult
from hummock.version import HummockVersion
from hummock.write_batch import KvBatch, WriteBatch

ROOM_WAIT_SECONDS = 30.0  # how long a writer waits for the shared buffer to drain


class _VersionHold:
    """Keeps a version's files while a view refers to it. Its end is noted, and acted on outside of locks."""

    __slots__ = ("_retired", "pinned")

    def __init__(self, pinned: PinnedVersion, retired: deque[PinnedVersion]):
        self.pinned, self._retired = pinned, retired

    def __del__(self) -> None:
        self._retired.append(self.pinned)


class HummockStorage:
    """A StateStore over `object_store`, whose versions come from `meta_client`.

    Without a `session` (the writer role) it can write, sync and read, but not `commit`; the files of a `sync`
    may then be committed by whoever holds the role. What is not committed when the store closes is lost.
    """

    def __init__(
        self,
        meta_client: HummockMetaClient,
        object_store: ObjectStore,
        options: StorageOptions | None = None,
        *,
        session: WriterSession | None = None,
        node: str | None = None,
        random_bytes: RandomBytes = os.urandom,
        on_close: Callable[[], None] | None = None,
    ):
        self.options = options or StorageOptions()
        self.meta_client, self.session = meta_client, session
        self._on_close = on_close
        self._lock = threading.Lock()  # buffer and view; nothing slow under it
        self._changed = threading.Condition(self._lock)
        self._upload_lock = threading.Lock()  # one upload at a time, none while data is cleared
        self._sstable_store = SstableStore(object_store, self.options)
        self._uploader = Uploader(self._sstable_store, self.options, lambda: mint_sstable_name(random_bytes))
        self._retired: deque[PinnedVersion] = deque()
        self._scans: WeakSet[HummockScan] = WeakSet()
        self._runs: dict[tuple[str, ...], SortedRun] = {}
        self._view: ReadView | None = None  # None before the first version and after `close`
        self._is_closed = False
        self._local = LocalVersionManager(meta_client, node or f"store-{random_bytes(8).hex()}")
        self._buffer = SharedBuffer(self.options.shared_buffer_bytes, self._local.committed_epoch)
        self._local.subscribe(self.install_version)
        self.install_version(self._local.version)

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        size = batch.size_bytes
        deadline = monotonic_seconds() + ROOM_WAIT_SECONDS
        while True:
            with self._lock:
                self._open_view()
                self._buffer.check_open(epoch)
                if len(batch) == 0:
                    return 0
                if self._buffer.has_room(size, local_only):
                    self._buffer.add(batch, epoch, local_only)
                    self._show()
                    return size
            self._make_room(size, local_only, deadline)

    def seal_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            self._open_view()
            self._buffer.seal(epoch)

    def sync(self, epoch: Epoch) -> SyncResult:
        with self._upload_lock:
            with self._lock:
                self._open_view()
                if epoch > self._buffer.sealed_epoch:
                    sealed = self._buffer.sealed_epoch
                    raise InvalidEpoch(epoch, f"cannot be synced while only {sealed} is sealed")
                tasks = self._buffer.tasks_through(epoch)
            for task in tasks:
                self._upload(task, epoch)
            with self._lock:
                return SyncResult(epoch, self._buffer.hand_out(epoch))

    def commit(self, epoch: Epoch) -> None:
        """Seals, syncs and commits everything at or below `epoch`. `Fenced` where the role was lost."""
        if self.session is None:
            raise HummockError("a store that was opened without the writer role cannot commit")
        self.seal_epoch(epoch)
        self.sync(epoch)
        with self._lock:
            sstables = self._buffer.staged_through(epoch)
        self.meta_client.commit_epoch(self.session, epoch, sstables)
        self.wait_epoch(epoch)

    def follow_versions(self) -> None:
        """From here on what other processes commit is seen every `refresh_ms`, and this one's pins are kept."""
        self._local.start(self.options.refresh_ms)

    @property
    def follow_error(self) -> Exception | None:
        """Why the newest versions cannot be seen at the moment; None while all is well."""
        return self._local.error

    def clear_uncommitted(self) -> None:
        with self._upload_lock, self._lock:
            view = self._open_view()
            self._buffer.clear(view.version.max_committed_epoch)
            self._show()

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def committed_epoch(self) -> Epoch:
        return self._open_view().version.max_committed_epoch

    def get(self, key: bytes, epoch: Epoch, options: ReadOptions = DEFAULT) -> bytes | None:
        view = self._view or self._open_view()
        try:
            return read_one(view, key, epoch)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def get_many(self, keys: Any, epoch: Epoch, options: ReadOptions = DEFAULT) -> BinaryColumn:
        view = self._open_view()
        try:
            return read_many(view, BinaryColumn.from_arrow(keys), epoch)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def scan(
        self,
        key_range: KeyRange,
        epoch: Epoch,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> HummockScan:
        view = self._open_view()
        try:
            collector = BatchCollector(view.read(key_range.start, key_range.end, epoch, reverse, options))
        except ObjectNotFound as error:
            raise self._explain(view, error) from error
        scan = HummockScan(view, collector, self.options, limit, self._explain)
        with self._lock:
            self._open_view()
            self._scans.add(scan)
        return scan

    def scan_prefixes(
        self, prefixes: Any, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(prefixes)
        try:
            return read_prefixes(view, wanted, epoch, reverse, limit)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def scan_many(
        self, starts: Any, epoch: Epoch, *, ends: Any = None, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(starts)
        bounds = None if ends is None else BinaryColumn.from_arrow(ends)
        try:
            return read_starts(view, wanted, bounds, epoch, limit)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        limit_ms = self.options.wait_epoch_ms if timeout_ms is None else timeout_ms
        self._open_view()
        self._local.wait_epoch(epoch, limit_ms)
        with self._changed:
            self._changed.wait_for(
                lambda: self._view is None or self.committed_epoch >= pure_epoch(epoch), limit_ms / 1000
            )
            committed = self._open_view().version.max_committed_epoch
        if committed < pure_epoch(epoch):
            raise WaitEpochTimeout(epoch, committed, limit_ms)

    # -- versions ------------------------------------------------------------------------------------------

    def install_version(self, version: HummockVersion) -> None:
        """Reads see `version` from here on, and no longer the local data at or below its committed epoch."""
        hold = _VersionHold(self._local.pin(), self._retired)
        with self._changed:
            if self._is_closed or (self._view is not None and version.id <= self._view.version.id):
                return
            runs = tuple(self._run_of(run.sstables) for run in version.runs)
            self._buffer.drop_through(version.max_committed_epoch)
            self._show(ReadView(version, (), runs, hold))
            shown = {tuple(info.name for info in run.infos) for run in runs}
            self._runs = {names: run for names, run in self._runs.items() if names in shown}
            self._changed.notify_all()
        self._release_retired()

    def close(self) -> None:
        with self._upload_lock:
            with self._changed:
                if self._view is None:
                    return
                self._view, self._is_closed = None, True
                scans = list(self._scans)
                self._changed.notify_all()
            for scan in scans:
                scan.close()
            self._release_retired()
            self._local.close()
            if self._on_close is not None:
                self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------

    def _open_view(self) -> ReadView:
        view = self._view
        if view is None:
            raise StoreClosed("the store")
        return view

    def _show(self, base: ReadView | None = None) -> None:
        """Shows the buffer's sources above the version of `base` (None: the current). REQUIRES the lock."""
        local = tuple(
            source if isinstance(source, SharedBufferBatch) else self._run_of(source.sstables)
            for source in self._buffer.sources
        )
        self._view = (base or self._open_view()).with_local(local)

    def _run_of(self, sstables: Sequence[SstableInfo]) -> SortedRun:
        """The run of these files, the same one while it is shown. REQUIRES the lock."""
        names = tuple(info.name for info in sstables)
        run = self._runs.get(names)
        if run is None:
            run = self._runs[names] = SortedRun(self._sstable_store, sstables)
        return run

    def _upload(self, task: UploadTask, synced_at: Epoch | None) -> None:
        """REQUIRES the upload lock."""
        readers = self._uploader.upload(task, self._open_view().version.tables)
        with self._changed:
            self._open_view()
            self._buffer.finish(task, tuple(reader.info for reader in readers), synced_at)
            self._show()
            self._changed.notify_all()

    def _make_room(self, size_bytes: int, is_local: bool, deadline: float) -> None:
        """Waits for an upload under way, or uploads the oldest epoch; SharedBufferFull after the deadline."""
        left = deadline - monotonic_seconds()
        if left <= 0 or not self._upload_lock.acquire(timeout=left):
            raise SharedBufferFull(self._buffer.waiting_bytes, self._buffer.limit_bytes)
        try:
            with self._lock:
                self._open_view()
                task = None
                if not self._buffer.has_room(size_bytes, is_local):
                    task = None if is_local else self._buffer.spill_task()
                    if task is None:
                        raise SharedBufferFull(
                            self._buffer.waiting_bytes + self._buffer.local_bytes, self._buffer.limit_bytes
                        )
            if task is not None:
                self._upload(task, None)
        finally:
            self._upload_lock.release()

    def _release_retired(self) -> None:
        while self._retired:
            self._retired.popleft().release()

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        """A missing file of a version whose lease ran out is an expired snapshot; all else is as it says."""
        if isinstance(error, ObjectNotFound) and not self._local.protects(view.hold.pinned):
            return SnapshotExpired(f"version {view.version.id}")
        return error
