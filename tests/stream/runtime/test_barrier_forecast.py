import math

import pytest

from hummock.epoch import from_unix_ms
from stream.runtime.barrier_forecast import (
    MOST_OVERDUE_MS,
    OVERDUE_SHARE,
    WORK_SHARE,
    BarrierForecast,
    BarrierNotice,
)

NOW = 1_800_000_000_000  # ms
INTERVAL = 1_000


@pytest.fixture
def clock():
    """Milliseconds since 1970, set by the test."""
    return [NOW]


@pytest.fixture
def notice(clock):
    return BarrierNotice(lambda: clock[0])


@pytest.fixture
def forecast(clock, notice):
    made = BarrierForecast(INTERVAL, lambda: clock[0], notice)
    made.note_barrier(from_unix_ms(NOW))
    return made


def lefts(forecast, clock, *after):
    """Seconds left so many milliseconds after NOW."""
    found = []
    for each in after:
        clock[0] = NOW + each
        found.append(forecast.seconds_left)
    return found


def test_a_barrier_is_expected_an_interval_after_the_one_before_and_a_little_later(forecast, clock):
    late = int(OVERDUE_SHARE * INTERVAL)
    assert lefts(forecast, clock, 0, 400, 1_000, 999 + late, 1_000 + late) == [1.0, 0.6, 0, 0, math.inf]


def test_none_is_expected_before_the_first_one_nor_without_an_interval(clock, notice):
    first, never = (BarrierForecast(interval, lambda: clock[0], notice) for interval in (INTERVAL, 0))
    never.note_barrier(from_unix_ms(NOW))
    notice.announce(0.25)
    assert first.seconds_left == never.seconds_left == math.inf
    notice.note_injected(from_unix_ms(NOW + 100))
    assert first.seconds_left == never.seconds_left == math.inf and not never.is_near(10.0)


def test_one_that_was_announced_is_expected_earlier(forecast, notice, clock):
    clock[0] = NOW + 100
    notice.announce(0.25)
    late = int(OVERDUE_SHARE * INTERVAL)
    assert lefts(forecast, clock, 150, 350, 349 + late) == [0.2, 0, 0]
    assert lefts(forecast, clock, 350 + late, 1_000) == [0.65 - late / 1_000, 0], "then that of the interval"


def test_a_late_one_is_not_expected_for_a_part_of_a_long_interval(clock, notice):
    forecast = BarrierForecast(1_000 * INTERVAL, lambda: clock[0], notice)
    forecast.note_barrier(from_unix_ms(NOW))
    notice.announce(0.25)
    assert lefts(forecast, clock, 250, 249 + MOST_OVERDUE_MS) == [0, 0]
    assert lefts(forecast, clock, 250 + MOST_OVERDUE_MS)[0] > 900


def test_one_that_is_announced_for_later_changes_nothing(forecast, notice, clock):
    notice.announce(30.0)
    assert lefts(forecast, clock, 400, 1_000) == [0.6, 0]


def test_an_announcement_ends_with_any_barrier(forecast, notice, clock):
    notice.announce(0.25)
    for done in (notice.note_injected, forecast.note_barrier):
        done(from_unix_ms(NOW + 100))
    assert lefts(forecast, clock, 200) == [0.9]


def test_one_that_is_on_its_way_is_expected_until_it_has_come(forecast, notice, clock):
    notice.note_injected(from_unix_ms(NOW + 300))
    notice.announce(0.25)
    assert lefts(forecast, clock, 310, 5_000) == [0, 0]
    forecast.note_barrier(from_unix_ms(NOW + 300))
    assert lefts(forecast, clock, 1_250) == [0.05]


def test_work_that_begins_takes_a_part_of_the_time(forecast, clock):
    clock[0] = NOW + 200
    assert forecast.work_seconds == pytest.approx(0.8 * WORK_SHARE)
    clock[0] = NOW + 5_000
    assert forecast.work_seconds == math.inf


@pytest.mark.parametrize("interval, margin", [(INTERVAL, 30), (160, 20), (80, 10)])
def test_it_is_near_within_some_seconds_or_a_small_part_of_the_interval(clock, interval, margin):
    forecast = BarrierForecast(interval, lambda: clock[0])
    forecast.note_barrier(from_unix_ms(NOW))
    late = int(OVERDUE_SHARE * interval)
    cases = ((interval, False), (margin + 1, False), (margin - 1, True), (0, True), (1 - late, True), (-late, False))
    for left, expected in cases:
        clock[0] = NOW + interval - left
        assert forecast.is_near(0.03) == expected
    assert forecast.margin(0.03) == margin / 1_000
