"""A transaction takes effect wholly or not at all [R58], whatever fails, and wherever the process dies."""

import threading

import pytest

import stream
from stream.errors import InvalidStatement, StatementsLost
from stream.message import ReplayedBlock
from stream.protocol import Step
from tests.simulation import transfers
from tests.simulation.child import KILLED
from tests.simulation.test_recovery import Stage
from tests.simulation.transfer_child import main
from tests.support.drivers.spawned import Spawned

COUNT, MOST, RECOVERIES = 12, 1_000, 12
ENDS_SECONDS = 100.0
REST_SECONDS = 0.2       # between failures: a transaction that is sent again must be able to end
NEVER_MS = 3_600_000
pytestmark = pytest.mark.timeout(120)


def check_a_kill(url, seed, point, nth):
    """Kill a process that transfers, check what it left, and go on from there in this one."""
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        session.sql(transfers.CREATE)
    child = Spawned(main, url, seed, 1_000, point, nth)
    assert child.ended(ENDS_SECONDS) == KILLED
    acknowledged = max((int(line.split()[1]) for line in child.said()), default=-1)
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        found = transfers.done(session, seed)
        assert found in (acknowledged, acknowledged + 1)
        if found < 0:
            session.sql(f"BEGIN; {transfers.OPEN}; COMMIT")
        for number in range(max(found, 0) + 1, max(found, 0) + 4):
            session.sql(f"BEGIN; {transfers.block(seed, number)}; COMMIT")
        assert transfers.done(session, seed) == max(found, 0) + 3


@pytest.mark.parametrize(("point", "nth"), [("sync", 40), ("transaction:before", 12)])
def test_a_kill_leaves_all_or_nothing_of_a_transaction(point, nth, tmp_path):
    check_a_kill(f"file://{tmp_path}/store", nth, point, nth)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize("point", ["inject", "collect", "sync", "commit", "committed", "notify", "put:before",
                                   "put:after", "transaction:before", "transaction:after"])
def test_a_kill_at_any_time_does(point, nth, tmp_path):
    check_a_kill(f"file://{tmp_path}/store", 100 + nth, point, nth)


@pytest.fixture
def stage():
    made = []

    def make(**options):
        made.append(Stage(**options))
        made[-1].session.sql(transfers.CREATE)
        made[-1].session.sql(transfers.OPEN)
        made[-1].session.flush()
        return made[-1]

    yield make
    for each in made:
        each.session.abandon()


@pytest.mark.parametrize("step", list(Step))
def test_a_recovery_at_each_step_repeats_a_transaction_as_a_whole(stage, step):
    stage = stage()
    for number in range(1, 7):
        if number % 2:
            stage.trap.step = step
        stage.session.sql(f"BEGIN; {transfers.block(7, number)}; COMMIT")
        assert transfers.done(stage.session, 7) == number
    assert stage.trap.raised >= 3


def test_recoveries_while_transactions_are_sent(stage):
    stage = stage(barrier_interval_ms=1, recovery_attempts=1_000)
    is_over = threading.Event()

    def disturb():
        steps = list(Step)
        while not is_over.wait(REST_SECONDS):
            stage.trap.step = steps[stage.trap.raised % len(steps)]

    disturber = threading.Thread(target=disturb)
    disturber.start()
    count = 0
    while count < MOST and (count < COUNT or stage.trap.raised < RECOVERIES):
        count += 1
        stage.session.sql(f"BEGIN; {transfers.block(11, count)}; COMMIT")
    is_over.set()
    disturber.join()
    stage.session.flush()
    assert transfers.done(stage.session, 11) == count
    assert stage.trap.raised >= RECOVERIES


def test_a_transaction_that_cannot_be_sent_again_is_lost_as_a_whole(stage, monkeypatch):
    stage = stage()
    session = stage.session
    session.sql(f"BEGIN; {transfers.block(3, 1)}; COMMIT")

    def refuse(message, receivers):
        if isinstance(message, ReplayedBlock):
            raise InvalidStatement("left_side", "a column of this block was dropped meanwhile")

    monkeypatch.setattr(stage.playground.node, "_check_fits", refuse)
    stage.trap.step = Step.SYNC
    with pytest.raises(StatementsLost) as lost:
        session.sql(f"BEGIN; {transfers.block(3, 2)}; COMMIT")
    assert [each.table for each in lost.value.statements] == ["journal", "left_side", "right_side"]
    session.flush()
    assert transfers.done(session, 3) == 1

