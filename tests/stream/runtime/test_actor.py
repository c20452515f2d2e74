import math
from dataclasses import dataclass

import pytest

from hummock.epoch import EpochPair
from stream.errors import ChannelClosed
from stream.executor.base import Executor, ExecutorInfo
from stream.message import PAUSE, WAIT, Add, Barrier, Stop, Wait, Watermark
from stream.runtime.actor import Actor
from stream.runtime.actor_pool import ActorPool
from stream.runtime.channel import Channel
from stream.runtime.dispatch import HashEdge, Outputs, SimpleEdge
from tests.support.drivers.waiting import SOON_SECONDS

EDGE, OTHER_EDGE = (1, 0, 0), (2, 0, 0)


@dataclass(frozen=True)
class Rows:
    capacity: int
    nbytes: int = 8
    hidden: int = 0

    @property
    def visible_rows(self):
        return self.capacity - self.hidden


class Script(Executor):
    """Emits a list of messages; raises those that are exceptions, and `at_close` when it ends."""

    def __init__(self, messages, at_close=None):
        self.info = ExecutorInfo(None, (), "Script")
        self.messages, self.at_close = messages, at_close
        self.closed = False

    def execute(self):
        try:
            for message in self.messages:
                if isinstance(message, BaseException):
                    raise message
                yield message
        finally:
            self.closed = True
            if self.at_close is not None:
                raise self.at_close


class Log:
    def __init__(self):
        self.events = []

    def collect(self, actor_id, barrier):
        self.events.append((actor_id, barrier.epoch.prev >> 16))

    def fail(self, actor_id, error, position=None):
        self.events.append((actor_id, error))


def barrier(curr, mutation=None):
    return Barrier(EpochPair(curr << 16, (curr - 1) << 16), True, mutation)


def taken(channel):
    channel.close()
    found = []
    with pytest.raises(ChannelClosed):
        while True:
            found.append(channel.try_recv())
    return found


def outputs(channel):
    return Outputs(7, {EDGE: SimpleEdge({8: channel})})


def never():
    return False


def test_outputs_tell_what_was_sent_and_how_much_the_receivers_may_queue():
    broadcast = SimpleEdge({1: Channel(100), 2: Channel(100)})
    divided = HashEdge({3: Channel(100), 4: Channel(100)}, (0,), vnode_map=None)
    none = Outputs(7)
    assert (none.queue_rows, none.sent_rows) == (math.inf, 0)
    sender = Outputs(7, {EDGE: broadcast, OTHER_EDGE: divided})
    assert sender.queue_rows == 100
    broadcast.targets[2].limit_rows = 40
    assert sender.queue_rows == 40, "every target gets all rows"
    divided.targets[3].limit_rows = divided.targets[4].limit_rows = 15
    assert sender.queue_rows == 30, "the targets share the rows"
    sender = Outputs(7, {EDGE: broadcast})
    assert not sender.has_queue
    assert sender.dispatch(Rows(3)) and not sender.dispatch(Rows(200))
    assert sender.sent_rows == 203 and sender.has_queue
    for channel in broadcast.targets.values():
        channel.try_recv()
    assert not sender.has_queue


def test_an_actor_sends_everything_before_it_reports_a_barrier():
    channel, log = Channel(100), Log()
    messages = [barrier(1), Rows(3), Watermark(0, 1), barrier(2), Rows(4)]
    script = Script(messages)
    actor = Actor(7, script, outputs(channel), log)
    assert actor.run(never) is False
    assert taken(channel) == messages
    assert log.events == [(7, 0), (7, 1)]
    assert actor.rows == 7
    assert script.closed


def test_hidden_rows_are_not_counted():
    channel = Channel(100)
    actor = Actor(7, Script([barrier(1), Rows(6, hidden=4), Rows(3, hidden=3)]), outputs(channel), Log())
    assert actor.run(never) is False
    assert actor.rows == 2


def test_an_actor_goes_on_after_a_pause_unless_the_slice_is_over():
    channel, log, asked = Channel(100), Log(), []
    actor = Actor(7, Script([barrier(1), PAUSE, Rows(6), PAUSE, Rows(5)]), outputs(channel), log)
    assert actor.run(lambda: asked.append(0) or len(asked) == 4) is True  # after the second pause
    assert actor.rows == 6
    assert actor.run(never) is False
    assert taken(channel) == [barrier(1), Rows(6), Rows(5)]


def test_a_slice_ends_with_a_wait_when_the_quantum_is_over_and_without_room():
    channel, log = Channel(10), Log()
    messages = [barrier(1), Wait(0.5), Rows(6), Rows(5), barrier(2)]
    actor = Actor(7, Script(messages), outputs(channel), log)
    assert actor.run(never) == Wait(0.5)
    assert actor.run(lambda: True) is True  # after Rows(6)
    assert actor.run(never) == WAIT  # there is no room for Rows(5)
    assert actor.run(never) == WAIT and log.events == [(7, 0)]
    assert [channel.try_recv(), channel.try_recv()] == [barrier(1), Rows(6)]
    assert actor.run(never) is False
    assert taken(channel) == [Rows(5), barrier(2)] and log.events == [(7, 0), (7, 1)]


def test_an_actor_ends_at_its_stop_barrier_and_no_other():
    log = Log()
    others, mine = barrier(1, Stop(frozenset({9}))), barrier(2, Stop(frozenset({7})))
    assert Actor(7, Script([others, mine, barrier(3)]), Outputs(7), log).run(never) is False
    assert log.events == [(7, 0), (7, 1)]


def test_an_error_is_reported_and_ends_the_actor():
    log, error = Log(), RuntimeError("no")
    script = Script([barrier(1), error, barrier(2)])
    assert Actor(7, script, Outputs(7), log).run(never) is False
    assert log.events == [(7, 0), (7, error)]
    assert script.closed


def test_a_new_edge_begins_with_the_barrier_that_adds_it():
    old, new = Channel(100), Channel(100)
    sending = outputs(old)
    added = {7: ((OTHER_EDGE, SimpleEdge({2: new})),), 5: ((OTHER_EDGE, SimpleEdge({3: old})),)}
    adding = barrier(2, Add(frozenset({2}), added))
    for message in (barrier(1), Rows(1), adding, Rows(2)):
        (sending.broadcast if isinstance(message, Barrier) else sending.dispatch)(message)
    assert taken(new) == [adding, Rows(2)]
    assert taken(old) == [barrier(1), Rows(1), adding, Rows(2)]


def test_a_stopped_edge_ends_with_the_barrier_that_stops_its_targets():
    first, second = Channel(100), Channel(100)
    sending = Outputs(7, {EDGE: SimpleEdge({1: first}), OTHER_EDGE: SimpleEdge({2: second})})
    stopping = barrier(2, Stop(frozenset({1, 99})))
    sending.broadcast(stopping)
    sending.dispatch(Rows(5))
    assert taken(first) == [stopping]
    assert taken(second) == [stopping, Rows(5)]
    assert sending.targets == (2,)


def test_a_closed_receiver_fails_the_sender_with_its_cause():
    channel, log, cause = Channel(100), Log(), RuntimeError("downstream died")
    channel.close(cause)
    assert Actor(7, Script([barrier(1)]), outputs(channel), log).run(never) is False
    ((_, error),) = log.events
    assert isinstance(error, ChannelClosed) and error.__cause__ is cause


@pytest.fixture
def pool():
    pool = ActorPool(1, spare=0)
    yield pool
    pool.close()


def test_a_failure_is_reported_whatever_is_raised_when_its_executors_are_closed(pool, caplog):
    """The error comes from a channel, while the executors are at a `yield`."""
    channel, log = Channel(100), Log()
    channel.close(RuntimeError("downstream died"))
    script = Script([barrier(1), Rows(3)], OSError("the connection is gone"))
    failing, next_one = Actor(7, script, outputs(channel), log), Actor(8, Script([barrier(1)]), Outputs(8), log)
    pool.start(failing)
    assert pool.join([failing], SOON_SECONDS) == []
    ((actor_id, error),) = log.events
    assert actor_id == 7 and isinstance(error, ChannelClosed) and script.closed
    assert ["actor not closed" in record.getMessage() for record in caplog.records] == [True]
    pool.start(next_one)
    assert pool.join([next_one], SOON_SECONDS) == [] and log.events[1:] == [(8, 0)], "the pool has no thread left"


def test_an_actor_passes_its_last_barrier_whatever_is_raised_when_its_executors_are_closed(caplog):
    log, script = Log(), Script([barrier(1), barrier(2, Stop(frozenset({7})))], OSError("the connection is gone"))
    assert Actor(7, script, Outputs(7), log).run(never) is False
    assert log.events == [(7, 0), (7, 1)] and script.closed
    assert "the connection is gone" in caplog.text


def test_what_is_raised_at_the_end_of_the_input_is_a_failure():
    log, error = Log(), OSError("the connection is gone")
    assert Actor(7, Script([barrier(1)], error), Outputs(7), log).run(never) is False
    assert log.events == [(7, 0), (7, error)]


def test_an_actor_ends_if_its_failure_cannot_be_reported(pool, caplog):
    class Deaf(Log):
        def fail(self, actor_id, error, position=None):
            raise RuntimeError("nobody listens")

    script = Script([barrier(1), ValueError("no")])
    actor = Actor(7, script, Outputs(7), Deaf())
    pool.start(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and script.closed
    assert "nobody listens" in caplog.text
