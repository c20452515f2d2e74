"""crc32c and the key hash, against plain Python."""

import random

import pytest

from hummock.base.checksum import crc32c_narrow_of, crc32c_of, crc32c_portable_of, hash64_of

MASK = (1 << 64) - 1
K0, K1, K2 = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7


def plain_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & MASK


def plain_hash64(key: bytes) -> int:
    """As specified in sstable/FORMAT.md, section key hash."""
    value = K0 ^ len(key) * K1 & MASK
    last = max(len(key) - 16, 0)
    steps = [key[at:at + 16] for at in range(0, last, 16)] + [key[last:]]
    for step in steps:
        low, high = (int.from_bytes(step.ljust(16, b"\0")[half:half + 8], "little") for half in (0, 8))
        value = fold(value ^ low, K2 ^ high)
    return fold(value ^ K1, K0)


@pytest.mark.parametrize("crc", [crc32c_of, crc32c_narrow_of, crc32c_portable_of])
def test_crc32c_agrees_with_the_published_vectors(crc):
    assert crc(b"123456789") == 0xE3069283
    assert crc(b"\0" * 32) == 0x8A9136AA
    assert crc(b"\xff" * 32) == 0x62A8AB43
    assert crc(bytes(range(32))) == 0x46DD794E
    assert crc(b"") == 0


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 18, (1 << 18) + 1, 1 << 20])
def test_crc32c_is_continued(size):
    data = random.Random(size).randbytes(size)
    for cut in {0, size // 3, size}:
        assert crc32c_of(data[cut:], crc32c_of(data[:cut])) == crc32c_of(data) == crc32c_portable_of(data)


def test_all_paths_of_crc32c_agree_with_plain_python_at_every_length():
    data = random.Random(1).randbytes(20_000)
    for size in (*range(70), *range(500, 1_100, 37), 6143, 6144, 6145, 6151, 12_288, 12_300, 20_000):
        for start in (0, 3):
            piece = data[start:start + size]
            expected = plain_crc32c(piece)
            found = [path(piece) for path in (crc32c_of, crc32c_narrow_of, crc32c_portable_of)]
            assert found == [expected] * 3, (start, size)


def test_the_key_hash_is_the_specified_one_at_every_length():
    rng = random.Random(2)
    for size in range(200):
        key = rng.randbytes(size)
        assert hash64_of(key) == plain_hash64(key), size


def test_one_changed_bit_changes_half_of_the_hash():
    rng = random.Random(3)
    flips, trials = [0] * 64, 4_000
    for _ in range(trials):
        key = bytearray(rng.randbytes(rng.choice((1, 4, 8, 14, 16, 22, 40))))
        before = hash64_of(key)
        key[rng.randrange(len(key))] ^= 1 << rng.randrange(8)
        change = before ^ hash64_of(key)
        for bit in range(64):
            flips[bit] += change >> bit & 1
    assert all(0.45 < count / trials < 0.55 for count in flips)


def test_counting_keys_collide_as_rarely_as_random_numbers():
    hashes = [hash64_of(b"\0\0\0\1\0\7\0\1" + number.to_bytes(8, "big")) for number in range(50_000)]
    assert len(set(hashes)) == len(hashes)
    buckets = [0] * 1_000
    for value in hashes:
        buckets[value * 1_000 >> 64] += 1
    chi_square = sum((count - 50) ** 2 / 50 for count in buckets)
    assert 850 < chi_square < 1_150
