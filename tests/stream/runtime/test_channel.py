import threading
from dataclasses import dataclass

import pytest

from hummock.epoch import EpochPair
from stream.errors import ChannelClosed
from stream.message import Barrier, DeleteRows, InsertRows, Watermark
from stream.runtime.channel import LINGER_BYTES, LINGER_ROWS, LINGER_SECONDS, Channel

SOON = 30.0
AT_ONCE = 0.02


@dataclass(frozen=True)
class Rows:
    """A fake chunk: a channel uses only its visible rows and its bytes."""

    visible_rows: int
    name: str = ""
    nbytes: int = 8


def barrier(curr: int, prev: int) -> Barrier:
    return Barrier(EpochPair(curr << 16, prev << 16), checkpoint=True)


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_messages_are_received_in_the_order_they_were_sent():
    channel = Channel(100)
    sent = [Rows(1, "a"), barrier(2, 1), Rows(2, "b"), Watermark(0, 5), barrier(3, 2)]
    assert all(map(channel.try_send, sent))
    assert [channel.try_recv() for _ in sent] == sent
    assert channel.try_recv() is None


def test_an_actor_is_refused_without_permits_and_woken_once_there_are_some():
    channel, wakes = Channel(10), []
    channel.on_writable = lambda: wakes.append(channel.waiting_rows)
    assert channel.try_send(Rows(6)) and channel.try_send(Rows(4))
    assert not channel.try_send(Rows(1)) and not channel.try_send(Rows(1))
    channel.try_recv()
    channel.try_recv()
    assert wakes == [4]
    assert channel.try_send(Rows(10))


def test_it_knows_the_last_barrier_that_was_sent_also_when_it_was_received():
    channel, seen = Channel(100), []
    for message in (Rows(1), barrier(2, 1), Rows(1), barrier(3, 2)):
        channel.try_send(message)
        seen.append(channel.last_epoch)
    while channel.try_recv():
        seen.append(channel.last_epoch)
    assert seen == [0, 2 << 16, 2 << 16, *5 * [3 << 16]]


def test_a_receiver_is_woken_by_each_message_and_by_the_close():
    channel, wakes = Channel(10), []
    channel.on_readable = lambda within: wakes.append(channel.waiting_rows)
    channel.try_send(Rows(1))
    channel.send(barrier(2, 1))
    channel.close()
    assert wakes == [1, 1, 1]


def test_a_few_rows_linger_until_there_are_many_or_another_message():
    channel, within = Channel(10 * LINGER_ROWS), []
    channel.on_readable = within.append
    for message in (Rows(1), Rows(LINGER_ROWS - 1), Rows(1), barrier(2, 1)):
        channel.try_send(message)
    assert within == [LINGER_SECONDS, LINGER_SECONDS, 0, 0]
    while channel.try_recv():
        pass
    within.clear()
    for message in (Rows(1), Rows(1, nbytes=LINGER_BYTES), Watermark(0, 1)):
        channel.try_send(message)
    assert within == [LINGER_SECONDS, 0, 0]
    channel.send(Rows(1))
    assert within[-1] == 0


def test_what_lingers_is_received_at_once_when_a_sender_is_refused():
    channel, within = Channel(10), []
    channel.on_readable = within.append
    assert channel.try_send(Rows(1)) and not channel.try_send(Rows(10))
    assert within == [LINGER_SECONDS, 0]
    assert not channel.try_send(Rows(10)) and len(within) == 2


def test_bytes_are_bounded_like_rows():
    channel = Channel(1_000, permits_bytes=100)
    assert channel.try_send(Rows(1, nbytes=60)) and not channel.try_send(Rows(1, nbytes=60))
    assert channel.try_send(Rows(1, nbytes=40)) and channel.waiting_bytes == 100


def test_a_thread_that_is_no_actor_waits_for_permits():
    channel = Channel(10)
    channel.send(Rows(6))
    with pytest.raises(TimeoutError):
        channel.send(Rows(5), timeout=AT_ONCE)
    sender = in_thread(lambda: channel.send(Rows(5, "late")))
    assert channel.try_recv().visible_rows == 6
    sender.join(SOON)
    assert not sender.is_alive() and channel.try_recv().name == "late"


def test_a_barrier_never_needs_permits():
    channel = Channel(10)
    channel.send(Rows(10))
    assert channel.try_send(barrier(2, 1)) and channel.try_send(Watermark(0, 1))
    assert channel.waiting_rows == 10 and [type(channel.try_recv()) for _ in range(3)] == [Rows, Barrier, Watermark]


def test_a_message_larger_than_all_permits_passes_alone():
    channel = Channel(10)
    assert channel.try_send(Rows(1_000)) and not channel.try_send(Rows(1))
    channel.try_recv()
    assert channel.try_send(Rows(1))


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
    assert not channel.is_drained and channel.try_recv().visible_rows == 1
    assert channel.is_drained
    for call in (channel.try_recv, lambda: channel.send(Rows(1)), lambda: channel.try_send(Rows(1))):
        with pytest.raises(ChannelClosed):
            call()


def test_closing_with_an_error_reaches_both_ends_at_once():
    channel = Channel(10)
    channel.send(Rows(10))
    cause, caught = RuntimeError("disk on fire"), []

    def send():
        try:
            channel.send(Rows(1))
        except ChannelClosed as error:
            caught.append(error.__cause__)

    sender = in_thread(send)
    channel.close(cause)
    sender.join(SOON)
    with pytest.raises(ChannelClosed) as raised:
        channel.try_recv()
    assert raised.value.__cause__ is cause
    assert caught == [cause]


def test_many_messages_between_two_threads_keep_order_and_bound():
    channel, taken, most = Channel(64), [], 0
    arrived = threading.Event()
    channel.on_readable = lambda within: arrived.set()

    def send():
        for index in range(5_000):
            channel.send(Rows(1 + index % 7, str(index)))
        channel.close()

    sender = in_thread(send)
    with pytest.raises(ChannelClosed):
        while True:
            most = max(most, channel.waiting_rows)
            message = channel.try_recv()
            if message is None:
                assert arrived.wait(SOON)
                arrived.clear()
            else:
                taken.append(message.name)
    sender.join(SOON)
    assert taken == [str(index) for index in range(5_000)]
    assert most <= 64
