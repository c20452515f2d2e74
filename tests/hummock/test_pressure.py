"""How much writers are slowed down while the shared buffer fills."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hummock.store.backpressure import LONGEST_SECONDS, DrainRate, delay_seconds

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
    assert delay_seconds(int(share * 1_000_000), 1_000_000, 1_000, 10_000.0) == pytest.approx(seconds, rel=0.03)


def test_the_wait_never_falls_as_the_buffer_fills_and_never_jumps():
    delays = [delay_seconds(held, 100_000, 10, 10_000.0) for held in range(0, 100_001, 10)]
    assert delays == sorted(delays)
    assert delays[-2] <= LONGEST_SECONDS
    early = delays[:9_000]  # up to nine tenths of the limit
    assert max(after - before for before, after in pairwise(early)) < 0.00002


def test_nobody_waits_while_nothing_is_known_about_uploads():
    assert delay_seconds(999, 1_000, 100, 0.0) == 0


def test_the_rate_follows_the_newest_uploads():
    rate = DrainRate()
    rate.note(1_000, 1.0)
    assert rate.bytes_per_second == 1_000
    rate.note(5, 0.0)
    for _ in range(30):
        rate.note(100, 1.0)
    assert rate.bytes_per_second == pytest.approx(100, rel=0.01)
