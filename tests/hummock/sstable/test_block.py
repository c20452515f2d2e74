"""Blocks: entries round-trip, searches agree with bisect, damage is named."""

import random
import struct
import threading
from bisect import bisect_left
from itertools import pairwise

import pytest

from hummock.base.checksum import crc32c_of
from hummock.base.codec import compressed
from hummock.errors import Corruption
from hummock.sstable.block import Block
from hummock.sstable.block_builder import BlockBuilder
from tests.hummock.oracle_block import decode_payload, encode_payload, full_key_order

LZ4, NONE, ZSTD = 1, 0, 2


def built(entries) -> bytes:
    builder = BlockBuilder()
    for entry in entries:
        builder.put(*entry)
    return builder.finish()


def decoded(payload: bytes, codec: int = NONE) -> Block:
    stored = compressed(payload, codec)
    return Block.decode(stored, codec, len(payload), crc32c_of(stored), "sst/x.data", 3)


def random_entries(rng: random.Random) -> list:
    """Up to 300 distinct entries of one of several shapes, in full key order."""
    prefix = rng.randbytes(rng.choice((0, 6, 12, 40)))
    alphabet = rng.choice((b"\0\1", b"ab\xff", bytes(range(256))))
    longest, epochs = rng.choice((1, 3, 9, 20, 300)), rng.choice((1, 2, 50))
    fixed = rng.random() < 0.3
    entries = {}
    for _ in range(rng.randrange(1, 300)):
        size = longest if fixed else rng.randrange(longest + 1)
        key = prefix + bytes(rng.choice(alphabet) for _ in range(size))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 5, 5, 5, 100)))
        entries[key, rng.randrange(epochs) << 16] = value
    return sorted(((key, epoch, value) for (key, epoch), value in entries.items()), key=full_key_order)


def test_random_blocks_have_the_bytes_of_the_plain_writer_and_come_back():
    rng = random.Random(21)
    for _ in range(400):
        entries = random_entries(rng)
        payload = built(entries)
        assert payload == encode_payload(entries)
        assert decode_payload(payload) == entries
        for codec in (NONE, LZ4, ZSTD):
            assert list(decoded(payload, codec)) == entries


def test_long_lengths_take_wider_columns():
    entries = [(b"a", 1, b""), (b"b" * 300, 1, b"v" * 70_000), (b"c" * 70_000, 1, None)]
    payload = built(entries)
    assert payload == encode_payload(entries) and list(decoded(payload)) == entries


def test_a_builder_is_empty_again_after_finish_and_knows_its_size():
    builder = BlockBuilder()
    for entries in ([(b"k", 5, b"v")], [(b"a", 7, None), (b"ab", 9, b"1"), (b"ab", 8, b"2")]):
        for entry in entries:
            builder.put(*entry)
        assert builder.rows == len(entries)
        assert list(decoded(builder.finish())) == entries
        assert builder.rows == 0
    with pytest.raises(ValueError, match="at least one entry"):
        builder.finish()


def test_searches_end_where_bisect_does():
    rng = random.Random(22)
    for _ in range(300):
        entries = random_entries(rng)
        block, order = decoded(built(entries)), [full_key_order(entry) for entry in entries]
        for _ in range(60):
            key, epoch = rng.choice(entries)[:2]
            roll = rng.random()
            if roll < 0.3:
                key = key[:rng.randrange(len(key) + 1)]
            elif roll < 0.5:
                key += rng.choice((b"\0", b"\xff", rng.randbytes(3)))
            elif roll < 0.6:
                key = rng.randbytes(rng.randrange(5))
            epoch = rng.choice((epoch, epoch | 0xFFFF, 0, (1 << 64) - 1))
            assert block.find(key, epoch) == bisect_left(order, (key, -epoch))


def test_threads_that_search_first_agree():
    entries = [(b"%08d" % n, 1, b"v") for n in range(5_000)]
    payload = built(entries)
    for _ in range(20):
        block, found = decoded(payload), []
        threads = [threading.Thread(target=lambda b=block, f=found: f.append(b.find(b"00002500", 1)))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [2_500] * 4


def test_a_wrong_checksum_size_or_codec_names_the_object_and_the_block():
    payload = built([(b"a", 1, b"v"), (b"b", 1, b"w")])
    stored = compressed(payload, LZ4)
    crc = crc32c_of(stored)
    for bytes_, codec, size, checksum in (
        (stored, LZ4, len(payload), crc ^ 1), (stored, LZ4, len(payload) + 1, crc),
        (stored, NONE, len(payload), crc), (stored, ZSTD, len(payload), crc),
        (stored, 7, len(payload), crc), (stored[:-1], LZ4, len(payload), crc32c_of(stored[:-1])),
        (b"", LZ4, len(payload), 0),
    ):
        with pytest.raises(Corruption, match="block 3") as caught:
            Block.decode(bytes_, codec, size, checksum, "sst/x.data", 3)
        assert caught.value.object_name == "sst/x.data"


@pytest.mark.parametrize("raw_size", [1 << 20, 1 << 30, 1 << 40, -1, 0, 31])
@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
def test_a_claimed_size_that_the_bytes_cannot_hold_takes_no_memory(codec, raw_size):
    stored = compressed(built([(b"a", 1, b"v")]), codec)
    with pytest.raises(Corruption):
        Block.decode(stored, codec, raw_size, crc32c_of(stored), "sst/x.data", 0)


def test_every_damaged_header_with_a_right_checksum_is_refused_or_read_whole():
    """A buggy or hostile writer gets past the checksum: no length may make a reader leave the payload."""
    rng = random.Random(23)
    entries = [(b"key%03d" % n + b"x" * (n % 7), n % 3 << 16, None if n % 5 == 0 else b"v" * (n % 300))
               for n in range(200)]
    payload = bytearray(encode_payload(sorted(entries, key=full_key_order)))
    refused = 0
    for trial in range(3_000):
        damaged = bytearray(payload)
        if trial % 2:
            damaged[rng.randrange(32 + 8 * 200 + 25 + 600)] = rng.randrange(256)
        else:
            struct.pack_into("<I", damaged, rng.choice((0, 4, 8, 12, 16, 20, 24, 28)), rng.getrandbits(32))
        try:
            block = decoded(bytes(damaged))
        except Corruption:
            refused += 1
            continue
        assert all(len(entry) == 3 for entry in block)
        block.find(rng.randbytes(8), 0)
    assert refused > 1_200


def test_a_tombstone_with_a_value_and_bits_after_the_last_row_are_refused():
    payload = bytearray(encode_payload([(b"a", 1, None), (b"b", 1, b"v")]))
    assert payload[40] == 0b01
    for bitmap in (0b10, 0b11, 0b101):
        payload[40] = bitmap
        with pytest.raises(Corruption, match="tombstone"):
            decoded(bytes(payload))


def test_blocks_are_in_the_order_they_claim():
    entries = random_entries(random.Random(24))
    assert all(full_key_order(a) < full_key_order(b) for a, b in pairwise(entries))
