"""Incremental lz4 decoding: the bytes of the library, and no access out of bounds."""

import random

import lz4.block
import pytest

from hummock.base.lz4_incremental import decoded_steps


def packed(raw, **settings):
    return lz4.block.compress(raw, store_size=False, **settings)


def payloads(rng):
    """Random bytes, runs of one byte, short periods, text, columns of padded values."""
    words = [rng.randbytes(rng.randrange(1, 9)) for _ in range(20)]
    yield b""
    yield b"a"
    for size in (5, 13, 64, 300, 5_000, 70_000):
        yield rng.randbytes(size)
        yield bytes(size)
        yield b"".join(rng.choice(words) for _ in range(size))[:size]
        period = rng.randbytes(rng.randrange(1, 40))
        yield (period * size)[:size]
        yield b"".join(rng.randbytes(rng.randrange(60)) + bytes([rng.choice(b"\0\0x")]) * rng.randrange(60)
                       for _ in range(size // 50 + 1))


@pytest.mark.parametrize("seed", range(6))
def test_any_steps_give_the_bytes_that_were_packed(seed):
    rng = random.Random(seed)
    for raw in payloads(rng):
        data = packed(raw, mode="fast", acceleration=rng.choice((1, 4, 20))) if rng.random() < .8 else (
            packed(raw, mode="high_compression"))
        steps = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(4)))
        found = decoded_steps(data, len(raw), [*steps, len(raw)])
        for wanted, part in zip([*steps, len(raw)], found, strict=True):
            assert wanted <= len(part) and raw.startswith(part)
        assert found[-1] == raw


def test_another_size_than_was_packed_is_refused():
    data = packed(bytes(range(200)) * 3)
    assert decoded_steps(data, 599, [599]) == [None]
    assert decoded_steps(data, 601, [601]) == [None]
    assert decoded_steps(data, 600, [601]) == [None]
    assert decoded_steps(data[:-1], 600, [600]) == [None]
    assert decoded_steps(data + b"x", 600, [600]) == [None]
    assert decoded_steps(b"", 0, [0]) == [b""] and decoded_steps(b"", 3, [3]) == [None]


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_are_refused_or_decoded_as_the_library_does(seed):
    rng = random.Random(seed)
    raws = [raw for raw in payloads(rng) if 0 < len(raw) <= 5_000]
    refused = agreed = 0
    for _ in range(1_500):
        raw = rng.choice(raws)
        data = bytearray(packed(raw))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 255, rng.randrange(256)))
        if rng.random() < .2:
            del data[rng.randrange(len(data)):]
        (found,) = decoded_steps(bytes(data), len(raw), [len(raw)])
        try:
            expected = lz4.block.decompress(bytes(data), uncompressed_size=len(raw))
        except lz4.block.LZ4BlockError:
            expected = None
        if found is None:
            refused += 1
        elif expected is not None and len(expected) == len(raw):
            assert found == expected
            agreed += 1
    assert refused > 100 and agreed > 100


@pytest.mark.parametrize("data", [
    b"\x00\x00\x00", b"\x10a\x00\x00", b"\x10a\x02\x00", b"\x10a\xff\xff", b"\xf0" + b"\xff" * 20, b"\xff" * 40,
    b"\x1fa\x01\x00" + b"\xff" * 30, b"\x1fa\x01", b"\x1fa", b"\x1f",
])
def test_hostile_sequences_are_refused(data):
    assert decoded_steps(data, 100, [1, 100])[-1] is None
