import threading

import pytest

from stream.errors import ChannelClosed
from stream.message import DeleteRows
from stream.runtime.channel import Channel
from stream.runtime.run_slots import RunSlots

SOON = 30.0


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


class Counted:
    """A context manager; `most` is the maximum number of threads inside at once."""

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
def test_no_more_threads_run_than_there_are_slots(limit):
    slots, counted = RunSlots(limit), Counted()

    def work():
        for _ in range(50):
            slots.acquire()
            with counted:
                threading.Event().wait(0.0002)
            slots.release()

    for thread in [in_thread(work) for _ in range(5)]:
        thread.join(SOON)
        assert not thread.is_alive()
    assert counted.most == limit


def test_a_released_slot_passes_to_the_thread_that_has_waited_longest():
    slots, order = RunSlots(1), []
    slots.acquire()
    threads = []
    for number in range(4):

        def work(number=number):
            slots.acquire()
            order.append(number)
            slots.release()

        threads.append(in_thread(work))
        while len(slots._waiting) <= number:
            threading.Event().wait(0.001)
    slots.release()
    for thread in threads:
        thread.join(SOON)
    assert order == [0, 1, 2, 3]


def test_a_slot_is_yielded_once_the_quantum_is_over():
    now, order = [0.0], []
    slots = RunSlots(1, quantum_seconds=1.0, clock=lambda: now[0])
    slots.acquire()

    def work():
        slots.acquire()
        order.append("other")
        slots.release()

    other = in_thread(work)
    while not slots._waiting:
        threading.Event().wait(0.001)
    slots.yield_if_due()
    order.append("mine")
    now[0] = 2.0
    slots.yield_if_due()
    order.append("mine again")
    other.join(SOON)
    assert order == ["mine", "other", "mine again"]


def test_waiting_in_a_channel_releases_the_slot():
    slots = RunSlots(1)
    channel = Channel(1, "one", slots)
    sums = []

    def produce():
        slots.acquire()
        for _ in range(200):
            channel.send(DeleteRows(1, None))
        channel.close()
        slots.release()

    def consume():
        slots.acquire()
        taken = 0
        try:
            while channel.recv(SOON):
                taken += 1
        except ChannelClosed:
            sums.append(taken)
        slots.release()

    for thread in [in_thread(consume), in_thread(produce)]:
        thread.join(SOON)
        assert not thread.is_alive()
    assert sums == [200]
    slots.acquire()


def test_a_thread_without_a_slot_may_use_the_channel_too():
    channel = Channel(1, "one", RunSlots(1))
    channel.send(DeleteRows(1, None))
    with pytest.raises(TimeoutError):
        channel.send(DeleteRows(2, None), timeout=0.02)
    assert channel.recv(SOON).statement_id == 1
