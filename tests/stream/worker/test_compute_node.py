"""The node with executors of its own kind, so that only actors, channels and barriers are under test."""

import contextlib
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hummock.epoch import EpochPair
from relational.types import Schema
from stream.actor import Actor
from stream.control import ActorSpec
from stream.errors import ActorFailed, InvalidStatement, SessionClosed, StatementsLost
from stream.exchange.dispatch import BroadcastDispatcher
from stream.exchange.turns import Turns
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.dml import DmlExecutor
from stream.executor.receive import received
from stream.message import Add, Barrier, InsertRows, Stop
from stream.options import StreamOptions
from stream.worker.compute_node import ComputeNode
from tests.suites.catalogs import table_catalog

CATALOG = table_catalog("t", Schema.of(k="bigint"), (0,))
SOON = 30.0


@dataclass(frozen=True)
class Rows:
    capacity: int
    value: object = 0


class FakeStore:
    def __init__(self):
        self.committed_epoch = 0
        self.log = []

    def seal_epoch(self, epoch):
        self.log.append(("seal", epoch >> 16))

    def sync(self, epoch):
        return SimpleNamespace(sstables=(epoch >> 16,))

    def clear_uncommitted(self):
        self.log.append(("clear", None))


class Table(Executor):
    """Answers each statement with its rows and emits them; the value 'poison' is a bug."""

    def __init__(self, input):
        self.info, self.input = ExecutorInfo(None, (), "Table"), input

    def execute(self):
        for message in self.input.execute():
            if isinstance(message, InsertRows):
                if message.chunk.value == "poison":
                    raise ZeroDivisionError("a bug")
                yield message.chunk
                message.result.set_result(message.chunk.capacity)
            else:
                yield message


class View(Executor):
    """Remembers what it saw in `seen`."""

    def __init__(self, channel, seen):
        self.info, self.channel, self.seen = ExecutorInfo(None, (), "View"), channel, seen

    def execute(self):
        for message in received(self.channel):
            self.seen.append(message.epoch.prev >> 16 if isinstance(message, Barrier) else message.value)
            yield message


class Builder:
    def __init__(self):
        self.seen = {}

    def build(self, spec, control, upstreams, observer, turns):
        if control is not None:
            executor = Table(DmlExecutor(ExecutorInfo(None, (), "Dml"), control, CATALOG))
        else:
            executor = View(upstreams[0], self.seen.setdefault(spec.actor_id, []))
        return Actor(spec.actor_id, executor, BroadcastDispatcher(spec.actor_id), observer, turns)


class Node:
    def __init__(self):
        self.store, self.builder, self.failures = FakeStore(), Builder(), []
        self.node = ComputeNode(self.store, self.builder, StreamOptions(), Turns(1), self.failures.append)
        self.epoch = 0

    def barrier(self, mutation=None):
        pair = EpochPair((self.epoch + 1) << 16, self.epoch << 16)
        self.epoch += 1
        return self.node.inject(Barrier(pair, True, mutation)).result(SOON)

    def begin(self, *specs):
        self.node.build(specs)
        self.barrier(Add(frozenset(spec.actor_id for spec in specs)))

    def insert(self, value, rows=1, table=1):
        statement = InsertRows(self.node.ledger.next_id(), Rows(rows, value))
        return self.node.execute(table, "t", statement)


@pytest.fixture
def parts():
    parts = Node()
    yield parts
    parts.node.close(SessionClosed("end of test"))


TABLE = ActorSpec(1, 1, None)
VIEW = ActorSpec(2, 2, None, upstreams=(1,))


def test_a_view_sees_everything_between_its_barriers(parts):
    parts.begin(TABLE, VIEW)
    assert parts.insert("a", rows=3) == 3
    parts.barrier()
    assert parts.builder.seen[2] == [0, "a", 1]
    assert parts.node.emitted_rows([1]) == 3


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
    assert not any(thread.name.startswith("actor-2-") for thread in threading.enumerate())


def test_statements_of_a_dropped_table_are_refused(parts):
    parts.begin(TABLE)
    parts.barrier(Stop(frozenset({1})))
    with pytest.raises(InvalidStatement, match="dropped"):
        parts.insert("late")


def test_a_failure_reports_once_and_a_reset_ends_every_actor(parts):
    parts.begin(TABLE, VIEW)
    assert parts.insert("kept in doubt") == 1

    def poison():
        with contextlib.suppress(StatementsLost):
            parts.insert("poison")

    threading.Thread(target=poison, daemon=True).start()
    while not parts.failures:
        threading.Event().wait(0.002)
    assert isinstance(parts.failures[0], ActorFailed)
    parts.node.reset(parts.failures[0])
    assert parts.store.log[-1] == ("clear", None)
    assert not any(thread.name.startswith("actor-") for thread in threading.enumerate())
    assert parts.node.ledger.take_lost() == (1,)
    assert len(parts.failures) == 1


def test_who_waits_for_an_answer_is_told_of_the_reset(parts):
    parts.begin(TABLE)
    caught = []

    def insert():
        try:
            parts.insert("poison")
        except StatementsLost as error:
            caught.append(error.statement_ids)

    waiting = threading.Thread(target=insert, daemon=True)
    waiting.start()
    while not parts.failures:
        threading.Event().wait(0.002)
    parts.node.reset(parts.failures[0])
    waiting.join(SOON)
    assert caught == [(1,)]


def test_statements_wait_out_a_recovery(parts):
    parts.begin(TABLE)
    parts.node.reset(RuntimeError("upload failed"))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(parts.insert("patient")), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    parts.begin(ActorSpec(3, 1, None))
    waiting.join(SOON)
    assert answers == [1]


def test_a_closed_node_tells_why(parts):
    parts.begin(TABLE)
    parts.node.close(SessionClosed("gone"))
    with pytest.raises(SessionClosed, match="gone"):
        parts.insert("late")
