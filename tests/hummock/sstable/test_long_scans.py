"""Long scans of local files: read in chunks without the GIL, with some blocks cached, and damage named."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import hummock
from hummock.epoch import EpochGenerator
from hummock.errors import Corruption, StoreClosed
from hummock.object_store.local import LocalObjectStore

SMALL = {"block_bytes": 1_000, "prefetch_bytes": 4_096, "sstable_bytes": 300_000, "codec": "lz4"}
ROWS = [(b"\0\0\0\1\0\0%06d" % n, random.Random(n).randbytes(60)) for n in range(20_000)]
TABLE = hummock.KeyRange.table(1)


@pytest.fixture
def written(tmp_path):
    """A folder with all rows in several files of one run, and the epoch to read at."""
    epoch = EpochGenerator().next()
    with hummock.open(tmp_path.as_uri(), role="writer", compaction=False, **SMALL) as store:
        keys, values = (pa.array(column, pa.binary()) for column in zip(*ROWS, strict=True))
        store.ingest_batch(hummock.WriteBatch(keys, values), epoch)
        store.commit(epoch)
    return tmp_path, epoch


def pairs_of(store, epoch, **how):
    with store.scan(TABLE, epoch, **how) as rows:
        table = rows.to_arrow()
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("cache_bytes", [1, 1 << 16, 64 << 20])
def test_a_scan_gives_all_rows_whichever_blocks_are_cached(written, cache_bytes):
    folder, epoch = written
    rng = random.Random(cache_bytes)
    with hummock.open(folder.as_uri(), block_cache_bytes=cache_bytes, **SMALL) as store:
        for _ in range(4):
            assert pairs_of(store, epoch) == ROWS
            for key, value in rng.sample(ROWS, 200):
                assert store.get(key, epoch) == value


def test_windows_are_not_read_from_the_store_in_a_long_scan(written, monkeypatch):
    folder, epoch = written
    asked = []
    get = LocalObjectStore.get

    def counted(self, path, byte_range=None):
        if path.endswith(".data"):
            asked.append(byte_range)
        return get(self, path, byte_range)

    monkeypatch.setattr(LocalObjectStore, "get", counted)
    with hummock.open(folder.as_uri(), block_cache_bytes=1, **SMALL) as store:
        assert pairs_of(store, epoch) == ROWS
    assert len(asked) < 8               # those of the first file, before the scan is long


def test_damage_in_a_long_scan_is_named(written):
    folder, epoch = written
    rng = random.Random(3)
    files = sorted((folder / "sst").glob("*.data"))
    assert len(files) > 3
    for number in range(12):
        victim = rng.choice(files)
        held = victim.read_bytes()
        if number % 2:
            at = rng.randrange(len(held))
            victim.write_bytes(held[:at] + bytes([held[at] ^ 4]) + held[at + 1:])
        else:
            victim.write_bytes(held[:rng.randrange(len(held))])
        with (hummock.open(folder.as_uri(), block_cache_bytes=1, **SMALL) as store,
              pytest.raises(Corruption) as caught):
            pairs_of(store, epoch)
        assert victim.stem in caught.value.object_name
        victim.write_bytes(held)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_scan_that_met_damage_stays_failed(written, reverse):
    folder, epoch = written
    victim = sorted((folder / "sst").glob("*.data"))[2]
    held = victim.read_bytes()
    victim.write_bytes(held[:len(held) // 2] + bytes([held[len(held) // 2] ^ 4]) + held[len(held) // 2 + 1:])
    with (hummock.open(folder.as_uri(), block_cache_bytes=1, **SMALL) as store,
          store.scan(TABLE, epoch, reverse=reverse) as rows):
        for error in (Corruption, StoreClosed, StoreClosed):
            with pytest.raises(error, match=victim.stem):
                while rows.next_batch():
                    pass
