"""The process that serves the inbox dies at each of its calls: each request is carried out once, by it or by the next.

Requests of every kind are open: rows, rows that the table refuses, a batch, its repetition, a batch after a gap, an
empty one. The rows of a batch and its number are there together."""

import random
from contextlib import suppress

import pytest

from relational.errors import BatchGap, RequestRefused, RequestUnanswered
from relational.inbox.client import REGISTERED_MS
from relational.inbox.records import ANSWERS, WRITERS, InboxAnswer, Outcome, WriterPosition
from stream.errors import StatementsLost
from tests.simulation.ddl_world import CrashingObjectStore, CrashPoint, How, ProcessDied, World
from tests.simulation.inbox_world import TABLE, VIEW, Sender, rows_of, stored

BASE = (TABLE, VIEW, "INSERT INTO t VALUES (1, 7), (2, 14)", "FLUSH")
BATCH = ("loader", "run 1", 4)
WANTED = sorted([1, 2, *range(100, 130), *range(200, 240), *range(300, 311)])
pytestmark = pytest.mark.timeout(300)


class Requests:
    """Open requests of all kinds in a world, and what must become of each."""

    def __init__(self, world):
        self.sender = sender = Sender(world.meta, world.objects)
        self.ids = [
            (sender.send(range(100, 130)), None, Outcome.WRITTEN),
            (sender.send([500, 1]), None, "DuplicateKey"),
            (sender.send(range(200, 240), batch=BATCH), BATCH, Outcome.WRITTEN),
            (sender.send([], batch=("empty", "c", 0)), ("empty", "c", 0), Outcome.WRITTEN),
            (sender.send([600], table="missing"), None, "NotFound"),
            (sender.send(range(300, 311)), None, Outcome.WRITTEN),
        ]

    def check(self):
        """Each has its answer, and nothing is left of it but that."""
        for request_id, batch, wanted in self.ids:
            answer = self.sender.answer(request_id, batch=batch)
            if isinstance(answer, RequestRefused):
                assert answer.kind == wanted
            else:
                assert answer.outcome is wanted and answer.epoch
        assert self.sender.left() == 0
        assert len(self.sender.meta.list(ANSWERS)) == len(self.ids)


def serve(session):
    """Rounds until no request is left."""
    for _ in range(8):
        if not session._inbox.round():
            return
    raise AssertionError("requests are left after 8 rounds")


@pytest.fixture(scope="module")
def base():
    world = World.after(BASE)
    requests = Requests(world)
    return world, requests


def opened(base):
    world = base[0].copy()
    requests = Requests.__new__(Requests)
    requests.sender, requests.ids = Sender(world.meta, world.objects, 1), base[1].ids
    return world, requests


def calls_of(base):
    world, requests = opened(base)
    crash = CrashPoint()
    assert world.run((serve,), crash)
    requests.check()
    return crash.calls


def check_a_death(base, crash):
    world, requests = opened(base)
    world.run((serve,), crash)
    with world.open() as session:
        before = stored(session)
        assert set(before) <= set(WANTED)
        for first, index in ((100, 0), (200, 2), (300, 5)):
            try:
                answer = requests.sender.answer(requests.ids[index][0], batch=requests.ids[index][1])
            except RequestUnanswered:
                answer = None
            assert (first in before) == (answer is not None), "rows without an answer, or an answer without rows"
        serve(session)
        assert stored(session) == WANTED
        requests.check()
        assert sorted(key.split("/")[-1] for key, _ in world.meta.list(WRITERS)) == ["empty", "loader"]
        again = requests.sender.send(range(200, 240), batch=BATCH)
        gap = requests.sender.send([700], batch=("loader", "run 1", 6))
        serve(session)
        assert requests.sender.answer(again).outcome is Outcome.REPEATED
        assert isinstance(requests.sender.answer(gap, batch=("loader", "run 1", 6)), BatchGap)
        assert stored(session) == WANTED
        session.flush()
        world.vacuum()
        world.check_files(session)
        assert world.meta.list("hummock/upload/") == []


def points_of(calls):
    return [(at, how) for at in range(1, calls + 1) for how in How]


def test_a_death_at_any_call_leaves_each_request_done_once(base):
    calls = calls_of(base)
    assert calls >= 3
    for at, how in points_of(calls):
        check_a_death(base, CrashPoint(at, how))


INGESTED = ("loader", "run 1", 9)


def ingest(session):
    return session.ingest(rows_of(range(100, 140)), "t", writer="loader", checkpoint="run 1", batch_id=9)


@pytest.mark.parametrize("is_log", [False, True])
def test_a_death_at_any_call_leaves_a_batch_and_its_number_together(is_log):
    base = World(is_log)
    with base.open() as session:
        for statement in BASE:
            session.sql(statement)
    world, crash = base.copy(), CrashPoint()
    assert world.run((ingest,), crash)
    assert crash.calls >= 2
    outcomes = set()
    for at, how in points_of(crash.calls):
        world = base.copy()
        is_acknowledged = world.run((ingest,), CrashPoint(at, how))
        with world.open() as session:
            is_there = 100 in stored(session)
            key = f"{WRITERS}{session._playground.catalog.resolve('t').id}/loader"
            row = world.meta.get(key)
            assert is_there == (row is not None) and (is_there or not is_acknowledged)
            report = ingest(session)
            assert report.was_repeated == is_there and report.rows == 40
            position = WriterPosition.from_bytes(key, world.meta.get(key))
            assert (position.checkpoint, position.batch_id, position.rows) == ("run 1", 9, 40)
            assert position.epoch <= session.committed_epoch
            assert stored(session) == [1, 2, *range(100, 140)]
        outcomes.add((is_acknowledged, is_there))
    assert (False, False) in outcomes       # test_inbox_kills dies between the commit and its acknowledgement


def test_killed_at_random_calls_again_and_again_a_queue_of_batches_is_there_once():
    rng = random.Random(23)
    world = World.after((TABLE, VIEW))
    sender = Sender(world.meta, world.objects)
    expected, sent, next_id = [], {}, 1
    for turn in range(25):
        batch = ("w", "c", turn)
        ids = range(next_id, next_id + rng.randrange(0, 30))
        next_id += len(ids) + 1
        sent[sender.send(ids, batch=batch)] = batch
        if rng.random() < 0.3:          # a client repeats what it has no answer to
            sent[sender.send(ids, batch=batch)] = batch
        expected += ids
        world.run((serve,), CrashPoint(rng.randrange(1, 5), rng.choice(list(How))))
        with world.open() as session:
            assert set(stored(session)) <= set(expected)
            if turn % 3 == 0 or sender.left() > 2:
                serve(session)
                assert stored(session) == expected
    with world.open() as session:
        serve(session)
        assert stored(session) == expected
    for request_id, batch in sent.items():
        assert sender.answer(request_id, batch=batch).outcome in (Outcome.WRITTEN, Outcome.REPEATED)


def test_a_statement_that_a_recovery_cannot_repeat_is_answered_as_lost(monkeypatch):
    world = World.after(BASE)
    sender = Sender(world.meta, world.objects)
    request, batch = sender.send([50]), ("w", "c", 0)
    with world.open() as session:
        pending, meta = session._playground.node.pending, session._playground.meta
        ingested, resume = session._queries.ingest_rows, pending.resume

        def then_a_recovery(table, rows, operations):
            affected = ingested(table, rows, operations)
            monkeypatch.setattr(session._queries, "ingest_rows", ingested)
            meta.fail(RuntimeError("injected"))
            return affected

        def without_any(committed, upto):
            for each in resume(committed, upto):
                pending.lose(each)
            return []

        monkeypatch.setattr(session._queries, "ingest_rows", then_a_recovery)
        monkeypatch.setattr(pending, "resume", without_any)
        session._inbox.round()
        answer = sender.answer(request)
        assert isinstance(answer, RequestRefused) and answer.kind == StatementsLost.__name__
        session.flush()                 # the error is the request's alone
        assert stored(session) == [1, 2]
        monkeypatch.setattr(session._queries, "ingest_rows", then_a_recovery)
        with pytest.raises(StatementsLost):
            session.ingest(rows_of([60]), "t", writer="w", checkpoint="c", batch_id=0)
        again = sender.send([60], batch=batch)
        session._inbox.round()
        assert sender.answer(again, batch=batch).outcome is Outcome.WRITTEN
        assert stored(session) == [1, 2, 60]


def test_a_client_that_dies_at_any_call_leaves_a_whole_request_or_nothing():
    base = World.after(BASE)
    outcomes, is_over = set(), False
    for at in range(1, 20):
        for how in How:
            world, crash = base.copy(), CrashPoint(at, how, is_armed=True)
            objects = CrashingObjectStore(world.objects, crash)
            sender = Sender(world.meta_of(objects, crash), objects)
            with suppress(ProcessDied):
                sender.send(range(100, 130), batch=BATCH)
            is_over = not crash.is_dead
            with world.open() as session:
                is_sent = session._inbox.round() == 1
                assert stored(session) == [1, 2, *(range(100, 130) if is_sent else ())]
                assert is_sent or not is_over
                world.now_ms += REGISTERED_MS
                session.flush()
                world.vacuum()
                world.check_files(session)
                assert world.meta.list("hummock/upload/") == []
            outcomes.add((is_over, is_sent))
        if is_over:
            break
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_answers_can_be_read_by_their_key(base):
    world, _ = opened(base)
    with world.open() as session:
        serve(session)
    for key, row in world.meta.list(ANSWERS):
        assert InboxAnswer.from_bytes(key, row).to_bytes() == row
