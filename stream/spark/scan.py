"""What the tasks of the first fragment read: parts of the upstream table at the epoch of the backfill.

A task is told the files that its part touches, of a version that the driver holds, and asks no meta store.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import closing

from hummock.key import KeyRange
from hummock.object_store.base import ObjectStore
from hummock.options import MIB, StorageOptions
from hummock.snapshot_store import SnapshotStore
from hummock.sstable.store import SstableStore
from hummock.version import HummockVersion
from relational.chunk import DataChunk
from relational.table.storage_table import StorageTable
from stream.plan.stream_plan import StreamScanNode
from stream.spark.spec import BackfillSpec

OPTIONS = StorageOptions(block_cache_bytes=16 * MIB, meta_cache_bytes=64 * MIB, scan_batch_rows=32_768)


def scan_specs(table: StorageTable, version: HummockVersion, parts: int) -> list[bytes]:
    """The table in at most `parts` parts of neighbouring vnodes, and the files of each."""
    specs = []
    for part in table.partitions(parts):
        record = {
            "version": version.narrowed([part]).to_json(),
            "start": part.start.hex(),
            "end": None if part.end is None else part.end.hex(),
        }
        specs.append(zlib.compress(json.dumps(record).encode(), 1))
    return specs


def scan_rows(spec: BackfillSpec, scan: bytes, objects: ObjectStore) -> Iterator[DataChunk]:
    """In a task: the rows of one part."""
    record = json.loads(zlib.decompress(scan))
    end = record["end"]
    part = KeyRange(bytes.fromhex(record["start"]), None if end is None else bytes.fromhex(end))
    leaf = spec.fragments[0].leaf
    assert isinstance(leaf, StreamScanNode)
    files = SstableStore(objects, OPTIONS)
    with closing(SnapshotStore(HummockVersion.from_json(record["version"]), files, OPTIONS)) as store:
        yield from StorageTable(leaf.table, store, leaf.columns).scan_partition(spec.epoch, part)
