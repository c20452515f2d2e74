"""ComputeNode with fake executors: actors, channels and barriers are under test."""

import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hummock.epoch import EpochPair, to_unix_ms, wall_clock_ms
from relational.types import Schema
from stream.errors import ActorFailed, InvalidStatement, JobFailed, SessionClosed, StatementsLost
from stream.executor.base import Executor, ExecutorInfo, received
from stream.executor.dml import DmlExecutor
from stream.message import Add, Barrier, EvaluatedChanges, InsertRows, Replayed, Stop, Wait
from stream.options import StreamOptions
from stream.protocol import ActorSpec, EdgeSpec, InputSpec
from stream.runtime.actor import Actor
from stream.runtime.actor_pool import ActorPool
from stream.runtime.barrier_forecast import BarrierForecast, BarrierNotice
from stream.runtime.dispatch import Outputs
from stream.worker.compute_node import ComputeNode
from tests.support.drivers.catalogs import table_catalog

CATALOG = table_catalog("t", Schema.of(k="bigint"), (0,))
SOON = 30.0


@dataclass(frozen=True)
class Rows:
    capacity: int
    value: object = 0
    nbytes: int = 8

    @property
    def visible_rows(self):
        return self.capacity


class FakeStore:
    def __init__(self):
        self.committed_epoch = 0
        self.log = []

    def seal_epoch(self, epoch):
        self.log.append(("seal", epoch >> 16))

    def sync(self, epoch):
        return SimpleNamespace(sstables=(epoch >> 16,), watermarks={})

    def clear_uncommitted(self):
        self.log.append(("clear", None))


class Table(Executor):
    """Acknowledges each statement and emits its rows; fails on the value `poison`."""

    def __init__(self, input, poison):
        self.info, self.input, self.poison = ExecutorInfo(None, (), "Table"), input, poison

    def execute(self):
        for message in self.input.execute():
            if isinstance(message, InsertRows):
                assert message.result.begin()
                if message.chunk.value == self.poison:
                    raise ZeroDivisionError("a bug")
                message.result.evaluation = EvaluatedChanges(message.chunk, message.chunk.capacity, ())
                yield message.chunk
                message.result.set_result(message.chunk.capacity)
            elif isinstance(message, Replayed):
                yield message.evaluation.changes
                if not message.result.done():
                    message.result.set_result(message.evaluation.rows)
            else:
                yield message


class View(Executor):
    """Records its input in `seen`."""

    def __init__(self, channel, seen):
        self.info, self.channel, self.seen = ExecutorInfo(None, (), "View"), channel, seen

    def execute(self):
        for message in received(self.channel):
            if not isinstance(message, Wait):
                self.seen.append(message.epoch.prev >> 16 if isinstance(message, Barrier) else message.value)
            yield message


class Builder:
    def __init__(self):
        self.notice = BarrierNotice()
        self.seen = {}
        self.poison = "poison"
        self.actors = []

    def forecast(self):
        return BarrierForecast()

    def build(self, spec, control, inputs, observer):
        if control is not None:
            executor = Table(DmlExecutor(ExecutorInfo(None, (), "Dml"), control, CATALOG), self.poison)
        else:
            executor = View(inputs[0][0], self.seen.setdefault(spec.actor_id, []))
        self.actors.append(Actor(spec.actor_id, executor, Outputs(spec.actor_id), observer))
        return self.actors[-1]


class Node:
    def __init__(self):
        self.store, self.builder, self.failures, self.pool = FakeStore(), Builder(), [], ActorPool(2)
        self.expected_syncs = []
        self.node = ComputeNode(self.store, self.builder, StreamOptions(), self.pool, self.failures.append,
                                expect_sync=lambda *announced: self.expected_syncs.append(announced))
        self.epoch = 0

    def barrier(self, mutation=None):
        pair = EpochPair((self.epoch + 1) << 16, self.epoch << 16)
        self.epoch += 1
        return self.node.inject(Barrier(pair, True, mutation)).result(SOON)

    def begin(self, *specs):
        self.node.build(specs)
        self.barrier(Add(frozenset(spec.actor_id for spec in specs)))

    def recover(self, *specs, failed=None):
        """Recovers from epoch 0, the committed one."""
        self.node.reset(self.failures[0])
        self.node.build(specs)
        self.epoch += 1
        add = Add(frozenset(spec.actor_id for spec in specs), failed=failed or {})
        self.node.inject(Barrier(EpochPair(self.epoch << 16, 0), False, add)).result(SOON)

    def insert(self, value, rows=1, table=1):
        statement = InsertRows(self.node.pending.next_id(), Rows(rows, value))
        return self.node.execute(table, "t", statement)


@pytest.fixture
def parts():
    parts = Node()
    yield parts
    parts.node.close(SessionClosed("end of test"))


class Spec(ActorSpec):
    is_root = True


def table(actor_id):
    return Spec(actor_id, CATALOG.with_id(1), None)


def view(actor_id, upstream):
    return Spec(actor_id, CATALOG.with_id(2), None, inputs=(InputSpec(EdgeSpec((2, 0, 0)), (upstream,)),))


TABLE, VIEW = table(1), view(2, 1)


def test_a_view_sees_everything_between_its_barriers(parts):
    parts.begin(TABLE, VIEW)
    assert parts.insert("a", rows=3) == 3
    parts.barrier()
    assert parts.builder.seen[2] == [0, "a", 1]
    assert [each.rows for each in parts.node.fragments() if each.job_id == 1] == [3]


def test_what_a_barrier_would_wait_for_is_prepared_if_the_actors_have_done_much(parts):
    """In this epoch or the one before."""
    parts.begin(TABLE, VIEW)
    actor, view = parts.builder.actors
    actor._cpu_seconds = 1.0
    assert parts.node.expect(30.0)
    assert parts.expected_syncs == [(parts.epoch << 16, 30.0)]
    assert parts.builder.notice.announced_ms > wall_clock_ms() + 29_000
    parts.barrier()
    assert (parts.builder.notice.announced_ms, parts.builder.notice.injected_ms) == (0, to_unix_ms(parts.epoch << 16))
    assert parts.node.expect(30.0)
    parts.barrier()
    assert not parts.node.expect(30.0) and parts.builder.notice.announced_ms == 0
    parts.barrier(Stop(frozenset({view.actor_id})))
    actor._cpu_seconds += 1.0
    assert parts.node.expect(30.0) and len(parts.expected_syncs) == 3


def test_what_actors_that_were_stopped_have_done_does_not_count_against_others(parts):
    parts.begin(TABLE, VIEW)
    actor, view = parts.builder.actors
    view._cpu_seconds = 50.0
    parts.barrier()
    parts.barrier(Stop(frozenset({view.actor_id})))
    parts.barrier()
    actor._cpu_seconds += 1.0
    assert parts.node.expect(30.0)


def test_a_view_added_later_begins_with_its_barrier(parts):
    parts.begin(TABLE)
    parts.insert("before")
    parts.node.build([VIEW])
    parts.insert("built but not begun")
    parts.barrier()
    parts.barrier(Add(frozenset({2})))
    parts.insert("after")
    parts.barrier()
    assert parts.builder.seen[2] == [2, "after", 3]


def test_a_stopped_view_ends_and_its_table_goes_on(parts):
    parts.begin(TABLE, VIEW)
    parts.barrier(Stop(frozenset({2})))
    parts.insert("unseen")
    parts.barrier()
    parts.node.committed(parts.epoch << 16)
    assert parts.builder.seen[2] == [0, 1]
    assert parts.pool.join([each for each in parts.builder.actors if each.actor_id == 2], 0) == []


def test_statements_of_a_dropped_table_are_refused(parts):
    parts.begin(TABLE)
    parts.barrier(Stop(frozenset({1})))
    with pytest.raises(InvalidStatement, match="dropped"):
        parts.insert("late")


def poisoned(parts):
    """Inserts "poison" in a thread and waits until the table's actor has failed; returns the thread and its answers."""
    answers = []

    def insert():
        try:
            answers.append(parts.insert("poison"))
        except StatementsLost as error:
            answers.append(error)

    thread = threading.Thread(target=insert, daemon=True)
    thread.start()
    while not parts.failures:
        threading.Event().wait(0.002)
    return thread, answers


def test_a_failure_reports_once_and_a_reset_ends_every_actor(parts):
    parts.begin(TABLE, VIEW)
    assert parts.insert("acknowledged") == 1
    poisoned(parts)
    assert isinstance(parts.failures[0], ActorFailed)
    parts.node.reset(parts.failures[0])
    assert parts.store.log[-1] == ("clear", None)
    assert parts.pool.join(parts.builder.actors, 0) == []
    assert len(parts.failures) == 1
    assert len(parts.node.pending._pending) == 2


def test_after_a_recovery_undone_statements_come_before_new_ones(parts):
    parts.begin(TABLE, VIEW)
    assert parts.insert("acknowledged") == 1
    thread, answers = poisoned(parts)
    parts.builder.poison = None
    parts.recover(table(3), view(4, 3))
    thread.join(SOON)
    assert answers == [1] and parts.insert("new") == 1
    parts.barrier()
    assert [each for each in parts.builder.seen[4] if isinstance(each, str)] == ["acknowledged", "poison", "new"]


def test_a_statement_whose_table_does_not_come_back_is_lost_to_who_waits_for_it(parts):
    parts.begin(TABLE)
    thread, answers = poisoned(parts)
    failed = JobFailed("t", 0, "a bug")
    parts.recover(failed={1: failed})
    thread.join(SOON)
    (lost,) = answers
    assert isinstance(lost, StatementsLost) and lost.__cause__ is failed
    with pytest.raises(JobFailed, match="a bug"):
        parts.insert("late")


def test_statements_wait_out_a_recovery(parts):
    parts.begin(TABLE)
    parts.node.reset(RuntimeError("upload failed"))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(parts.insert("patient")), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    parts.begin(table(3))
    waiting.join(SOON)
    assert answers == [1]


def test_a_closed_node_reports_why(parts):
    parts.begin(TABLE)
    parts.node.close(SessionClosed("gone"))
    with pytest.raises(SessionClosed, match="gone"):
        parts.insert("late")
