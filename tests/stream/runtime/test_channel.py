import threading
from dataclasses import dataclass

import pytest

from hummock.epoch import EpochPair
from stream.errors import ChannelClosed
from stream.message import Barrier, DeleteRows, InsertRows, Watermark
from stream.runtime.channel import Channel, select

SOON = 30.0
AT_ONCE = 0.02


@dataclass(frozen=True)
class Rows:
    """A fake chunk: a channel uses only its capacity."""

    capacity: int
    name: str = ""


def barrier(curr: int, prev: int) -> Barrier:
    return Barrier(EpochPair(curr << 16, prev << 16), checkpoint=True)


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_messages_leave_in_the_order_they_came():
    channel = Channel(100)
    sent = [Rows(1, "a"), barrier(2, 1), Rows(2, "b"), Watermark(0, 5), barrier(3, 2)]
    for message in sent:
        channel.send(message)
    assert [channel.recv() for _ in sent] == sent


def test_a_sender_waits_for_permits_and_goes_on_when_rows_are_taken():
    channel = Channel(10)
    channel.send(Rows(6))
    with pytest.raises(TimeoutError):
        channel.send(Rows(5), timeout=AT_ONCE)
    sender = in_thread(lambda: channel.send(Rows(5, "late")))
    assert channel.recv(SOON).capacity == 6
    assert channel.recv(SOON).name == "late"
    sender.join(SOON)
    assert not sender.is_alive()


def test_a_barrier_never_waits_for_row_permits():
    channel = Channel(10)
    channel.send(Rows(10))
    channel.send(barrier(2, 1), timeout=AT_ONCE)
    channel.send(Watermark(0, 1), timeout=AT_ONCE)
    assert (channel.waiting_messages, channel.waiting_rows) == (3, 10)


def test_a_message_larger_than_all_permits_passes_alone():
    channel = Channel(10)
    channel.send(Rows(1_000), timeout=AT_ONCE)
    with pytest.raises(TimeoutError):
        channel.send(Rows(1), timeout=AT_ONCE)
    channel.recv(AT_ONCE)
    channel.send(Rows(1), timeout=AT_ONCE)


def test_statements_cost_their_rows():
    channel = Channel(10)
    channel.send(InsertRows(1, Rows(4)))
    channel.send(DeleteRows(2, None))
    assert channel.waiting_rows == 5


def test_send_returns_the_barrier_before_the_message():
    channel = Channel(10)
    first, second = barrier(2, 1), barrier(3, 2)
    assert channel.send(Rows(1)) is None
    assert channel.send(first) is None
    assert channel.send(Rows(1)) is first
    assert channel.send(second) is first
    assert channel.send(DeleteRows(1, None)) is second


def test_closing_lets_the_receiver_take_what_is_left():
    channel = Channel(10)
    channel.send(Rows(1))
    channel.close()
    assert channel.recv().capacity == 1
    with pytest.raises(ChannelClosed):
        channel.recv()
    with pytest.raises(ChannelClosed):
        channel.try_recv()
    with pytest.raises(ChannelClosed):
        channel.send(Rows(1))


def test_closing_with_an_error_reaches_both_ends_at_once():
    channel = Channel(10)
    channel.send(Rows(10))
    cause = RuntimeError("disk on fire")
    caught = []

    def send():
        try:
            channel.send(Rows(1))
        except ChannelClosed as error:
            caught.append(error.__cause__)

    sender = in_thread(send)
    channel.close(cause)
    sender.join(SOON)
    with pytest.raises(ChannelClosed) as raised:
        channel.recv()
    assert raised.value.__cause__ is cause
    assert caught == [cause]


def test_recv_times_out_and_try_recv_does_not_wait():
    channel = Channel(10)
    assert channel.try_recv() is None
    with pytest.raises(TimeoutError):
        channel.recv(AT_ONCE)


def test_select_finds_the_ready_channel_and_wakes_for_one():
    first, second = Channel(10), Channel(10)
    assert select([first, second], AT_ONCE) is None
    second.send(Rows(1))
    assert select([first, second], AT_ONCE) == 1
    second.recv()
    threading.Timer(AT_ONCE, lambda: first.send(Rows(1))).start()
    assert select([first, second], SOON) == 0
    first.recv()
    threading.Timer(AT_ONCE, second.close).start()
    assert select([first, second], SOON) == 1


def test_many_messages_between_two_threads_keep_order_and_bound():
    channel, taken, most = Channel(64), [], 0

    def send():
        for index in range(5_000):
            channel.send(Rows(1 + index % 7, str(index)))
        channel.close()

    sender = in_thread(send)
    with pytest.raises(ChannelClosed):
        while True:
            most = max(most, channel.waiting_rows)
            taken.append(channel.recv(SOON).name)
    sender.join(SOON)
    assert taken == [str(index) for index in range(5_000)]
    assert most <= 64
