"""Reads and compactions of a file with a global epoch see every entry at the epoch of its commit."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from hummock.base.json_fields import U64
from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.task import CompactTask, OutputOptions, TaskInput, TaskKind
from hummock.epoch import SPILL_MASK, Epoch
from hummock.errors import Corruption, LoadRefused
from hummock.loaded_files import LoadedFiles
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.sstable.builder import SstableBuilder
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.meta import SstableMeta
from hummock.sstable.store import SstableStore
from hummock.store.storage import HummockStorage
from tests.hummock.oracle_hash import content_hash
from tests.support.drivers.compaction_files import run_ranges

EVERYTHING = KeyRange(b"", None)
E1, E2, E3, E4 = (Epoch(number << 16) for number in (1, 2, 3, 4))
BUILT = 77 << 16  # the placeholder that the loader wrote


class Loaded:
    """A store with rows of epoch 1, a file loaded at epoch 2, and rows of epoch 3."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.objects = MemoryObjectStore()
        self.manager = HummockManager(MemoryMetaStore(), self.objects)
        self.session = self.manager.claim_writer()
        self.options = StorageOptions(block_bytes=rng.choice((1, 200, 1 << 16)))
        self.store = HummockStorage(self.manager, self.objects, self.options, session=self.session)
        self.layers = [
            {b"%03d" % rng.randrange(200): None if rng.random() < 0.2 else rng.randbytes(9) for _ in range(100)}
            for _ in range(3)
        ]
        self.write(0, E1)
        self.manager.commit_epoch(self.session, E2, (), loads=(LoadedFiles("load", (self.build(self.layers[1]),)),))
        self.write(2, E3)

    def write(self, layer, epoch):
        self.store.ingest_batch(WriteBatch(sorted(self.layers[layer].items())), epoch)
        self.store.commit(epoch)

    def build(self, rows, name="ab" * 16):
        builder = SstableBuilder(self.options, filter_policy("blocked_bloom"), name)
        for key, value in sorted(rows.items()):
            builder.put(key, BUILT, value)
        output = builder.finish()
        self.objects.put(sstable_data_path(output.name), bytes(output.data))
        self.objects.put(sstable_meta_path(output.name), bytes(output.meta))
        return output.info

    def visible_at(self, epoch):
        merged = {}
        for layer in self.layers[: epoch >> 16]:
            merged.update(layer)
        return {key: value for key, value in sorted(merged.items()) if value is not None}


@pytest.mark.parametrize("seed", range(6))
def test_reads_take_its_entries_for_those_of_the_epoch(seed):
    loaded = Loaded(seed)
    keys = [b"%03d" % number for number in range(200)]
    for epoch in (E1, E2, E3, E4):
        expected = loaded.visible_at(epoch)
        for since in (E1, E2, E3):
            if since <= epoch:
                before = loaded.visible_at(since)
                changed = sorted(key for key in {*before, *expected} if before.get(key) != expected.get(key))
                with loaded.store.changes(EVERYTHING, since, epoch) as feed:
                    assert list(feed) == [(key, before.get(key), expected.get(key)) for key in changed]
        for reverse in (False, True):
            with loaded.store.scan(EVERYTHING, epoch, reverse=reverse) as rows:
                assert list(rows) == (list(expected.items())[::-1] if reverse else list(expected.items()))
        column = loaded.store.get_many(pa.array(keys, pa.binary()), epoch)
        assert column.to_arrow().to_pylist() == list(map(expected.get, keys))
        assert [loaded.store.get(key, epoch) for key in keys] == list(map(expected.get, keys))
        _, found = loaded.store.scan_prefixes(pa.array([b"0", b"1"], pa.binary()), epoch)
        assert list(found) == list(expected.items())
        _, found = loaded.store.scan_many(pa.array([b""], pa.binary()), epoch, limit=500)
        assert list(found) == list(expected.items())


@pytest.mark.parametrize("seed", range(3))
def test_a_compaction_writes_the_global_epoch(seed):
    loaded = Loaded(seed)
    inputs = tuple(TaskInput(0, run.id, run.sstables) for run in loaded.manager.version.levels[0].runs)
    output = OutputOptions(1 << 20, 4096, "lz4", "blocked_bloom", 10)
    task = CompactTask(1, TaskKind.MANUAL, inputs, 1, 0, E1, False, output)
    names = count(1)
    (result,) = run_ranges(task, loaded.objects, lambda: f"{next(names):032x}", threads=1, memory_bytes=8 << 20)
    (info,) = result.sstables
    assert result.hash_read == task.input_hash
    parts = run_ranges(replace(task, cuts=(b"05", b"101")), loaded.objects, lambda: f"{next(names):032x}", threads=1,
                       memory_bytes=8 << 20)
    assert sum(part.hash_read for part in parts) % U64 == task.input_hash
    assert (info.min_epoch, info.max_epoch, info.global_epoch) == (E1, E3, 0)


def test_what_a_version_says_of_it_is_its_epoch():
    (info,) = (info for info in Loaded(1).manager.version.sstables if info.global_epoch)
    assert (info.min_epoch, info.max_epoch) == (BUILT, BUILT)
    assert info.oldest_epoch == info.newest_epoch == E2 | SPILL_MASK
    assert replace(info, global_epoch=0).newest_epoch == BUILT


@pytest.mark.parametrize("seed", range(6))
def test_its_content_hash_is_that_of_a_scan_under_the_epoch_of_the_commit(seed):
    loaded = Loaded(seed)
    (info,) = (info for info in loaded.manager.version.sstables if info.global_epoch)
    seen = list(ConcatIterator(SstableStore(loaded.objects, loaded.options), [info]).entries())
    assert [(key, value) for key, _, value in seen] == sorted(loaded.layers[1].items())
    assert info.seen_hash == content_hash(seen) != info.content_hash
    assert info.content_hash == content_hash([(key, BUILT, value) for key, _, value in seen])


def test_two_versions_of_a_key_cannot_have_one_epoch():
    Loaded(2)
    builder = SstableBuilder(StorageOptions(block_bytes=1), filter_policy("none"), "cd" * 16)
    builder.put(b"a", 2 << 16, b"new")
    builder.put(b"a", 1 << 16, b"old")
    output = builder.finish()
    with pytest.raises(LoadRefused, match="several versions"):
        LoadedFiles("load", (output.info,))
    info = replace(output.info, global_epoch=E4)
    with pytest.raises(Corruption, match="one version of a key"):
        SstableMeta.decode(bytes(output.meta), info, "m")
