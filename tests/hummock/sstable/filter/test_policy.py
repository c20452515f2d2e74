"""Filter policies: each contains what it was built from; an unknown name means no filter."""

import random

import numpy as np
import pytest

from hummock.errors import Corruption, InvalidOption
from hummock.sstable.filter.policy import BlockedBloomPolicy, PybloomFilterPolicy, filter_policy, load_filter

HASHES = np.frombuffer(random.Random(41).randbytes(16_000), np.uint64)


@pytest.mark.parametrize("name", [BlockedBloomPolicy.name, PybloomFilterPolicy.name])
def test_a_policy_finds_all_it_was_built_from_and_little_else(name):
    filter = load_filter(name, filter_policy(name, 10).build(HASHES), "sst/x.meta")
    assert all(filter.contains(value) for value in HASHES.tolist())
    rng = random.Random(42)
    assert sum(filter.contains(rng.getrandbits(64)) for _ in range(5_000)) < 150
    assert filter.size_bytes >= 2_000 * 9 // 8


def test_no_policy_builds_no_filter():
    assert filter_policy("none").build(HASHES) == b""
    assert load_filter("none", b"", "sst/x.meta") is None


def test_an_unknown_policy_is_refused_when_writing_and_no_filter_when_reading():
    with pytest.raises(InvalidOption, match="filter_policy"):
        filter_policy("cuckoo")
    assert load_filter("cuckoo", b"anything", "sst/x.meta") is None


@pytest.mark.parametrize("name", [BlockedBloomPolicy.name, PybloomFilterPolicy.name])
def test_damaged_bytes_of_a_known_policy_are_corruption(name):
    data = filter_policy(name).build(HASHES)
    for bad in (data[:3], data[:-9], bytes(40)):
        with pytest.raises(Corruption):
            load_filter(name, bad, "sst/x.meta")
