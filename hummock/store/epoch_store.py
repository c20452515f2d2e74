"""EpochStore: the state store of one task that computes the rows of one epoch apart from the writer of the store.

Reads see a committed version, or the part of one that the task needs, and above it what the task wrote. `sync` writes
that as one sorted run of files with the epoch of its rows, tombstones included, which the writer of the store commits
with those of the other tasks. Nothing is registered in the meta store: the names of files begin with a prefix that the
writer registered, and the version is kept by a pin of the writer. For one task, whose actors may be of several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from hummock.base.key_watermark import KeyWatermark
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError, InvalidEpoch, ObjectNotFound, StoreClosed
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.sorted_run_writer import write_run
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.sstable.store import SstableStore
from hummock.state_store import SyncResult
from hummock.store.bulk_store import BulkStore
from hummock.version import HummockVersion


class EpochStore(BulkStore):
    """A StateStore over `version`, whose files are read through `files`, which several such stores may share.

    Everything that is written belongs to the epochs after the version's; `sync` writes it to `objects` under names from
    `mint_name`. `options.shared_buffer_bytes` of it are buffered in memory, the rest in files below `directory`.
    """

    def __init__(self, version: HummockVersion, files: SstableStore, options: StorageOptions, objects: ObjectStore,
                 mint_name: Callable[[], str], directory: str | None = None):
        super().__init__(options, directory)
        self._version, self._objects, self._mint_name = version, objects, mint_name
        self._lock = threading.RLock()
        runs = tuple(SortedRun(files, run.sstables) for run in version.runs)
        self._base: ReadView | None = ReadView(version, (), runs)
        self._sealed = version.max_committed_epoch
        self._watermarks: dict[int, KeyWatermark] = {}

    @property
    def committed_epoch(self) -> Epoch:  # type: ignore[override]
        """That of the version."""
        return self._version.max_committed_epoch

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        assert not local_only
        with self._lock:
            return super().ingest_batch(batch, epoch)

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        with self._lock:
            if watermark.epoch <= self._sealed:
                raise InvalidEpoch(watermark.epoch, f"watermarks go above the sealed epoch {self._sealed}")
            known = self._watermarks.get(table_id)
            self._watermarks[table_id] = watermark if known is None else known.followed_by(watermark)

    def seal_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            super().seal_epoch(epoch)

    def sync(self, epoch: Epoch) -> SyncResult:
        """The files of everything that was written, and the watermarks. REQUIRES that all of it is sealed, and one call
        for what was written; after an error the files are left to vacuum.
        """
        with self._lock:
            if epoch > self._sealed:
                raise InvalidEpoch(epoch, f"cannot be synced while only {self._sealed} is sealed")
            children = self._children()
            watermarks = dict(self._watermarks)
        if not children:
            return SyncResult(epoch, (), watermarks)
        outputs = write_run(
            RetentionIterator(MergeIterator(children)), self._written_bytes, self._objects,
            replace(self.options, codec=self.options.flush_codec), self._mint_name, name="epoch",
            room_bytes=self.options.upload_bytes, tables={**self._rules, **self._version.tables})
        return SyncResult(epoch, tuple(output.info for output in outputs), watermarks)

    # -- end -----------------------------------------------------------------------------------------------

    def clear_uncommitted(self) -> None:
        with self._lock:
            super().clear_uncommitted()
            self._sealed, self._watermarks = self.committed_epoch, {}

    def close(self) -> None:
        with self._lock:
            super().close()
            self._base = None

    # -- internals -----------------------------------------------------------------------------------------

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        if isinstance(error, ObjectNotFound):
            error.add_note("It was there when the epoch began: the lease of the store's writer may have run out since.")
        return error

    def _open_view(self) -> ReadView:
        view = self._view
        if view is not None:
            return view
        with self._lock:
            if self._base is None:
                raise StoreClosed("the store of a task")
            if self._view is None:
                self._view = self._base.with_local((*self._batches, *self._runs))
            return self._view
