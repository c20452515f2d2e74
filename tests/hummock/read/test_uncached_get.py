"""Uncached reads: answers, damaged files, and statistics."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import Corruption, HummockError
from hummock.object_store.local import LocalObjectStore

ROWS = 3_000


def key_of(number):
    return b"\0\0\0\1\0\0" + b"%08d" % number


def rows_of(rng, width):
    """Rows at even numbers, some deleted; values of `width` bytes, or of random sizes."""
    rows = {}
    for number in range(0, 2 * ROWS, 2):
        size = width if width is not None else rng.randrange(200)
        noise = rng.randbytes(size // 2)
        rows[key_of(number)] = None if rng.random() < .03 else noise + bytes(size - len(noise))
    return rows


def opened(directory, cache_bytes, codec="lz4", **options):
    return hummock.open(f"file://{directory}", role="writer", compaction=False, block_cache_bytes=cache_bytes,
                        block_bytes=4_096, flush_codec=codec, refresh_ms=60_000, **options)


def fill(store, rows, epochs):
    """Writes the rows, spread over `epochs` runs; returns the last epoch."""
    epoch = None
    ordered = sorted(rows)
    for number in range(epochs):
        epoch = hummock.EpochGenerator(last=store.committed_epoch).next()
        store.ingest_batch(WriteBatch([(key, rows[key]) for key in ordered[number::epochs]]), epoch)
        store.commit(epoch)
    return epoch


def data_files(directory):
    return sorted(Path(directory, "sst").glob("*.data"))


@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
@pytest.mark.parametrize(("width", "epochs"), [(100, 1), (None, 3)])
def test_answers_are_the_same_whatever_the_cache_holds(tmp_path, codec, width, epochs):
    rng = random.Random(7)
    rows = rows_of(rng, width)
    with opened(tmp_path, 1, codec) as store:
        epoch = fill(store, rows, epochs)
    for cache_bytes in (1, 100_000):
        with opened(tmp_path, cache_bytes, codec) as store:
            wanted = [key_of(rng.randrange(2 * ROWS + 9)) for _ in range(700)]
            expected = [rows.get(key) for key in wanted]
            for size in (1, 9, 700):
                found = []
                for start in range(0, len(wanted), size):
                    keys = pa.array(wanted[start:start + size], pa.binary())
                    found += store.get_many(keys, epoch).to_arrow().to_pylist()
                assert found == expected
            assert [store.get(key, epoch) for key in wanted] == expected
            stats = store.stats()
            assert stats.block_cache_bytes <= cache_bytes + 20_000
            assert stats.block_cache_misses > stats.block_cache_admitted > 0
            assert stats.block_cache_hits > 0 or cache_bytes == 1
            assert stats.meta_cache_hits > stats.meta_cache_misses > 0
            assert store.metrics.total("hummock_object_store_file_reads") > 200


def test_older_versions_are_found_in_blocks_that_are_not_kept(tmp_path):
    keys = [key_of(number) for number in range(500)]
    with opened(tmp_path, 1) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        written = [epochs.next() for _ in range(4)]
        for number, epoch in enumerate(written):
            store.ingest_batch(WriteBatch([(key, b"%d of %d" % (number, row)) for row, key in enumerate(keys)]), epoch)
        store.commit(written[-1])
        store.get_many(pa.array(keys, pa.binary()), written[0])
        for number, epoch in enumerate(written):
            expected = [b"%d of %d" % (number, row) for row in range(len(keys))]
            assert [store.get(key, epoch) for key in keys] == expected
            assert store.get_many(pa.array(keys, pa.binary()), epoch).to_arrow().to_pylist() == expected


def read_all(store, rows, epoch, problems):
    """Checks every answer; appends each `HummockError` to `problems`."""
    keys = sorted(rows)
    for key in keys[::7]:
        try:
            assert store.get(key, epoch) == rows[key]
        except HummockError as error:
            problems.append(error)
    for start in range(0, len(keys), 500):
        try:
            found = store.get_many(pa.array(keys[start:start + 500], pa.binary()), epoch)
        except HummockError as error:
            problems.append(error)
        else:
            assert found.to_arrow().to_pylist() == [rows[key] for key in keys[start:start + 500]]


@pytest.mark.parametrize("damage", ["flip", "cut", "swap"])
def test_damage_under_an_open_file_is_an_error_that_names_the_object(tmp_path, damage):
    rng, problems = random.Random(3), []
    rows = rows_of(rng, 100)
    with opened(tmp_path, 1) as store:
        epoch = fill(store, rows, 1)
        read_all(store, rows, epoch, problems)
        assert not problems
        reads = store.metrics.total("hummock_object_store_file_reads")
        (file,) = data_files(tmp_path)
        content = bytearray(file.read_bytes())
        if damage == "flip":
            content[len(content) // 3] ^= 4
        elif damage == "cut":
            del content[len(content) // 2:]
        else:
            half = len(content) // 2
            content = content[half:] + content[:half]
        with file.open("r+b") as same:          # the store's descriptor stays open
            same.write(content)
            same.truncate(len(content))
        read_all(store, rows, epoch, problems)
        assert problems and all(isinstance(error, Corruption) and file.name in str(error) for error in problems)
        assert store.metrics.total("hummock_object_store_file_reads") > reads


def test_a_store_that_has_to_do_with_what_is_read_is_asked_for_every_block(tmp_path, monkeypatch):
    rows = rows_of(random.Random(5), 100)
    with opened(tmp_path, 1) as store:
        epoch = fill(store, rows, 1)
    monkeypatch.setattr(LocalObjectStore, "open_file", lambda store, path: None)
    with opened(tmp_path, 1) as store:
        problems = []
        read_all(store, rows, epoch, problems)
        assert not problems and store.metrics.total("hummock_object_store_file_reads") == 0


def test_a_file_that_vanished_is_read_on_where_it_is_open_and_missed_where_it_is_not(tmp_path):
    rows = rows_of(random.Random(5), 100)
    with opened(tmp_path, 1) as store:
        epoch, problems = fill(store, rows, 1), []
        read_all(store, rows, epoch, problems)
        (file,) = data_files(tmp_path)
        file.unlink()
        for reader in store._sstable_store._readers.values():
            store._sstable_store.object_store.delete([reader.data_path])
        read_all(store, rows, epoch, problems)
        assert problems and all(isinstance(error, HummockError) for error in problems)


def test_a_thousand_keys_wait_for_one_read_of_each_file(tmp_path, monkeypatch):
    rows = rows_of(random.Random(5), 100)
    with opened(tmp_path, 64 << 20) as store:
        epoch = fill(store, rows, 1)
    monkeypatch.setattr(LocalObjectStore, "open_file", lambda store, path: None)
    with opened(tmp_path, 64 << 20) as store:
        read = []
        objects = store._sstable_store.object_store
        get = objects.get
        monkeypatch.setattr(objects, "get", lambda path, *part: read.append(path) or get(path, *part))
        keys = sorted(rows)[:1_000]
        for _ in range(2):          # the second round finds all blocks cached
            assert store.get_many(pa.array(keys, pa.binary()), epoch).to_arrow().to_pylist() == [
                rows[key] for key in keys]
            assert [path.rpartition(".")[2] for path in read] == ["meta", "data"]
