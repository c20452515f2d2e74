"""P1b: a disk after a power loss at any moment has every acknowledged epoch complete and nothing of the others."""

from __future__ import annotations

import random
import shutil
from functools import partial

import pytest

from hummock.errors import HummockError
from tests.reliability import store_workload
from tests.reliability.children import can_compile, started
from tests.reliability.disk import Disk, Kind, Loss, materialise, read_journal
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import amount

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler")]


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


class Journalled:
    """One run of epochs `first` to `last` of a workload, with the journal of its file calls."""

    def __init__(self, children, directory, seed, first, last, work="work"):
        self.directory, self.seed, self.before = directory, seed, first - 1
        self.root, journal = directory / "store", directory / "journal"
        self.root.mkdir()
        run = partial(children.run, root=self.root, seed=seed)
        if first > 1:
            run(f"{store_workload.__name__}:work", first=1, last=first - 1).value()
        self.begin = directory / "begin"
        self.disk = Disk(self.root)
        run(f"{store_workload.__name__}:{work}", first=first, last=last, journal=journal).value()
        self.records = list(read_journal(journal))
        self.acked = self.begun = self.before

    def apply(self, record):
        if record.kind is Kind.NOTE:
            word, number = record.first.split()
            self.acked = int(number) if word == "acked" else self.acked
            self.begun = int(number) if word == "begun" else self.begun
        self.disk.apply(record)

    def check(self, rng, loss):
        left = self.directory / "left"
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir()
        materialise(self.disk.left(rng, loss), self.root, left)
        look = store_workload.look_and_clean_up if rng.random() < .25 else store_workload.look_and_go_on
        committed = look(str(left), self.seed)
        assert self.acked <= committed <= self.begun, f"epoch {committed}, acknowledged {self.acked}"


def lose_power(children, seed, first, last, states, work="work"):
    """Checks about `states` disk states, spread over all calls; a note names the failing one."""
    with quick_directory() as directory:
        journalled = Journalled(children, directory, seed, first, last, work)
        share, owed, seen = states / len(journalled.records), 0.0, 0
        for number, record in enumerate(journalled.records, 1):
            journalled.apply(record)
            owed += share
            while owed >= 1:
                owed -= 1
                rng, seen = random.Random(f"{seed} {seen}"), seen + 1
                loss = rng.choice([*Loss, Loss.JOURNALLED, Loss.STRICT, Loss.STRICT])
                try:
                    journalled.check(rng, loss)
                except BaseException as error:
                    error.add_note(f"seed {seed}, state {seen}, power lost after call {number} of "
                                   f"{len(journalled.records)} ({record.kind.name} {record.first}), {loss.value}")
                    raise
    return seen


@pytest.mark.parametrize(("first", "last"), [(1, 2), (4, 4)], ids=["a new store", "a store in use"])
def test_power_lost_at_any_moment_takes_no_acknowledged_epoch(children, first, last):
    states = amount(40, 110)
    assert lose_power(children, 21 + first, first, last, states) >= states - 10


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(4))
def test_power_lost_at_any_moment_of_three_epochs_does_not(children, seed):
    assert lose_power(children, 400 + seed, 1 + 2 * (seed % 2), 4, 700) >= 690


def test_the_record_of_calls_misses_no_change_of_a_file(children):
    """With nothing lost, the rebuilt disk equals the directory."""
    with quick_directory() as directory:
        journalled = Journalled(children, directory, 5, 2, 3)
        for record in journalled.records:
            journalled.apply(record)
        kept = journalled.disk.left(random.Random(0), Loss.NOTHING)
        there = {str(path): None if path.is_dir() else path.read_bytes() for path in journalled.root.rglob("*")}
        assert {path: data for path, data in kept.items() if path != str(journalled.root)} == there


@pytest.mark.parametrize("work", ["work_without_syncs", "work_without_directory_syncs"])
def test_a_store_that_does_not_sync_is_found_out(children, work):
    with pytest.raises((HummockError, AssertionError), match=r"both slots|No such file"):
        lose_power(children, 9, 1, 3, 400, work)
