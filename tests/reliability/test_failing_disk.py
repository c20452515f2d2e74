"""ENOSPC and EIO at every file call of a commit, a compaction and a vacuum: once and for ever, nothing is lost.

With its log in the store's own directory every file call of the whole store is one that can fail here; a database
has file calls of its own, which these tests do not reach.
"""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import hummock
from hummock.compactor import Compactor
from hummock.errors import EpochTooOld, HummockError
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum import Vacuum
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.options import RetryOptions
from hummock.verify import verify_version
from hummock.write_batch import WriteBatch
from tests.hummock.test_object_store_disk import FOREVER, NUMBERS, Disk
from tests.reliability.children import quick_directory
from tests.reliability.maintenance import AT_ONCE, LATER_MS, SHAPE, TASKS
from tests.reliability.workload import SIZES, batches, check_epoch, epoch_of

RETRY = RetryOptions(attempts=3, first_delay_ms=1, max_delay_ms=1)
SEED, EARLIER = 21, 3           # epochs that were written while all was well
NUMBER = EARLIER + 1            # the one that is written while the disk fails


@contextmanager
def opened_parts(root: Path):
    """What a process that only maintains the store opens."""
    url = f"file://{root}"
    objects = open_object_store(url, retry=RETRY)
    try:
        meta = open_meta_store(url, "log", object_store=objects, create=False)
        try:
            yield meta, objects
        finally:
            meta.close()
    finally:
        objects.close()


class Cycle:
    """One process's store; what failed in it, by name of step and error."""

    def __init__(self, root: Path):
        self.root, self.refused, self.tasks = root, Counter(), 0
        self.storage = self.open("writer")

    def open(self, role):
        return hummock.open(f"file://{self.root}", role=role, meta="log", compaction=False, retry=RETRY,
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
        with opened_parts(self.root) as (meta, objects):
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
        """In the same process and in another one: the epoch is committed, all is readable, nothing is left over."""
        if self.storage.committed_epoch < epoch_of(number):
            try:
                self.storage.commit(epoch_of(number))
            except HummockError:        # it had happened, unseen
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
        check_no_garbage(self.root)


def check_no_garbage(root):
    with opened_parts(root) as (meta, objects):
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
        needed = {path(info.name) for info in version.sstables for path in (sstable_data_path, sstable_meta_path)}
        assert {found.path for found in objects.list("sst/")} == needed


def sweep(monkeypatch, number, times, step, first=0):
    """How many cycles met a failing call, and what was refused in all of them."""
    refused, hits = Counter(), 0
    with quick_directory() as directory:
        base, root = directory / "base", directory / "store"
        cycle = Cycle(base)
        for epoch in range(1, EARLIER + 1):
            cycle.run(epoch)
        assert cycle.tasks and not cycle.refused
        cycle.storage.close()
        for at in count(first, step):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(base, root)
            cycle = Cycle(root)
            try:
                with Disk(at, number, times).inserted(monkeypatch) as disk:
                    cycle.run(NUMBER)
                cycle.check_healed(NUMBER)
            except BaseException as error:
                error.add_note(f"call {at}: {disk.seen[at:at + 1]}, refused {dict(cycle.refused)}")
                raise
            if not disk.hit:
                break
            hits, refused = hits + 1, refused + cycle.refused
    return hits, refused


@pytest.mark.parametrize(("number", "times", "first"), [(errno.ENOSPC, FOREVER, 0), (errno.EIO, 1, 7)],
                         ids=["full for ever", "EIO once"])
def test_some_failing_file_calls_lose_nothing(monkeypatch, number, times, first):
    hits, refused = sweep(monkeypatch, number, times, 31, first)
    assert hits >= 10
    assert times == 1 or {name for name, _ in refused} >= {"commit", "maintain", "read"}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("times", [1, FOREVER], ids=["once", "for ever"])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_no_failing_file_call_loses_anything(monkeypatch, number, times):
    hits, refused = sweep(monkeypatch, number, times, 1)
    print(hits, dict(refused))
    assert hits >= 250
