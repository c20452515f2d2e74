"""Random programs of commits, pins, takeovers, faults and reopenings, checked against a model.

The model is the ordered list of commits. After each step every manager's version is a prefix of it, and the
pinned epochs bound the safe one. A failure prints its seed; `program(seed)` runs it again.
"""

import random
from contextlib import suppress

import pytest

from hummock.errors import EpochTooOld, Fenced, InvalidEpoch, MetaStoreError, OutcomeUnknown, SstableRefused
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import (
    Files,
    StandingClock,
    advance_safe_epoch,
    epoch_of,
    names_of,
    open_manager,
)

PROGRAMS = 560
ON_DISK = 6
STEPS = 40
KINDS = [FaultKind.BEFORE, FaultKind.AFTER, FaultKind.TORN]


class Process:
    """One manager, the session it once claimed, and the epochs that it has pinned."""

    def __init__(self, store, clock, rng, number):
        self.plan = FaultPlan()
        self.node = f"node-{number}"
        self.session = None
        self.pinned = []
        self.manager = open_manager(FaultyMetaStore(store, self.plan), clock, seed=rng.random(),
                                    checkpoint_deltas=rng.choice([1, 2, 5]), lease_ms=10_000)


class World:
    """Several processes over one meta store, and the model."""

    def __init__(self, store, seed, reopen):
        self.store, self.reopen = store, reopen
        self.rng, self.clock, self.files = random.Random(seed), StandingClock(), Files(seed)
        self.committed = []             # (epoch, file names) of each commit, ascending
        self.generation = 0
        self.number = 0
        self.started = 0
        self.processes = [self.start() for _ in range(3)]
        self.claim(self.processes[0])

    def start(self):
        self.started += 1
        return Process(self.store, self.clock, self.rng, self.started)

    @property
    def last_epoch(self):
        return self.committed[-1][0] if self.committed else 0

    def step(self):
        process = self.rng.choice(self.processes)
        if self.rng.random() < .25:
            process.plan.add(Fault(self.rng.choice(KINDS), self.rng.choice(["transaction", "get", "list"])))
        action = self.rng.choice([self.claim, self.commit, self.commit, self.commit, self.commit_badly,
                                  self.repeat, self.pin, self.pin, self.unpin, self.renew, self.refresh,
                                  self.raise_safe_epoch, self.restart, self.reopen_store])
        try:
            action(process)
        except MetaStoreError as error:
            assert "injected" in str(error)
        process.plan.clear()
        self.check()

    def claim(self, process):
        try:
            process.session = process.manager.claim_writer(process.node)
        except MetaStoreError:
            process.session = None
            self.learn_generation()
            raise
        self.generation += 1
        assert process.session.generation == self.generation

    def learn_generation(self):
        """A claim whose outcome is unknown may have succeeded: claim again to learn the generation."""
        probe = open_manager(self.store, self.clock, seed=self.rng.random())
        self.generation = probe.claim_writer("probe").generation

    def commit(self, process):
        writers = [one for one in self.processes if one.session is not None]
        if not writers:
            self.claim(process)
            return
        if self.rng.random() < .8:      # mostly the holder of the role, else a former holder
            process = max(writers, key=lambda one: one.session.generation)
        if process.session is None:
            return
        self.number += self.rng.choice([1, 1, 3])
        infos = [self.files.make(self.number) for _ in range(self.rng.randrange(3))]
        self.attempt(process, epoch_of(self.number), infos)

    def attempt(self, process, epoch, infos):
        holds = process.session.generation == self.generation
        entry = (epoch, sorted(info.name for info in infos))
        for _ in range(6):
            try:
                version = process.manager.commit_epoch(process.session, epoch, infos)
            except Fenced:
                assert not holds
                return
            except MetaStoreError as error:
                assert "injected" in str(error) or isinstance(error, OutcomeUnknown)
                continue
            assert holds and version.max_committed_epoch == epoch
            self.committed.append(entry)
            return
        raise AssertionError("one fault failed six attempts")

    def commit_badly(self, process):
        if process.session is None or process.session.generation != self.generation or not self.committed:
            return
        epoch, names = self.rng.choice(self.committed)
        bad = [(epoch, [self.files.make(1)]), (self.last_epoch | 1, []),
               (epoch_of(self.number + 1), [self.files.make(self.number + 1, rows=0)])]
        if names:
            bad.append((epoch_of(self.number + 1), [self.files.make(self.number + 1, name=names[0])]))
        with pytest.raises((InvalidEpoch, SstableRefused, MetaStoreError)):
            process.manager.commit_epoch(process.session, *self.rng.choice(bad))

    def repeat(self, process):
        """A repeated commit of the newest epoch returns the same answer."""
        if process.session is None or not self.committed or process.session.generation != self.generation:
            return
        epoch, names = self.committed[-1]
        infos = [self.files.make(1, name=name) for name in names]
        with suppress(InvalidEpoch):        # another session committed it
            assert process.manager.commit_epoch(process.session, epoch, infos).max_committed_epoch == epoch

    def pin(self, process):
        if process.session is None and self.rng.random() < .5:
            process.manager.refresh()
        wanted = self.rng.choice([None, *(epoch for epoch, _ in self.committed)])
        try:
            epoch = process.manager.pin_snapshot(process.node, wanted)
        except EpochTooOld as error:
            assert wanted is not None and wanted < error.safe_epoch
            return
        process.pinned.append(epoch)
        process.manager.pin_version(process.node)

    def unpin(self, process):
        if process.pinned:
            epoch = process.pinned.pop(self.rng.randrange(len(process.pinned)))
            process.manager.unpin_snapshot(process.node, epoch)

    def renew(self, process):
        self.clock.advance(100)
        for other in self.processes:
            try:
                other.manager.renew_lease(other.node)
            except MetaStoreError:
                assert other is process

    def raise_safe_epoch(self, process):
        before = process.manager.refresh().safe_epoch
        wanted = epoch_of(self.rng.randrange(self.number + 2))
        reached = advance_safe_epoch(process.manager, wanted)
        assert before <= reached <= max(before, min(wanted, self.last_epoch))

    def refresh(self, process):
        assert process.manager.refresh().max_committed_epoch == self.last_epoch

    def restart(self, process):
        """The process is killed: its pins stay until its lease ends, its role until another claims it."""
        self.processes[self.processes.index(process)] = self.start()

    def reopen_store(self, process):
        if self.reopen is not None:
            self.store = self.reopen(self.store)
            self.processes = [self.start() for _ in self.processes]

    def check(self):
        prefixes = {epoch: index + 1 for index, (epoch, _) in enumerate(self.committed)}
        fresh = open_manager(self.store, self.clock)
        assert fresh.committed_epoch == self.last_epoch
        for manager in (fresh, *(process.manager for process in self.processes)):
            version = manager.version
            known = self.committed[:prefixes.get(version.max_committed_epoch, 0)]
            assert names_of(version) == sorted(name for _, names in known for name in names)
            ids = [info.id for info in version.sstables]
            assert len(set(ids)) == len(ids)
        for process in self.processes:
            assert all(epoch >= fresh.version.safe_epoch for epoch in process.pinned)


def program(seed, store, reopen=None):
    world = World(store, seed, reopen)
    for number in range(STEPS):
        try:
            world.step()
        except Exception as error:
            raise AssertionError(f"program with seed {seed} failed at step {number}") from error
    return len(world.committed)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))])
def test_random_programs_in_memory(part):
    done = sum(program(seed, MemoryMetaStore()) for seed in range(part, PROGRAMS, 10))
    assert done > 5 * PROGRAMS / 10


def test_random_programs_on_disk_with_reopenings(tmp_path):
    def reopen(store):
        store.close()
        return SqliteMetaStore(store.url)

    for seed in range(ON_DISK):
        program(seed, SqliteMetaStore(tmp_path / f"{seed}.sqlite"), reopen)
