"""[P3]: a file with any single bit flipped is refused with the name of the object, never read."""

from __future__ import annotations

import random

import pytest

from hummock.errors import Corruption
from hummock.sstable.block import Block
from hummock.sstable.builder import SstableOutput
from hummock.sstable.meta import SstableMeta
from tests.hummock.sstable.test_builder import build, opened, random_entries

KIB = 1 << 10


@pytest.fixture(scope="module", params=["none", "lz4", "zstd"])
def output(request) -> SstableOutput:
    """An SSTable whose `.data` and `.meta` have at least 64 KiB each."""
    made = build(random_entries(random.Random(3), 6_000), codec=request.param, block_bytes=150)
    assert len(made.data) >= 64 * KIB and len(made.meta) >= 64 * KIB
    return made


def refused_data(output: SstableOutput, step: int) -> int:
    """Flips every `step`-th bit of `.data`, one at a time, and decodes its block; returns the number of flips."""
    meta, data, flips = opened(output), bytes(output.data), 0
    for number in range(len(meta.index)):
        entry = meta.index[number]
        block = bytearray(data[entry.offset:entry.offset + entry.size])
        for bit in range(-8 * entry.offset % step, 8 * len(block), step):
            block[bit >> 3] ^= 1 << (bit & 7)
            flips += 1
            try:
                Block.decode(block, entry.codec, entry.raw_size, entry.checksum, "sst/x.data", number)
            except Corruption as error:
                assert error.object_name == "sst/x.data"
            else:
                raise AssertionError(f"a flip of bit {bit} of block {number} is missed")
            block[bit >> 3] ^= 1 << (bit & 7)
    return flips


def refused_meta(output: SstableOutput, step: int) -> int:
    meta, flips = bytearray(output.meta), 0
    for bit in range(0, 8 * len(meta), step):
        meta[bit >> 3] ^= 1 << (bit & 7)
        flips += 1
        for info in (output.info, None):
            try:
                SstableMeta.decode(bytes(meta), info, "sst/x.meta")
            except Corruption as error:
                assert error.object_name == "sst/x.meta"
            else:
                raise AssertionError(f"a flip of bit {bit} of .meta is missed {'with' if info else 'without'} info")
        meta[bit >> 3] ^= 1 << (bit & 7)
    return flips


def test_a_flipped_bit_is_refused(output):
    assert refused_data(output, 7) > 8 * 64 * KIB // 8
    assert refused_meta(output, 997) > 500


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_flipped_bit_is_refused(output):
    assert refused_data(output, 1) == 8 * len(output.data)
    assert refused_meta(output, 1) == 8 * len(output.meta)
