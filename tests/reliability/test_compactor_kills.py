"""[P1, P4]: a compactor killed at any file call does no harm: the writer continues, reads are right, no garbage stays.
"""

from __future__ import annotations

import shutil

import pytest

from tests.reliability import compactor_process, maintenance, store_workload
from tests.reliability.children import When, can_compile, started
from tests.reliability.test_kills import every_call
from tests.support.drivers.quick_files import quick_directory

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler")]
PARTS = 12              # of a sweep over every call
EARLIER = 6             # epochs written before the compactor begins
COMPACT = f"{compactor_process.__name__}:compact"


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


def check_left(root, seed, last):
    """Other processes find every epoch; once leases have expired, another compactor and vacuum leave no garbage."""
    assert store_workload.look(str(root), seed) == last
    maintenance.check_no_garbage(str(root))
    assert store_workload.look_once(str(root), seed) == last


def kill_compactors(children, seed, first, step):
    """Kills compactors at every `step`-th file call, half of them beside a writer; returns the number of kills."""
    with quick_directory() as directory:
        base, root = directory / "base", directory / "store"
        base.mkdir()
        children.run(f"{store_workload.__name__}:work", base, seed=seed, first=1, last=EARLIER - 3).value()
        with store_workload.opened(str(base), "writer") as storage:
            for number in range(EARLIER - 2, EARLIER + 1):
                store_workload.write_epoch(storage, seed, number, lambda text: None)
        shutil.copytree(base, root)
        end = children.run(COMPACT, root)
        end.value()
        assert end.calls.count("w") > 10 and "l" in end.calls, end.calls
        check_left(root, seed, EARLIER)
        killed = 0
        for index, (kill_at, when) in enumerate(every_call(end.calls)[first::step]):
            shutil.rmtree(root)
            shutil.copytree(base, root)
            try:
                if index % 2:
                    with compactor_process.Writing(str(root), seed) as writing:
                        end = children.run(COMPACT, root, kill_at=kill_at, when=when)
                    last = writing.number
                else:
                    end, last = children.run(COMPACT, root, kill_at=kill_at, when=when), EARLIER
                killed += end.was_killed
                check_left(root, seed, last)
            except BaseException as error:
                error.add_note(f"seed {seed}, the compactor killed at call {kill_at}, {When(when).name}, "
                               f"{'beside a writer' if index % 2 else 'alone'}")
                raise
    print(f"seed {seed}: {killed} killed")
    return killed


def test_a_killed_compactor_harms_nobody(children):
    assert kill_compactors(children, 41, 0, 61) >= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_compactor_killed_at_any_file_call_harms_nobody(children, part):
    assert kill_compactors(children, 500, part, PARTS) >= 20
