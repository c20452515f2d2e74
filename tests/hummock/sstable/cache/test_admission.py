"""Admission to a cache: hit rates under uniform, skewed and shifting access."""

import random
from itertools import accumulate

import pytest

from hummock.sstable.cache.admission import CacheAdmission
from hummock.sstable.cache.block_cache import BlockCache, FileSlots

BLOCKS, BLOCK_BYTES, HELD = 2_000, 64 << 10, 200
MIXED = 0x9E3779B97F4A7C15


class Reader:
    """Reads blocks through a cache that holds a tenth of them, with or without an admission policy."""

    def __init__(self, has_admission=True):
        self.cache = BlockCache(HELD * BLOCK_BYTES)
        self.slots = FileSlots(self.cache, BLOCKS)
        self.admission = CacheAdmission(self.cache)
        self.has_admission, self.hits, self.misses, self.entered = has_admission, 0, 0, 0

    def read(self, block):
        if self.slots[block] is not None:
            self.hits += 1
            return
        self.misses += 1
        hashed = (block + 1) * MIXED & (1 << 64) - 1
        if not self.has_admission or self.admission.vote_for(hashed ^ hashed >> 32, BLOCK_BYTES):
            self.entered += 1
            self.slots[block] = bytearray(1), BLOCK_BYTES

    def rate(self, blocks):
        for block in blocks:
            self.read(block)
        self.hits = self.misses = self.entered = 0
        for block in blocks:
            self.read(block)
        return self.hits / (self.hits + self.misses)


def drawn(skew, count=20_000):
    weights = list(accumulate(1 / (rank + 1) ** skew for rank in range(BLOCKS)))
    rng = random.Random(3)
    blocks = list(range(BLOCKS))
    rng.shuffle(blocks)
    return [blocks[found] for found in rng.choices(range(BLOCKS), cum_weights=weights, k=count)]


def test_until_the_cache_is_full_a_block_enters_at_its_second_miss():
    reader = Reader()
    for block in range(HELD // 2):
        reader.read(block)
    assert reader.entered == 0
    for block in range(HELD // 2):
        reader.read(block)
    assert reader.entered == reader.admission.admitted > HELD // 4 and reader.cache.evictions == 0


def test_blocks_that_share_a_slot_all_enter_in_the_end():
    reader, rng = Reader(), random.Random(4)
    for _ in range(20 * HELD):
        reader.read(rng.randrange(HELD // 2))
    assert reader.entered == HELD // 2


def test_what_is_read_once_never_enters():
    reader = Reader()
    for block in range(BLOCKS):
        reader.read(block)
    assert reader.entered == 0 and reader.cache.used_bytes == 0


def test_uniform_keys_hit_as_often_with_hardly_a_block_changed():
    wanted = drawn(0)
    with_admission, without = Reader(), Reader(has_admission=False)
    rate, plain = with_admission.rate(wanted), without.rate(wanted)
    assert .08 < rate < .14 and rate > plain - .02
    assert with_admission.entered < .05 * with_admission.misses and without.entered == without.misses


@pytest.mark.parametrize(("skew", "least"), [(.7, .07), (.99, .04), (1.2, .02)])
def test_skewed_keys_hit_more_often(skew, least):
    wanted = drawn(skew)
    rate, plain = Reader().rate(wanted), Reader(has_admission=False).rate(wanted)
    assert rate > plain + least, (rate, plain)


def test_a_new_working_set_replaces_the_old_one():
    reader = Reader()
    reader.rate(drawn(.99))
    rng = random.Random(9)
    now = [rng.randrange(HELD // 2) for _ in range(20_000)]
    assert reader.rate(now) > .95


def test_a_cache_of_nothing_admits_what_is_wanted_most():
    admission = CacheAdmission(BlockCache(0))
    assert [admission.vote_for(5 << 32 | 8, 100) for _ in range(5)] == [False, False, False, True, True]
    assert not admission.vote_for(5 << 32 | 16, 100) and admission.admitted == 2
