"""A store in use while the server of its objects fails or lies: epochs, compaction, vacuum, and reads of all of it.

Whatever happens, a call does what it says or raises a `HummockError`; anything else ends the test, and so does a
read that is answered and wrong. What was raised is counted in `refused`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import EpochTooOld, HummockError
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.opening import MaintainedStorage
from hummock.options import MetaOptions, RetryOptions, VacuumOptions
from hummock.tools.verify import verify_version
from tests.reliability import maintenance
from tests.reliability.store_workload import EVERYTHING, batches, epoch_of, state

SIZES = {"block_bytes": 512, "sstable_bytes": 4_000, "refresh_ms": 200}
COLD = {**SIZES, "block_cache_bytes": 1, "meta_cache_bytes": 1, "refresh_ms": 60_000}
SHAPE = replace(maintenance.SHAPE, history_ms=5, sstable_bytes=4_000, range_bytes=1 << 20, task_retry_ms=20,
                l0_runs=3, l0_base_bytes=6_000, base_level_bytes=6_000)
OFTEN = VacuumOptions(interval_ms=100, listing_ms=400, grace_ms=0, tombstone_ms=0)
# leases are renewed early, so that old epochs are given up and compaction drops rows
META = MetaOptions(lease_ms=6_000, log_checkpoint_records=12, log_grace_ms=8_000)
COMMIT_TRIES = 12
COMPACT_SECONDS = 20.0
Result = TypeVar("Result")


class Place:
    """Where a store is: its objects through the proxy and beside it, and its truth."""

    def __init__(self, bucket: str, proxied: str, direct: str, meta: str):
        self.url = f"s3://{bucket}/p?endpoint={proxied}"
        self.direct_url = f"s3://{bucket}/p?endpoint={direct}"
        self.meta = meta

    def open(self, role: str, retry: RetryOptions | None = None, *, direct: bool = False, meta: MetaOptions = META,
             **options: Any) -> MaintainedStorage:
        return hummock.open(self.direct_url if direct else self.url, role=role, meta=self.meta, meta_options=meta,
                            compaction=SHAPE, vacuum=OFTEN, retry=retry, **(options or SIZES))

    def damages(self) -> list[object]:
        """Of the newest version's objects, read without the proxy."""
        objects = open_object_store(self.direct_url)
        meta = open_meta_store(self.direct_url, self.meta, object_store=objects, create=False)
        try:
            version = HummockManager(meta, objects).version
            return [found for found in verify_version(version, objects) if found.damages]
        finally:
            meta.close()
            objects.close()


def meta_at(kind: str, directory: Path) -> str:
    return "log" if kind == "log" else f"sqlite:{directory}/meta.sqlite"


class Story:
    """One writer's life, epoch by epoch, and readers who come and go. `storage` may be opened anew at any time."""

    def __init__(self, place: Place, seed: int, retry: RetryOptions):
        self.place, self.seed, self.retry = place, seed, retry
        self.refused: Counter[str] = Counter()
        self.reads = 0
        self.storage = place.open("writer", retry)

    def typed(self, name: str, call: Callable[[], Result]) -> Result | None:
        try:
            return call()
        except HummockError as error:
            self.refused[f"{name}: {type(error).__name__}"] += 1
            return None

    def live(self, first: int, last: int) -> None:
        """Epochs `first` to `last`, each with what else goes on beside it."""
        for number in range(first, last + 1):
            self.write(number)
            if number % 3 == 0:
                self.typed("compact", lambda: self.storage.compact(timeout=COMPACT_SECONDS))
                self.typed("vacuum", self.storage.vacuum)
            self.typed("read", lambda: self.check(self.storage))
            if number % 4 == 0:
                self.read_afresh()

    def write(self, number: int) -> bool:
        """Whether epoch `number` is committed after some tries."""
        for batch in batches(self.seed, number):
            self.storage.ingest_batch(WriteBatch(batch), epoch_of(number))
        return self.commit(number)

    def commit(self, number: int) -> bool:
        for _ in range(COMMIT_TRIES):
            self.typed("commit", lambda: self.storage.commit(epoch_of(number)))
            if self.storage.committed_epoch >= epoch_of(number):
                return True
            with suppress(HummockError):        # it may have happened all the same
                self.storage.wait_epoch(epoch_of(number), timeout_ms=1)
        return False

    def read_afresh(self, *, direct: bool = False) -> int | None:
        """The committed epoch's number as another process sees it, after it read all; None: it was refused."""
        def look() -> int:
            with self.place.open("reader", self.retry, direct=direct, **COLD) as reader:
                self.check(reader)
                return reader.committed_epoch >> 16

        return self.typed("fresh read", look)

    def check(self, storage: MaintainedStorage) -> None:
        self.reads += self.check_reads(storage, self.seed)

    @staticmethod
    def check_reads(storage: MaintainedStorage, seed: int) -> int:
        """Reads every epoch that can be read; how many they were."""
        version, done = storage.version, 0
        last = version.max_committed_epoch >> 16
        for number in range(version.safe_epoch >> 16, last + 1):
            try:
                with storage.scan(EVERYTHING, epoch_of(number), reverse=number % 3 == 1) as scan:
                    found = list(scan)
            except EpochTooOld:
                assert storage.version.safe_epoch >> 16 > number
                continue
            rows = sorted(state(seed, number).items(), reverse=number % 3 == 1)
            assert found == rows, f"wrong rows at epoch {number} of seed {seed}"
            done += 1
        key = min(state(seed, last), default=b"none")
        assert storage.get(key, epoch_of(last)) == state(seed, last).get(key)
        return done

    def check_healed(self, last: int) -> None:
        """Nothing is refused any more, in this process, which was not restarted, and in others; no file is missing."""
        before = sum(self.refused.values())
        assert self.write(last + 1)
        assert self.storage.compact(timeout=COMPACT_SECONDS)
        self.storage.vacuum()
        self.check(self.storage)
        assert self.read_afresh(direct=True) == last + 1
        assert sum(self.refused.values()) == before, self.refused
        self.storage.close()
        assert self.place.damages() == []
        assert self.read_afresh() == last + 1
