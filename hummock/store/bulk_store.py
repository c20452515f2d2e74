"""BulkStore: the state store of one bulk-load task, which writes one epoch into an empty store and produces one run of
files.

Rows are buffered in memory unchanged; beyond a budget they are merged into files in a local directory. At the end all
of it is merged once more, into files that the task's caller may commit. For each key those hold the value that a read
finds at the end, so the same writes in a different order of batches give the same rows. For one thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from hummock.base.closing import ClosedAtExit
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import NO_RULES, Tables
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import MAX_EPOCH, NEVER, Epoch, check_pure
from hummock.errors import InvalidEpoch, StoreClosed
from hummock.iterator.base import HummockIterator
from hummock.iterator.merge import MergeIterator
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore, mint_sstable_name
from hummock.options import StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.sorted_run_writer import write_run
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferChainIterator
from hummock.shared_buffer.flush import chains_of
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.info import SstableInfo
from hummock.sstable.store import SstableStore
from hummock.state_store import SyncResult
from hummock.store.reads import ViewReads
from hummock.version import HummockVersion


class BulkStore(ViewReads, ClosedAtExit):
    """A StateStore without history: none of its epochs is ever committed, and all data is gone when it closes.

    `options.shared_buffer_bytes` are buffered in memory; the rest is spilled to files under `directory`.
    """

    committed_epoch = NEVER

    def __init__(self, options: StorageOptions, directory: str | None = None):
        super().__init__(options)
        self._directory = directory
        self._batches: list[SharedBufferBatch] = []     # newest first, as are the runs, which are older
        self._runs: list[SortedRun] = []
        self._waiting_bytes = self._written_bytes = 0
        self._puts = 0
        self._sealed = NEVER
        self._rules: Tables = NO_RULES
        self._files: SstableStore | None = None
        self._is_closed = False
        self._undo = ExitStack()

    @property
    def puts(self) -> int:
        """Rows written with a value: as many as `write_out` writes if no key was written twice or deleted."""
        return self._puts

    # -- writing -------------------------------------------------------------------------------------------

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        if check_pure(epoch) <= self._sealed:
            raise InvalidEpoch(epoch, f"writes go above the sealed epoch {self._sealed}")
        if len(batch) == 0:
            return 0
        size = batch.size_bytes
        self._batches.insert(0, SharedBufferBatch(batch, epoch))
        self._waiting_bytes += size
        self._written_bytes += size
        self._puts += len(batch) - batch.values.null_count
        self._view = None
        if self._waiting_bytes > self.options.shared_buffer_bytes:
            self._spill()
        return size

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        """Does nothing: all is written at one epoch."""

    def announce_rules(self, tables: Tables) -> None:
        self._rules = {**self._rules, **tables}

    def seal_epoch(self, epoch: Epoch) -> None:
        self._sealed = max(self._sealed, check_pure(epoch))

    def sync(self, epoch: Epoch) -> SyncResult:
        """Returns no files: `write_out` creates them."""
        return SyncResult(epoch, ())

    def commit(self, epoch: Epoch) -> None:
        self.seal_epoch(epoch)

    def write_out(self, objects: ObjectStore, mint_name: Callable[[], str],
                  table_ids: Iterable[int]) -> tuple[SstableInfo, ...]:
        """One sorted run of files in `objects` with what a read finds now; each file has rows of one table.

        `table_ids` are those that were written; the files are built by the announced rules. After an error they are
        left to vacuum.
        """
        children = self._children()
        if not children:
            return ()
        borders = [(table_id + offset, 0) for table_id in table_ids for offset in (0, 1)]
        outputs = write_run(
            RetentionIterator(MergeIterator(children), MAX_EPOCH, True), self._written_bytes, objects, self.options,
            mint_name, name="task", room_bytes=self.options.upload_bytes, tables=self._rules, borders=borders)
        return tuple(output.info for output in outputs)

    # -- reading -------------------------------------------------------------------------------------------

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        """Returns at once: there is no other writer."""

    # -- end -----------------------------------------------------------------------------------------------

    def clear_uncommitted(self) -> None:
        self._batches, self._runs, self._view = [], [], None
        self._waiting_bytes, self._puts, self._sealed = 0, 0, NEVER

    def close(self) -> None:
        self._end_reads()
        self.clear_uncommitted()
        self._files, self._is_closed = None, True
        self._undo.close()

    # -- internals -----------------------------------------------------------------------------------------

    def _children(self) -> list[HummockIterator]:
        """Iterators over all sources, newest first."""
        chains = [SharedBufferChainIterator(chain) for chain in chains_of(self._batches)]
        return [*chains, *(ConcatIterator(self._files, run.infos) for run in self._runs)]

    def _open_view(self) -> ReadView:
        if self._is_closed:
            raise StoreClosed("the store of a task")
        if self._view is None:
            self._view = ReadView(HummockVersion(), (*self._batches, *self._runs), ())
        return self._view

    def _spill(self) -> None:
        """Writes the batches to a local run of files."""
        if self._files is None:
            directory = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="hummock-", dir=self._directory))
            objects = open_object_store(f"file://{directory}")
            self._undo.callback(objects.close)
            self._files = SstableStore(objects, self.options)
            self._undo.callback(self._files.close)
        chains = [SharedBufferChainIterator(chain) for chain in chains_of(self._batches)]
        outputs = write_run(
            RetentionIterator(MergeIterator(chains)), self._waiting_bytes, self._files.object_store, self.options,
            lambda: mint_sstable_name(os.urandom, ""), name="spill", room_bytes=self.options.upload_bytes,
            tables=NO_RULES)
        readers = [self._files.hold(output) for output in outputs]
        self._runs.insert(0, SortedRun(self._files, [reader.info for reader in readers]))
        self._batches, self._waiting_bytes, self._view = [], 0, None
