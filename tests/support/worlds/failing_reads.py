"""Files in memory that are read through an object store of which one read fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import hummock
from hummock.base.key import user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.sstable.store import SstableStore
from hummock.store.snapshot_store import SnapshotStore
from hummock.version import HummockVersion
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore

BEFORE, NEWEST = Epoch(1 << 16), Epoch(9 << 16)


class FailingReads:
    """`rows` are those of `version` at NEWEST; none is readable at BEFORE."""

    def __init__(
        self, version: HummockVersion, objects: ObjectStore, options: StorageOptions, rows: list[tuple[bytes, bytes]]
    ):
        self.version, self.rows = version, rows
        self._objects, self._options = objects, options
        self._plan = FaultPlan()

    def files(self, fails: int | None = None) -> SstableStore:
        """The files, none of which was read; read number `fails` of their objects will fail, None: no read."""
        faults = () if fails is None else [Fault(FaultKind.BEFORE, "get", skip=fails)]
        self._plan = FaultPlan(faults)
        return SstableStore(FaultyObjectStore(self._objects, self._plan), self._options)

    def snapshot(self, fails: int | None = None) -> SnapshotStore:
        return SnapshotStore(self.version, self.files(fails), self._options)

    @property
    def reads(self) -> int:
        """Reads of objects since the last `files` or `snapshot`."""
        return len(self._plan.calls)


@contextmanager
def failing_reads(rng: random.Random) -> Iterator[FailingReads]:
    """Of one file, of a run of several, or of runs whose rows alternate here and follow one another there."""
    options = {"block_bytes": rng.choice((300, 2_000)), "prefetch_bytes": rng.choice((1_000, 8_000)),
               "sstable_bytes": rng.choice((6_000, 1 << 20)), "scan_batch_rows": rng.choice((50, 700)),
               "block_cache_bytes": 1}
    keys = [user_key(1, number // 1_500, b"%05d" % number) for number in range(3_000)]
    rows: dict[bytes, bytes] = {}
    with hummock.open("memory://", role="writer", compaction=False, inline_bytes=0, **options) as store:
        for number in range(rng.choice((1, 1, 2, 5))):
            first = rng.randrange(2_000)
            chosen = keys if number == 0 else rng.choice((keys[first:first + 900], sorted(rng.sample(keys, 1_500))))
            written = {key: b"%d" % number * rng.randrange(1, 30) for key in chosen}
            epoch = Epoch((2 + number) << 16)
            store.ingest_batch(WriteBatch(list(written.items())), epoch)
            store.commit(epoch)
            rows |= written
        store.commit(NEWEST)
        yield FailingReads(store.version, store._sstable_store.object_store, StorageOptions(**options),
                           sorted(rows.items()))
