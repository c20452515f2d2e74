"""The process dies at each step of CHECKPOINT.md; its store is reopened and compared.

The table must have the state of some round, no earlier than the last acknowledged one; every view must be consistent
with that table; and the next process continues from there to the end."""

import pytest

import stream
from tests.simulation import session_workload
from tests.simulation.child import KILLED, main
from tests.support.drivers.spawned import Spawned

NEVER_MS = 3_600_000
STEPS = ("inject", "collect", "sync", "commit", "committed", "notify")
CALLS = ("put:before", "put:after", "transaction:before", "transaction:after")
POINTS = STEPS + CALLS
ROUNDS = 6
ENDS_SECONDS = 120.0
pytestmark = pytest.mark.timeout(300)


def run(url, seed, rounds, point, nth):
    """Run a child; its exit code and the last round it acknowledged (None: not even the views were created)."""
    child = Spawned(main, url, seed, rounds, point, nth)
    code = child.ended(ENDS_SECONDS)
    assert code in (0, KILLED)
    acknowledged = [int(line.split()[1]) for line in child.said()]
    return code, acknowledged[-1] if acknowledged else None


def check_a_kill(url, seed, point, nth):
    """Kill a child, check the store that it left, and continue from there in this process."""
    made = session_workload.rounds(seed, ROUNDS)
    code, acknowledged = run(url, seed, ROUNDS, point, nth)
    assert code == KILLED, f"{point} was reached fewer than {nth} times"
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        session.wait_created()
        names = set(session.names())
        if acknowledged is None and names < {"accounts", *session_workload.VIEWS}:
            for name in names:
                assert session_workload.shown(session, name) == []
            return
        found = session_workload.committed_round(session, made, acknowledged or 0)
        for number in range(found + 1, len(made)):
            for statement in made[number].statements:
                session.sql(statement)
            session.flush()
            assert session_workload.committed_round(session, made, number) == number


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_state_of_a_whole_epoch(point, tmp_path):
    check_a_kill(f"file://{tmp_path}/store", 9 + POINTS.index(point), point, 9)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 7, 11])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_time_does(point, nth, tmp_path):
    check_a_kill(f"file://{tmp_path}/store", nth * 100 + POINTS.index(point), point, nth)


@pytest.mark.slow
def test_killed_again_and_again_it_still_ends_with_the_same_answer(tmp_path):
    url, seed, rounds, kills = f"file://{tmp_path}/store", 5, 40, 0
    plan = [("notify", 12), *((point, nth) for nth in (3, 2, 4) for point in POINTS)]
    code, done = KILLED, None
    for point, nth in plan:
        code, last = run(url, seed, rounds, point, nth)
        assert done is None or last is None or last >= done
        done = last if done is None else max(done, last or 0)
        if code == 0:
            break
        kills += 1
    assert kills >= 20, f"only {kills} kills"
    run(url, seed, rounds, "none", 0)
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        session.wait_created()
        made = session_workload.rounds(seed, rounds)
        assert session_workload.committed_round(session, made, rounds) == rounds
