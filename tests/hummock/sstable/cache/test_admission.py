"""Which blocks enter a full cache: hit rates of uniform and of skewed keys, and what is wanted anew."""

import random
from itertools import accumulate

import pytest

from hummock.sstable.cache.admission import CacheAdmission
from hummock.sstable.cache.block_cache import BlockCache, FileSlots

BLOCKS, BLOCK_BYTES, HELD = 2_000, 64 << 10, 200
MIXED = 0x9E3779B97F4A7C15


class Reader:
    """Asks for blocks through a cache that holds a tenth of them, with or without a admission."""

    def __init__(self, has_door=True):
        self.cache = BlockCache(HELD * BLOCK_BYTES)
        self.slots = FileSlots(self.cache, BLOCKS)
        self.admission = CacheAdmission(self.cache)
        self.has_door, self.hits, self.misses, self.entered = has_door, 0, 0, 0

    def read(self, block):
        if self.slots[block] is not None:
            self.hits += 1
            return
        self.misses += 1
        hashed = (block + 1) * MIXED & (1 << 64) - 1
        if not self.has_door or self.admission.asks(hashed ^ hashed >> 32, BLOCK_BYTES):
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
    weights = list(accumulate(1 / (place + 1) ** skew for place in range(BLOCKS)))
    rng = random.Random(3)
    places = list(range(BLOCKS))
    rng.shuffle(places)
    return [places[found] for found in rng.choices(range(BLOCKS), cum_weights=weights, k=count)]


def test_everything_enters_while_there_is_room():
    reader = Reader()
    for block in range(HELD):
        reader.read(block)
    assert reader.entered == HELD == reader.admission.admitted and reader.cache.evictions == 0


def test_uniform_keys_hit_as_often_with_hardly_a_block_changed():
    wanted = drawn(0)
    with_door, without = Reader(), Reader(has_door=False)
    rate, plain = with_door.rate(wanted), without.rate(wanted)
    assert .08 < rate < .14 and rate > plain - .02
    assert with_door.entered < .05 * with_door.misses and without.entered == without.misses


@pytest.mark.parametrize(("skew", "least"), [(.7, .07), (.99, .04), (1.2, .02)])
def test_skewed_keys_hit_more_often(skew, least):
    wanted = drawn(skew)
    rate, plain = Reader().rate(wanted), Reader(has_door=False).rate(wanted)
    assert rate > plain + least, (rate, plain)


def test_what_is_wanted_from_now_on_takes_the_place_of_what_was():
    reader = Reader()
    reader.rate(drawn(.99))
    rng = random.Random(9)
    now = [rng.randrange(HELD // 2) for _ in range(20_000)]
    assert reader.rate(now) > .95


def test_a_cache_of_nothing_admits_what_is_wanted_most():
    admission = CacheAdmission(BlockCache(0))
    assert [admission.asks(5 << 32 | 8, 100) for _ in range(5)] == [False, False, False, True, True]
    assert not admission.asks(5 << 32 | 16, 100) and admission.admitted == 2
