import random

from stream.executor.rate_limit import RateLimit
from tests.support.drivers.seeds import run_seed


def test_without_a_limit_everything_is_allowed():
    limit = RateLimit(0)
    limit.spend(10**9)
    assert limit.allowed(10**9) == 10**9


def test_rows_of_a_long_time_are_those_of_the_rate():
    rng = random.Random(run_seed())
    for rate in (1, 7, 1_000, 10**6):
        now, read = [0.0], 0
        limit = RateLimit(rate, lambda now=now: now[0])
        while now[0] < 20:
            rows = limit.allowed(rng.randint(1, 100_000))
            limit.spend(rows)
            read += rows
            now[0] += rng.uniform(0, 0.05)
        assert 0.95 * 20 * rate - rate / 4 - 1 <= read <= 1.01 * 20 * rate + max(2, rate / 2)


def test_time_without_reading_is_not_made_up_for_and_excess_is():
    now = [0.0]
    limit = RateLimit(100, lambda: now[0])
    now[0] = 1_000.0
    assert limit.allowed(5_000) == 50
    limit.spend(150)
    now[0] += 1.0
    assert limit.allowed(5_000) == 0


def test_rows_are_allowed_in_bursts_or_when_there_are_enough_for_all():
    now = [0.0]
    limit = RateLimit(100, lambda: now[0])
    limit.spend(limit.allowed(5_000))
    now[0] += 0.0625
    assert limit.allowed(5_000) == 0 and limit.allowed(6) == 6
    assert limit.wait_seconds == (25 - 6.25) / 100
    now[0] += limit.wait_seconds
    assert limit.allowed(5_000) == 25 and limit.wait_seconds == 0
    assert RateLimit(0).wait_seconds == 0
