"""Backpressure: writers slow down gradually as the shared buffer fills or level 0 grows, by a bounded delay."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hummock.options import CompactionOptions
from hummock.store.backpressure import (
    LONGEST_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    DrainRate,
    buffer_delay_seconds,
    debt_share,
    level0_delay_seconds,
)
from hummock.version import HummockVersion, Level, Run
from tests.support.worlds.manager_parts import Files

OPTIONS = CompactionOptions()

# filled share of the limit, seconds that a batch of 1,000 bytes waits where uploads take 10,000 bytes a second
CASES = """
0.00  0
0.50  0
0.51  0.002
0.60  0.025
0.75  0.1
0.90  0.4
0.95  0.9
0.99  1
1.00  1
7.00  1
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_the_wait_grows_with_what_waits(case):
    share, seconds = map(float, case.split())
    assert buffer_delay_seconds(int(share * 1_000_000), 1_000_000, 1_000, 10_000.0) == pytest.approx(seconds, rel=0.03)


def test_the_wait_never_falls_as_the_buffer_fills_and_never_jumps():
    delays = [buffer_delay_seconds(held, 100_000, 10, 10_000.0) for held in range(0, 100_001, 10)]
    assert delays == sorted(delays)
    assert delays[-2] <= LONGEST_SECONDS
    early = delays[:9_000]  # up to nine tenths of the limit
    assert max(after - before for before, after in pairwise(early)) < 0.00002


def test_nobody_waits_while_nothing_is_known_about_uploads():
    assert buffer_delay_seconds(999, 1_000, 100, 0.0) == 0


def test_the_rate_follows_the_newest_uploads():
    rate = DrainRate()
    rate.note(1_000, 1.0)
    assert rate.bytes_per_second == 1_000
    rate.note(5, 0.0)
    for _ in range(30):
        rate.note(100, 1.0)
    assert rate.bytes_per_second == pytest.approx(100, rel=0.01)


def tree(runs, data_bytes=1):
    files = Files()
    return HummockVersion(levels=(Level(0, tuple(Run(number, (files.make(1, data_bytes=data_bytes, id=number),))
                                                 for number in range(runs, 0, -1))),))


def test_it_begins_at_nothing_and_rises_by_small_steps_to_its_bound():
    shares = [debt_share(runs, 0, OPTIONS) for runs in range(OPTIONS.l0_runs_limit + 20)]
    assert shares[:OPTIONS.l0_runs_slowdown + 1] == [0] * (OPTIONS.l0_runs_slowdown + 1)
    assert shares == sorted(shares) and shares[-1] == 1
    steps = [late - early for early, late in pairwise(shares)]
    assert max(steps) <= 1.01 / (OPTIONS.l0_runs_limit - OPTIONS.l0_runs_slowdown)


def test_bytes_count_as_runs_do():
    shares = [debt_share(1, gib << 30, OPTIONS) for gib in range(40)]
    assert shares[0] == 0 and shares == sorted(shares) and shares[-1] == 1


def test_a_wait_is_as_long_as_the_bytes_are_many_and_bounded():
    full = tree(OPTIONS.l0_runs_limit)
    assert level0_delay_seconds(full, OPTIONS, SLOWEST_BYTES_PER_SECOND // 8) == pytest.approx(1 / 8)
    assert level0_delay_seconds(full, OPTIONS, 1 << 40) == LONGEST_SECONDS
    assert level0_delay_seconds(tree(OPTIONS.l0_runs_slowdown), OPTIONS, 1 << 40) == 0
