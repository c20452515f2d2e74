"""BlockCache: a byte budget, second-chance eviction and exact accounting."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from hummock.sstable.cache.block_cache import BlockCache, FileSlots


class Thing:
    """A cached object that accepts weak references."""


def test_what_was_put_is_found_until_it_is_replaced():
    cache = BlockCache(1_000)
    slots = FileSlots(cache, 3)
    assert slots[1] is None
    first, second = Thing(), Thing()
    slots[1] = first, 10
    assert slots[1] is first
    slots[1] = second, 20
    assert slots[1] is second
    assert (cache.used_bytes, cache.objects) == (20, 1)


def test_what_was_not_used_goes_first():
    cache = BlockCache(30)
    slots = FileSlots(cache, 4)
    for index in range(3):
        slots[index] = Thing(), 10
    assert slots[0] is not None
    slots[3] = Thing(), 10
    assert [slots[index] is not None for index in range(4)] == [True, False, True, True]
    assert cache.evictions == 1


def test_what_somebody_holds_stays_and_counts():
    cache = BlockCache(20)
    slots = FileSlots(cache, 3)
    held = Thing()
    slots[0] = held, 15
    slots[1] = Thing(), 15
    slots[2] = Thing(), 15
    assert slots[0] is held
    assert cache.used_bytes == 15 * cache.objects
    del held
    slots[1] = Thing(), 15
    assert cache.used_bytes <= 30


def test_an_object_larger_than_the_cache_does_not_stay():
    cache = BlockCache(5)
    slots = FileSlots(cache, 2)
    slots[0] = Thing(), 100
    slots[1] = Thing(), 1
    assert cache.used_bytes <= 5


def test_file_slots_release_their_objects():
    cache = BlockCache(100)
    slots, other = FileSlots(cache, 2), FileSlots(cache, 1)
    thing = Thing()
    seen = weakref.ref(thing)
    slots[0], other[0] = (thing, 10), (Thing(), 7)
    del thing, slots
    gc.collect()
    assert seen() is None
    assert (cache.used_bytes, cache.objects) == (7, 1)


def test_slots_out_of_range_are_refused():
    slots = FileSlots(BlockCache(10), 2)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            slots[index] = Thing(), 1
        with pytest.raises(IndexError):
            slots[index]
    with pytest.raises(ValueError, match="bytes"):
        BlockCache(-1)


@pytest.mark.parametrize("seed", range(20))
def test_random_use_keeps_the_account(seed):
    rng = random.Random(seed)
    cache = BlockCache(rng.choice((0, 50, 500)))
    all_slots = [FileSlots(cache, rng.randint(0, 20)) for _ in range(3)]
    sizes: dict[tuple[int, int], int] = {}
    for _ in range(400):
        number = rng.randrange(3)
        if len(all_slots[number]) == 0:
            continue
        index = rng.randrange(len(all_slots[number]))
        if rng.random() < 0.5:
            sizes[number, index] = rng.randint(1, 60)
            all_slots[number][index] = Thing(), sizes[number, index]
        elif rng.random() < 0.02:
            all_slots[number] = FileSlots(cache, len(all_slots[number]))
        there = [(n, i) for n, slots in enumerate(all_slots) for i in range(len(slots)) if slots[i] is not None]
        assert cache.objects == len(there)
        assert cache.used_bytes == sum(sizes[slot] for slot in there)
        assert cache.used_bytes <= cache.capacity_bytes + 60  # its inserter still holds the newest object


def test_a_cache_that_needs_more_takes_it_from_its_lender():
    blocks = BlockCache(1_000)
    metas = BlockCache(100, blocks)
    of_blocks, of_metas = FileSlots(blocks, 20), FileSlots(metas, 20)
    for index in range(10):
        of_blocks[index] = object(), 100
    for index in range(4):
        of_metas[index] = object(), 100
    assert (metas.used_bytes, blocks.lent_bytes, blocks.used_bytes) == (400, 300, 700)
    for index in range(4, 20):
        of_metas[index] = object(), 100
    assert (metas.used_bytes, blocks.lent_bytes, blocks.used_bytes) == (600, 500, 500)  # half stays with the lender
    del of_metas
    assert (metas.used_bytes, blocks.lent_bytes) == (0, 0)
    for index in range(10):
        of_blocks[index] = object(), 100
    assert blocks.used_bytes == 1_000
