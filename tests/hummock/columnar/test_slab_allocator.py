"""Slab allocator of the caches: slots never overlap, all memory is accounted for, idle memory is bounded."""

from __future__ import annotations

import random

import numpy as np

from hummock.columnar.slab_allocator import slab_totals
from hummock.sstable.cache.block_cache import BlockCache, FileSlots
from hummock.sstable.filter.bloom import BloomFilter, build_filter
from tests.support.drivers.seeds import run_seed

SLAB_BYTES, KEPT_BYTES, IDLE_BYTES = 2 << 20, 8 << 20, 64 << 20


def filled(rng: random.Random, size: int) -> tuple[BloomFilter, int]:
    """A filter of about `size` bytes in slab memory, and a hash that it contains."""
    hash = rng.getrandbits(64)
    data = bytearray(build_filter(np.array([hash], np.uint64), 10))
    line = data[8:]
    return BloomFilter.load((size // 64).to_bytes(4, "little") + data[4:8] + line * (size // 64)), hash


def test_what_is_taken_keeps_its_bytes_until_it_is_given_back():
    rng = random.Random(run_seed())
    held: list[tuple[BloomFilter, int]] = []
    for _ in range(1_500):
        if rng.random() < 0.55:
            held.append(filled(rng, rng.choice((5_000, 20_000, 70_000, 130_000, 600_000, 1_100_000))))
        elif held:
            held.pop(rng.randrange(len(held)))
        if len(held) > 60:
            del held[rng.randrange(60) :]
        assert all(filter.contains(hash) for filter, hash in held[-5:])
    assert all(filter.contains(hash) for filter, hash in held)


def test_empty_slabs_go_back_to_the_system():
    rng = random.Random(1)
    mapped, allocated = slab_totals()
    held = [filled(rng, 100_000)[0] for _ in range(1_000)]
    assert slab_totals()[1] - allocated >= 100_000_000
    del held
    assert slab_totals()[1] == allocated
    assert slab_totals()[0] <= mapped + KEPT_BYTES


def test_memory_is_counted_with_its_part_of_the_slab():
    rng = random.Random(2)
    mapped = slab_totals()[0]
    held = [filled(rng, 71_000)[0] for _ in range(400)]
    counted = sum(filter.size_bytes for filter in held)
    assert slab_totals()[0] - mapped <= counted + SLAB_BYTES
    assert counted <= 400 * 71_000 * 1.15


def test_a_cache_whose_objects_change_in_size_keeps_to_its_budget():
    rng = random.Random(run_seed())
    mapped, allocated = slab_totals()
    cache = BlockCache(200 << 20)
    slots = FileSlots(cache, 30_000)
    slot = found = 0
    for size in (70_000, 100_000, 40_000):
        for _ in range(2 * (200 << 20) // size):
            filter, _ = filled(rng, size)
            slots[slot % 30_000] = filter, filter.size_bytes
            del filter
            found += slots[rng.randrange(30_000)] is not None
            slot += 1
        assert cache.used_bytes <= cache.capacity_bytes and found > 0
        assert slab_totals()[0] - mapped <= 1.25 * (cache.capacity_bytes + IDLE_BYTES)
    del slots
    assert slab_totals()[1] == allocated
