"""SnapshotStore: reads one version's files without a meta store. Used by tasks that receive a version, or a part of
one.

The sender of the version keeps its files by a lease. The error for a missing file mentions that this lease may have
expired.
"""

from __future__ import annotations

from typing import NoReturn

from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import Tables
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError, ObjectNotFound, RoleMissing, StoreClosed, WaitEpochTimeout
from hummock.options import StorageOptions
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.sstable.store import SstableStore
from hummock.state_store import SyncResult
from hummock.store.reads import ViewReads
from hummock.version import HummockVersion


class SnapshotStore(ViewReads):
    """A read-only StateStore of what `version` holds, at every epoch that is readable there.

    Several such stores may share `files`, one after the other or concurrently: what they read stays cached there.
    """

    def __init__(self, version: HummockVersion, files: SstableStore, options: StorageOptions):
        super().__init__(options)
        runs = tuple(SortedRun(files, run.sstables) for run in version.runs)
        self.version = version
        self._view = ReadView(version, (), runs, committed_only=True)

    @property
    def committed_epoch(self) -> Epoch:
        return self.version.max_committed_epoch

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        if epoch > self.committed_epoch:
            raise WaitEpochTimeout(epoch, self.committed_epoch, timeout_ms or 0)

    def close(self) -> None:
        self._view = None
        self._end_reads()

    def _open_view(self) -> ReadView:
        if self._view is None:
            raise StoreClosed("the snapshot")
        return self._view

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        if isinstance(error, ObjectNotFound):
            error.add_note("It was there when the snapshot was taken: the lease of who took it may have run out since.")
        return error

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> NoReturn:
        raise RoleMissing

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> NoReturn:
        raise RoleMissing

    def announce_rules(self, tables: Tables) -> NoReturn:
        raise RoleMissing

    def seal_epoch(self, epoch: Epoch) -> NoReturn:
        raise RoleMissing

    def sync(self, epoch: Epoch) -> SyncResult:
        raise RoleMissing

    def commit(self, epoch: Epoch) -> NoReturn:
        raise RoleMissing

    def clear_uncommitted(self) -> None:
        """Does nothing: all data is committed."""
