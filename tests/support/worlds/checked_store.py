"""A store in a directory that several processes use and leave, and what must hold once all of them have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hummock.base.key import KeyRange
from hummock.cli.output import Output
from hummock.cli.store import opened
from hummock.compactor import Compactor
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.upload_registry import read_uploads
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import SSTABLE_PREFIX, sstable_name_of
from hummock.options import CompactionOptions, VacuumOptions
from hummock.tools.verify import verify_rows, verify_version
from tests.support.drivers.spark_chaos import wait_for_attempts

LATER_MS = 10 * 3_600_000       # present leases and name tombstones have expired by then
PROCESS_SECONDS = 240           # timeout of a driver, and of its tasks after its end


class CheckedStore:
    """The store in `directory`; `spark` runs the tasks of drivers that survive, `drivers` are killed processes."""

    def __init__(self, spark, directory: Path, shape: CompactionOptions):
        self.url, self.directory, self.spark, self.shape = f"file://{directory}/store", directory, spark, shape
        self.drivers: list[int] = []

    def check_files(self) -> None:
        """Once all processes have ended, vacuum leaves the files of the newest version, undamaged, and no others; no
        prefix of names is registered any more."""
        self.wait_for_processes()
        wait_for_attempts(self.spark, self.url)
        self.finish_tasks()
        while self.vacuum(LATER_MS):
            pass
        with opened(self.url, None, Output(True)) as store:
            version, objects = store.manager.refresh(), store.object_store
            live = {info.name for info in version.stored_files}
            stored = {sstable_name_of(found.path) for found in objects.list(SSTABLE_PREFIX)}
            assert stored == live, (len(stored - live), "orphans", len(live - stored), "live files deleted")
            assert not read_uploads(store.meta_store), "prefixes of ended processes"
            assert not [found.path for found in objects.list("spark/")], "leftovers of the check of executors"
            read = [*verify_version(version, objects, threads=2), *verify_rows(store.meta_store)]
            assert not [found for found in read if found.damages]

    def wait_for_processes(self) -> None:
        """Waits until all tasks and JVMs of killed drivers have ended."""
        until = time.monotonic() + PROCESS_SECONDS
        while left := [process for driver in self.drivers for process in processes_of(driver)]:
            assert time.monotonic() < until, left
            time.sleep(0.1)
        self.drivers.clear()

    def vacuum(self, ahead_ms: int) -> int:
        """Runs vacuum with a clock `ahead_ms` ahead; returns the number of deleted files."""
        with opened(self.url, None, Output(True)) as store:
            options = VacuumOptions(grace_ms=0, tombstone_ms=0)
            vacuum = Vacuum(store.meta_store, store.object_store, lambda: store.meta_store.now_ms() + ahead_ms,
                            options=options)
            return vacuum.run().removed.files

    def compact(self) -> None:
        """Rewrites everything into new files."""
        with self._compactor(0) as (manager, compactor):
            manager.compact_range(KeyRange())
            while compactor.run_one():
                pass

    def finish_tasks(self) -> None:
        """Finishes the tasks of compactors that died."""
        with self._compactor(LATER_MS) as (manager, compactor):
            while manager.running_tasks():
                assert compactor.run_one()

    @contextmanager
    def _compactor(self, ahead_ms: int) -> Iterator[tuple[HummockManager, Compactor]]:
        """A compactor as in another process, with a clock `ahead_ms` ahead."""
        with opened(self.url, None, Output(True)) as store:
            now_ms = store.meta_store.now_ms
            manager = HummockManager(store.meta_store, store.object_store, lambda: now_ms() + ahead_ms,
                                     compaction=self.shape)
            compactor = Compactor(manager, store.object_store, self.shape)
            yield manager, compactor
            compactor.close()
            manager.close()


def processes_of(leader: int) -> list[int]:
    """Processes of the session with the leader `leader`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, *numbers = path.read_text().rpartition(") ")[2].split()
            if state != "Z" and int(numbers[2]) == leader:
                found.append(int(path.parent.name))
    return found
