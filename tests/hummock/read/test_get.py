"""Point gets on rows of all shapes, in cached and uncached blocks."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import hummock
from hummock.epoch import EpochGenerator
from tests.support.drivers.seeds import run_seed

TABLE_PREFIX = b"\0\0\0\1\0\0"  # table 1, vnode 0


def keys_of(shape: str, rng: random.Random, count: int) -> list[bytes]:
    if shape == "short":
        return [TABLE_PREFIX + rng.randbytes(4) for _ in range(count)]
    if shape == "long":  # many share the key prefix behind the common prefix
        return [TABLE_PREFIX + rng.choice((b"a" * 12, b"b" * 12)) + rng.randbytes(rng.choice((2, 6))).ljust(6, b"\0")
                for _ in range(count)]  # fmt: skip
    if shape == "counted":
        return [TABLE_PREFIX + (number * 2).to_bytes(8, "big") for number in range(count)]
    return [TABLE_PREFIX + rng.randbytes(rng.randrange(1, 14)) for _ in range(count)]


def neighbours(key: bytes) -> list[bytes]:
    return [key, key + b"\0", key[:-1], key[:-1] + bytes([key[-1] ^ 1]), key[:8] + b"\xff" * 8]


@pytest.mark.parametrize("cache_bytes", [20_000, 64 << 20])
@pytest.mark.parametrize("block_bytes", [200, 4_000])
@pytest.mark.parametrize("lengths", ["equal", "mixed"])
@pytest.mark.parametrize("shape", ["short", "long", "counted", "mixed"])
def test_a_get_sees_each_key_as_it_was_at_its_epoch(shape, lengths, block_bytes, cache_bytes):
    rng = random.Random(run_seed())
    epochs, states, rows = EpochGenerator(), [], {}
    keys = sorted(set(keys_of(shape, rng, 600)))
    with hummock.open("memory://", role="writer", block_bytes=block_bytes, sstable_bytes=20_000,
                      compaction=False, block_cache_bytes=cache_bytes) as store:  # fmt: skip
        for commit in range(3):
            epoch = epochs.next()
            changed = sorted(keys if commit == 0 else rng.sample(keys, 60))
            values = [rng.randbytes(100 if lengths == "equal" else rng.randrange(120)) for _ in changed]
            deleted = {key for key in changed if commit == 2 and rng.random() < 0.5}
            rows |= {key: None if key in deleted else value for key, value in zip(changed, values, strict=True)}
            put = pa.array([rows[key] for key in changed], pa.binary())
            store.ingest_batch(hummock.WriteBatch(pa.array(changed, pa.binary()), put), epoch)
            store.commit(epoch)
            states.append((epoch, dict(rows)))
        probes = [probe for key in rng.sample(keys, 120) for probe in neighbours(key)]
        for _ in range(2):  # the second round finds all blocks cached
            for epoch, state in states:
                for probe in probes:
                    assert store.get(probe, epoch) == state.get(probe), (probe, epoch)
                found = store.get_many(pa.array(probes, pa.binary()), epoch).to_arrow().to_pylist()
                assert found == [state.get(probe) for probe in probes], epoch


def test_the_newest_version_is_found_where_older_ones_begin_the_next_block():
    rng = random.Random(11)
    keys = keys_of("counted", rng, 3_000)
    with hummock.open("memory://", role="writer", block_bytes=1_000, compaction=False) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        first, second = epochs.next(), epochs.next()
        rows = {first: dict.fromkeys(keys, b"old" * 20), second: dict.fromkeys(rng.sample(keys, 500), b"new" * 20)}
        for epoch, changed in rows.items():
            store.ingest_batch(hummock.WriteBatch(sorted(changed.items())), epoch)
        store.commit(second)
        state = rows[first] | rows[second]
        for _ in range(2):  # the second round finds all blocks cached
            for epoch, expected in ((first, rows[first]), (second, state)):
                assert [store.get(key, epoch) for key in keys] == [expected[key] for key in keys]
                found = store.get_many(pa.array(keys, pa.binary()), epoch).to_arrow().to_pylist()
                assert found == [expected[key] for key in keys]
                assert all(store.get(key[:-1] + bytes([key[-1] | 1]), epoch) is None for key in keys)


@pytest.mark.parametrize("cache_bytes", [20_000, 64 << 20])
def test_calls_of_many_keys_answer_each_at_its_position_whatever_is_cached(cache_bytes):
    rng = random.Random(5)
    near = [TABLE_PREFIX + (number * 2).to_bytes(8, "big") for number in range(4_000)]
    far = [TABLE_PREFIX + ((1 << 40) + number * 200_002).to_bytes(8, "big") for number in range(2_000)]
    epochs, rows = EpochGenerator(), {}
    with hummock.open("memory://", role="writer", block_bytes=2_000, sstable_bytes=30_000, compaction=False,
                      block_cache_bytes=cache_bytes) as store:  # fmt: skip
        for size, changed in ((100, near + far), (40, far), (700, sorted(rng.sample(near, 1_000)))):
            epoch = epochs.next()
            put = {key: rng.randbytes(size) for key in changed}
            store.ingest_batch(hummock.WriteBatch(list(put.items())), epoch)
            store.commit(epoch)
            rows |= put
        for part in (near, far, near + far):
            wanted = rng.choices(part, k=3_000)
            wanted = [key[:-1] + bytes([key[-1] | 1]) if rng.random() < 0.2 else key for key in wanted]
            wanted = [None if rng.random() < 0.01 else key for key in wanted]
            for count in (1, 127, 129, 1_025, 3_000):
                found = store.get_many(pa.array(wanted[:count], pa.binary()), epoch).to_arrow().to_pylist()
                assert found == [rows.get(key) for key in wanted[:count]], count
            assert [store.get(key, epoch) for key in wanted if key] == [rows.get(key) for key in wanted if key]
