"""StorageStats: the state of a store at one moment, for people and for tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from hummock.epoch import Epoch
from hummock.object_store.disk_cache import DiskCacheCounts
from hummock.sstable.store import SstableStore
from hummock.store.write_path import WritePath
from hummock.version import HummockVersion


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Bytes of the shared buffer count keys and values uncompressed; bytes of files count what is stored."""

    committed_epoch: Epoch
    sealed_epoch: Epoch
    safe_epoch: Epoch
    version_id: int
    level_files: tuple[int, ...]  # indexed by level
    data_bytes: int  # of the version's files
    waiting_bytes: int  # written, not durable yet
    local_bytes: int  # written, never uploaded
    buffer_limit_bytes: int
    staged_files: int  # durable, not committed yet
    uploads_running: int
    uploads_waiting: int  # cut or failed, not started
    writers_waiting: int  # waiting for space in the buffer
    drain_bytes_per_second: float  # recent speed of uploads; 0 before the first
    block_cache_bytes: int
    meta_cache_bytes: int
    open_scans: int
    block_cache_hits: int  # counts keys of point reads, as the misses do
    block_cache_misses: int
    block_cache_admitted: int  # missed blocks that were cached
    block_cache_evictions: int
    meta_cache_hits: int
    meta_cache_misses: int
    meta_cache_evictions: int
    disk_cache_bytes: int
    disk_cache_hits: int  # counts windows, as the three below do
    disk_cache_misses: int
    disk_cache_evictions: int
    disk_cache_damaged: int  # failed verification, and were read from the store again
    ingested_batches: int
    ingested_rows: int
    ingested_bytes: int
    get_many_calls: int  # counts batched reads; racing threads may lose one
    get_many_keys: int
    scan_calls: int
    scan_many_calls: int
    scan_prefixes_calls: int
    changes_calls: int


COUNTED = frozenset(  # monotonic fields
    field.name
    for field in fields(StorageStats)
    if field.name.startswith(("ingested_", "get_", "scan_", "changes_"))
    or field.name.endswith(("_hits", "_misses", "_admitted", "_evictions", "_damaged"))
)


@dataclass(slots=True)
class ReadCounts:
    """What was read since the store was opened."""

    get_many_calls: int = 0
    get_many_keys: int = 0
    scan_calls: int = 0
    scan_many_calls: int = 0
    scan_prefixes_calls: int = 0
    changes_calls: int = 0


def stats_of(version: HummockVersion, writes: WritePath, files: SstableStore, open_scans: int,
             reads: ReadCounts) -> StorageStats:
    """REQUIRES the lock of `writes`."""
    buffer, disk = writes.buffer, files.disk_cache
    counts = DiskCacheCounts() if disk is None else disk.counts
    return StorageStats(
        committed_epoch=version.max_committed_epoch,
        sealed_epoch=buffer.sealed_epoch,
        safe_epoch=version.safe_epoch,
        version_id=version.id,
        level_files=tuple(sum(1 for _ in level.sstables) for level in version.levels),
        data_bytes=sum(level.data_bytes for level in version.levels),
        waiting_bytes=buffer.waiting_bytes,
        local_bytes=buffer.local_bytes,
        buffer_limit_bytes=buffer.limit_bytes,
        staged_files=buffer.staged_files,
        uploads_running=buffer.running_tasks,
        uploads_waiting=buffer.waiting_tasks,
        writers_waiting=writes.writers_waiting,
        drain_bytes_per_second=writes.rate.bytes_per_second,
        block_cache_bytes=files.block_cache.used_bytes,
        meta_cache_bytes=files.meta_cache.used_bytes,
        open_scans=open_scans,
        block_cache_hits=files.admission.hits,
        block_cache_misses=files.admission.misses,
        block_cache_admitted=files.admission.admitted,
        block_cache_evictions=files.block_cache.evictions,
        meta_cache_hits=files.admission.meta_hits,
        meta_cache_misses=files.admission.meta_misses,
        meta_cache_evictions=files.meta_cache.evictions,
        disk_cache_bytes=0 if disk is None else disk.used_bytes,
        disk_cache_hits=counts.hits,
        disk_cache_misses=counts.misses,
        disk_cache_evictions=counts.evictions,
        disk_cache_damaged=counts.damaged,
        ingested_batches=writes.ingested_batches,
        ingested_rows=writes.ingested_rows,
        ingested_bytes=writes.ingested_bytes,
        **asdict(reads),
    )
