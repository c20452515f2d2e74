import pytest

from hummock.epoch import Epoch
from hummock.store.sync_forecast import (
    LATE_SECONDS,
    LEAST_BYTES,
    LEAST_INTERVAL_SECONDS,
    LEFT_BYTES_PER_SECOND,
    USUAL_INTERVAL_SECONDS,
    SyncForecast,
)

MUCH = LEAST_BYTES + 1


@pytest.fixture
def now():
    """Seconds, set by the test."""
    return [100.0]


@pytest.fixture
def forecast(now):
    return SyncForecast(lambda: now[0])


def synced(forecast, now, *, each):
    """Two syncs, the second one now."""
    forecast.note_sync(Epoch(8 << 16))
    now[0] += each
    forecast.note_sync(Epoch(9 << 16))


def test_less_is_flushed_the_nearer_the_next_sync_is(forecast, now):
    synced(forecast, now, each=2.0)
    for left in (1.5, 0.5, 0.25, 0.125):
        now[0] = 104.0 - left
        assert not forecast.wants_flush(int(left * LEFT_BYTES_PER_SECOND))
        assert forecast.wants_flush(int(left * LEFT_BYTES_PER_SECOND) + 1)
    for left in (0.05, 0.0, -0.1, 0.1 - LATE_SECONDS):
        now[0] = 104.0 - left
        assert forecast.wants_flush(MUCH) and not forecast.wants_flush(LEAST_BYTES)


def test_after_a_sync_the_next_one_is_expected(forecast, now):
    synced(forecast, now, each=2.0)
    now[0] += 1.99
    assert forecast.wants_flush(MUCH)
    forecast.note_sync(Epoch(10 << 16))
    assert not forecast.wants_flush(MUCH)


def test_a_sync_that_does_not_come_is_no_longer_expected(forecast, now):
    synced(forecast, now, each=2.0)
    now[0] += 2.0 + LATE_SECONDS
    assert not forecast.wants_flush(1 << 40)


def test_a_sync_that_follows_closely_tells_nothing_about_the_next_one(forecast, now):
    assert not forecast.wants_flush(1 << 40), "no sync yet"
    for epoch in (1, 1, 2, 3):
        forecast.note_sync(Epoch(epoch << 16))
        now[0] += LEAST_INTERVAL_SECONDS / 2
        assert not forecast.wants_flush(MUCH)
    now[0] += USUAL_INTERVAL_SECONDS - LEAST_INTERVAL_SECONDS / 2
    assert forecast.wants_flush(MUCH)
    now[0] += LATE_SECONDS
    assert not forecast.wants_flush(1 << 40)


def test_syncs_of_one_epoch_count_once(forecast, now):
    synced(forecast, now, each=8.0)
    now[0] += 3.0
    forecast.note_sync(Epoch(9 << 16))
    now[0] += 5.0
    assert forecast.wants_flush(MUCH)


def test_a_sync_that_is_announced_is_expected_earlier(forecast, now):
    forecast.expect(Epoch(8 << 16), 0.25)
    assert forecast.wants_flush(int(0.25 * LEFT_BYTES_PER_SECOND) + 1)
    synced(forecast, now, each=2.0)
    assert not forecast.wants_flush(MUCH)
    forecast.expect(Epoch(11 << 16), 0.25)
    forecast.note_sync(Epoch(10 << 16))
    now[0] += 0.25
    assert forecast.wants_flush(MUCH)
    forecast.note_sync(Epoch(11 << 16))
    assert not forecast.wants_flush(MUCH)
    forecast.expect(Epoch(12 << 16), 0.25)
    forecast.note_sync(Epoch(12 << 16))     # earlier than announced
    now[0] += 0.25
    assert not forecast.wants_flush(MUCH)


def test_a_sync_that_was_announced_for_later_than_the_next_one_changes_nothing(forecast, now):
    synced(forecast, now, each=2.0)
    forecast.expect(Epoch(10 << 16), 8.0)
    now[0] += 1.99
    assert forecast.wants_flush(MUCH)
