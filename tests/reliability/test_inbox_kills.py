"""[R39], [R40]: a process killed at any file call while it sends rows through the inbox and carries them out leaves
each batch, and each request that was answered, in its table once."""

from __future__ import annotations

import random

import pytest

from tests.reliability import inbox_workload
from tests.reliability.children import When, can_compile, started
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import amount, run_seed

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler"), pytest.mark.timeout(900)]
WORK = f"{inbox_workload.__name__}:work"
KILLS = amount(4, 8)
EXPECTED = [number for batch in range(inbox_workload.BATCHES) for number in inbox_workload.ids_of(batch)]


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


@pytest.mark.parametrize("stores", [pytest.param(1, id="few"), pytest.param(25, id="many", marks=pytest.mark.slow)])
def test_each_request_is_carried_out_once_however_often_the_process_is_killed(children, stores):
    rng = random.Random(f"inbox {run_seed()}")
    with quick_directory() as directory:
        whole = children.run(WORK, directory)
        assert whole.value()["rows"] == EXPECTED
        calls = len(whole.calls)
    killed = repeated = 0
    for _ in range(stores):
        with quick_directory() as directory:
            next_batch, answered = 0, []
            for life in range(KILLS):
                end = children.run(WORK, directory, first=next_batch, life=life,
                                   kill_at=rng.randint(calls // 20, calls // 2), when=rng.choice(list(When)))
                killed += end.was_killed
                for what, number in (note.split() for note in end.notes):
                    if what == "batch":
                        next_batch = int(number) + (rng.random() < 0.7)     # else it dies before it records that
                    else:
                        answered.append(int(number))
            found = children.run(WORK, directory, first=next_batch, life=KILLS).value()
            assert found["rows"] == EXPECTED
            assert len(set(found["logged"])) == len(found["logged"]), "a request was carried out twice"
            assert set(answered) <= set(found["logged"]), "an answered request is gone"
            repeated += found["repeated"]
    assert killed >= stores
    print(f"{killed} kills, {repeated} batches repeated in last lives")
