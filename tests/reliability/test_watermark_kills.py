"""[R29]: however often a process is killed, a view of windows has the rows that were not late, each once."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.reliability import watermark_workload
from tests.reliability.children import When, can_compile, started
from tests.reliability.watermark_workload import ROWS
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import run_seed

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler"), pytest.mark.timeout(600)]
WORK, LOOK = f"{watermark_workload.__name__}:work", f"{watermark_workload.__name__}:look"


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


@pytest.mark.parametrize("lives", [pytest.param(1, id="few"), pytest.param(15, id="many", marks=pytest.mark.slow)])
def test_windows_are_right_after_every_kill(children, lives):
    rng = random.Random(run_seed())
    with quick_directory() as directory:
        end = children.run(WORK, directory)
        (kept, late), calls = end.value(), len(end.calls)
        assert kept + late == ROWS and 0 < late < ROWS
        for _ in range(lives):
            shutil.rmtree(directory / "store")
            killed, before = 0, 0
            for _ in range(4):
                at, when = rng.randint(calls // 20, calls // 3), rng.choice(list(When))
                killed += children.run(WORK, directory, kill_at=at, when=when).was_killed
                seen = sum(children.run(LOOK, directory).value())
                assert seen == 0 or before <= seen <= ROWS, "nothing is read twice"
                before = max(before, seen)
            assert killed
            kept, late = children.run(WORK, directory).value()
            assert kept + late == ROWS and 0 < late < ROWS
