import math

import pytest

from hummock.epoch import from_unix_ms
from stream.executor.base import CHUNK_BYTES
from stream.executor.chunk_size import LONG_SECONDS, SHORT_SECONDS, SLOW_SECONDS, ChunkSize
from stream.runtime.barrier_forecast import BarrierForecast

NOW = 1_800_000_000_000  # ms
EPOCH = from_unix_ms(NOW)


@pytest.fixture
def clock():
    """Milliseconds since 1970, set by the test."""
    return [NOW]


@pytest.fixture
def forecast(clock):
    return BarrierForecast(1_000, lambda: clock[0])


@pytest.fixture
def size(forecast):
    return ChunkSize(100, 1_600, forecast)


class Receivers:
    """As the test says."""

    def __init__(self):
        self.sent_rows, self.queue_rows, self.has_queue = 0, math.inf, False


@pytest.fixture
def receivers():
    return Receivers()


@pytest.fixture
def limited(forecast, receivers):
    return ChunkSize(100, 1_600, forecast, receivers)


def grow(size):
    """A chunk of the largest size takes 16 ms of CPU time."""
    for rows in (100, 200, 400, 800, 1_600):
        size.note_chunk(rows, rows / 100_000, rows)


def test_chunks_grow_while_they_are_short_and_shrink_when_they_are_long(size):
    seen = []
    for _ in range(6):
        seen.append(size.rows)
        size.note_chunk(size.rows, SHORT_SECONDS / 2, 0)
    assert seen == [100, 200, 400, 800, 1_600, 1_600]
    size.note_chunk(1_600, (SHORT_SECONDS + LONG_SECONDS) / 2, 0)
    assert size.rows == 1_600, "neither short nor long"
    for expected in (800, 400, 200, 100, 100):
        size.note_chunk(size.rows, 2 * LONG_SECONDS, 0)
        assert size.rows == expected


def test_chunks_shrink_while_the_actors_below_are_slow_but_not_to_the_least(size):
    grow(size)
    for expected in (800, 400, 400):
        size.note_chunk(size.rows, SHORT_SECONDS / 2, 0, 2 * SLOW_SECONDS)
        assert size.rows == expected
    size.note_chunk(400, SHORT_SECONDS / 2, 0, 0.75 * SLOW_SECONDS)
    assert size.rows == 400, "quick enough, and not to be longer"
    size.note_chunk(400, SHORT_SECONDS / 2, 0, SLOW_SECONDS / 4)
    assert size.rows == 800
    for expected in (400, 200, 100):
        size.note_chunk(size.rows, 2 * LONG_SECONDS, 0, 2 * LONG_SECONDS)
        assert size.rows == expected
    size.note_chunk(100, SHORT_SECONDS / 2, 0, 2 * SLOW_SECONDS)
    assert size.rows == 100, "shorter than slow actors make it"


def grow_limited(limited, receivers, *, rows_sent_per_row_read):
    for rows in (100, 200, 400, 800, 1_600, *[1_600] * 20):
        receivers.sent_rows += int(rows * rows_sent_per_row_read)
        limited.note_chunk(rows, rows / 100_000, rows)


def test_a_chunk_has_no_more_rows_than_its_receivers_may_queue_but_the_least_number(limited, receivers):
    receivers.queue_rows = 300
    assert limited.rows == 100
    grow_limited(limited, receivers, rows_sent_per_row_read=1)
    assert limited.rows == 300
    receivers.queue_rows = 20
    assert limited.rows == 100
    for unlimited in (1_600, 1 << 40, math.inf):
        receivers.queue_rows = unlimited
        assert limited.rows == 1_600


@pytest.mark.parametrize("share, expected", [(0.5, 600), (0.25, 1_200), (0.01, 1_600), (0, 1_600), (2, 150)])
def test_rows_to_read_are_those_that_become_what_is_queued(limited, receivers, share, expected):
    receivers.queue_rows = 300
    grow_limited(limited, receivers, rows_sent_per_row_read=share)
    assert limited.rows == pytest.approx(expected, rel=0.01)


def test_a_chunk_that_its_reader_cut_short_says_nothing_about_whole_ones(size):
    grow(size)
    size.note_chunk(10, 0.0, 0)
    assert size.rows == 1_600
    size.note_chunk(100, 2 * SHORT_SECONDS, 0)
    assert size.rows == 1_600


def test_a_chunk_takes_no_more_memory_than_any_other(size):
    grow(size)
    size.note_chunk(1_600, 0.016, 1_600 * CHUNK_BYTES // 800)
    assert size.rows == 800
    size.note_chunk(800, 0.008, 800 * CHUNK_BYTES // 50)
    assert size.rows == 50, "fewer than the least number"
    size.note_chunk(1, 0.0, 2 * CHUNK_BYTES)
    assert size.rows == 1
    size.note_chunk(1, 0.0, 8)
    assert size.rows == 1_600


def test_before_a_barrier_each_chunk_takes_a_quarter_of_the_time_that_is_left(size, forecast, clock):
    grow(size)
    forecast.note_barrier(EPOCH)
    seen = []
    for left in (1_000, 64, 60, 32, 16, 4, 1, 0, -100):
        clock[0] = NOW + 1_000 - left
        seen.append(size.rows)
    assert seen == [1_600, 1_600, 1_500, 800, 400, 100, 100, 100, 100]


def test_the_time_of_a_chunk_before_a_barrier_is_that_of_the_actors_below(size, forecast, clock):
    grow(size)
    for _ in range(30):
        size.note_chunk(1_600, 0.001, 1_600, SLOW_SECONDS)
    forecast.note_barrier(EPOCH)
    for left, expected in ((400, 1_600), (SLOW_SECONDS * 2_000, 800), (SLOW_SECONDS * 1_000, 400), (1, 100)):
        clock[0] = NOW + 1_000 - int(left)
        assert size.rows == expected


def test_a_chunk_that_is_sent_at_once_between_those_that_wait_for_room_does_not_make_the_next_one_long(
    size, forecast, clock
):
    grow(size)
    for seconds in [0.001, SLOW_SECONDS] * 15:
        size.note_chunk(1_600, 0.001, 1_600, seconds)
    forecast.note_barrier(EPOCH)
    clock[0] = NOW + 1_000 - int(SLOW_SECONDS * 1_000)
    after_long = size.rows
    size.note_chunk(1_600, 0.001, 1_600, 0.001)
    assert 400 < after_long < size.rows < 1_200


@pytest.mark.parametrize("left", [1_000, 1, 0, -1, -100])
def test_a_chunk_before_which_nothing_was_measured_is_a_small_one(size, forecast, clock, left):
    """Also one that took no time by the clock."""
    forecast.note_barrier(EPOCH)
    clock[0] = NOW + 1_000 - left
    assert size.rows == 100
    size.note_chunk(100, 0.0, 100)
    assert size.rows == 200


def test_a_barrier_that_does_not_come_is_no_longer_expected(size, forecast, clock):
    grow(size)
    forecast.note_barrier(EPOCH)
    clock[0] = NOW + 1_000 + 126
    assert size.rows == 1_600
    forecast.note_barrier(from_unix_ms(clock[0]))
    clock[0] += 1_000
    assert size.rows == 100


def test_epochs_of_another_clock_expect_nothing(size, forecast):
    grow(size)
    for number in (0, 1 << 16, 7 << 16):
        forecast.note_barrier(number)
        assert size.rows == 1_600
