"""A store in use while its object server fails or returns wrong answers: epochs, compaction, vacuum, and full reads.

A call either succeeds or raises a `HummockError`, which is counted in `refused`; any other exception fails the test,
and so does a read with wrong rows."""

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
# leases are renewed early, so that old epochs are released and compaction drops rows
META = MetaOptions(lease_ms=6_000, log_checkpoint_records=12, log_grace_ms=8_000)
COMMIT_TRIES = 12
COMPACT_SECONDS = 20.0
Result = TypeVar("Result")


class StoreLocation:
    """The URLs of a store: its objects through the proxy and directly, and its meta store."""

    def __init__(self, bucket: str, proxied: str, direct: str, meta: str):
        self.url = f"s3://{bucket}/p?endpoint={proxied}"
        self.direct_url = f"s3://{bucket}/p?endpoint={direct}"
        self.meta = meta

    def open(self, role: str, retry: RetryOptions | None = None, *, direct: bool = False, meta: MetaOptions = META,
             **options: Any) -> MaintainedStorage:
        return hummock.open(self.direct_url if direct else self.url, role=role, meta=self.meta, meta_options=meta,
                            compaction=SHAPE, vacuum=OFTEN, retry=retry, **(options or SIZES))

    def damages(self) -> list[object]:
        """Damages of the newest version's objects, read without the proxy."""
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


class Scenario:
    """One writer, epoch by epoch, and short-lived readers."""

    def __init__(self, location: StoreLocation, seed: int, retry: RetryOptions):
        self.location, self.seed, self.retry = location, seed, retry
        self.refused: Counter[str] = Counter()
        self.reads = 0
        self.storage = location.open("writer", retry)

    def typed(self, name: str, call: Callable[[], Result]) -> Result | None:
        try:
            return call()
        except HummockError as error:
            self.refused[f"{name}: {type(error).__name__}"] += 1
            return None

    def run(self, first: int, last: int) -> None:
        """Writes epochs `first` to `last`, with compaction, vacuum and reads in between."""
        for number in range(first, last + 1):
            self.write(number)
            if number % 3 == 0:
                self.typed("compact", lambda: self.storage.compact(timeout=COMPACT_SECONDS))
                self.typed("vacuum", self.storage.vacuum)
            self.typed("read", lambda: self.check(self.storage))
            if number % 4 == 0:
                self.read_with_new_reader()

    def write(self, number: int) -> bool:
        """Writes epoch `number`; returns whether it is committed after several attempts."""
        for batch in batches(self.seed, number):
            self.storage.ingest_batch(WriteBatch(batch), epoch_of(number))
        return self.commit(number)

    def commit(self, number: int) -> bool:
        for _ in range(COMMIT_TRIES):
            self.typed("commit", lambda: self.storage.commit(epoch_of(number)))
            if self.storage.committed_epoch >= epoch_of(number):
                return True
            with suppress(HummockError):        # the commit may have succeeded all the same
                self.storage.wait_epoch(epoch_of(number), timeout_ms=1)
        return False

    def read_with_new_reader(self, *, direct: bool = False) -> int | None:
        """The committed epoch as a new reader sees it, after checking all reads; None if an error was raised."""
        def read() -> int:
            with self.location.open("reader", self.retry, direct=direct, **COLD) as reader:
                self.check(reader)
                return reader.committed_epoch >> 16

        return self.typed("fresh read", read)

    def check(self, storage: MaintainedStorage) -> None:
        self.reads += self.check_reads(storage, self.seed)

    @staticmethod
    def check_reads(storage: MaintainedStorage, seed: int) -> int:
        """Checks reads of every readable epoch and returns the number of epochs."""
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

    def serves(self, number: int) -> bool:
        """Whether epoch `number` is written, compacted and read, here and by a new reader, and no call fails."""
        before = sum(self.refused.values())
        assert self.write(number), self.refused
        is_compacted = self.typed("compact", lambda: self.storage.compact(timeout=COMPACT_SECONDS))
        self.typed("vacuum", self.storage.vacuum)
        self.typed("read", lambda: self.check(self.storage))
        seen = self.read_with_new_reader(direct=True)
        assert seen in (number, None)
        return bool(is_compacted) and sum(self.refused.values()) == before

    def check_healed(self, last: int, tries: int = 1) -> None:
        """Nothing fails any more, in this process without a restart and in others; no file is missing. `tries`: so many
        epochs may be needed until that is so."""
        healed = next((number for number in range(last + 1, last + 1 + tries) if self.serves(number)), None)
        assert healed is not None, self.refused
        self.storage.close()
        assert self.location.damages() == []
        assert self.read_with_new_reader() == healed
