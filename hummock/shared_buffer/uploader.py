"""Uploader: batches of the shared buffer become one sorted run of durable SSTs.

All batches of a task are merged at once, so that a checkpoint gives a few large files however many executors
wrote; of several operations on a key within one pure epoch only the newest is written. Files are built on the
caller's thread, without the GIL, and put on others as they are finished.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from hummock.compaction.pipeline import run_pipeline
from hummock.compaction.retention import RetentionIterator
from hummock.iterator.merge import MergeIterator
from hummock.options import StorageOptions
from hummock.shared_buffer.batch import SharedBufferBatchIterator
from hummock.shared_buffer.buffer import UploadTask
from hummock.sstable.filter_policy import filter_policy
from hummock.sstable.reader import SstableReader
from hummock.sstable.split_builder import SplitSstableBuilder
from hummock.sstable.store import SstableStore
from hummock.table_rules import Tables

PUT_THREADS = 4  # files that leave at the same time, while the next one is built
NO_RULES: Tables = {}


class Uploader:
    """Writes files under names from `mint_name`, each new; thread safe."""

    def __init__(self, store: SstableStore, options: StorageOptions, mint_name: Callable[[], str]):
        self._store, self._options, self._mint_name = store, options, mint_name

    def upload(self, task: UploadTask, tables: Tables = NO_RULES) -> list[SstableReader]:
        """Readers of the run's files, ascending and disjoint, durable. After an error some may be orphans.

        `tables`: the version's rules by table id, whose prefixes are filtered too.
        """
        merged = MergeIterator([SharedBufferBatchIterator(batch) for batch in task.batches])
        policy = filter_policy(self._options.filter_policy, self._options.filter_bits_per_key)
        prefixes = {table_id: rules.prefix for table_id, rules in tables.items() if rules.prefix}
        builder = SplitSstableBuilder(self._options, policy, self._mint_name, prefixes)
        with ThreadPoolExecutor(PUT_THREADS, thread_name_prefix="upload") as pool:
            puts: list[Future[SstableReader]] = []
            run_pipeline(
                RetentionIterator(merged),
                builder,
                lambda output: puts.append(pool.submit(self._store.put, output)),
                flush=task.flush,
            )
            return [put.result() for put in puts]
