"""Gets by the hash index of cached blocks: full buckets, equal tags, versions, and blocks that have no index."""

from __future__ import annotations

import random
from collections import defaultdict

import pyarrow as pa
import pytest

import hummock
from hummock.base.checksum import hash64_of
from tests.support.drivers.seeds import run_seed

TABLE_PREFIX = b"\0\0\0\1\0\0"
ROWS = 60
BUCKETS = ROWS // 5 + 1
TAG = 0x7FE


def bucket_of(key: bytes) -> int:
    return (hash64_of(key) >> 32) * BUCKETS >> 32


def random_key(rng: random.Random) -> bytes:
    return TABLE_PREFIX + rng.randbytes(rng.randrange(4, 12))


def checked(commits: list[dict[bytes, bytes | None]], absent: list[bytes], *, is_indexed=True, **options) -> None:
    """Writes the commits into one file and compares all gets at all epochs, again and again, until all blocks are
    cached. Whether the first of them has a hash index is as told."""
    with hummock.open("memory://", role="writer", block_cache_bytes=256 << 20,
                      compaction=False, **options) as store:  # fmt: skip
        epochs, states, rows = hummock.EpochGenerator(last=store.committed_epoch), [], {}
        for commit in commits:
            epoch = epochs.next()
            store.ingest_batch(hummock.WriteBatch(sorted(commit.items())), epoch)
            rows = rows | commit
            states.append((epoch, rows))
        store.commit(epoch)
        wanted = [*rows, *absent]
        for _ in range(3):
            for epoch, state in states:
                expected = [state.get(key) for key in wanted]
                assert [store.get(key, epoch) for key in wanted] == expected, epoch
                assert store.get_many(pa.array(wanted, pa.binary()), epoch).to_arrow().to_pylist() == expected, epoch
        (info,) = store.version.sstables
        assert (store._sstable_store.reader(info).read_block(0).bucket_count > 0) == is_indexed


@pytest.mark.parametrize("kept", [3, 12, ROWS], ids=["some", "two buckets full", "all in one bucket"])
def test_keys_of_one_bucket_are_all_found(kept):
    rng = random.Random(run_seed())
    last = BUCKETS - 1          # whose keys go on in the first bucket
    crowd: set[bytes] = set()
    while len(crowd) < kept + 40:
        key = random_key(rng)
        crowd |= {key} if bucket_of(key) == last else set()
    crowded = sorted(crowd, key=hash64_of)
    rows = dict.fromkeys(crowded[:kept])
    while len(rows) < ROWS:
        rows[random_key(rng)] = None
    checked([{key: rng.randbytes(rng.randrange(80)) for key in rows}], crowded[kept:])


def test_keys_with_equal_tags_are_told_apart():
    rng = random.Random(run_seed())
    alike: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    while len(alike) < 13_000:
        key = random_key(rng)
        alike[bucket_of(key), hash64_of(key) & TAG].append(key)
    groups = sorted(alike.values(), key=len)[-12:]
    assert len(groups[0]) >= 5
    rows = {key: rng.randbytes(rng.randrange(80)) for group in groups for key in group[:-1]}
    rows |= {random_key(rng): b"x" for _ in range(ROWS - len(rows))}
    checked([rows], [group[-1] for group in groups])


def test_versions_and_deletes_of_a_key_are_found_at_their_epochs():
    rng = random.Random(run_seed())
    keys = [random_key(rng) for _ in range(200)]
    commits = [dict.fromkeys(keys, b"first")]
    commits += [{key: rng.choice((None, rng.randbytes(rng.randrange(80)))) for key in rng.sample(keys, 60)}
                for _ in range(12)]
    checked(commits, [random_key(rng) for _ in range(50)], block_bytes=900)


@pytest.mark.parametrize("is_indexed, rows", [
    (False, {TABLE_PREFIX + b"k" * 1_100 + bytes([number]): b"v" * number for number in range(50)}),
    (False, {TABLE_PREFIX + number.to_bytes(3, "big"): b"" if number % 2 else b"v" for number in range(70_000)}),
    (False, {TABLE_PREFIX + bytes([number]): b"v" * (20_000 * number) for number in range(40)}),
    (False, {TABLE_PREFIX: b"", TABLE_PREFIX + b"\0": b"v" * 600_000}),
    (False, {TABLE_PREFIX + bytes([number, number]): b"v" * 9 for number in range(60)}),
    (True, {TABLE_PREFIX + bytes([number]) * (5 + number % 3): b"" for number in range(60)}),
    (True, {TABLE_PREFIX: b"v"}),
], ids=["long keys", "many rows", "many bytes", "one large value", "fixed width", "no values", "one row"])  # fmt: skip
def test_blocks_of_extreme_rows_are_searched_otherwise(is_indexed, rows):
    absent = [TABLE_PREFIX + b"\0\0absent", TABLE_PREFIX[:-1], b"\xff"]
    checked([rows], absent, is_indexed=is_indexed, block_bytes=1 << 20)
