"""Recoveries within the session that serves the inbox: a statement that is sent again brings its operations once."""

import threading
from contextlib import suppress

import pyarrow as pa
import pytest

from hummock.errors import HummockError
from hummock.meta.store.base import MetaOperations
from relational.inbox.records import Outcome, WriterPosition, writer_key
from stream.protocol import Step
from tests.simulation.inbox_world import TABLE, VIEW, Sender, rows_of, stored
from tests.simulation.test_recovery import Stage
from tests.support.servers.object_store_faults import Fault, FaultKind

SOON = 20.0
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def stage():
    stage = Stage()
    stage.session.sql(TABLE)
    stage.session.sql(VIEW)
    yield stage
    stage.session.abandon()


def sender_of(stage):
    return Sender(stage.playground.meta_store, stage.playground.object_store)


def position_of(stage, writer):
    key = writer_key(stage.playground.catalog.resolve("t").id, writer)
    row = stage.playground.meta_store.get(key)
    return None if row is None else WriterPosition.from_bytes(key, row)


def ingest(stage, batch_id, ids):
    return stage.session.ingest(rows_of(ids), "t", writer="w", checkpoint="c", batch_id=batch_id)


def rounds(stage, sender):
    """Rounds until no request is open, each of which may fail."""
    for _ in range(8):
        with suppress(HummockError):
            stage.session._inbox.round()
        if not sender.left():
            return
    raise AssertionError("requests are open after 8 rounds")


@pytest.mark.parametrize("step", list(Step))
def test_a_failure_at_each_step_writes_requests_and_batches_once(stage, step):
    sender, expected = sender_of(stage), []
    for number in range(6):
        ids = range(number * 100, number * 100 + 20)
        request = sender.send(ids, batch=("inbox", "c", number))
        stage.trap.step = step if number % 2 else None
        rounds(stage, sender)
        assert sender.answer(request).outcome is Outcome.WRITTEN
        stage.trap.step = step if number % 2 else None
        report = ingest(stage, number, range(number * 100 + 50, number * 100 + 60))
        assert (report.rows, report.was_repeated) == (10, False)
        assert position_of(stage, "w").batch_id == position_of(stage, "inbox").batch_id == number
        expected += [*ids, *range(number * 100 + 50, number * 100 + 60)]
        assert stored(stage.session) == expected
    assert stage.trap.raised == 6


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
def test_a_transaction_of_unknown_outcome_is_read_again(stage, kind):
    sender, expected = sender_of(stage), []
    for number in range(4):
        request = sender.send(range(number * 10, number * 10 + 5), batch=("inbox", "c", number))
        refused = sender.send([], rows=pa.table({"id": pa.array([None], pa.int64())}))
        stage.meta.add(Fault(kind, "transaction", skip=number % 2))     # that of the commit, or of the refusal
        rounds(stage, sender)
        assert sender.answer(request).outcome is Outcome.WRITTEN
        assert sender.answer(refused).kind == "InvalidStatement"
        stage.meta.add(Fault(kind, "transaction"))
        ingest(stage, number, range(number * 10 + 5, number * 10 + 9))
        expected += range(number * 10, number * 10 + 9)
        assert stored(stage.session) == expected


def test_a_client_reads_the_outcome_of_its_request(stage):
    sender = sender_of(stage)
    for skip in range(2):
        stage.meta.add(Fault(FaultKind.AFTER, "transaction", "hummock/upload" if skip == 0 else "inbox/request"))
        sender.send(range(skip))
    assert sender.left() == 2 and stage.meta.hits == 2
    rounds(stage, sender)
    assert stored(stage.session) == [0]


def test_a_batch_whose_sender_is_slow_is_committed_with_its_number(stage, monkeypatch):
    """The table has evaluated the statement, and the barrier has passed, before the sender reports the epoch."""
    pending = stage.playground.node.pending
    sent, operations, is_asked = pending.sent, pending.operations, threading.Event()
    found: list[MetaOperations] = []

    def slow(statement_id, epoch):
        assert is_asked.wait(SOON)
        return sent(statement_id, epoch)

    def asked(epoch):
        is_asked.set()
        found.append(operations(epoch))
        return found[-1]

    monkeypatch.setattr(pending, "sent", slow)
    monkeypatch.setattr(stage.playground.meta._committer, "_of_statements", asked)
    reports = []
    thread = threading.Thread(target=lambda: reports.append(ingest(stage, 0, range(5))))
    thread.start()
    deadline = threading.Event()
    while not any(each.statement.result.evaluation for each in list(pending._with_operations.values())):
        assert not deadline.wait(0.01) and thread.is_alive()
    epoch = stage.playground.meta.flush().result(SOON)
    assert found[0].put and position_of(stage, "w").epoch == epoch
    assert stored(stage.session) == list(range(5))
    thread.join(SOON)
    assert [report.epoch for report in reports] == [epoch]


def test_statements_of_others_go_on_while_batches_are_undone(stage):
    """Statements, a batch and requests of one epoch, which is discarded: all of them are there once afterwards."""
    sender, session = sender_of(stage), stage.session
    session.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    for number in range(4):
        session.sql(f"INSERT INTO u VALUES ({number})")
        request = sender.send([number * 10], batch=("inbox", "c", number))
        stage.trap.step = Step.COMMIT
        session._inbox.round()
        session.sql(f"INSERT INTO t VALUES ({number * 10 + 1}, {(number * 10 + 1) * 7 % 101})")
        stage.trap.step = Step.SYNC
        session.flush()
        assert sender.answer(request).outcome is Outcome.WRITTEN
    assert stored(session) == sorted([*range(0, 40, 10), *range(1, 40, 10)])
    assert session.sql("SELECT COUNT(*) AS n FROM u").to_arrow()["n"].to_pylist() == [4]
    assert stage.trap.raised == 8
