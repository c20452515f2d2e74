import random
import time
from decimal import Decimal

import numpy as np
import pytest

from relational.chunk import StreamChunk
from relational.types import Schema
from stream.errors import ChannelClosed, InconsistentStream
from stream.executor.base import ExecutorInfo
from stream.executor.merge import MergeExecutor
from stream.message import PAUSE, WAIT, Barrier, GroupStates, Wait, Watermark
from stream.runtime.channel import LINGER_ROWS, Channel
from stream.runtime.debloat import FIRST_ROWS, LEAST_ROWS, QUEUED_SECONDS
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import barrier, unpaused, until_barrier

SCHEMA = Schema.of(sender="bigint", number="bigint")
INFO = ExecutorInfo(SCHEMA, (0, 1), "Merge")
ROWS = 8


def chunk(sender, number):
    return StreamChunk.from_rows(SCHEMA, [(0, (sender, number))])


def test_all_messages_of_an_epoch_precede_its_barrier_and_each_sender_keeps_its_order():
    rng = random.Random(run_seed())
    channels = [Channel(1 << 20) for _ in range(4)]
    sent = dict.fromkeys(range(4), 0)
    messages = unpaused(MergeExecutor(INFO, channels, ROWS).execute())
    for number in range(1, 30):
        expected = []
        for at, channel in enumerate(channels):
            for _ in range(rng.randrange(4)):
                sent[at] += 1
                expected.append((at, sent[at]))
                channel.send(chunk(at, sent[at]))
            channel.send(barrier(number))
        seen = []
        for message in messages:
            if isinstance(message, Barrier):
                assert message == barrier(number)
                break
            if isinstance(message, StreamChunk):
                seen += list(message.rows())
        assert sorted(seen) == sorted(expected)
        for at in range(4):
            assert [row for row in seen if row[0] == at] == [row for row in expected if row[0] == at]


def test_a_sender_ahead_waits_while_the_others_are_read():
    first, second = Channel(10), Channel(10)
    messages = unpaused(MergeExecutor(INFO, [first, second], ROWS).execute())
    for message in (barrier(1), chunk(0, 1)):
        first.send(message)
    assert next(messages) == WAIT and first.waiting_rows == 1
    second.send(chunk(1, 1))
    second.send(barrier(1))
    assert list(next(messages).rows()) == [(1, 1)]
    assert next(messages) == barrier(1)
    assert list(next(messages).rows()) == [(0, 1)]


def test_a_quick_sender_does_not_starve_the_others():
    quick, slow = Channel(1 << 20), Channel(1 << 20)
    for number in range(100):
        quick.send(chunk(0, number))
    slow.send(chunk(1, 0))
    messages = unpaused(MergeExecutor(INFO, [quick, slow], 1).execute())
    assert [next(iter(next(messages).rows()))[0] for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("as_message", [lambda rows: rows, lambda rows: GroupStates(rows, (0, 1))],
                         ids=["rows", "states of groups"])
def test_less_is_queued_for_a_slow_receiver_whatever_comes(as_message):
    channel = Channel(1 << 20)
    messages = MergeExecutor(INFO, [channel], ROWS).execute()
    assert next(messages) == WAIT and channel.limit_rows == FIRST_ROWS
    channel.send(as_message(StreamChunk.from_rows(SCHEMA, [(0, (0, number)) for number in range(LEAST_ROWS)])))
    assert next(messages).visible_rows == LEAST_ROWS
    time.sleep(QUEUED_SECONDS)
    assert next(messages) == PAUSE and channel.limit_rows == LEAST_ROWS


def test_hidden_rows_are_dropped_unless_chunks_pass_as_they_are():
    masked = StreamChunk.from_rows(SCHEMA, [(0, (0, 1)), (0, (0, 2))]).with_visibility(np.array([0, 1], np.uint8))
    for chunk_rows, capacity in ((ROWS, 1), (None, 2)):
        channel = Channel(10)
        channel.send(masked)
        assert next(MergeExecutor(INFO, [channel], chunk_rows).execute()).capacity == capacity


def test_waiting_chunks_are_joined_in_order_up_to_a_size():
    channel, woken = Channel(14), []
    channel.on_writable = lambda: woken.append(True)
    changes = [(number % 2, (0, number)) for number in range(18)]
    shown = np.array([1, 1, 0, 1, 1, 1], np.uint8)
    for first in (0, 6):
        channel.send(StreamChunk.from_rows(SCHEMA, changes[first : first + 6]).with_visibility(shown))
    assert not channel.try_send(StreamChunk.from_rows(SCHEMA, changes[12:]).with_visibility(shown))
    messages = unpaused(MergeExecutor(INFO, [channel], ROWS).execute())
    joined = next(messages)
    kept = [(op, (zero, number)) for op, (zero, number) in changes[:12] if number % 6 != 2]
    assert [(int(op), row) for op, row in joined.changes()] == kept
    assert joined.visibility is None and woken == [True] and channel.waiting_rows == channel.waiting_bytes == 0
    for message in (chunk(0, 0), barrier(1), chunk(0, 1)):
        channel.send(message)
    assert list(next(messages).rows()) == [(0, 0)], "what follows a barrier is not joined with what precedes it"
    assert next(messages) == barrier(1)
    assert list(next(messages).rows()) == [(0, 1)]


def test_chunks_of_all_types_are_joined_as_concatenation_would():
    schema = Schema.of(
        word="bigint",
        text="varchar",
        exact="numeric(20,2)",
        flag="boolean",
        many="int[]",
        pair="struct<x int, y varchar>",
    )
    rng = random.Random(run_seed())

    def change():
        number = rng.randrange(40)
        row = (number, "x" * number, Decimal(number) / 100, number % 2 == 0, [number] * (number % 4), (number, "y"))
        return rng.randrange(2), tuple(None if rng.random() < 0.2 else value for value in row)

    chunks = []
    for _ in range(4):
        changes = [change() for _ in range(rng.randrange(40))]
        shown = np.array([rng.randrange(2) for _ in changes], np.uint8)
        chunks.append(StreamChunk.from_rows(schema, changes).with_visibility(shown))
    joined = StreamChunk.compacted(chunks)
    assert list(joined.changes()) == [change for each in chunks for change in each.changes()]
    assert joined.capacity == joined.visible_rows == sum(each.visible_rows for each in chunks)


def test_it_ends_when_a_sender_has_ended_and_fails_with_a_sender():
    channel = Channel(10)
    channel.send(barrier(1))
    channel.close()
    messages = unpaused(MergeExecutor(INFO, [channel], ROWS).execute())
    assert [each for each in messages if not isinstance(each, Wait)] == [barrier(1)]
    failed = Channel(10)
    failed.close(RuntimeError("upstream died"))
    with pytest.raises(ChannelClosed):
        next(MergeExecutor(INFO, [failed], ROWS).execute())


def test_barriers_of_two_epochs_at_once_are_a_fault():
    first, second = Channel(10), Channel(10)
    first.send(barrier(1))
    second.send(barrier(2))
    with pytest.raises(InconsistentStream):
        next(MergeExecutor(INFO, [first, second], ROWS).execute())


def test_a_watermark_is_the_least_of_all_channels_and_precedes_the_barrier():
    channels = [Channel(100), Channel(100)]
    messages = unpaused(MergeExecutor(INFO, channels, ROWS).execute())

    def epoch(number, *marks):
        """`marks`: for each channel its watermarks."""
        for channel, sent in zip(channels, marks, strict=True):
            for column, value in sent:
                channel.send(Watermark(column, value))
            channel.send(chunk(0, number))
            channel.send(barrier(number))
        return [(each.column, each.value) for each in until_barrier(messages)[:-1] if isinstance(each, Watermark)]

    assert epoch(1, [], []) == []
    assert epoch(2, [(0, 5)], []) == [], "the other channel has had none yet"
    assert epoch(3, [], [(0, 3), (1, 8)]) == [(0, 3)]
    assert epoch(4, [(0, 6), (0, 7)], [(1, 9)]) == [(0, 3)]
    assert epoch(5, [(1, 2)], [(0, 9)]) == [(0, 7), (1, 2)]
    assert epoch(6, [], []) == []


def test_a_few_rows_are_joined_where_chunks_pass_as_they_are():
    channel = Channel(1 << 20)
    for number in range(5):
        channel.send(chunk(0, number))
    channel.send(barrier(1))
    channel.send(StreamChunk.from_rows(SCHEMA, [(0, (0, 0))] * LINGER_ROWS))
    channel.send(chunk(0, 1))
    messages = unpaused(MergeExecutor(INFO, [channel], None).execute())
    assert list(next(messages).rows()) == [(0, number) for number in range(5)]
    assert next(messages) == barrier(1)
    assert [next(messages).capacity for _ in range(2)] == [LINGER_ROWS, 1]


def test_it_gives_way_after_each_chunk():
    channel = Channel(100)
    for message in (barrier(1), chunk(0, 1), barrier(2)):
        channel.send(message)
    messages = MergeExecutor(INFO, [channel], ROWS).execute()
    assert next(messages) == barrier(1) and next(messages).visible_rows == 1
    assert next(messages) is PAUSE and next(messages) == barrier(2)
