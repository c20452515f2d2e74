"""Processes that are killed while sources are read, views are created and rescaled, and epochs are committed: whoever
opens the store next finds each row of the sources in each view exactly once.

    HUMMOCK_GRAPH_KILLS=200 python -m pytest -m slow tests/reliability/test_graph_kills.py
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.reliability import graph_workload
from tests.reliability.children import Children, End, When, can_compile, started
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import run_seed

MANY_KILLS = int(os.environ.get("HUMMOCK_GRAPH_KILLS", "200"))
KILLS_OF_A_STORE = 10
LONGEST_SECONDS = {"ingest": 0.4, "backfill": 0.8, "rescale": 0.6}
MOST_CALLS = 150
WORK, FIRST = f"{graph_workload.__name__}:work", f"{graph_workload.__name__}:first_life"
pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler"),
              pytest.mark.timeout(600 + 20 * MANY_KILLS)]


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


@pytest.fixture(scope="module")
def first(children):
    """The directory of a store that a first process has filled, and the file calls of one that opens and checks it."""
    with quick_directory() as directory:
        lives = Lives(children, directory, random.Random(f"{run_seed()} first"), 0)
        children.run(FIRST, directory).value()
        yield directory, len(lives.unharmed().calls)


class Lives:
    """The lives of processes on one store; `committed` rows have been seen."""

    def __init__(self, children: Children, directory: Path, rng: random.Random, calls: int) -> None:
        self.children, self.directory, self.rng, self.calls = children, directory, rng, calls
        self.committed = self.kills = self.interrupted = 0

    def killed(self, phase: str) -> None:
        """A life that ends in the phase: at a random moment, or at a file call, which may be one of its start too."""
        rng = self.rng
        if phase == "checkpoint":
            how = {"kill_at": rng.randint(self.calls // 2, self.calls + MOST_CALLS), "when": rng.choice(list(When))}
        else:
            how = {"delay": 0.001 + rng.random() * LONGEST_SECONDS[phase]}
        end = self.children.run(WORK, self.directory, phase=phase, seed=rng.randrange(1 << 30), **how)
        assert end.was_killed, end.error or "the process ended by itself"
        self.kills += 1
        self.saw(end.notes)

    def unharmed(self) -> End:
        """A life that opens and checks the store."""
        end = self.children.run(WORK, self.directory, phase="ingest", seed=self.rng.randrange(1 << 30), ends=True)
        end.value()
        self.saw(end.notes)
        return end

    def saw(self, notes: list[str]) -> None:
        """No row that was there is gone."""
        for what, number in (note.split() for note in notes):
            if what == "interrupted":
                self.interrupted += int(number)
            else:
                assert int(number) >= self.committed, f"{number} rows after {self.committed}"
                self.committed = int(number)


def check_kills(children: Children, first: tuple[Path, int], phase: str, kills: int) -> Lives:
    """Kills the processes of a copy of the store that `first` names."""
    rng = random.Random(f"{run_seed()} {phase}")
    with quick_directory() as directory:
        shutil.copytree(first[0], directory, dirs_exist_ok=True)
        lives = Lives(children, directory, rng, first[1])
        for _ in range(kills):
            lives.killed(phase)
        lives.unharmed()
        return lives


@pytest.mark.parametrize("phase", graph_workload.PHASES)
def test_a_killed_process_leaves_each_row_once(children, first, phase):
    check_kills(children, first, phase, 1)


@pytest.mark.slow
@pytest.mark.parametrize("phase", graph_workload.PHASES)
def test_however_often_it_is_killed(children, first, phase):
    left, kills, interrupted = MANY_KILLS // len(graph_workload.PHASES), 0, 0
    while left:
        lives = check_kills(children, first, phase, min(left, KILLS_OF_A_STORE))
        left -= lives.kills
        kills, interrupted = kills + lives.kills, interrupted + lives.interrupted
    print(f"{phase}: {kills} processes killed, {interrupted} interrupted creations continued")
