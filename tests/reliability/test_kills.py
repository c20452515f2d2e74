"""[P1]: a process killed at any file call leaves every acknowledged epoch complete and nothing of the others."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.reliability import store_workload
from tests.reliability.children import When, can_compile, started
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import amount, run_seed

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler")]


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


class Store:
    """A store with some earlier epochs, and copies of it for children that are killed."""

    def __init__(self, children, directory, seed, first, last):
        self.children, self.directory = children, directory
        self.seed, self.first, self.last = seed, first, last
        self.base, self.root = directory / "base", directory / "store"
        self.base.mkdir()
        if first > 1:
            children.run(f"{store_workload.__name__}:work", self.base, seed=seed, first=1, last=first - 1).value()

    def renew(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.base, self.root)

    def run(self, work, **how):
        return self.children.run(f"{store_workload.__name__}:{work}", self.root, seed=self.seed, **how)

    def work(self, **how):
        return self.run("work", first=self.first, last=self.last, **how)

    def calls(self):
        """The letters of the file calls of the work when it is not killed."""
        self.renew()
        end = self.work()
        end.value()
        return end.calls

    def check_a_kill(self, kill_at, when, recovery_kill_at):
        """False if the work ended before that call. `recovery_kill_at` 0: no recovery is killed."""
        self.renew()
        end = self.work(kill_at=kill_at, when=when)
        left = self.check_left(end, store_workload.look, self.first - 1)
        if recovery_kill_at == 0:
            return end.was_killed
        again = self.run("recover", kill_at=recovery_kill_at, when=random.Random(kill_at).choice(list(When)))
        look = store_workload.look_and_clean_up if kill_at % 4 == 0 else store_workload.look_and_go_on
        self.check_left(again, look, left)
        return end.was_killed

    def check_left(self, end, look, at_least):
        """The store has at least the acknowledged epochs and at most those begun."""
        if not end.was_killed:
            end.value()
        committed = look(str(self.root), self.seed)
        acked = max([at_least, *(int(note.split()[1]) for note in end.notes if note.startswith("acked"))])
        begun = max([acked, *(int(note.split()[1]) for note in end.notes if note.startswith("begun"))])
        assert acked <= committed <= begun, f"epoch {committed} after {end.notes}"
        return committed


def sweep(children, seed, first, last, points, recover_each=1):
    """Kills at each of `points(calls)`, and every `recover_each`-th recovery too; a note names the failing kill."""
    with quick_directory() as directory:
        store = Store(children, directory, seed, first, last)
        killed = 0
        for index, (kill_at, when) in enumerate(points(store.calls())):
            try:
                killed += store.check_a_kill(kill_at, when, 0 if index % recover_each else 1 + kill_at * 7 % 60)
            except BaseException as error:
                error.add_note(f"seed {seed}, epochs {first} to {last}, killed at call {kill_at}, {when.name}")
                raise
    return killed


def every_call(calls):
    """Before and after each call, and in the middle of each write."""
    return [(at, when) for at, letter in enumerate(calls, 1) for when in When if when != When.TORN or letter == "w"]


@pytest.mark.parametrize(("first", "step"), [pytest.param(1, amount(6, 3), id="a new store"),
                                             pytest.param(1, 1, id="each call of a new store", marks=pytest.mark.slow),
                                             pytest.param(4, 1, id="a store in use", marks=pytest.mark.slow)])
def test_a_kill_at_any_file_call_loses_no_acknowledged_epoch(children, first, step):
    """By default at every sixth call, from one to the sixth of them."""
    def points(calls):
        return every_call(calls)[run_seed() % step :: step]

    assert step * sweep(children, 11, first, first, points, recover_each=5) > 100


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_file_call_of_three_epochs_does_not(children, seed):
    assert sweep(children, 100 + seed, 1, 3, every_call) > 500


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_kills_at_random_do_not(children):
    rng = random.Random(run_seed())
    for _ in range(20):
        length = rng.randint(1, 8)
        sweep(children, rng.randrange(1 << 30), 1, length,
              lambda calls: [(rng.randint(1, len(calls)), rng.choice(list(When))) for _ in range(25)])
