"""The processes of random programs: a writer and a reader over one store, and a third that pins and compacts.

They share no objects but the stores, like separate processes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hummock.epoch import Epoch, wall_clock_ms
from hummock.errors import StoreClosed
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, MetaOptions, StorageOptions
from hummock.store.reads import HummockScan
from hummock.store.storage import HummockStorage
from tests.model.ruled_model import Keys, RuledModel, first_rules
from tests.support.worlds.manager_parts import StandingClock

LEASE_MS = 30_000
NODE = "pins"           # the node that holds the program's pins
OBJECTS_AGE_MS = 1_000_000      # files on disk have times of the machine's clock
METRICS = Metrics()
SIZES = (
    {},
    {f"{name}_bytes": 1 for name in ("block", "sstable", "block_cache", "meta_cache", "prefetch")},
    {"block_bytes": 100, "sstable_bytes": 600, "block_cache_bytes": 2_000, "scan_batch_rows": 3},
    {"block_bytes": 300, "sstable_bytes": 1 << 20, "prefetch_bytes": 700, "scan_batch_bytes": 50},
    {"shared_buffer_bytes": 400, "block_bytes": 200, "codec": "none"},
    {"shared_buffer_bytes": 1, "filter_policy": "pybloom", "codec": "zstd"},
    {"filter_policy": "none", "block_bytes": 64, "sstable_bytes": 300},
)
SHAPES = (
    {"base_level_bytes": 300, "l0_base_bytes": 200, "sstable_bytes": 200, "block_bytes": 60, "level_multiplier": 2},
    {"base_level_bytes": 100, "l0_base_bytes": 1, "sstable_bytes": 1, "block_bytes": 1, "level_multiplier": 2},
    {"base_level_bytes": 400, "l0_base_bytes": 1 << 20, "sstable_bytes": 200, "l0_runs": 2, "last_level": 3},
    {"base_level_bytes": 200, "l0_base_bytes": 400, "l0_runs": 2, "task_runs": 3, "task_bytes": 300, "last_level": 4},
    {"base_level_bytes": 400, "l0_base_bytes": 200, "sstable_bytes": 60, "block_bytes": 60, "l0_runs": 2,
     "task_bytes": 400},
    {"base_level_bytes": 150, "l0_base_bytes": 150, "sstable_bytes": 400, "block_bytes": 100, "range_bytes": 200,
     "level_multiplier": 3, "codecs": ("none", "lz4", "zstd")},
)


@dataclass(slots=True)
class OpenScan:
    """An unfinished scan; `rows` are those that it has not returned yet."""

    store: HummockStorage
    scan: HummockScan
    rows: list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Snapshot:
    """An epoch that one of the stores pins by `snapshot()`."""

    store: HummockStorage
    number: int
    holding: AbstractContextManager[Epoch]


class Processes:
    """The stores, their processes and the model; open scans and snapshots end with their process."""

    def __init__(self, rng: random.Random, directory: Path | None = None, sizes: dict | None = None):
        self.rng, self.clock = rng, StandingClock(wall_clock_ms() + OBJECTS_AGE_MS)
        self.objects: ObjectStore = MemoryObjectStore(self.clock) if directory is None else LocalObjectStore(directory)
        self.meta = MemoryMetaStore()
        self.options = StorageOptions(**{"inline_bytes": rng.choice((0, 500, 1 << 16)),
                                         **(rng.choice(SIZES) if sizes is None else sizes)})
        self.shape = CompactionOptions(history_ms=0, stale_percent=rng.choice((10, 40)), **rng.choice(SHAPES))
        self.model, self.keys = RuledModel(), Keys(rng)
        self.epoch = 0                      # number of the committed epoch
        self.pins: Counter[int] = Counter()
        self.snapshots: list[Snapshot] = []
        self.scans: list[OpenScan] = []
        self.zombies: list[HummockStorage] = []
        self.writer = self.open_writer()
        if rng.random() < 0.8:
            self.commit_to(1, first_rules(rng))
        self.reader = self.open_reader()
        self.pinner = self.manager()

    def commit_to(self, number: int, tables: dict, dropped: tuple[int, ...] = ()) -> None:
        """Commits to the writer and the model, with new rules."""
        self.epoch = number
        self.model.commit(Epoch(number << 16))
        self.model.commit_rules(tables)
        self.writer.commit(Epoch(number << 16), tables=tables, dropped_tables=dropped)

    def manager(self) -> HummockManager:
        return HummockManager(self.meta, self.objects, self.clock, options=MetaOptions(lease_ms=LEASE_MS),
                              compaction=self.shape, random_bytes=self.rng.randbytes, metrics=METRICS)

    def open_writer(self) -> HummockStorage:
        manager = self.manager()
        return self.open(manager, session=manager.claim_writer())

    def open_reader(self) -> HummockStorage:
        return self.open(self.manager(), committed_only=True)

    def open(self, manager: HummockManager, **how: Any) -> HummockStorage:
        return HummockStorage(manager, self.objects, self.options, random_bytes=self.rng.randbytes, metrics=METRICS,
                              **how)

    def leave(self, store: HummockStorage) -> None:
        """Closes the scans of a store that is about to end, and drops its snapshots."""
        for held in [held for held in self.scans if held.store is store]:
            held.scan.close()
            with refused(StoreClosed):
                held.scan.next_batch()
        self.scans = [held for held in self.scans if held.store is not store]
        self.snapshots = [held for held in self.snapshots if held.store is not store]

    def close(self) -> None:
        for store in (self.writer, self.reader, *self.zombies):
            store.close()

    @property
    def sealed(self) -> int:
        return self.model._sealed_epoch >> 16

    @property
    def pinned(self) -> set[int]:
        """Numbers of all pinned epochs."""
        return {*self.pins, *(held.number for held in self.snapshots)}

    def some_epoch(self) -> Epoch:
        """Mostly a pinned epoch or the newest, else any."""
        newest = max(self.epoch, self.sealed) + 3
        number = self.rng.choice([newest, self.epoch, *sorted(self.pinned), self.rng.randint(0, newest)])
        return Epoch(number << 16 | self.rng.choice((0, 7)))

    def renew(self) -> None:
        """Renews the leases of all live processes."""
        for store in (self.writer, self.reader):
            store._local._leased(store.meta_client.renew_lease)
        if self.pins:
            self.pinner.renew_lease(NODE)


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"not refused with {error.__name__}")
