"""The blocked Bloom filter: no false negatives, few false positives, and the specified bytes."""

import random
import threading
import time

import numpy as np
import pytest

from hummock.base.foreground import ForegroundWork
from hummock.errors import Corruption
from hummock.sstable.filter.bloom import BloomFilter, build_filter

SPREAD = 0x9FB21C651E98DF25


def plain_filter(hashes: list[int], bits_per_key: int) -> bytes:
    """The filter as FORMAT.md specifies it."""
    blocks = max(1, -(-len(hashes) * bits_per_key // 512))
    probes = min(max((bits_per_key * 6 + 5) // 10, 1), 7)
    words = [0] * (8 * blocks)
    for value in hashes:
        spread = value * SPREAD % (1 << 64)
        for probe in range(probes):
            group = spread >> 9 * probe & 511
            words[8 * (value * blocks >> 64) + (group >> 6)] |= 1 << (group & 63)
    header = blocks.to_bytes(4, "little") + bytes([probes, 0, 0, 0])
    return header + b"".join(word.to_bytes(8, "little") for word in words)


def random_hashes(rng: random.Random, count: int) -> list[int]:
    return [rng.getrandbits(64) for _ in range(count)]


@pytest.mark.parametrize("bits", [1, 4, 10, 14, 64])
def test_the_bytes_are_the_specified_ones(bits):
    rng = random.Random(31)
    for count in (0, 1, 31, 32, 33, 1_000):
        hashes = random_hashes(rng, count)
        assert build_filter(np.array(hashes, np.uint64), bits) == plain_filter(hashes, bits)


def test_every_hash_that_was_added_is_found():
    hashes = random_hashes(random.Random(32), 20_000)
    filter = BloomFilter.load(build_filter(np.array(hashes, np.uint64), 10))
    assert all(filter.contains(value) for value in hashes)


def test_few_others_are_found():
    rng = random.Random(33)
    filter = BloomFilter.load(build_filter(np.array(random_hashes(rng, 50_000), np.uint64), 10))
    wrong = sum(filter.contains(value) for value in random_hashes(rng, 50_000))
    assert wrong / 50_000 < 0.015


def test_an_empty_filter_contains_nothing():
    filter = BloomFilter.load(build_filter(np.array([], np.uint64), 10))
    assert not any(filter.contains(value) for value in random_hashes(random.Random(34), 100))


def test_bytes_that_are_no_filter_are_refused():
    sound = build_filter(np.array([1, 2, 3], np.uint64), 10)
    for bad in (b"", sound[:8], sound[:-1], sound + b"\0", b"\xff" * len(sound),
                sound[:4] + b"\0" + sound[5:],
                sound[:4] + b"\x08" + sound[5:], sound[:7] + b"\1" + sound[8:]):
        with pytest.raises(Corruption, match="filter") as caught:
            BloomFilter.load(bad, "sst/x.meta")
        assert caught.value.object_name == "sst/x.meta"


def test_a_large_filter_is_built_when_what_somebody_waits_for_has_ended():
    hashes, work, found = np.arange(40_000, dtype=np.uint64), ForegroundWork(), []
    work.begin()
    small = build_filter(hashes[:1_000], 10, work)
    thread = threading.Thread(target=lambda: found.append(build_filter(hashes, 10, work)))
    thread.start()
    time.sleep(0.05)
    assert not found
    work.end()
    thread.join()
    assert found == [build_filter(hashes, 10)] and small == build_filter(hashes[:1_000], 10)
