"""The block index: decoding, search and validation."""

import random
import struct
from bisect import bisect_right

import pytest

from hummock.errors import Corruption
from hummock.sstable.index import SstableIndex


def encode_index(fences: list[tuple[bytes, int]], sizes: list[int]) -> bytes:
    """The layout described in index.pyx; every block has 2 rows, 100 payload bytes and codec lz4."""
    count, keys = len(fences), [key for key, _ in fences]
    return b"".join([
        struct.pack("<II", count, sum(map(len, keys))),
        struct.pack(f"<{count}Q", *(epoch for _, epoch in fences)), struct.pack(f"<{count}Q", *[9] * count),
        struct.pack(f"<{count}I", *sizes), struct.pack(f"<{count}I", *[100] * count),
        struct.pack(f"<{count}I", *range(count)), struct.pack(f"<{count}I", *[2] * count),
        struct.pack(f"<{count}I", *map(len, keys)), bytes([1] * count), *keys])


def random_fences(rng: random.Random) -> list[tuple[bytes, int]]:
    prefix, longest = rng.randbytes(rng.choice((0, 6, 14))), rng.choice((1, 3, 12))
    alphabet = rng.choice((b"\0\1", b"abc", bytes(range(256))))
    fences = {
        (prefix + bytes(rng.choices(alphabet, k=rng.randrange(longest + 1))), rng.randrange(3) << 16)
        for _ in range(rng.randrange(1, 60))}
    return sorted(fences, key=lambda fence: (fence[0], -fence[1]))


def test_an_index_gives_back_what_was_encoded():
    fences, sizes = [(b"a", 7), (b"a", 5), (b"bcd", 9)], [10, 20, 30]
    index = SstableIndex.decode(encode_index(fences, sizes), "sst/x.meta", 60, 6)
    assert len(index) == 3 and index.size_bytes > 100
    assert [(block.first_key, block.first_epoch) for block in index] == fences
    assert [(block.offset, block.size) for block in index] == [(0, 10), (10, 20), (30, 30)]
    assert index[1] == (b"a", 5, 9, 10, 20, 100, 1, 2, 1)


def test_searches_end_in_the_last_block_that_begins_at_or_before_the_target():
    rng = random.Random(51)
    for _ in range(500):
        fences = random_fences(rng)
        index = SstableIndex.decode(
            encode_index(fences, [1] * len(fences)), "sst/x.meta", len(fences), 2 * len(fences))
        order = [(key, -epoch) for key, epoch in fences]
        for _ in range(30):
            key, epoch = rng.choice(fences)
            roll = rng.random()
            if roll < 0.3:
                key = key[:rng.randrange(len(key) + 1)]
            elif roll < 0.5:
                key += rng.choice((b"\0", b"\xff"))
            elif roll < 0.6:
                key = rng.randbytes(3)
            epoch = rng.choice((epoch, epoch | 0xFFFF, 0, (1 << 64) - 1))
            assert index.find(key, epoch) == max(0, bisect_right(order, (key, -epoch)) - 1)


def test_an_index_that_does_not_describe_its_file_is_refused():
    fences = [(b"a", 7), (b"b", 5)]
    sound = encode_index(fences, [10, 20])
    for bad, data_bytes, rows in (
        (sound, 31, 4), (sound, 30, 5), (sound[:-1], 30, 4), (sound + b"\0", 30, 4),
        (b"", 30, 4), (b"\0" * 8, 0, 0),
        (encode_index(fences, [0, 30]), 30, 4), (encode_index(fences[::-1], [10, 20]), 30, 4),
        (encode_index([(b"a", 5), (b"a", 7)], [10, 20]), 30, 4), (b"\xff" * len(sound), 30, 4),
        (b"\xff\xff\xff\xff" + sound[4:], 30, 4),
    ):
        with pytest.raises(Corruption) as caught:
            SstableIndex.decode(bad, "sst/x.meta", data_bytes, rows)
        assert caught.value.object_name == "sst/x.meta"


def test_a_damaged_index_is_refused_or_describes_whole_blocks():
    rng, fences = random.Random(52), [(b"key%d" % n, 7) for n in range(9)]
    sound = encode_index(fences, [10] * 9)
    for _ in range(3_000):
        damaged = bytearray(sound)
        damaged[rng.randrange(len(sound))] ^= 1 << rng.randrange(8)
        try:
            index = SstableIndex.decode(bytes(damaged), "sst/x.meta", 90, 18)
        except Corruption:
            continue
        assert sum(block.size for block in index) == 90 and sum(block.rows for block in index) == 18
        index.find(b"key4", 7)
