"""What the tasks of the first fragment read: parts of the upstream table at the epoch of the backfill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import hummock
from hummock.key import KeyRange
from relational.chunk import DataChunk
from relational.table.storage_table import StorageTable
from stream.plan.stream_plan import StreamScanNode
from stream.spark.spec import BackfillSpec


def scan_specs(table: StorageTable, parts: int) -> list[bytes]:
    """The table in at most `parts` parts of neighbouring vnodes."""
    ranges = table.partitions(parts)
    return [json.dumps({"start": part.start.hex(), "end": part.end and part.end.hex()}).encode() for part in ranges]


def scan_rows(spec: BackfillSpec, scan: bytes) -> Iterator[DataChunk]:
    """In a task: the rows of one part."""
    leaf = spec.fragments[0].leaf
    assert isinstance(leaf, StreamScanNode)
    store = _store(spec.url)
    store.wait_epoch(spec.epoch)
    yield from StorageTable(leaf.table, store, leaf.columns).scan_partition(spec.epoch, part_of(scan))


def part_of(scan: bytes) -> KeyRange:
    """The keys that a task reads."""
    record = json.loads(scan)
    end = record["end"]
    return KeyRange(bytes.fromhex(record["start"]), None if end is None else bytes.fromhex(end))


@cache
def _store(url: str) -> hummock.storage.HummockStorage:
    return hummock.open(url)
