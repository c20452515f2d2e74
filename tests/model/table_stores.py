"""State stores for random programs over tables: a plain one in memory, or files with compaction in between."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from hummock.epoch import Epoch
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.metrics import Metrics
from hummock.object_store.base import mint_sstable_name
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions, VacuumOptions
from hummock.state_store import StateStore
from hummock.store.memory_store import MemoryStateStore
from hummock.store.storage import HummockStorage
from tests.model.store_processes import SHAPES
from tests.support.drivers.compaction_files import run_ranges
from tests.support.worlds.manager_parts import StandingClock

METRICS = Metrics()
SIZES: tuple[dict[str, Any], ...] = (
    {},
    {"block_bytes": 100, "sstable_bytes": 600, "block_cache_bytes": 2_000, "scan_batch_rows": 3},
    {"block_bytes": 300, "sstable_bytes": 1 << 20, "prefetch_bytes": 700, "scan_batch_bytes": 50},
    {"shared_buffer_bytes": 4_000, "block_bytes": 200, "codec": "none"},
    {"filter_policy": "none", "block_bytes": 64, "sstable_bytes": 300},
)


class Backend(ABC):
    """The state store of the single writer process; `restart` replaces `store`."""

    store: StateStore
    has_rules: bool

    @abstractmethod
    def checkpoint(self, epoch: Epoch) -> None:
        """Commits everything up to `epoch`."""

    @abstractmethod
    def compact(self) -> None: ...

    @abstractmethod
    def restart(self) -> None:
        """Replaces the process by a new one; uncommitted writes are lost."""

    def has_registered(self, table_id: int, epoch: Epoch) -> bool:
        """Whether the commit of `epoch` registered a watermark of the table."""
        return False

    @property
    @abstractmethod
    def safe_epoch(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


class MemoryBackend(Backend):
    has_rules = False

    def __init__(self) -> None:
        self.store = MemoryStateStore()

    def checkpoint(self, epoch: Epoch) -> None:
        self.store.commit(epoch)

    def compact(self) -> None:
        pass

    def restart(self) -> None:
        self.store.clear_uncommitted()

    @property
    def safe_epoch(self) -> int:
        return 0

    def close(self) -> None:
        self.store.close()


class FileBackend(Backend):
    has_rules = True

    def __init__(self, rng: random.Random):
        self.rng, self.clock = rng, StandingClock()
        self.meta, self.objects = MemoryMetaStore(), MemoryObjectStore(self.clock)
        self.options = StorageOptions(**rng.choice(SIZES), watermark_interval_ms=rng.choice((0, 0, 20)),
                                      inline_bytes=rng.choice((0, 500, 1 << 16)))
        self.shape = CompactionOptions(history_ms=0, **rng.choice(SHAPES))
        self.store = self._open()

    def checkpoint(self, epoch: Epoch) -> None:
        self.store.commit(epoch)

    def compact(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            given = self.manager.get_compact_task("compactor")
            if given is None:
                break
            task, token = given
            results = run_ranges(task, self.objects, lambda token=token: mint_sstable_name(
                self.rng.randbytes, token[:16]), threads=1, memory_bytes=1 << 20)
            self.manager.report_compact_task(task.id, token, results)
        if self.rng.random() < 0.3:
            Vacuum(self.meta, self.objects, self.clock, options=VacuumOptions(grace_ms=0, tombstone_ms=0)).run()

    def restart(self) -> None:
        self.store.close()
        self.store = self._open()

    def has_registered(self, table_id: int, epoch: Epoch) -> bool:
        rules = self.store.version.tables.get(table_id)
        return rules is not None and bool(rules.watermarks) and rules.watermarks[0].epoch == epoch

    @property
    def safe_epoch(self) -> int:
        return self.store.version.safe_epoch

    def close(self) -> None:
        self.store.close()

    def _open(self) -> HummockStorage:
        self.manager = HummockManager(self.meta, self.objects, self.clock, compaction=self.shape,
                                      random_bytes=self.rng.randbytes, metrics=METRICS)
        session = self.manager.claim_writer()
        return HummockStorage(self.manager, self.objects, self.options, session=session,
                              random_bytes=self.rng.randbytes, metrics=METRICS)

    def follower(self) -> HummockStorage:
        """The store of another process, for local-only writes."""
        manager = HummockManager(self.meta, self.objects, self.clock, random_bytes=self.rng.randbytes, metrics=METRICS)
        return HummockStorage(manager, self.objects, random_bytes=self.rng.randbytes, metrics=METRICS)
