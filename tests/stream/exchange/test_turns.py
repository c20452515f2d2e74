import threading

import pytest

from stream.errors import ChannelClosed
from stream.message import DeleteRows
from stream.runtime.channel import Channel
from stream.runtime.run_slots import Turns

SOON = 30.0


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


class Counted:
    """How many threads are inside at once."""

    def __init__(self):
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_):
        with self.lock:
            self.inside -= 1


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_threads_run_than_there_are_turns(limit):
    turns, counted = Turns(limit), Counted()

    def work():
        for _ in range(50):
            turns.take()
            with counted:
                threading.Event().wait(0.0002)
            turns.give()

    for thread in [in_thread(work) for _ in range(5)]:
        thread.join(SOON)
        assert not thread.is_alive()
    assert counted.most == limit


def test_turns_go_to_whoever_has_waited_longest():
    turns, order = Turns(1), []
    turns.take()
    threads = []
    for number in range(4):

        def work(number=number):
            turns.take()
            order.append(number)
            turns.give()

        threads.append(in_thread(work))
        while len(turns._waiting) <= number:
            threading.Event().wait(0.001)
    turns.give()
    for thread in threads:
        thread.join(SOON)
    assert order == [0, 1, 2, 3]


def test_a_turn_is_shared_once_the_quantum_is_over():
    now, order = [0.0], []
    turns = Turns(1, quantum_seconds=1.0, clock=lambda: now[0])
    turns.take()

    def work():
        turns.take()
        order.append("other")
        turns.give()

    other = in_thread(work)
    while not turns._waiting:
        threading.Event().wait(0.001)
    turns.share()
    order.append("mine")
    now[0] = 2.0
    turns.share()
    order.append("mine again")
    other.join(SOON)
    assert order == ["mine", "other", "mine again"]


def test_waiting_in_a_channel_gives_the_turn_up():
    turns = Turns(1)
    channel = Channel(1, "one", turns)
    sums = []

    def produce():
        turns.take()
        for _ in range(200):
            channel.send(DeleteRows(1, None))
        channel.close()
        turns.give()

    def consume():
        turns.take()
        taken = 0
        try:
            while channel.recv(SOON):
                taken += 1
        except ChannelClosed:
            sums.append(taken)
        turns.give()

    for thread in [in_thread(consume), in_thread(produce)]:
        thread.join(SOON)
        assert not thread.is_alive()
    assert sums == [200]
    turns.take()


def test_a_thread_without_a_turn_may_use_the_channel_too():
    channel = Channel(1, "one", Turns(1))
    channel.send(DeleteRows(1, None))
    with pytest.raises(TimeoutError):
        channel.send(DeleteRows(2, None), timeout=0.02)
    assert channel.recv(SOON).statement_id == 1
