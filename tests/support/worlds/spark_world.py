"""A store in a directory whose large tasks run on Spark, while drivers die, leases expire and reports arrive late."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.progress_log import LOG_PREFIX, TaskProgressLog
from hummock.compaction.spark import SparkTasks
from hummock.compaction.worker_task import WorkerTask
from hummock.compaction.worker_task import carry_out as run_task_really
from hummock.compactor import Compactor
from hummock.errors import HummockError, TaskRefused
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store import open_object_store
from hummock.object_store.base import SSTABLE_PREFIX, sstable_name_of
from hummock.options import VacuumOptions
from tests.hummock.test_compactor import OPTIONS, Store
from tests.support.drivers.spark_chaos import wait_for_attempts, write_plan
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import cancel_task, epoch_of, open_manager

LARGE = replace(OPTIONS, large_task_bytes=1, l0_base_bytes=1, task_lease_ms=1_000, task_stall_ms=60_000, task_tries=9)
RANGES = 6
MEMORY = 8 << 20
DRIVER_FAULTS = ("lives", "dies before its report", "dies before its report's transaction",
                 "dies behind its report's transaction", "dies behind its report", "is silent beyond its lease",
                 "reports twice", "is cancelled", "leaves a zombie")


class DriverDied(BaseException):
    """The simulated driver died without a report."""


class DyingClient:
    """The manager of a driver that dies at its report."""

    def __init__(self, manager, plan, step):
        self._manager, self._plan, self._step = manager, plan, step

    def __getattr__(self, name):
        return getattr(self._manager, name)

    def report_compact_task(self, *report):
        if self._step == "dies before its report":
            raise DriverDied
        if "transaction" in self._step:
            kind = FaultKind.BEFORE if "before" in self._step else FaultKind.AFTER
            self._plan.add(Fault(kind, "transaction"))
            self._plan.add(Fault(FaultKind.BEFORE, skip=2, times=1 << 30))
        try:
            self._manager.report_compact_task(*report)
        except HummockError as error:
            raise DriverDied from error
        raise DriverDied


class SparkWorld(Store):
    """`round` writes, compacts everything under faults, and checks that nothing is lost and no garbage is left."""

    def __init__(self, spark, directory: Path, seed: int):
        self.url = f"file://{directory}/store"
        super().__init__(open_object_store(self.url), LARGE)
        self.clock.now_ms = 4_000_000_000_000       # ahead of object times, so that vacuum regards none as young
        self.spark, self.rng, self.model, self.drivers = spark, random.Random(seed), {}, 0
        self.meta_store = self.manager._keeper.meta_store

    def write(self, commits, rows=150):
        for _ in range(commits):
            self.epoch += 1
            batch = {user_key(1, self.rng.randrange(3), b"%04d" % self.rng.randrange(1_500)):
                     None if self.rng.random() < .2 else self.rng.randbytes(40) for _ in range(rows)}
            self.storage.ingest_batch(WriteBatch(sorted(batch.items())), epoch_of(self.epoch))
            self.storage.commit(epoch_of(self.epoch))
            self.model.update(batch)
        self.manager.renew_lease("store")
        return self

    def round(self, driver_fault: str, faults: dict[int, str]) -> None:
        self.write(self.rng.randrange(2, 5))
        write_plan(self.url, faults)
        self.manager.compact_range(KeyRange.table(1))
        getattr(self, "_" + driver_fault.replace(" ", "_").replace("'", ""))()
        self.write(1)
        self.vacuum()
        self.finish()
        self.check()

    def finish(self) -> None:
        """Another driver finishes the remaining tasks."""
        self.manager.renew_lease("store")
        self.clock.advance(LARGE.task_lease_ms)
        self.manager.renew_lease("store")
        with self.driver() as compactor:
            while compactor.run_one():
                pass

    def check(self) -> None:
        wait_for_attempts(self.spark, self.url)
        assert self.rows() == sorted((key, value) for key, value in self.model.items() if value is not None)
        assert not self.manager.running_tasks()
        self.manager.lift_leases()
        self.vacuum()
        live = {info.name for info in self.manager.refresh().sstables}
        stored = {sstable_name_of(found.path) for found in self.objects.list(SSTABLE_PREFIX)}
        assert stored == live, (len(stored - live), "orphans", len(live - stored), "live files deleted")
        assert not [found.path for found in self.objects.list(LOG_PREFIX)]

    def vacuum(self) -> None:
        Vacuum(self.meta_store, self.objects, self.clock, options=VacuumOptions(grace_ms=0)).run()

    def driver(self, step: str = "lives"):
        """A compactor as in another process."""
        self.drivers += 1
        plan = FaultPlan()
        manager = open_manager(FaultyMetaStore(self.meta_store, plan), self.clock, seed=1_000 + self.drivers,
                               object_store=self.objects, compaction=LARGE)
        client = manager if step == "lives" else DyingClient(manager, plan, step)
        return _Driver(Compactor(client, self.objects, LARGE, node=f"driver-{self.drivers}", large=self.tasks()))

    def tasks(self) -> SparkTasks:
        return SparkTasks(self.spark, self.objects, memory_bytes=MEMORY)

    # -- the ends of a driver ----------------------------------------------------------------------------------

    def _lives(self) -> None:
        with self.driver() as compactor:
            assert compactor.run_one()

    def _dies(self, step: str) -> None:
        with self.driver(step) as compactor:
            try:
                compactor.run_one()
            except DriverDied:
                return
        raise AssertionError(f"a driver that {step} survived")

    def _dies_before_its_report(self) -> None:
        self._dies("dies before its report")

    def _dies_before_its_reports_transaction(self) -> None:
        self._dies("dies before its report's transaction")

    def _dies_behind_its_reports_transaction(self) -> None:
        self._dies("dies behind its report's transaction")

    def _dies_behind_its_report(self) -> None:
        self._dies("dies behind its report")

    def _is_silent_beyond_its_lease(self) -> None:
        """Another driver took over its task, and its report arrives late."""
        task, token = self.manager.get_compact_task("silent", does_large=True)
        results = self.tasks().run(task, token[:16])
        self.finish()
        self._is_refused(task, token, results)

    def _reports_twice(self) -> None:
        task, token = self.manager.get_compact_task("twice", does_large=True)
        results = self.tasks().run(task, token[:16])
        version = self.manager.report_compact_task(task.id, token, results)
        assert self.manager.report_compact_task(task.id, token, results) == version
        self._is_refused(task, token, [replace(result, rows_read=0, rows_dropped=0, sstables=())
                                       for result in results])

    def _is_cancelled(self) -> None:
        task, token = self.manager.get_compact_task("cancelled", does_large=True)
        results = self.tasks().run(task, token[:16])
        assert cancel_task(self.manager, task.id, "enough")
        self._is_refused(task, token, results)

    def _leaves_a_zombie(self) -> None:
        """An attempt continues long after its task has ended."""
        task, token = self.manager.get_compact_task("zombie", does_large=True)
        results = self.tasks().run(task, token[:16])
        self.finish()
        log = TaskProgressLog(self.objects, task)
        zombie = WorkerTask(task.ranges()[0].narrowed(), self.url, token[:16], MEMORY, 60_000, log.path(0))
        run_task_really(zombie.encode())
        assert log.results(1)
        self._is_refused(task, token, results)

    def _is_refused(self, task, token, results) -> None:
        before = self.manager.refresh().id
        try:
            self.manager.report_compact_task(task.id, token, results)
        except TaskRefused:
            assert self.manager.refresh().id == before
        else:
            raise AssertionError("a late or false report was accepted")


class _Driver:
    """A context with a compactor; its end releases no more than that of a dead process."""

    def __init__(self, compactor):
        self._compactor = compactor

    def __enter__(self):
        return self._compactor

    def __exit__(self, *caught):
        self._compactor.close(drain=False)
