"""Reference implementation of the content hash in sstable/FORMAT.md, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable

K0, K1, K2, K3 = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7, 0xABC98388FB8FAC03
U64 = 1 << 64


def fold(a: int, b: int) -> int:
    product = a * b
    return product % U64 ^ product >> 64


def word(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def hash64(key: bytes) -> int:
    state = K0 ^ len(key) * K1 % U64
    chunks = [key[at:at + 16] for at in range(0, max(0, len(key) - 16), 16)] + [key[-16:]]
    for chunk in chunks:
        state = fold(state ^ word(chunk), K2 ^ word(chunk[8:]))
    return fold(state ^ K1, K0)


def weight(epoch: int) -> int:
    mixed = epoch * K0 % U64
    return mixed << 32 & U64 - 1 | mixed >> 32 | 1


def row_hash(key: bytes, epoch: int, value: bytes | None) -> int:
    size, data = (U64 - 1, b"") if value is None else (len(value), value)
    last = word(data[-8:]) if len(data) >= 8 else 0
    digest = fold(hash64(key) ^ word(data), (K3 + size * K1) % U64 ^ last)
    return digest * weight(epoch)


def content_hash(rows: Iterable[tuple[bytes, int, bytes | None]]) -> int:
    return sum(row_hash(*row) for row in rows) % U64
