"""One cycle of a store on a failing disk: an epoch, a compaction, a vacuum and reads; and the checks afterwards.

    work_under_faults      the work of a child process under `file_calls`, whose calls fail as its job specifies
"""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.compactor import Compactor
from hummock.errors import EpochTooOld, HummockError
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.options import RetryOptions
from hummock.tools.verify import verify_version
from tests.reliability.fork_server import Note
from tests.reliability.maintenance import AT_ONCE, LATER_MS, SHAPE, TASKS
from tests.reliability.store_workload import SIZES, batches, check_epoch, epoch_of

RETRY = RetryOptions(attempts=3, first_delay_ms=1, max_delay_ms=1)
SEED, EARLIER = 21, 3           # epochs written before the faults
NUMBER = EARLIER + 1            # the epoch written during the faults


@contextmanager
def opened_parts(root: Path, meta_kind: str | None):
    """The meta store and object store, as a maintenance-only process opens them."""
    url = f"file://{root}"
    objects = open_object_store(url, retry=RETRY)
    try:
        meta = open_meta_store(url, meta_kind, object_store=objects, create=False)
        try:
            yield meta, objects
        finally:
            meta.close()
    finally:
        objects.close()


class Cycle:
    """The store of one process, with metadata in a log or (None) in SQLite, and its errors by step and type."""

    def __init__(self, root: Path, meta: str | None = "log"):
        self.root, self.meta, self.refused, self.tasks = root, meta, Counter(), 0
        self.storage = self.open("writer")

    def open(self, role):
        return hummock.open(f"file://{self.root}", role=role, meta=self.meta, compaction=False, retry=RETRY,
                            refresh_ms=60_000, **SIZES)

    def typed(self, name, step):
        try:
            step()
        except HummockError as error:
            self.refused[name, type(error).__name__] += 1

    def run(self, number):
        for batch in batches(SEED, number):
            self.storage.ingest_batch(WriteBatch(batch), epoch_of(number))
        self.typed("commit", lambda: self.storage.commit(epoch_of(number)))
        self.typed("maintain", self.maintain)
        self.typed("read", self.read)

    def maintain(self):
        with opened_parts(self.root, self.meta) as (meta, objects):
            manager = HummockManager(meta, objects, compaction=SHAPE)
            compactor = Compactor(manager, objects, SHAPE)
            try:
                self.typed("compact", lambda: self.compact(compactor))
            finally:
                compactor.close()
            self.typed("refresh", self.storage._local.refresh)
            self.typed("renew", lambda: self.storage.meta_client.renew_lease(self.storage._local._node))
            self.typed("vacuum", Vacuum(meta, objects, options=AT_ONCE).run)

    def compact(self, compactor):
        for _ in range(TASKS):
            self.tasks += compactor.run_one()

    def read(self, storage=None):
        storage = storage or self.storage
        version = storage.version
        for number in range(version.safe_epoch >> 16, (version.max_committed_epoch >> 16) + 1):
            try:
                check_epoch(storage, SEED, number, number)
            except EpochTooOld:
                assert storage.version.safe_epoch > epoch_of(number)

    def check_healed(self, number):
        """In this process and in another: the epoch is committed, all is readable, there is no garbage."""
        if self.storage.committed_epoch < epoch_of(number):
            try:
                self.storage.commit(epoch_of(number))
            except HummockError:        # an earlier attempt succeeded but raised
                self.storage.wait_epoch(epoch_of(number), timeout_ms=100)
        self.read()
        before = Counter(self.refused)
        self.run(number + 1)
        assert self.refused == before
        self.storage.close()
        reader = self.open("reader")
        with reader:
            assert reader.committed_epoch == epoch_of(number + 1)
            self.read(reader)
        check_no_garbage(self.root, self.meta)


def check_no_garbage(root: Path, meta_kind: str | None) -> None:
    with opened_parts(root, meta_kind) as (meta, objects):
        manager = HummockManager(meta, objects, lambda: meta.now_ms() + LATER_MS, compaction=SHAPE)
        compactor = Compactor(manager, objects, SHAPE)
        while compactor.run_one():
            pass
        compactor.close()
        vacuum = Vacuum(meta, objects, lambda: meta.now_ms() + LATER_MS, options=AT_ONCE)
        for _ in range(2):
            vacuum.run()
        version = manager.version
        assert not [found for found in verify_version(version, objects) if found.damages]
        needed = {path(info.name) for info in version.stored_files for path in (sstable_data_path, sstable_meta_path)}
        assert {found.path for found in objects.list("sst/")} == needed


def prepare(directory: str, meta: str | None, note: Note) -> None:
    """Writes the epochs before the faults."""
    cycle = Cycle(Path(directory), meta)
    for epoch in range(1, EARLIER + 1):
        cycle.run(epoch)
    assert cycle.tasks and not cycle.refused
    cycle.storage.close()


def work_under_faults(directory: str, meta: str | None, note: Note) -> list[str]:
    """Opens and works while calls fail, then checks recovery in this process and in others; returns the errors."""
    root, refused, cycle = Path(directory), Counter(), None
    try:
        cycle = Cycle(root, meta)
        cycle.run(NUMBER)
    except HummockError as error:
        refused["open", type(error).__name__] += 1
    ctypes.CDLL(None).file_calls_disarm()
    if cycle is None:
        cycle = Cycle(root, meta)
        cycle.run(NUMBER)
        assert not cycle.refused
    refused += cycle.refused
    cycle.check_healed(NUMBER)
    return sorted(f"{step}: {error}" for step, error in refused)
