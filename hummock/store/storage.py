"""HummockStorage: the StateStore on SSTs. It only composes the modules below it.

Writes enter the shared buffer and are readable at once; `sync` makes sealed epochs durable; a version that holds them
replaces them. A read sees one ReadView, acquired as a single reference: every change of buffer or version creates a new
view and publishes it in one assignment. Any thread may call any method; `sync` uploads on the caller's thread while
others write and read.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hummock.base.closing import ClosedAtExit
from hummock.base.forked import watch
from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules, Tables, check_table_id, check_tables
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch, check_committable, check_epoch, pure_epoch
from hummock.errors import (
    Corruption,
    EpochTooOld,
    HummockError,
    ObjectNotFound,
    RoleMissing,
    SnapshotExpired,
    StoreClosed,
    StoreForked,
    WaitEpochTimeout,
    no_attribute,
)
from hummock.loaded_files import LoadedFiles
from hummock.meta.upload_registry import UploadRegistry
from hummock.meta_client import NO_RULE_CHANGES, HummockMetaClient, WriterSession
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore, RandomBytes
from hummock.options import CompactionOptions, StorageOptions
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.shared_buffer.buffer import StagedRun
from hummock.shared_buffer.flush import Flusher
from hummock.sstable.info import SstableInfo
from hummock.sstable.store import SstableStore
from hummock.state_store import DEFAULT, EVERYTHING, ReadOptions, SyncResult, check_key_range, check_limit
from hummock.store.group_commit import GroupCommit
from hummock.store.pinned_version import LocalVersionManager, PinnedVersion
from hummock.store.reads import HummockChanges, HummockScan, ViewReads
from hummock.store.stats import StorageStats, stats_of
from hummock.store.table_sizes import table_bytes, table_entries
from hummock.store.write_path import WritePath
from hummock.version import HummockVersion, run_key

PIN_TRIES = 8


class _VersionHold:
    """Keeps a version's files while a view refers to it. Its destructor only queues the release, which happens outside
    of locks.
    """

    __slots__ = ("pinned",)

    def __init__(self, pinned: PinnedVersion):
        self.pinned = pinned

    def __del__(self) -> None:
        self.pinned.drop()


ELSEWHERE = {
    "put": "write({key: value})", "set": "write({key: value})", "insert": "write({key: value})",
    "delete": "write({key: None})", "remove": "write({key: None})", "items": "scan()",
    "multi_get": "get_many(keys)", "iterator": "scan(KeyRange.prefix(…))", "iter": "scan()",
    "keys": "scan()", "seek": "scan(KeyRange(start))", "flush": "commit(epoch); write() has committed when it returns",
    "compact_range": "compact(key_range)", "get_property": "stats()",
}
"""What a store has in place of attributes of RocksDB, LevelDB and a dict."""


def batch_of(rows: WriteBatch | Mapping[bytes, bytes | None]) -> WriteBatch:
    """`rows` as a batch. Raises TypeError for anything but a batch or a mapping."""
    if isinstance(rows, WriteBatch):
        return rows
    if isinstance(rows, Mapping):
        return WriteBatch(sorted(rows.items()))
    raise TypeError(f"a WriteBatch or a dict of values by key is written, not a {type(rows).__name__}: "
                    f"WriteBatch(pairs) takes pairs whose keys ascend")


class HummockStorage(ViewReads, ClosedAtExit):
    """A StateStore over `object_store`, whose versions come from `meta_client`.

    Without a `session` (the writer role) it can write, sync and read, but not `commit`; the holder of the role may
    commit the files of a `sync`. A `committed_only` store writes nothing, and reads no epoch above the committed one
    that it knows. Uncommitted data is lost when the store closes. With `compaction`, the shape in which the tree is
    kept, writers are delayed as level 0 outgrows it.
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
        metrics: Metrics | None = None,
        compaction: CompactionOptions | None = None,
        committed_only: bool = False,
        on_close: Callable[[], None] | None = None,
    ):
        super().__init__(options or StorageOptions())
        self.meta_client, self.session = meta_client, session
        self._on_close, self._committed_only = on_close, committed_only
        self._changed = threading.Condition(threading.Lock())  # guards buffer and view; no slow work while it is held
        self._sstable_store = SstableStore(object_store, self.options)
        self._settled: deque[str] = deque()  # names of files that no longer need a registration
        self._runs: dict[str, SortedRun] = {}                # by `run_key`
        self._base: ReadView | None = None  # without local sources; None before the first version and after `close`
        self._is_closed = False
        self._pid, self.is_forked = os.getpid(), False
        self._node = node or f"store-{random_bytes(8).hex()}"
        self._local = LocalVersionManager(meta_client, self._node)
        self._registry = UploadRegistry(
            meta_client, self._node, random_bytes, is_read=self._sstable_store.is_read)
        uploader = Flusher(self._sstable_store, self.options, self._registry.mint, self._registry.settle)
        self._writes = WritePath(
            self.options, uploader, self._registry, metrics or Metrics(), self._changed,
            lambda: self._local.version, self._show, compaction,
        )  # fmt: skip
        if committed_only:
            self._writes.refuse(RoleMissing())
        self._group = GroupCommit(self.ingest_batch, self.commit, lambda: self._writes.buffer.sealed_epoch)
        self._local.subscribe(self.install_version)
        self.install_version(self._local.version)
        watch(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise no_attribute(self, name, ELSEWHERE)

    def note_fork(self) -> None:
        """Marks this object as a forked child's copy: every later call raises `StoreForked`, and `close` leaves
        everything to the parent.
        """
        self.is_forked = True
        self._base = self._view = None

    def check_process(self) -> None:
        """Raises `StoreForked` in a process that did not open the store."""
        if self.is_forked:
            raise StoreForked(self._sstable_store.object_store.url, self._pid, os.getpid())

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        self.check_process()
        return self._writes.ingest(batch_of(batch), check_committable(epoch), local_only)

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        self.check_process()
        self._writes.advance_watermark(table_id, watermark)

    def announce_rules(self, tables: Tables) -> None:
        self.check_process()
        self._writes.announce(tables)

    def expect_sync(self, epoch: Epoch, seconds: float) -> None:
        """The sync of `epoch` begins in about `seconds`: much of what it would upload is flushed before. Without a call
        it is expected as long after the last one as that was after the one before. Affects no result, and does nothing
        in a closed store: who announces a sync need not know that."""
        self.check_process()
        self._writes.expect_sync(check_epoch(epoch), seconds)

    def seal_epoch(self, epoch: Epoch) -> None:
        self.check_process()
        self._writes.seal(check_committable(epoch))

    def sync(self, epoch: Epoch) -> SyncResult:
        self.check_process()
        return self._writes.sync(check_epoch(epoch))

    def commit(
        self,
        epoch: Epoch,
        *,
        tables: Mapping[int, TableRules | None] = NO_RULE_CHANGES,
        dropped_tables: Iterable[int] = (),
        loads: Sequence[LoadedFiles] = (),
    ) -> None:
        """Seals, syncs and commits everything at or below `epoch`, with changes of the tables' rules, and loads.

        From this version on a dropped table has no rows, not even at older epochs, and its id is never reused.
        Concurrent commits are applied in the order of their epochs. Raises `Fenced` if the role was lost: then every
        later write raises it too, while reads continue. Raises `LoadRefused` if a load is not accepted: then nothing
        was committed. Raises `InvalidOption` for what are no rules of tables: then nothing was sealed either.
        """
        self.check_process()
        session = self.session
        if session is None:
            raise RoleMissing
        dropped = tuple(dropped_tables)
        epoch = check_committable(epoch)
        check_tables(tables)
        for table_id in dropped:
            check_table_id(table_id)
        self._writes.commit(
            epoch,
            lambda epoch, sstables, watermarks: self.meta_client.commit_epoch(
                session, epoch, sstables, tables=tables, watermarks=watermarks, dropped_tables=dropped, loads=loads
            ),
        )
        self.wait_epoch(epoch)

    def write(self, batch: WriteBatch | Mapping[bytes, bytes | None]) -> Epoch:
        """Commits the batch at an epoch of its own, which it returns: durable, and seen by others, when the call
        returns. Calls of several threads share epochs and commits, so that many small writes cost few commits.

            store.write({hummock.user_key(1, 0, b"a"): b"1", hummock.user_key(1, 0, b"b"): None})   # None deletes

        Whatever was ingested at or below that epoch is committed with it. An error of a store means that the batch is
        not durable; it will be with the next commit that succeeds, unless `clear_uncommitted` comes before.
        """
        self.check_process()
        if self.session is None:
            raise RoleMissing
        return self._group.write(batch_of(batch))

    @contextmanager
    def upload_prefixes(self, count: int) -> Iterator[tuple[str, ...]]:
        """Prefixes of names for the files of a load that other processes write. A bucket shares out its requests by
        the names of objects, so the files that many processes write or read should not all begin with one prefix.

        Vacuum keeps such files until the block ends, while this store lives and follows versions; files that are in no
        version by then are garbage.
        """
        self._open_base()
        with self._registry.prefixes(count) as prefixes:
            yield prefixes

    def wait_for_level0(self, size_bytes: int) -> None:
        """Waits, before a load that may enter level 0, as a writer of so many bytes does: at most a second."""
        self.check_process()
        self._writes.wait_for_level0(size_bytes)

    def follow_versions(self) -> None:
        """From here on commits of other processes become visible every `refresh_ms`, and this process's pins are
        renewed.
        """
        self._local.start(self.options.refresh_ms)

    @property
    def follow_error(self) -> Exception | None:
        """Why the newest versions cannot be read at the moment; None if they can."""
        return self._local.error

    def clear_uncommitted(self) -> None:
        self.check_process()
        self._writes.clear()
        with self._changed:
            self._forget_runs()
        self._release_retired()

    def stats(self) -> StorageStats:
        """The state of the store at this moment."""
        self.check_process()
        with self._changed:
            return stats_of(self.version, self._writes, self._sstable_store, self.open_reads, self._reads)

    def table_bytes(self, table_ids: Iterable[int]) -> dict[int, int]:
        """Stored bytes of the committed rows of each table, see `table_sizes`. Corruption."""
        with self.pinned_version() as pinned:
            return table_bytes(pinned.version, self._sstable_store, table_ids)

    def table_entries(self, table_ids: Iterable[int]) -> dict[int, float]:
        """Estimated committed entries of each table, see `table_sizes`. Corruption."""
        with self.pinned_version() as pinned:
            return table_entries(pinned.version, self._sstable_store, table_ids)

    def __repr__(self) -> str:
        base, url = self._base, self._sstable_store.object_store.url
        if base is None:
            return f"HummockStorage({url!r}, closed)"
        role = "writer" if self.session is not None else "reader"
        version = base.version
        return f"HummockStorage({url!r}, {role}, epoch {version.max_committed_epoch}, version {version.id})"

    # -- reading -------------------------------------------------------------------------------------------

    def scan(
        self,
        key_range: KeyRange = EVERYTHING,
        epoch: Epoch | None = None,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> HummockScan:
        check_key_range(key_range)
        return super().scan(key_range, epoch, options, reverse=reverse, limit=check_limit(limit))

    def changes(
        self, key_range: KeyRange, since: Epoch, until: Epoch, options: ReadOptions = DEFAULT
    ) -> HummockChanges:
        check_key_range(key_range)
        return super().changes(key_range, since, until, options)

    @property
    def object_store(self) -> ObjectStore:
        """Where the files are."""
        return self._sstable_store.object_store

    @property
    def sstable_store(self) -> SstableStore:
        """The files by name, with the caches of this store."""
        return self._sstable_store

    def committed_view(self) -> ReadView:
        """The newest version, without what is not committed."""
        return self._open_base()

    @property
    def committed_epoch(self) -> Epoch:
        return self._open_base().version.max_committed_epoch

    @property
    def version(self) -> HummockVersion:
        """The newest version that reads see."""
        return self._open_base().version

    def unchanged_since(self, table_id: int, epoch: Epoch) -> Epoch:
        """An epoch at which the table had the rows that it has at `epoch`; see `HummockVersion.unchanged_since`."""
        return self.version.unchanged_since(table_id, epoch)

    @contextmanager
    def snapshot(self, epoch: Epoch | None = None) -> Iterator[Epoch]:
        """`epoch`, by default the newest visible one; it stays readable until the block ends.

        Raises `EpochTooOld` if it was compacted already, `SnapshotExpired` later if this process was suspended beyond
        its lease.
        """
        self._open_view()
        pinned = self._pin_newest() if epoch is None else self._local.pin_snapshot(check_epoch(epoch))
        try:
            yield pinned
        finally:
            if not self.is_forked:
                self.meta_client.unpin_snapshot(self._node, pinned)

    def _pin_newest(self) -> Epoch:
        for _ in range(PIN_TRIES):
            with suppress(EpochTooOld):     # other processes committed and compacted since the epoch was looked up
                return self._local.pin_snapshot(self.committed_epoch)
            self._local.refresh()
        return self._local.pin_snapshot(self.committed_epoch)

    @contextmanager
    def pinned_version(self) -> Iterator[PinnedVersion]:
        """The newest version that reads see. Its files are kept until the block ends, so their names may be sent to
        other processes.

        An error of the store inside the block becomes `SnapshotExpired` if the lease that kept the files was lost
        meanwhile.
        """
        self._open_base()
        with self._local.pin() as pinned:
            try:
                yield pinned
            except HummockError as error:
                if self._local.protects(pinned):
                    raise
                raise SnapshotExpired(f"version {pinned.version.id}") from error

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        limit_ms = self.options.wait_epoch_ms if timeout_ms is None else timeout_ms
        self._open_base()
        wanted = pure_epoch(check_epoch(epoch))
        self._local.wait_epoch(epoch, limit_ms)
        if self.committed_epoch < wanted:
            self._local.refresh()           # raises the error that prevented installing the version
        with self._changed:
            self._changed.wait_for(lambda: self._base is None or self.committed_epoch >= wanted, limit_ms / 1000)
            committed = self.committed_epoch
        if committed < wanted:
            raise WaitEpochTimeout(epoch, committed, limit_ms)

    # -- versions ------------------------------------------------------------------------------------------

    def install_version(self, version: HummockVersion) -> None:
        """Publishes `version` to reads, without the local data at or below its committed epoch."""
        hold = _VersionHold(self._local.pin())
        with self._changed:
            if self._is_closed or (self._base is not None and version.id <= self._base.version.id):
                return
            # Steps that can fail come first: until the last line reads see the previous version and all local data.
            runs = tuple(self._run_of(run.key, run.sstables) for run in version.runs)
            base = ReadView(version, (), runs, hold, self._base, self._committed_only)
            self._settled += self._writes.advance(version)
            self._base, self._view = base, None
            shown = self._forget_runs()
            self._changed.notify_all()
        self._sstable_store.retain(name for key in shown for name in key.split())
        self._release_retired()

    def close(self) -> None:
        if self.is_forked:
            return
        with self._changed:
            if self._is_closed:
                return
            self._base, self._view, self._is_closed = None, None, True
            self._changed.notify_all()
        self._writes.close()
        self._sstable_store.close()
        self._end_reads()
        self._release_retired()
        self._local.close()
        if self._on_close is not None:
            self._on_close()

    # -- internals -----------------------------------------------------------------------------------------

    def _open_base(self) -> ReadView:
        base = self._base
        if base is None:
            self.check_process()
            raise StoreClosed("the store")
        return base

    def _open_view(self) -> ReadView:
        view = self._view
        if view is None:
            self.check_process()
            with self._changed:
                view = self._make_view()
        return view

    def _make_view(self) -> ReadView:
        """The current view. REQUIRES the lock."""
        base = self._open_base()
        if self._view is None:
            local: list[SharedBufferBatch | SortedRun] = []
            for source in self._writes.buffer.sources:
                local.append(source if isinstance(source, SharedBufferBatch) else
                             self._run_of(run_key(source.sstables), source.sstables))
            self._view = base.with_local(tuple(local))
        return self._view

    def _show(self, sstables: tuple[SstableInfo, ...]) -> None:
        """Publishes a change of the buffer; `sstables` are its new run, if any. REQUIRES the lock."""
        self._view = None
        if sstables and not self._is_closed:
            self._run_of(run_key(sstables), sstables)

    def _run_of(self, key: str, sstables: Sequence[SstableInfo]) -> SortedRun:
        """The SortedRun of the files with this `run_key`, the same object while it is visible. REQUIRES the lock."""
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = SortedRun(self._sstable_store, sstables)
        return run

    def _forget_runs(self) -> set[str]:
        """Drops runs that new reads cannot see (running reads keep them alive); returns the keys of the others.
        REQUIRES the lock.
        """
        committed = () if self._base is None else (run.key for run in self._base.version.runs)
        staged = (run_key(run.sstables) for run in self._writes.buffer.sources if isinstance(run, StagedRun))
        shown = {*committed, *staged}
        for key in self._runs.keys() - shown:
            del self._runs[key]
        return shown

    def _release_retired(self) -> None:
        self._local.settle()
        self._registry.settle([self._settled.popleft() for _ in range(len(self._settled))])

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        """A missing file of a version whose lease expired becomes an expired snapshot; other errors are unchanged.

        Also drops the locally cached copy of a corrupt object: that copy may be the corrupt one.
        """
        if isinstance(error, Corruption):
            self._sstable_store.object_store.forget(error.object_name)
        if isinstance(error, ObjectNotFound) and not self._local.protects(view.hold.pinned):
            with suppress(HummockError):
                self._pin_again()
            return SnapshotExpired(f"version {view.version.id}")
        return error

    def _pin_again(self) -> None:
        """Moves later reads to the newest version, which the node's new lease protects."""
        self._local.refresh()
        hold = _VersionHold(self._local.pin())
        with self._changed:
            base = self._open_base()
            if hold.pinned.version.id == base.version.id:
                self._base = ReadView(base.version, (), base.runs, hold, None, self._committed_only)
                self._view = None
