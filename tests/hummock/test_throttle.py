"""Writers wait for compaction by degrees: not at all, then more with every run, never for long."""

from itertools import pairwise

import pytest

from hummock.options import CompactionOptions
from hummock.store.throttle import LONGEST_SECONDS, SLOWEST_BYTES_PER_SECOND, debt_share, delay_seconds
from hummock.version import HummockVersion, Level, Run
from tests.suites.manager_parts import Files

OPTIONS = CompactionOptions()


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
    assert delay_seconds(full, OPTIONS, SLOWEST_BYTES_PER_SECOND // 8) == pytest.approx(1 / 8)
    assert delay_seconds(full, OPTIONS, 1 << 40) == LONGEST_SECONDS
    assert delay_seconds(tree(OPTIONS.l0_runs_slowdown), OPTIONS, 1 << 40) == 0
