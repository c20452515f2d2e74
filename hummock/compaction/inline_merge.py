"""Merges inline files into inline files, on the caller's thread and without touching the object store.

A commit of a few rows leaves a run of level 0, and level 0 is merged again and again while it is small. As a task that
would cost two transactions and threads for some kilobytes; the manager does it within the transaction that replaces the
files instead.
"""

from __future__ import annotations

from collections.abc import Callable

from hummock.compaction.picker.candidate import Compaction, files_of
from hummock.compaction.task import CompactTask, RangeResult
from hummock.errors import RowCountMismatch
from hummock.iterator.merge import MergeIterator
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import INLINE_BYTES, StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.sorted_run_writer import write_run
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.inline import inlined
from hummock.sstable.store import SstableStore


def is_inline(compaction: Compaction) -> bool:
    """Whether this merges a few inline files into one run of level 0, which does not add to the version's inline bytes
    and stays within the bound of one commit.
    """
    files = list(files_of(compaction))
    return (compaction.target_level == 0 and all(info.inline_data for info in files)
            and sum(info.stored_bytes for info in files) <= INLINE_BYTES)


def merge_inline(task: CompactTask, mint_name: Callable[[], str]) -> RangeResult:
    """The result of the whole task, as `run_subcompaction`. REQUIRES `is_inline`. Raises `Corruption`,
    `RowCountMismatch`.
    """
    built, output = MemoryObjectStore(), task.output
    options = StorageOptions(
        block_bytes=output.block_bytes, sstable_bytes=output.sstable_bytes, codec=output.codec,
        filter_policy=output.filter_policy, filter_bits_per_key=output.filter_bits_per_key,
        block_cache_bytes=2 * INLINE_BYTES, meta_cache_bytes=2 * INLINE_BYTES)
    files = SstableStore(built, options)
    runs = [ConcatIterator(files, part.sstables) for part in task.inputs]
    kept = RetentionIterator(
        MergeIterator(runs), task.watermark, task.drop_tombstones, task.dropped_tables, task.tables)
    outputs = write_run(
        kept, task.input_bytes, built, options, mint_name, name="inline", room_bytes=INLINE_BYTES, tables=task.tables,
        borders=task.borders)
    sstables = tuple(inlined(output.info, built) for output in outputs)
    result = RangeResult(0, sstables, task.input_rows, kept.dropped_rows, task.input_hash or 0,
                         kept.dropped_hash, sum(info.stored_bytes for info in task.input_files), 0.0)
    if why := result.mismatch():
        raise RowCountMismatch(task.id, 0, why)
    return result
