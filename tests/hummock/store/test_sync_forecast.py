import pytest

from hummock.epoch import Epoch
from hummock.store.sync_forecast import (
    AHEAD_BYTES,
    AHEAD_SECONDS,
    LEAST_INTERVAL_SECONDS,
    USUAL_INTERVAL_SECONDS,
    SyncForecast,
)

MUCH = AHEAD_BYTES + 1


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


def test_much_is_flushed_shortly_before_the_next_sync_again_and_again(forecast, now):
    synced(forecast, now, each=2.0)
    now[0] += 1.99 - AHEAD_SECONDS
    assert not forecast.wants_flush(1 << 40), "not near yet"
    now[0] += 0.02
    for _ in range(3):
        assert forecast.wants_flush(MUCH) and not forecast.wants_flush(AHEAD_BYTES)
        now[0] += 0.1
    forecast.note_sync(Epoch(10 << 16))
    assert not forecast.wants_flush(1 << 40)


def test_a_sync_that_does_not_come_is_no_longer_expected(forecast, now):
    synced(forecast, now, each=1.0)
    now[0] += 1.9
    assert forecast.wants_flush(MUCH), "late"
    now[0] += 0.2
    assert not forecast.wants_flush(1 << 40)


def test_a_sync_that_follows_closely_tells_nothing_about_the_next_one(forecast, now):
    assert not forecast.wants_flush(1 << 40), "no sync yet"
    for epoch in (1, 1, 2, 3):
        forecast.note_sync(Epoch(epoch << 16))
        now[0] += LEAST_INTERVAL_SECONDS / 2
        assert not forecast.wants_flush(MUCH)
    now[0] += USUAL_INTERVAL_SECONDS - LEAST_INTERVAL_SECONDS / 2
    assert forecast.wants_flush(MUCH)
    now[0] += USUAL_INTERVAL_SECONDS
    assert not forecast.wants_flush(1 << 40)


def test_syncs_of_one_epoch_count_once(forecast, now):
    synced(forecast, now, each=8.0)
    now[0] += 3.0
    forecast.note_sync(Epoch(9 << 16))
    now[0] += 5.0
    assert forecast.wants_flush(MUCH)
