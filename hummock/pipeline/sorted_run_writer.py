"""Writes entries in order as one sorted run of durable files, for a flush of the shared buffer and for bulk loads.

Files are built on the caller's thread, without the GIL, and uploaded in parts meanwhile; building blocks while
`room_bytes` are in flight. A small run is uploaded by the caller's thread too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hummock.base.table_rules import Tables
from hummock.iterator.base import HummockIterator
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.merge_loop import run_pipeline
from hummock.pipeline.streaming_upload import PART_BYTES, UploadQueue
from hummock.pipeline.thread_group import ThreadGroup
from hummock.sstable.builder import SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder

PUT_THREADS = 4  # files uploaded concurrently while the next one is built
SMALL_BYTES = 1 << 18  # up to this a run is uploaded by the thread that built it


def write_run(
    rows: HummockIterator,
    size_bytes: int,
    store: ObjectStore,
    options: StorageOptions,
    mint_name: Callable[[], str],
    *,
    name: str,
    room_bytes: int,
    tables: Tables,
    borders: Iterable[tuple[int, int]] = (),
    flush: int | None = None,
    before_each: Callable[[], None] = lambda: None,
) -> list[SstableOutput]:
    """Returns the files, ascending, disjoint and durable, without their data; after an error vacuum deletes them.

    `size_bytes`: of keys and values, about. `tables`: the rules by table id, whose prefixes enter the filters. No file
    spans one of `borders`, (table id, vnode) pairs. `flush`: as in `run_pipeline`. `before_each` is called before the
    end of each file is uploaded; an exception from it aborts the write.
    """
    policy = filter_policy(options.filter_policy, options.filter_bits_per_key)
    prefixes = {table_id: rules.prefix for table_id, rules in tables.items() if rules.prefix}
    is_small = size_bytes <= min(SMALL_BYTES, options.sstable_bytes)
    queue, threads = UploadQueue(store, room_bytes, is_served=not is_small), ThreadGroup(name)

    def take(output: SstableOutput) -> None:
        before_each()
        queue.finish(output)

    data_bytes = min(PART_BYTES, size_bytes + 4 * options.block_bytes)
    is_large = size_bytes > options.sstable_bytes        # several files are possible
    builder = MultiSstableBuilder(
        options, policy, mint_name, prefixes, borders, data_bytes, queue.file, is_served=is_large)
    try:
        builder.prepare()
        for _ in range(PUT_THREADS if is_large else int(not is_small)):
            threads.start(queue.serve)
        if is_large:
            threads.start(builder.serve)
        run_pipeline(rows, builder, take, flush=flush)
        return list(queue.wait())
    finally:
        builder.stop()
        queue.stop()
        threads.join()
        queue.close()
