from dataclasses import dataclass

import pytest

from hummock.epoch import EpochPair
from stream.errors import ChannelClosed
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Add, Barrier, Stop, Watermark
from stream.runtime.actor import Actor
from stream.runtime.channel import Channel
from stream.runtime.dispatch import BroadcastDispatcher, Output
from stream.runtime.run_slots import RunSlots

SOON = 30.0


@dataclass(frozen=True)
class Rows:
    capacity: int


class Script(Executor):
    """Emits a list of messages; raises those that are exceptions."""

    def __init__(self, messages):
        self.info = ExecutorInfo(None, (), "Script")
        self.messages = messages
        self.closed = False

    def execute(self):
        try:
            for message in self.messages:
                if isinstance(message, BaseException):
                    raise message
                yield message
        finally:
            self.closed = True


class Log:
    def __init__(self):
        self.events = []

    def collect(self, actor_id, barrier):
        self.events.append((actor_id, barrier.epoch.prev >> 16))

    def fail(self, actor_id, error, position=None):
        self.events.append((actor_id, error))


def barrier(curr, mutation=None):
    return Barrier(EpochPair(curr << 16, (curr - 1) << 16), True, mutation)


def drain(channel):
    channel.close()
    taken = []
    with pytest.raises(ChannelClosed):
        while True:
            taken.append(channel.recv())
    return taken


def test_an_actor_dispatches_everything_before_it_reports_a_barrier():
    channel, log = Channel(100), Log()
    messages = [barrier(1), Rows(3), Watermark(0, 1), barrier(2), Rows(4)]
    script = Script(messages)
    actor = Actor(7, script, BroadcastDispatcher(7, [Output(8, channel)]), log, RunSlots(1))
    actor.start()
    assert actor.join(SOON)
    assert drain(channel) == messages
    assert log.events == [(7, 0), (7, 1)]
    assert actor.rows == 7
    assert script.closed


def test_an_actor_ends_at_its_stop_barrier_and_no_other():
    log = Log()
    others, mine = barrier(1, Stop(frozenset({9}))), barrier(2, Stop(frozenset({7})))
    Actor(7, Script([others, mine, barrier(3)]), BroadcastDispatcher(7), log, RunSlots(1)).run()
    assert log.events == [(7, 0), (7, 1)]


def test_an_error_is_reported_and_ends_the_actor():
    log, error, script = Log(), RuntimeError("no"), None
    script = Script([barrier(1), error, barrier(2)])
    Actor(7, script, BroadcastDispatcher(7), log, RunSlots(1)).run()
    assert log.events == [(7, 0), (7, error)]
    assert script.closed


def test_a_new_output_begins_with_the_barrier_that_adds_it():
    old, new = Channel(100), Channel(100)
    dispatcher = BroadcastDispatcher(7, [Output(1, old)])
    adding = barrier(2, Add(frozenset({2}), {7: (Output(2, new),), 5: (Output(3, old),)}))
    for message in (barrier(1), Rows(1), adding, Rows(2)):
        (dispatcher.broadcast if isinstance(message, Barrier) else dispatcher.dispatch)(message)
    assert drain(new) == [adding, Rows(2)]
    assert drain(old) == [barrier(1), Rows(1), adding, Rows(2)]


def test_a_stopped_output_ends_with_the_barrier_that_stops_it():
    first, second = Channel(100), Channel(100)
    dispatcher = BroadcastDispatcher(7, [Output(1, first), Output(2, second)])
    stopping = barrier(2, Stop(frozenset({1, 99})))
    dispatcher.broadcast(stopping)
    dispatcher.dispatch(Rows(5))
    assert drain(first) == [stopping]
    assert drain(second) == [stopping, Rows(5)]
    assert dispatcher.targets == (2,)


def test_a_closed_receiver_fails_the_sender_with_its_cause():
    channel, log, cause = Channel(100), Log(), RuntimeError("downstream died")
    channel.close(cause)
    Actor(7, Script([barrier(1)]), BroadcastDispatcher(7, [Output(1, channel)]), log, RunSlots(1)).run()
    ((_, error),) = log.events
    assert isinstance(error, ChannelClosed) and error.__cause__ is cause
