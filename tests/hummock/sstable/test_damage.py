"""Every kind of damage raises a Corruption that names the object, on each read that touches it."""

import random

import pytest

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from hummock.sstable.block import Block
from hummock.sstable.builder import SstableOutput
from hummock.sstable.meta import SstableMeta
from tests.hummock.sstable.test_builder import block_of, build, entries_of, random_entries
from tests.support.suites.process_memory import peak_growth

SEED = 20260807
FLIPS = 2_000


@pytest.fixture(scope="module", params=["none", "lz4", "zstd"])
def output(request) -> SstableOutput:
    print(f"seed {SEED}")
    return build(random_entries(random.Random(SEED), 4_000), codec=request.param, block_bytes=4_096)


def flipped(data: bytes, rng: random.Random) -> tuple[bytes, int]:
    """`data` with one bit changed, and the position of that bit's byte."""
    at = rng.randrange(len(data))
    damaged = bytearray(data)
    damaged[at] ^= 1 << rng.randrange(8)
    return bytes(damaged), at


def test_a_flipped_bit_in_data_is_found_by_every_read_of_its_block_and_by_no_other(output):
    rng, data = random.Random(SEED), bytes(output.data)
    meta = SstableMeta.decode(output.meta, output.info, output.name)
    bounds = [(block.offset, block.offset + block.size) for block in meta.index]
    for _ in range(FLIPS):
        bad, at = flipped(data, rng)
        damaged = SstableOutput(output.name, bad, output.meta, output.info)
        touched = next(n for n, (start, end) in enumerate(bounds) if start <= at < end)
        with pytest.raises(Corruption, match=f"block {touched}, crc32c") as caught:
            block_of(damaged, meta, touched)
        assert caught.value.object_name == output.name
        other = rng.randrange(len(bounds))
        if other != touched:
            assert len(block_of(damaged, meta, other)) == meta.index[other].rows


def test_a_flipped_bit_in_meta_is_found_with_and_without_the_version_record(output):
    rng = random.Random(SEED)
    for _ in range(FLIPS):
        bad, _ = flipped(output.meta, rng)
        for info in (output.info, None):
            with pytest.raises(Corruption) as caught:
                SstableMeta.decode(bad, info, "sst/x.meta")
            assert caught.value.object_name == "sst/x.meta"


def test_a_cut_meta_is_refused_at_every_length(output):
    for size in range(len(output.meta)):
        with pytest.raises(Corruption):
            SstableMeta.decode(output.meta[:size], output.info if size % 2 else None, "sst/x.meta")


def test_cut_data_is_refused_by_the_block_it_cuts(output):
    meta, data = SstableMeta.decode(output.meta, output.info, "m"), bytes(output.data)
    rng = random.Random(SEED)
    for _ in range(200):
        size = rng.randrange(len(data))
        cut = SstableOutput(output.name, data[:size], output.meta, output.info)
        touched = next(n for n, block in enumerate(meta.index) if block.offset + block.size > size)
        with pytest.raises(Corruption, match=f"block {touched}"):
            block_of(cut, meta, touched)


def test_swapped_doubled_and_moved_blocks_are_found(output):
    meta, data = SstableMeta.decode(output.meta, output.info, "m"), bytes(output.data)
    pieces = [data[block.offset:block.offset + block.size] for block in meta.index]
    for shuffled in (
        [pieces[1], pieces[0], *pieces[2:]], [pieces[0], pieces[0], *pieces[2:]],
        [*pieces[1:], pieces[0]], [*pieces[:-1], pieces[-1][::-1]],
    ):
        with pytest.raises(Corruption):
            entries_of(SstableOutput(output.name, b"".join(shuffled), output.meta, output.info))


def test_another_whole_object_under_its_name_is_found(output):
    other = build(random_entries(random.Random(SEED + 1), 4_000), codec=output.info.codec, block_bytes=4_096)
    with pytest.raises(Corruption, match=r"length|digest"):
        SstableMeta.decode(other.meta, output.info, "sst/x.meta")
    with pytest.raises(Corruption, match="block 0"):
        entries_of(SstableOutput(output.name, bytes(other.data), output.meta, output.info))


def test_random_bytes_are_neither_a_block_nor_a_meta():
    rng = random.Random(SEED)
    for _ in range(2_000):
        noise = rng.randbytes(rng.randrange(1, 400))
        with pytest.raises(Corruption):
            SstableMeta.decode(noise, None, "m")
        with pytest.raises(Corruption):
            Block.decode(noise, rng.randrange(3), rng.randrange(1 << 20), crc32c_of(noise), "d", 0)


def test_lengths_that_promise_gigabytes_take_no_memory(output):
    """Sizes in an index and counts in a header are forged together with their checksums."""
    meta = SstableMeta.decode(output.meta, output.info, "m")
    block = meta.index[0]
    stored = bytes(output.data)[:block.size]
    growth = peak_growth()
    for raw_size in (block.raw_size + 1, 1 << 26, (1 << 29) - 1, 1 << 29, 1 << 31, (1 << 32) - 1):
        with pytest.raises(Corruption):
            Block.decode(stored, block.codec, raw_size, block.checksum, "d", 0)
    header = bytes.fromhex("ffffffff") + bytes([1, 0, 0, 0]) + bytes(24) + bytes(8)
    for rows in (0xFFFFFFFF, 41, 1 << 24):
        forged = rows.to_bytes(4, "little") + header[4:]
        with pytest.raises(Corruption):
            Block.decode(forged, 0, len(forged), crc32c_of(forged), "d", 0)
    assert growth() < 100 << 20
