import pytest

from hummock.epoch import Epoch
from hummock.store.sync_forecast import AHEAD_BYTES, AHEAD_SECONDS, LEAST_INTERVAL_SECONDS, SyncForecast

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
    forecast.note_sync(Epoch(1 << 16))
    now[0] += each
    forecast.note_sync(Epoch(2 << 16))


def test_much_is_flushed_shortly_before_the_next_sync_and_once(forecast, now):
    synced(forecast, now, each=1.0)
    now[0] += 0.99 - AHEAD_SECONDS
    assert not forecast.wants_flush(MUCH), "not near yet"
    now[0] += 0.02
    assert forecast.wants_flush(MUCH) and not forecast.wants_flush(AHEAD_BYTES)
    forecast.note_flush()
    now[0] += 5.0
    assert not forecast.wants_flush(MUCH), "the sync is late"
    forecast.note_sync(Epoch(3 << 16))
    now[0] += 7.0 - AHEAD_SECONDS
    assert forecast.wants_flush(MUCH)


def test_a_flush_for_another_reason_counts_when_the_sync_is_near_only(forecast, now):
    synced(forecast, now, each=1.0)
    forecast.note_flush()
    now[0] += 0.9
    assert forecast.wants_flush(MUCH)


def test_the_first_syncs_and_those_that_follow_closely_are_not_forecast(forecast, now):
    assert not forecast.wants_flush(MUCH)
    forecast.note_sync(Epoch(1 << 16))
    now[0] += 10.0
    forecast.note_sync(Epoch(1 << 16))
    assert not forecast.wants_flush(MUCH), "one epoch"
    forecast.note_sync(Epoch(2 << 16))
    now[0] += LEAST_INTERVAL_SECONDS / 2
    forecast.note_sync(Epoch(3 << 16))
    now[0] += 10.0
    assert not forecast.wants_flush(MUCH)
