import pytest

from hummock.epoch import from_unix_ms
from relational.chunk import StreamChunk
from relational.types import Schema
from stream.runtime.barrier_forecast import BarrierForecast
from stream.runtime.channel import Channel
from stream.runtime.debloat import FIRST_ROWS, LEAST_ROWS, LEAST_SECONDS, QUEUED_SECONDS, BufferDebloater

START_MS = 1_800_000_000_000
SCHEMA = Schema.of(number="bigint")


def rows(count):
    return StreamChunk.from_rows(SCHEMA, [(0, (number,)) for number in range(count)])


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def channels():
    return [Channel(100_000), Channel(100_000)]


@pytest.fixture
def forecast(now):
    return BarrierForecast(1_000, lambda: START_MS + round(1_000 * now[0]))


@pytest.fixture
def debloater(channels, forecast, now):
    return BufferDebloater(channels, forecast, lambda: now[0])


def process(debloater, now, count, row_seconds):
    debloater.begin()
    now[0] += count * row_seconds
    debloater.end(count)


def test_a_receiver_has_as_many_rows_as_it_processes_in_the_time(debloater, channels, now):
    assert debloater.limit_rows == FIRST_ROWS
    for _ in range(3):
        process(debloater, now, 1_000, 1e-6)
    assert debloater.limit_rows == pytest.approx(QUEUED_SECONDS / 1e-6)
    assert [channel.limit_rows for channel in channels] == [debloater.limit_rows // 2] * 2


def test_the_last_chunks_count_most(debloater, now):
    for _ in range(20):
        process(debloater, now, 1_000, 1e-7)
    quick = debloater.limit_rows
    for _ in range(20):
        process(debloater, now, 1_000, 1e-6)
    assert debloater.limit_rows < quick / 5
    for _ in range(20):
        process(debloater, now, 1_000, 1e-7)
    assert debloater.limit_rows == pytest.approx(quick, rel=0.05)


def test_little_is_queued_when_a_barrier_is_due(debloater, forecast, now):
    forecast.note_barrier(from_unix_ms(START_MS))
    limits = []
    for left in (500, 80, 40, 20, 0, -100, -200):
        now[0] = 1.0 - left / 1_000 - 1_000e-6
        process(debloater, now, 10_000, 1e-7)
        limits.append(round(debloater.limit_rows * 1e-7, 6))
    assert limits == [QUEUED_SECONDS, 0.02, 0.01, LEAST_SECONDS, LEAST_SECONDS, LEAST_SECONDS, QUEUED_SECONDS]


def test_a_long_pause_does_not_end_the_flow(debloater, now, channels):
    process(debloater, now, 10, 60.0)
    assert debloater.limit_rows == LEAST_ROWS
    assert all(channel.try_send(rows(10)) for channel in channels for _ in range(3))


def test_a_message_above_the_limit_is_sent_alone(channels, now):
    BufferDebloater(channels, BarrierForecast(), lambda: now[0])
    (channel, _), refused = channels, []
    channel.on_writable = lambda: refused.append(channel.waiting_rows)
    assert channel.try_send(rows(FIRST_ROWS))
    assert not channel.try_send(rows(1))
    channel.try_recv()
    assert refused == [0] and channel.try_send(rows(1))


def test_no_more_than_the_permits_are_queued_for_a_quick_receiver():
    channel = Channel(10)
    channel.limit_rows = 1_000
    assert channel.try_send(rows(6)) and not channel.try_send(rows(5))
