"""VnodeMap: ranges, minimal movement (tests/cases/rescale.txt), and adjacent groups for parallel scans."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from relational.chunk import VnodeMap, vnode_ranges

CASES = Path(__file__).parents[2] / "cases" / "rescale.txt"


def rescale_cases():
    for block in CASES.read_text().split("\n\n")[1:]:
        title, before, after = block.strip().split("\n")
        owners, targets = before.split("->")
        later, moved = after.split(":")
        yield pytest.param(*([int(word) for word in part.split()] for part in (owners, targets, later)), int(moved),
                           id=title.removeprefix("# "))


@pytest.mark.parametrize(("owners", "targets", "later", "moved"), list(rescale_cases()))
def test_rescaling_moves_the_least_number_of_vnodes(owners, targets, later, moved):
    found = VnodeMap(owners).rescaled(targets)
    assert found.targets.tolist() == later
    assert np.count_nonzero(found.targets != owners) == moved


@pytest.mark.parametrize("seed", range(200))
def test_any_rescaling_is_even_and_moves_no_more_than_it_must(seed):
    rng = random.Random(seed)
    count = rng.choice([1, 2, 7, 16, 255, 256, 300])
    names = [rng.randrange(30) for _ in range(rng.randint(1, 8))]
    before = VnodeMap([rng.choice(names) for _ in range(count)])
    targets = rng.sample(range(30), min(count, rng.randint(1, 12)))
    after = before.rescaled(targets)
    sizes = sorted((len(after.vnodes_owned_by(target)) for target in targets), reverse=True)
    assert sum(sizes) == count and sizes[0] - sizes[-1] <= 1
    held = sorted((len(before.vnodes_owned_by(target)) for target in targets), reverse=True)
    kept = sum(min(had, has) for had, has in zip(held, sizes, strict=True))     # largest owners, largest shares
    assert np.count_nonzero(before.targets != after.targets) == count - kept, f"seed {seed}"
    assert after.rescaled(targets) == after


def test_a_map_gives_each_target_a_range():
    even = VnodeMap.even([7, 8, 9])
    assert even.vnode_count == 256
    assert [len(even.vnodes_owned_by(target)) for target in (7, 8, 9)] == [86, 85, 85]
    assert repr(even) == "VnodeMap(0-85: 7, 86-170: 8, 171-255: 9)"
    assert even == VnodeMap(even.targets.tolist())
    assert even != VnodeMap.even([7, 8])
    assert sum(even.bitmap_of(target).astype(int) for target in (7, 8, 9)).tolist() == [1] * 256


@pytest.mark.parametrize("targets", [[], [1, 1], range(257)])
def test_targets_that_cannot_share_the_vnodes_are_refused(targets):
    for make in (VnodeMap.even, VnodeMap.even([1]).rescaled):
        with pytest.raises(ValueError, match="different targets"):
            make(targets)


@pytest.mark.parametrize(("owned", "groups", "expected"), [
    ("11111111", 2, [(0, 3), (4, 7)]),
    ("11111111", 3, [(0, 1), (2, 4), (5, 7)]),
    ("1111", 9, [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ("11011111", 2, [(0, 1), (3, 7)]),
    ("11011111", 3, [(0, 1), (3, 4), (5, 7)]),
    ("10101", 2, [(0, 0), (2, 2), (4, 4)]),
    ("0000", 2, []),
])
def test_groups_are_neighbours_that_are_owned(owned, groups, expected):
    bitmap = np.array([int(bit) for bit in owned], np.uint8)
    assert vnode_ranges(bitmap, groups) == expected


@pytest.mark.parametrize("seed", range(50))
def test_groups_hold_every_owned_vnode_once(seed):
    rng = np.random.default_rng(seed)
    bitmap = (rng.random(256) < rng.choice([0.05, 0.5, 1.0])).astype(np.uint8)
    ranges = vnode_ranges(bitmap, int(rng.integers(1, 40)))
    held = [vnode for first, last in ranges for vnode in range(first, last + 1)]
    assert held == np.flatnonzero(bitmap).tolist(), f"seed {seed}"
    assert all(first <= last < following for (first, last), (following, _) in pairwise(ranges))


def test_no_group_is_refused():
    with pytest.raises(ValueError, match="0 groups"):
        vnode_ranges(np.ones(4, np.uint8), 0)
