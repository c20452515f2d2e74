"""[R36]: a process killed at any file call while a sink delivers leaves each change in its files once, at the end."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.reliability import sink_workload
from tests.reliability.children import When, can_compile, started
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import amount, run_seed

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler"), pytest.mark.timeout(600)]
WORK = f"{sink_workload.__name__}:work"


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


@pytest.mark.parametrize("lives", [pytest.param(1, id="few"), pytest.param(25, id="many", marks=pytest.mark.slow)])
def test_each_change_is_delivered_once_however_often_the_process_is_killed(children, lives):
    rng = random.Random(run_seed())
    with quick_directory() as directory:
        end = children.run(WORK, directory)
        expected, calls = end.value(), len(end.calls)
        whole = sink_workload.delivered(directory)
        assert len(whole) == whole.total() == expected
        for _ in range(lives):
            shutil.rmtree(directory / "store")
            shutil.rmtree(directory / "out")
            killed = 0
            for _ in range(amount(4, 8)):
                at, when = rng.randint(calls // 20, calls // 3), rng.choice(list(When))
                killed += children.run(WORK, directory, kill_at=at, when=when).was_killed
                found = sink_workload.delivered(directory)
                assert not found or max(found.values()) == 1
                assert found.keys() <= whole.keys()
            assert killed
            assert children.run(WORK, directory).value() == expected
            assert sink_workload.delivered(directory) == whole
