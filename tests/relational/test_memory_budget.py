"""Shares of a budget: what the others leave, at least an equal part, and no more in all once everybody has reported."""

import gc

import pytest

from relational.memory_budget import MemoryBudget


def test_one_share_may_use_all():
    share = MemoryBudget(100).share()
    assert [share.report(used) for used in (0, 90, 500)] == [100, 100, 100]


def test_a_share_may_use_what_others_leave():
    budget = MemoryBudget(100)
    small, large = budget.share(), budget.share()
    assert small.report(10) == 100
    assert large.report(50) == 90
    assert large.report(95) == 90
    assert budget.used_bytes == 105


@pytest.mark.parametrize(("others", "capacity"), [
    ([100], 50), ([80, 10], 45), ([30, 30, 40], 25), ([10, 10, 80], 40), ([0, 0, 100], 50), ([60, 60], 33),
])
def test_a_growing_share_gets_an_equal_part_of_what_small_ones_leave(others, capacity):
    budget = MemoryBudget(100)
    shares = [budget.share() for _ in others]
    for share, used in zip(shares, others, strict=True):
        share.report(used)
    assert budget.share().report(0) == capacity


def test_a_share_that_is_gone_uses_nothing():
    budget = MemoryBudget(100)
    gone, share = budget.share(), budget.share()
    gone.report(70)
    assert share.report(0) == 50
    del gone
    gc.collect()
    assert share.report(0) == 100


def test_a_share_takes_its_use_to_another_budget():
    old, new = MemoryBudget(100), MemoryBudget(1_000)
    share, other = old.share(), new.share()
    share.report(60)
    share.move_to(new)
    assert (old.used_bytes, new.used_bytes, share.capacity_bytes) == (0, 60, 1_000)
    assert other.report(0) == 940


def test_without_room_a_share_is_a_byte():
    budget = MemoryBudget(2)
    shares = [budget.share() for _ in range(5)]
    for share in shares:
        share.report(10)
    assert [share.report(10) for share in shares] == [1] * 5


def test_all_that_keep_to_their_shares_keep_to_the_budget(rng):
    for _ in range(200):
        limit = rng.randrange(1_000, 100_000)
        budget = MemoryBudget(limit)
        shares = [budget.share() for _ in range(rng.randrange(1, 9))]
        wanted = [rng.randrange(0, limit) for _ in shares]
        for _ in range(4):
            for share, size in zip(shares, wanted, strict=True):
                share.report(min(size, share.report(share.used_bytes)))
        assert budget.used_bytes <= limit
        if sum(wanted) >= limit:
            least = min(limit // len(shares), *wanted)
            assert all(share.used_bytes >= min(size, least) for share, size in zip(shares, wanted, strict=True))
