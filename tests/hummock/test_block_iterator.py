"""Walks over one block: every entry once, either way; seeks end where bisect does."""

import random
from bisect import bisect_left, bisect_right

import pytest

from hummock.base.checksum import crc32c_of
from hummock.iterator.base import Direction
from hummock.sstable.block import Block
from hummock.sstable.block_iterator import BlockIterator
from tests.hummock.oracle_block import encode_payload, full_key_order
from tests.hummock.test_block import random_entries


def block_of(entries) -> Block:
    payload = encode_payload(entries)
    return Block.decode(payload, 0, len(payload), crc32c_of(payload), "sst/x.data", 0)


def test_a_walk_yields_every_entry_once_my_way():
    rng = random.Random(71)
    for _ in range(100):
        entries = random_entries(rng)
        block = block_of(entries)
        assert list(BlockIterator(block).entries()) == entries
        assert list(BlockIterator(block, Direction.REVERSE).entries()) == entries[::-1]


def test_a_seek_ends_at_the_first_entry_at_or_beyond_the_target_my_way():
    rng = random.Random(72)
    for _ in range(100):
        entries = random_entries(rng)
        order = [full_key_order(entry) for entry in entries]
        block = block_of(entries)
        forward, reverse = BlockIterator(block), BlockIterator(block, Direction.REVERSE)
        for _ in range(30):
            key, epoch = rng.choice(entries)[:2]
            key = rng.choice((key, key[:-1], key + b"\0", b"", b"\xff" * 50))
            epoch = rng.choice((epoch, epoch | 0xFFFF, 0, (1 << 64) - 1))
            target = (key, -epoch)
            assert list(forward.entries(key, epoch)) == entries[bisect_left(order, target):]
            assert list(reverse.entries(key, epoch)) == entries[:bisect_right(order, target)][::-1]


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.REVERSE])
def test_the_end_is_not_an_entry(direction):
    walk = BlockIterator(block_of([(b"a", 1, b"v")]), direction)
    assert not walk.valid
    assert list(walk.entries()) == [(b"a", 1, b"v")] and not walk.valid
    assert list(walk.entries(b"b" if direction == Direction.FORWARD else b"")) == []
