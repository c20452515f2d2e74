"""A small store whose parts are accessible to tests: objects, meta store, clock, compaction and vacuum."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.task import CompactTask, RangeResult
from hummock.epoch import Epoch
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport
from hummock.object_store.base import mint_sstable_name
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, MetaOptions, StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from tests.support.drivers.compaction_files import run_ranges
from tests.support.worlds.manager_parts import StandingClock

LEASE_MS = 30_000
EVERYTHING = KeyRange(b"", None)


def at(number: int) -> Epoch:
    """Epoch number `number`."""
    return Epoch(number << 16)


class CountingObjectStore(MemoryObjectStore):
    """Records the path of each read."""

    def __init__(self, clock):
        super().__init__(clock)
        self.reads: list[str] = []

    def get(self, path, byte_range=None):
        self.reads.append(path)
        return super().get(path, byte_range)

    def get_into(self, path, start, target):
        self.reads.append(path)
        return super().get_into(path, start, target)


class Lab:
    """`store` writes; `manager` is its manager. Epochs are small numbers."""

    def __init__(self, compaction: dict | None = None, **options):
        self.clock = StandingClock()
        self.objects, self.meta = CountingObjectStore(self.clock), MemoryMetaStore()
        self.rng = random.Random(7)
        self.options = StorageOptions(**{"inline_bytes": 0, **options})
        self.shape = CompactionOptions(**{"history_ms": 0, "l0_runs": 2, "l0_base_bytes": 1, **(compaction or {})})
        self.manager = self.process()
        self.store = self.open(self.manager, session=self.manager.claim_writer())

    def process(self) -> HummockManager:
        """A manager as another process would open it."""
        return HummockManager(self.meta, self.objects, self.clock, options=MetaOptions(lease_ms=LEASE_MS),
                              compaction=self.shape, random_bytes=self.rng.randbytes)

    def open(self, manager: HummockManager, **how) -> HummockStorage:
        return HummockStorage(manager, self.objects, self.options, random_bytes=self.rng.randbytes, **how)

    def write(self, number: int, rows: dict[bytes, bytes | None]) -> None:
        self.store.ingest_batch(WriteBatch(sorted(rows.items())), at(number))

    def commit(self, number: int, rows: dict[bytes, bytes | None], **how) -> None:
        self.write(number, rows)
        self.store.commit(at(number), **how)

    def rows(self, number: int, store: HummockStorage | None = None, **how) -> list[tuple[bytes, bytes]]:
        with (store or self.store).scan(EVERYTHING, at(number), **how) as scan:
            return list(scan)

    def merge(self, task: CompactTask, token: str) -> list[RangeResult]:
        return run_ranges(task, self.objects, lambda: mint_sstable_name(self.rng.randbytes, token[:16]), threads=1,
                          memory_bytes=1 << 20)

    def compact(self) -> list[CompactTask]:
        """Merges all files, due or not, as far as the oldest pin allows."""
        self.manager.renew_lease(self.store._local._node)
        self.manager.compact_range(EVERYTHING)
        done = []
        while (given := self.manager.get_compact_task("compactor")) is not None:
            self.manager.report_compact_task(given[0].id, given[1], self.merge(*given))
            done.append(given[0])
        return done

    def vacuum(self, **options) -> VacuumReport:
        known = {"grace_ms": 0, "tombstone_ms": 0, **options}
        return Vacuum(self.meta, self.objects, self.clock, options=VacuumOptions(**known)).run()

    def stored_rows(self) -> int:
        return sum(info.rows for info in self.manager.refresh().sstables)

    def names(self) -> list[str]:
        return [info.name for info in self.manager.refresh().sstables]

    def close(self) -> None:
        self.store.close()


def keys(names: Iterable[str]) -> dict[bytes, bytes | None]:
    return {name.encode(): b"1" for name in names}
