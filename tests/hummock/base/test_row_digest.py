"""The content hash: equal on every code path and in any order of rows, different for different rows."""

from __future__ import annotations

import random

import pytest

from hummock.base.checksum import hash64_of
from hummock.base.key import user_key
from hummock.base.row_digest import under_epoch
from hummock.sstable.block import content_hash_of
from hummock.sstable.meta import SstableMeta
from tests.hummock.oracle_block import full_key_order
from tests.hummock.oracle_hash import U64, content_hash, hash64
from tests.hummock.sstable.test_builder import block_of, build
from tests.support.drivers.seeds import amount

SIZES = (0, 1, 2, 7, 8, 9, 10, 15, 16, 17, 23, 31, 32, 33, 48, 100)


def random_rows(rng):
    """Keys with or without a shared prefix, of one length or many; values of all lengths; deletes; versions."""
    start, sizes = rng.randbytes(rng.choice(SIZES)), rng.choice(([rng.choice(SIZES)], SIZES))
    values, deletes, epochs = rng.choice(([rng.choice(SIZES)], SIZES)), rng.choice((0, 0.3)), rng.choice((1, 5))
    rows = {}
    for _ in range(rng.randint(1, 400)):
        key = user_key(1, rng.randrange(2), start[:rng.randint(0, 40)] + rng.randbytes(rng.choice(sizes)))
        value = None if rng.random() < deletes else rng.randbytes(rng.choice(values))
        rows[key, rng.randrange(epochs) << 16 | rng.randrange(2)] = value
    return sorted(((*at, value) for at, value in rows.items()), key=full_key_order)


def hash_of_blocks(output):
    meta = SstableMeta.decode(bytes(output.meta), output.info, "m")
    return sum(content_hash_of(block_of(output, meta, at)) for at in range(len(meta.index))) % U64


@pytest.mark.parametrize("seed", range(60))
def test_builders_and_blocks_find_the_number_of_the_definition(seed):
    rng = random.Random(f"hash {seed}")
    rows = random_rows(rng)
    output = build(rows, codec="none", block_bytes=rng.choice((1, 300, 4_096, 1 << 16)))
    assert output.info.content_hash == content_hash(rows)
    assert hash_of_blocks(output) == content_hash(rows)


def test_keys_of_every_length_behind_prefixes_of_every_length_are_hashed_alike():
    for prefix in range(40):
        for size in range(40):
            keys = sorted({b"p" * prefix + bytes([first]) * size for first in (1, 2, 200)})
            for rest in (b"", b"x"):            # a longer key makes the lengths differ
                rows = [(key, 7 << 16, b"value") for key in sorted([*keys, keys[-1] + rest] if rest else keys)]
                output = build(rows, codec="none")
                assert hash_of_blocks(output) == content_hash(rows), (prefix, size, rest)


def changed(rng, rows):
    """The kind of a random corruption, and `rows` with it."""
    rows, at, other = list(rows), rng.randrange(len(rows)), rng.randrange(len(rows))
    (key, epoch, value), (key2, epoch2, value2) = rows[at], rows[other]
    kind = rng.choice(("lost", "doubled", "swapped values", "swapped epochs", "epoch", "delete", "value", "key"))
    if kind == "lost":
        del rows[at]
    elif kind == "doubled":
        rows.append(rows[at])
    elif kind == "swapped values":
        rows[at], rows[other] = (key, epoch, value2), (key2, epoch2, value)
    elif kind == "swapped epochs":
        rows[at], rows[other] = (key, epoch2, value), (key2, epoch, value2)
    elif kind == "epoch":
        rows[at] = key, epoch ^ 1 << rng.randrange(64), value
    elif kind == "delete":
        rows[at] = key, epoch, b"" if value is None else None
    elif kind == "value":
        end = rng.choice((slice(0, 1), slice(-1, None)))
        rows[at] = key, epoch, rng.choice(((value or b"") + b"x", (value or b"--")[end] + (value or b"")))
    else:
        rows[at] = key + b"\0", epoch, value
    return kind, rows


def test_other_rows_have_another_number_and_the_same_in_another_order_the_same():
    rng, seen = random.Random(11), set()
    for _ in range(amount(15, 40)):
        rows = random_rows(rng)
        for _ in range(40):
            kind, others = changed(rng, rows)
            is_same = sorted(rows, key=repr) == sorted(others, key=repr)
            assert (content_hash(others) == content_hash(rows)) == is_same, kind
            seen.add((kind, is_same))
        assert content_hash(rng.sample(rows, len(rows))) == content_hash(rows)
    assert {kind for kind, is_same in seen if not is_same} == {
        "lost", "doubled", "swapped values", "swapped epochs", "epoch", "delete", "value", "key"}


def test_the_hash_of_rows_of_one_epoch_is_known_under_any_other():
    rng = random.Random(12)
    for _ in range(200):
        own, other = (rng.getrandbits(rng.choice((1, 20, 64))) for _ in range(2))
        rows = [(rng.randbytes(9), own, rng.randbytes(20)) for _ in range(rng.randrange(5))]
        rebased = [(key, other, value) for key, _, value in rows]
        assert under_epoch(content_hash(rows), own, other) == content_hash(rebased)


def test_the_oracle_hashes_keys_as_the_filter_does():
    rng = random.Random(5)
    for size in range(70):
        key = rng.randbytes(size)
        assert hash64(key) == hash64_of(key)
