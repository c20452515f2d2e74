"""Requests of other processes, in the session that carries them out."""

import random
import threading
import time

import pyarrow as pa
import pytest

import stream
from hummock.errors import Fenced
from hummock.meta.store.base import MetaOperations
from relational.errors import BatchGap, CheckpointChanged, RequestRefused, RequestUnanswered
from relational.inbox.records import ANSWERS, WRITERS, Outcome, WriterBatch, WriterPosition, request_key, writer_key
from stream.session import inbox_server
from tests.simulation.ddl_world import CrashPoint, World
from tests.simulation.inbox_world import TABLE, VIEW, Sender, rows_of, stored
from tests.support.drivers.seeds import run_seed

BATCH = ("w", "c", 0)


@pytest.fixture
def world():
    return World.after((TABLE, VIEW))


@pytest.fixture
def session(world):
    session = world.open()
    yield session
    session.abandon()


@pytest.fixture
def sender(world):
    return Sender(world.meta_of(world.objects, CrashPoint()), world.objects)


def test_requests_of_a_round_share_one_commit_and_are_carried_out_in_order(session, sender):
    requests = [sender.send(range(at * 10, at * 10 + 5)) for at in range(5)]
    before = session.committed_epoch
    assert session._inbox.round() == 5
    epochs = {sender.answer(request).epoch for request in requests}
    assert epochs == {session.committed_epoch} and session.committed_epoch > before
    assert stored(session) == [at * 10 + each for at in range(5) for each in range(5)]
    assert session._inbox.round() == 0


def test_nothing_is_done_where_there_is_no_request(session, monkeypatch):
    calls = []
    for name in ("list", "get", "transaction"):
        original = getattr(session._playground.meta_store, name)
        monkeypatch.setattr(session._inbox._meta_store, name,
                            lambda *given, name=name, original=original: calls.append(name) or original(*given))
    epoch = session.committed_epoch
    assert session._inbox.round() == 0 and calls == ["list"] and session.committed_epoch == epoch


def test_a_refused_request_is_answered_with_the_table_s_error_and_changes_nothing(session, sender):
    session.sql("INSERT INTO t VALUES (1, 7)")
    wide = pa.table({"id": pa.array([5], pa.int64()), "z": [1]})
    refused = {
        sender.send([2, 3, 1]): "DuplicateKey",
        sender.send([], rows=pa.table({"id": pa.array([4, None], pa.int64())})): "InvalidStatement",
        sender.send([], rows=wide): "InvalidStatement",
        sender.send([6], table="missing"): "NotFound",
        sender.send([7], table="totals"): "BindError",
        sender.send([8], table='a."b'): None,
    }
    good = sender.send([50])
    assert session._inbox.round() == 7
    for request, kind in refused.items():
        answer = sender.answer(request)
        assert isinstance(answer, RequestRefused) and (kind is None or answer.kind == kind) and answer.reason
    assert sender.answer(good).outcome is Outcome.WRITTEN
    assert stored(session) == [1, 50]


def test_an_error_that_depends_on_rows_is_answered_when_these_are_committed(session, sender):
    session.sql("INSERT INTO t VALUES (1, 7)")          # not committed
    request = sender.send([1])
    session._inbox.round()
    assert sender.answer(request).kind == "DuplicateKey" and stored(session) == [1]


def test_a_request_may_bring_more_bytes_than_the_limit_only_to_be_refused(world, sender):
    world.stream_options = {"ingest_bytes": 1_000}
    with world.open() as session:
        large, small = sender.send(range(100)), sender.send(range(10))
        session._inbox.round()
        assert sender.answer(large).kind == "InvalidStatement" and "ingest_bytes" in sender.answer(large).reason
        assert sender.answer(small).rows == 10
        assert stored(session) == list(range(10))


def test_batches_of_one_writer_follow_each_other_in_rounds_of_their_own(session, sender):
    batches = [("w", "c", number) for number in range(3)]
    requests = [sender.send([number], batch=batch) for number, batch in enumerate(batches)]
    twice = sender.send([0], batch=batches[0])
    assert [session._inbox.round() for _ in range(5)] == [1, 1, 1, 1, 0]
    outcomes = [sender.answer(request).outcome for request in (*requests, twice)]
    assert sorted(outcomes) == [Outcome.REPEATED, Outcome.WRITTEN, Outcome.WRITTEN, Outcome.WRITTEN]
    assert outcomes[1:3] == [Outcome.WRITTEN] * 2
    assert stored(session) == [0, 1, 2]


def test_old_batches_gaps_and_other_checkpoints_are_told_apart(session, sender):
    first = sender.send([1], batch=("w", "c", 5))
    session._inbox.round()
    assert sender.answer(first).rows == 1
    cases = [(("w", "c", 5), Outcome.REPEATED), (("w", "c", 2), Outcome.REPEATED), (("w", "c", 7), BatchGap),
             (("w", "d", 0), CheckpointChanged), (("w", "c", 6), Outcome.WRITTEN), (("v", "d", 0), Outcome.WRITTEN)]
    for number, (batch, wanted) in enumerate(cases):
        request = sender.send([10 + number], batch=batch)
        session._inbox.round()
        answer = sender.answer(request, batch=batch)
        assert type(answer) is wanted if isinstance(wanted, type) else answer.outcome is wanted
    assert stored(session) == [1, 14, 15]


def test_a_batch_of_the_session_and_one_of_a_client_are_not_under_way_at_once(session, sender):
    request = sender.send([1], batch=BATCH)
    table = session._ingestion.table_of("t")
    with session._ingestion.held(table, WriterBatch(*BATCH)):
        assert session._inbox.round() == 0 and sender.left() == 1
    session._inbox.round()
    assert session.ingest(rows_of([1]), "t", writer="w", checkpoint="c", batch_id=0).was_repeated
    assert sender.answer(request).outcome is Outcome.WRITTEN and stored(session) == [1]


def test_objects_and_registrations_end_with_their_request(world, session, sender):
    sender.send(range(30))
    sender.send([1, 1])
    sender.send([40], batch=BATCH)
    assert len(world.meta.list("hummock/upload/")) >= 3
    session._inbox.round()
    session.flush()
    world.vacuum()
    world.check_files(session)
    assert world.meta.list("hummock/upload/") == [] and sender.left() == 0


def test_vacuum_keeps_an_open_request_for_days(world, sender):
    request = sender.send(range(10))
    world.now_ms += 3 * 24 * 3_600_000
    world.vacuum()
    with world.open() as session:
        session._inbox.round()
        assert sender.answer(request).outcome is Outcome.WRITTEN and stored(session) == list(range(10))


def test_a_request_that_waited_too_long_is_refused(world, session, sender):
    request = sender.send([1])
    world.now_ms += 7 * 24 * 3_600_000
    session._inbox.round()
    assert sender.answer(request).kind == "RequestExpired" and stored(session) == []


def test_rows_whose_object_is_gone_or_damaged_are_refused(world, session, sender):
    gone, damaged, good = sender.send([1]), sender.send([2]), sender.send([3])
    paths = [found.path for found in world.objects.list("sst/") if found.path.endswith(".data")]
    kinds = {}
    for request, name in ((gone, 0), (damaged, 1)):
        row = world.meta.get(request_key(request)).decode()
        (path,) = [path for path in paths if path.split("/")[1].split(".")[0] in row]
        kinds[request] = name
        if request == gone:
            world.objects.delete([path])
        else:
            world.objects.put(path, world.objects.get(path)[:-1] + b"?")
    assert session._inbox.round() == 3
    assert sender.answer(gone).kind == "ObjectNotFound" and sender.answer(damaged).kind == "Corruption"
    assert sender.answer(good).rows == 1 and stored(session) == [3]


def test_a_malformed_row_is_answered_and_one_of_a_newer_release_is_left(world, session, sender):
    good = sender.send([1])
    newer = world.meta.get(request_key(good)).replace(b'"format":1', b'"format":2')
    world.meta.transaction(MetaOperations(put={request_key("bad"): b"{}", request_key("newer"): newer}))
    assert session._inbox.round() == 2
    assert sender.answer("bad").kind == "RequestExpired" and sender.answer(good).rows == 1
    assert sender.left() == 1 and stored(session) == [1]


def test_a_round_is_bounded(session, sender, monkeypatch):
    monkeypatch.setattr(inbox_server, "MOST_REQUESTS", 3)
    for number in range(7):
        sender.send([number])
    assert [session._inbox.round() for _ in range(4)] == [3, 3, 1, 0]
    assert stored(session) == list(range(7))


def test_old_answers_and_positions_of_dropped_tables_are_deleted(world, session, sender, monkeypatch):
    monkeypatch.setattr(inbox_server, "ANSWERS_KEPT", 3)
    monkeypatch.setattr(inbox_server, "MOST_ANSWERS", 6)
    monkeypatch.setattr(inbox_server, "SWEEP_SECONDS", -1.0)
    session.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)")
    kept_id = session._playground.catalog.resolve("t").id
    sender.send([100], table="u", batch=BATCH)
    for number in range(5):
        sender.send([number], batch=("w", "c", number))
        session._inbox.round()
        world.now_ms += 1
    assert len(world.meta.list(ANSWERS)) == 6           # they are young
    world.meta.transaction(MetaOperations(put={f"{ANSWERS}unreadable": b"{}"}))
    sender.send([5])
    session._inbox.round()
    assert len(world.meta.list(ANSWERS)) == 6
    world.now_ms += inbox_server.ANSWER_MS
    session.sql("DROP TABLE u")
    last = sender.send([6])
    session._inbox.round()
    assert len(world.meta.list(ANSWERS)) == 3 and sender.answer(last).rows == 1
    ((key, row),) = world.meta.list(WRITERS)
    assert key == writer_key(kept_id, "w") and WriterPosition.from_bytes(key, row).batch_id == 4


def test_a_fenced_session_answers_nothing(world, sender):
    old = world.open()
    request, refused = sender.send([1], batch=BATCH), sender.send([], table="missing")
    with world.open() as session:
        with pytest.raises(Fenced):
            old._inbox.round()
        assert sender.left() == 2
        session._inbox.round()
        assert sender.answer(request).outcome is Outcome.WRITTEN and sender.answer(refused).kind == "NotFound"
        assert stored(session) == [1]
    old.abandon()


def test_a_fenced_session_changes_no_row_of_the_inbox(world):
    old = world.open()
    old._ingestion.transact(MetaOperations(put={f"{ANSWERS}a": b"{}"}))
    with world.open(), pytest.raises(Fenced):
        old._ingestion.transact(MetaOperations(put={f"{ANSWERS}b": b"{}"}))
    assert [key for key, _ in world.meta.list(ANSWERS)] == [f"{ANSWERS}a"]
    old.abandon()


def test_a_refusal_of_a_fenced_session_does_not_count(world, sender):
    """The old session knows a row that was never committed."""
    old = world.open()
    old.flush()         # nothing is left that asks for another commit
    old.sql("INSERT INTO t VALUES (1, 7)")
    request = sender.send([1])
    with world.open() as session:
        with pytest.raises(Fenced):
            old._inbox.round()
        session._inbox.round()
        answer = sender.answer(request)
        assert not isinstance(answer, RequestRefused), answer
        assert answer.outcome is Outcome.WRITTEN and stored(session) == [1]
    old.abandon()


def test_clients_of_a_running_session_get_their_answers(tmp_path):
    """Two clients, each with a connection of its own, against the thread of a session."""
    url, rng = f"file://{tmp_path}/store", random.Random(f"clients {run_seed()}")
    sizes = [[rng.randrange(0, 40) for _ in range(8)] for _ in range(2)]
    errors = []

    def send(number):
        try:
            with stream.Inbox(url, timeout_ms=60_000) as inbox:
                for at, size in enumerate(sizes[number]):
                    first = (number * 8 + at) * 1_000
                    rows = rows_of(range(first, first + size))
                    answer = inbox.ingest("t", rows, writer=f"w{number}", checkpoint="c", batch_id=at)
                    assert answer.outcome is Outcome.WRITTEN
                    if size:
                        with pytest.raises(RequestRefused):
                            inbox.insert("t", rows)
        except BaseException as error:
            errors.append(error)

    with stream.connect(url, create=True, inbox_poll_ms=20) as session:
        session.sql(TABLE)
        session.sql(VIEW)
        threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not errors and session._inbox.error is None
        assert stored(session) == [(number * 8 + at) * 1_000 + each for number in range(2)
                                   for at, size in enumerate(sizes[number]) for each in range(size)]


def test_a_request_waits_for_a_session(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as session:
        session.sql(TABLE)
        session.sql(VIEW)
    with stream.Inbox(url, timeout_ms=50) as inbox, pytest.raises(RequestUnanswered, match="do not send its rows anew"):
        inbox.insert("t", rows_of([1]))
    with stream.connect(url, create=True, inbox_poll_ms=10) as session:
        deadline = time.monotonic() + 30
        while not session.sql("SELECT id FROM t").rows() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert stored(session) == [1]
    with stream.connect(url, create=True, inbox_poll_ms=0) as session:
        assert stored(session) == [1] and session._inbox._thread is None
