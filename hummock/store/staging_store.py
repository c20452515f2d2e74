"""StagingStore: a StateStore whose epochs become files of loads, each committed on its own.

Its writer computes the rows of some tables apart from the commits of the store, over many epochs of its own: a job that
reads a large table for the first time. Reads see the committed version of the store and, above it, everything that was
written here. `sync` writes a sealed epoch as one run of files without an epoch of their own, tombstones included; once
the load of these files is committed, `settle` drops the rows from memory.

Own epochs are above all epochs of commits (`own_epoch`), so that what is staged is newer than what was committed of it.
The tables have no other writer, and neither a time to live nor a key watermark: an own epoch is no time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hummock.base.closing import ClosedAtExit
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import Tables
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import NEVER, Epoch, check_pure, pure_epoch
from hummock.errors import HummockError, InvalidEpoch, StoreClosed
from hummock.iterator.merge import MergeIterator
from hummock.loaded_files import PLACEHOLDER
from hummock.object_store.base import mint_sstable_name
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.sorted_run_writer import write_run
from hummock.read.view import ReadView
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferChainIterator
from hummock.shared_buffer.flush import chains_of
from hummock.state_store import SyncResult
from hummock.store.reads import ViewReads

if TYPE_CHECKING:
    from hummock.sstable.info import SstableInfo
    from hummock.store.storage import HummockStorage


class StagingStore(ViewReads, ClosedAtExit):
    """Over `base`, whose owner commits the loads. Thread safe; one thread syncs."""

    def __init__(self, base: HummockStorage):
        super().__init__(base.options)
        self._base = base
        self._lock = threading.Lock()
        self._batches: list[SharedBufferBatch] = []  # newest first
        self._sealed = self._synced = self._settled = NEVER
        self._is_closed = False
        self._undo = ExitStack()
        (self._prefix,) = self._undo.enter_context(base.upload_prefixes(1))

    @property
    def committed_epoch(self) -> Epoch:
        """The newest own epoch whose load was committed while this store was open."""
        return self._settled

    @property
    def staged_bytes(self) -> int:
        """What is kept in memory."""
        with self._lock:
            return sum(batch.size_bytes for batch in self._batches)

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        assert not local_only
        with self._lock:
            if check_pure(epoch) <= self._sealed:
                raise InvalidEpoch(epoch, f"writes go above the sealed epoch {self._sealed}")
            if len(batch) == 0:
                return 0
            self._batches.insert(0, SharedBufferBatch(batch, epoch))
            self._view = None
        return batch.size_bytes

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        raise InvalidEpoch(watermark.epoch, f"is an own epoch, at which no watermark of table {table_id} is registered")

    def announce_rules(self, tables: Tables) -> None:
        """Does nothing: the tables were committed before their first row is written here."""

    def seal_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            self._sealed = max(self._sealed, check_pure(epoch))

    def sync(self, epoch: Epoch) -> SyncResult:
        """The files of everything up to `epoch` that no earlier call returned. REQUIRES that the earlier ones were
        settled, or are committed before these.
        """
        with self._lock:
            due = [batch for batch in self._batches if self._synced < pure_epoch(batch.epoch) <= epoch]
        files = self._written(due) if due else ()
        with self._lock:
            self._synced = max(self._synced, epoch)
        return SyncResult(epoch, files)

    def _written(self, batches: Sequence[SharedBufferBatch]) -> tuple[SstableInfo, ...]:
        """One sorted run with the newest row of each key; `batches`: newest first."""
        placed = [SharedBufferBatch(each.rows, PLACEHOLDER) for each in batches]
        chains = [SharedBufferChainIterator(chain) for chain in chains_of(placed)]
        outputs = write_run(
            RetentionIterator(MergeIterator(chains)), sum(each.size_bytes for each in batches),
            self._base.object_store, self.options, lambda: mint_sstable_name(os.urandom, self._prefix), name="staging",
            room_bytes=self.options.upload_bytes, tables=self._base.version.tables)
        return tuple(output.info for output in outputs)

    def settle(self, epoch: Epoch) -> None:
        """The load of everything up to `epoch` is committed, and reads of the base see it."""
        with self._lock:
            self._batches = [batch for batch in self._batches if pure_epoch(batch.epoch) > epoch]
            self._settled = max(self._settled, epoch)
            self._view = None

    def commit(self, epoch: Epoch) -> None:
        raise InvalidEpoch(epoch, "is an own epoch: its files are committed as a load")

    def clear_uncommitted(self) -> None:
        with self._lock:
            self._batches, self._view = [], None
            self._sealed = self._synced = self._settled

    # -- reading -------------------------------------------------------------------------------------------

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        """Returns at once: there is no other writer."""

    def close(self) -> None:
        with self._lock:
            self._is_closed, self._batches, self._view = True, [], None
        self._end_reads()
        self._undo.close()

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        return self._base._explain(view, error)

    def _open_view(self) -> ReadView:
        with self._lock:
            if self._is_closed:
                raise StoreClosed("the staging store")
            if self._view is None:
                self._view = self._base.committed_view().with_local(tuple(self._batches))
            return self._view
