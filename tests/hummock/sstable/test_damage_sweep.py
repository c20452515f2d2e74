"""Every flipped bit and every truncation is detected and named by the read that needs the bytes.

The slow sweeps flip every bit of one `.data` and of one `.meta` object, each of 64 KiB or more; the others a part.
"""

from __future__ import annotations

import random

import pytest

from hummock.base.key import user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import Corruption
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.sstable.meta import SstableMeta
from hummock.sstable.store import SstableStore
from hummock.store.storage import HummockStorage
from tests.support.suites.process_memory import peak_growth

SEED = 20261121
EPOCH = Epoch(1 << 16)
ROWS = 640
SMALLEST_OBJECT = 64 << 10
MOST_MEMORY = 512 << 20


class DamagedObjectStore(MemoryObjectStore):
    """Serves `damaged` instead of one object."""

    def __init__(self):
        super().__init__()
        self.path, self.damaged = "", bytearray()

    def get(self, path, byte_range=None):
        if path != self.path:
            return super().get(path, byte_range)
        part = self.damaged if byte_range is None else self.damaged[byte_range.start:byte_range.stop]
        return bytes(part)

    def damage(self, path):
        self.damaged = bytearray(super().get(path))
        self.path = path


@pytest.fixture(scope="module")
def stored():
    """A store with one file of many small blocks, whose `.data` and `.meta` are large; caches hold nothing."""
    rng, objects = random.Random(SEED), DamagedObjectStore()
    print(f"seed {SEED}")
    manager = HummockManager(MemoryMetaStore(), objects)
    options = StorageOptions(block_bytes=1, block_cache_bytes=1, meta_cache_bytes=1)
    store = HummockStorage(manager, objects, options, session=manager.claim_writer())
    rows = [(user_key(1, 0, b"%04d" % n + rng.randbytes(70)), rng.randbytes(5)) for n in range(ROWS)]
    store.ingest_batch(WriteBatch(rows), EPOCH)
    store.commit(EPOCH)
    (info,) = manager.version.sstables
    yield store, objects, info, [key for key, _ in rows]
    store.close()


@pytest.fixture(autouse=True)
def memory_is_bounded():
    growth = peak_growth()
    yield
    assert growth() < MOST_MEMORY


def flips_of_data(stored, step):
    store, objects, info, keys = stored
    blocks = list(SstableMeta.decode(objects.get(sstable_meta_path(info.name)), info, "m").index)
    assert len(blocks) == ROWS
    objects.damage(sstable_data_path(info.name))
    assert len(objects.damaged) >= SMALLEST_OBJECT
    found = 0
    for number, block in enumerate(blocks):
        for bit in range(8 * block.offset + (-8 * block.offset) % step, 8 * (block.offset + block.size), step):
            objects.damaged[bit >> 3] ^= 1 << (bit & 7)
            try:
                store.get(keys[number], EPOCH)
            except Corruption as error:
                found += error.object_name == objects.path
            objects.damaged[bit >> 3] ^= 1 << (bit & 7)
        assert store.get(keys[number], EPOCH) is not None
        store.get(keys[number - 1], EPOCH)      # evicts that block from the cache
    return found, -(-8 * len(objects.damaged) // step)


def flips_of_meta(stored, step):
    _, objects, info, _ = stored
    files = SstableStore(objects, StorageOptions(meta_cache_bytes=1))
    objects.damage(sstable_meta_path(info.name))
    assert len(objects.damaged) >= SMALLEST_OBJECT
    found, bits = 0, range(0, 8 * len(objects.damaged), step)
    for bit in bits:
        objects.damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            files.meta(info)
        except Corruption as error:
            found += error.object_name == objects.path
        try:
            SstableMeta.decode(bytes(objects.damaged), None, objects.path)
        except Corruption as error:
            found += error.object_name == objects.path
        objects.damaged[bit >> 3] ^= 1 << (bit & 7)
    assert files.meta(info).info == info
    return found, 2 * len(bits)


@pytest.mark.parametrize("flips", [flips_of_data, flips_of_meta])
def test_a_flipped_bit_is_found(stored, flips):
    found, made = flips(stored, 211)
    assert found == made


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("flips", [flips_of_data, flips_of_meta])
def test_every_flipped_bit_is_found(stored, flips):
    found, made = flips(stored, 1)
    assert found == made >= 8 * SMALLEST_OBJECT


@pytest.mark.parametrize("part", ["data", "meta"])
def test_a_cut_object_is_found_by_the_reads_that_need_what_is_gone(stored, part):
    store, objects, info, keys = stored
    rng = random.Random(SEED)
    path = sstable_data_path(info.name) if part == "data" else sstable_meta_path(info.name)
    objects.damage(path)
    whole = bytes(objects.damaged)
    for size in [0, 1, len(whole) - 1, *rng.sample(range(len(whole)), 200)]:
        objects.damaged = bytearray(whole[:size])
        if part == "data":
            store.get(keys[0], EPOCH) if size > len(whole) // 2 else None
            with pytest.raises(Corruption, match=path):
                store.get(keys[-1], EPOCH)
        else:
            with pytest.raises(Corruption, match=path):
                SstableStore(objects, StorageOptions()).meta(info)
