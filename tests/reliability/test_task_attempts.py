"""Attempts at compaction tasks that fail, repeat, overtake each other or lose their answer: a task changes the version
at most once, reads never change, and no attempt leaves garbage.
"""

import random
from contextlib import suppress

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import wall_clock_ms
from hummock.errors import MetaStoreError, ObjectStoreError, TaskRefused
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from tests.support.drivers.compaction_files import run_ranges
from tests.support.drivers.seeds import amount, seeds
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.manager_parts import StandingClock, cancel_task, epoch_of, open_manager, task_answers

OPTIONS = CompactionOptions(history_ms=0, l0_runs=2, l0_base_bytes=2_000, base_level_bytes=4_000, level_multiplier=2,
                            sstable_bytes=1_500, block_bytes=300, range_bytes=3_000, threads=1, memory_bytes=1 << 20,
                            task_lease_ms=1_000, task_stall_ms=5_000, task_retry_ms=100, task_tries=4)
SEEDS = amount(2, 6)
MANY_SEEDS = 50
ROUNDS = 4


class World:
    """A store with a writer, the model of its rows at each epoch, and compaction tasks to attempt."""

    def __init__(self, meta_store, seed):
        self.rng, self.clock = random.Random(f"attempts {seed}"), StandingClock()
        self.meta_store, self.objects = meta_store, MemoryObjectStore()
        self.manager = self.open(0)
        self.storage = HummockStorage(self.manager, self.objects, StorageOptions(block_bytes=300, inline_bytes=0),
                                      node="store", session=self.manager.claim_writer())
        self.rows, self.model, self.number, self.reported = {}, {}, 0, 0

    def open(self, seed, meta_store=None):
        """The manager of another process."""
        return open_manager(meta_store or self.meta_store, self.clock, seed or self.rng.random(), self.objects,
                            OPTIONS)

    def write(self):
        self.number += 1
        keys = sorted(self.rng.sample(range(60), self.rng.randrange(5, 40)))
        batch = [(user_key(1, 0, b"%03d" % key), self.rng.randbytes(8) if self.rng.random() < .75 else None)
                 for key in keys]
        epoch = epoch_of(self.number)
        self.storage.ingest_batch(WriteBatch(batch), epoch)
        self.storage.commit(epoch)
        self.rows = {key: value for key, value in {**self.rows, **dict(batch)}.items() if value is not None}
        self.model[epoch] = sorted(self.rows.items())

    def task(self):
        """A due task and its token; writes until there is one."""
        self.manager.renew_lease("store")
        while (given := self.manager.get_compact_task("one")) is None:
            self.write()
        return given

    def attempt(self, task, token, objects=None):
        names = (token[:16] + self.rng.randbytes(8).hex() for _ in iter(int, 1))
        return run_ranges(task, objects or self.objects, lambda: next(names), threads=1,
                          memory_bytes=OPTIONS.memory_bytes)

    def report(self, task, token, results, manager=None):
        """Reports the results and counts a new version. Errors: `TaskRefused`."""
        manager = manager or self.manager
        before = manager.refresh()
        version = manager.report_compact_task(task.id, token, results)
        self.reported += version.id != before.id
        return version

    def refused(self, task, token, results, manager=None):
        before = self.manager.refresh()
        with pytest.raises(TaskRefused):
            (manager or self.manager).report_compact_task(task.id, token, results)
        assert self.manager.refresh() is before

    def check(self):
        """Every readable epoch returns the rows that were written."""
        self.storage.meta_client.refresh()
        version = self.manager.refresh()
        for epoch, rows in self.model.items():
            if epoch >= version.safe_epoch:
                assert list(self.storage.scan(KeyRange.table(1), epoch)) == rows, epoch >> 16

    def finish(self):
        """Finishes all tasks; vacuum then leaves exactly the version's files."""
        self.clock.advance(OPTIONS.task_stall_ms)
        while (given := self.manager.get_compact_task("one")) is not None:
            self.report(*given, self.attempt(*given))
        self.check()
        done = [answer for answer in task_answers(self.manager) if answer.outcome == "done"]
        assert self.reported == len(done) > 0
        version = self.manager.version
        self.storage.close()
        self.clock.now_ms = wall_clock_ms() + 100_000       # objects have times of the machine's clock
        Vacuum(self.meta_store, self.objects, self.clock, options=VacuumOptions(grace_ms=0, tombstone_ms=0)).run()
        needed = {path(info.name) for info in version.sstables for path in (sstable_data_path, sstable_meta_path)}
        assert {found.path for found in self.objects.list("sst/")} == needed


def failed(world):
    task, token = world.task()
    plan = FaultPlan([Fault(world.rng.choice([FaultKind.BEFORE, FaultKind.AFTER]), "put", skip=world.rng.randrange(3))])
    try:
        results = world.attempt(task, token, FaultyObjectStore(world.objects, plan))
    except ObjectStoreError as error:
        world.manager.fail_task(task.id, token, str(error))
        world.write()
        world.clock.advance(OPTIONS.task_stall_ms)
        task, token = world.task()
        results = world.attempt(task, token)
    world.report(task, token, results)


def duplicated(world):
    task, token = world.task()
    results = world.attempt(task, token)
    world.report(task, token, results)
    for manager in (world.manager, world.open(0), world.open(0)):
        world.write()
        before = manager.refresh()
        assert manager.report_compact_task(task.id, token, results) is before


def speculative(world):
    """Two runs under one token, as with speculation in a cluster: the first report counts."""
    task, token = world.task()
    both = [world.attempt(task, token) for _ in range(2)]
    world.rng.shuffle(both)
    world.report(task, token, both[0])
    if any(result.sstables for result in both[1]):
        world.refused(task, token, both[1], world.open(0))


def expired(world):
    """The lease expired but nobody took the task over: the report is still accepted."""
    task, token = world.task()
    results = world.attempt(task, token)
    world.clock.advance(OPTIONS.task_lease_ms * 2)
    world.write()
    world.report(task, token, results)


def zombie(world):
    task, token = world.task()
    results = world.attempt(task, token)
    world.clock.advance(OPTIONS.task_lease_ms)
    other = world.open(0)
    again, newer = other.get_compact_task("two")
    assert again == task and newer != token
    if world.rng.random() < .5:
        world.refused(task, token, results)
    world.report(task, newer, world.attempt(task, newer), other)
    world.refused(task, token, results)


def stalled(world):
    task, token = world.task()
    other = world.open(0)
    for _ in range(OPTIONS.task_stall_ms // 900 + 1):
        world.clock.advance(900)
        world.manager.heartbeat_task(task.id, token, 0)
    again, newer = other.get_compact_task("two")
    assert again == task
    with pytest.raises(TaskRefused):
        world.manager.heartbeat_task(task.id, token, 1)
    world.refused(task, token, world.attempt(task, token))
    world.report(task, newer, world.attempt(task, newer), other)


def cancelled(world):
    task, token = world.task()
    results = world.attempt(task, token)
    assert cancel_task(world.open(0), task.id)
    world.refused(task, token, results)
    world.write()
    task, token = world.task()
    world.report(task, token, world.attempt(task, token))


def answer_lost(world):
    """The manager's process ends during a report; another process repeats the report with the same results."""
    task, token = world.task()
    results = world.attempt(task, token)
    before = world.manager.refresh()
    plan = FaultPlan([Fault(world.rng.choice([FaultKind.AFTER, FaultKind.TORN, FaultKind.BEFORE]), "transaction")])
    plan.add(Fault(FaultKind.BEFORE, "get", skip=world.rng.randrange(4), times=1_000))
    dying = world.open(0, FaultyMetaStore(world.meta_store, FaultPlan()))
    dying._keeper.meta_store = FaultyMetaStore(world.meta_store, plan)
    with suppress(MetaStoreError):
        dying.report_compact_task(task.id, token, results)
    survivor = world.open(0)
    first = survivor.report_compact_task(task.id, token, results)
    assert survivor.report_compact_task(task.id, token, results) is first
    assert first.id == before.id + 1
    world.reported += 1


SCENARIOS = (failed, duplicated, speculative, expired, zombie, stalled, cancelled, answer_lost)


def run(meta_store, scenario, seed):
    world = World(meta_store, seed)
    try:
        for _ in range(ROUNDS):
            for _ in range(world.rng.randrange(1, 4)):
                world.write()
            scenario(world)
            world.check()
        world.finish()
    except Exception as error:
        raise AssertionError(f"scenario {scenario.__name__} failed with seed {seed}") from error


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_memory(scenario):
    for seed in range(SEEDS):
        run(MemoryMetaStore(), scenario, seed)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_disk(scenario, tmp_path):
    for seed in seeds(1, 2):
        store = SqliteMetaStore(tmp_path / f"{seed}.sqlite")
        run(store, scenario, seed)
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_many_seeds(scenario, tmp_path):
    for seed in range(100, 100 + MANY_SEEDS):
        run(MemoryMetaStore(), scenario, seed)
