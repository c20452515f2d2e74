"""SstableStore, its readers, and iterators over one file and over a run of files."""

from __future__ import annotations

import random
import threading
from itertools import count

import pytest

from hummock.errors import Corruption, ObjectNotFound
from hummock.iterator.base import Direction
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.multi_builder import MultiSstableBuilder
from hummock.sstable.sstable_iterator import SstableIterator
from hummock.sstable.store import SstableStore
from hummock.state_store import ReadOptions
from tests.support.drivers.compaction_files import put_file

FORWARD, REVERSE = Direction.FORWARD, Direction.REVERSE


class CountingObjectStore(MemoryObjectStore):
    """Records each read; reads wait for `go`."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.go = threading.Event()
        self.go.set()

    def get(self, path, byte_range=None):
        self.reads.append((path, byte_range))
        assert self.go.wait(20)
        return super().get(path, byte_range)


def built(entries, options):
    names = count(1)
    policy = filter_policy(options.filter_policy)
    builder = MultiSstableBuilder(options, policy, lambda: f"{next(names):032x}")
    for key, epoch, value in entries:
        builder.put(key, epoch, value)
    return builder.finish()


def stored(entries, **options):
    options = StorageOptions(**options)
    store = SstableStore(CountingObjectStore(), options)
    infos = []
    for output in built(entries, options):
        put_file(store.object_store, output)
        infos.append(output.info)
    return store, infos


def some_entries(rng, keys=100):
    out = []
    for number in sorted(rng.sample(range(keys * 3), keys)):
        key = (b"\x00\x00\x00\x01\x00\x00" if number < keys * 2 else b"\x00\x00\x00\x02") + b"%d" % number
        for epoch in sorted(rng.sample(range(1, 9), rng.choice((1, 1, 3))), reverse=True):
            out.append((key, epoch << 16, None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 40))))
    return sorted({(key, epoch): (key, epoch, value) for key, epoch, value in out}.values(),
                  key=lambda entry: (entry[0], -entry[1]))


@pytest.mark.parametrize("seed", range(20))
def test_scans_equal_a_sorted_list(seed):
    rng = random.Random(seed)
    entries = some_entries(rng)
    store, infos = stored(
        entries, block_bytes=rng.choice((1, 200, 2000)), sstable_bytes=rng.choice((1, 900, 1 << 20)),
        prefetch_bytes=rng.choice((1, 500, 1 << 20)), block_cache_bytes=rng.choice((1, 3_000, 1 << 20)),
    )  # fmt: skip
    for options in (ReadOptions(), ReadOptions(fill_cache=False), ReadOptions(read_ahead=True)):
        def collect(direction, *target, options=options):
            return list(ConcatIterator(store, infos, direction, options).entries(*target))

        assert collect(FORWARD) == entries
        assert collect(REVERSE) == entries[::-1]
        for _ in range(4):
            key, epoch, _ = rng.choice(entries)
            key += rng.choice((b"", b"", b"\x00", b"5"))
            epoch += rng.choice((-1, 0, 1, -(1 << 16)))
            order = (key, -epoch)
            assert collect(FORWARD, key, epoch) == [e for e in entries if (e[0], -e[1]) >= order]
            assert collect(REVERSE, key, epoch) == [e for e in entries if (e[0], -e[1]) <= order][::-1]
    if len(infos) == 1:
        assert list(SstableIterator(store, infos[0]).entries()) == entries


def test_an_iterator_can_be_sought_again_and_again():
    rng = random.Random(5)
    entries = some_entries(rng)
    store, infos = stored(entries, block_bytes=300, prefetch_bytes=900)
    for direction in (FORWARD, REVERSE):
        iterator = SstableIterator(store, infos[0], direction)
        for _ in range(60):
            key, epoch, _ = rng.choice(entries)
            found = iterator.entries(key, epoch)
            assert [next(found) for _ in range(1)] == [e for e in entries if e[:2] == (key, epoch)]


def test_no_files_hold_nothing():
    store, _ = stored([])
    for direction in (FORWARD, REVERSE):
        assert list(ConcatIterator(store, [], direction).entries()) == []
        assert list(ConcatIterator(store, [], direction).entries(b"a", 1)) == []


def test_a_long_scan_reads_many_blocks_at_a_time_and_bypasses_the_cache():
    entries = [(b"%06d" % n, 1 << 16, b"x" * 90) for n in range(20_000)]
    store, (info,) = stored(entries, block_bytes=1_000, codec="none", prefetch_bytes=200_000)
    reader = store.reader(info)
    blocks = len(reader.meta.index)
    store.object_store.reads.clear()
    assert sum(1 for _ in SstableIterator(store, info).entries()) == 20_000
    assert len(store.object_store.reads) < blocks / 50
    assert store.block_cache.objects == 1
    store.object_store.reads.clear()
    ahead = SstableIterator(store, info, FORWARD, ReadOptions(read_ahead=True))
    assert sum(1 for _ in ahead.entries()) == 20_000
    assert len(store.object_store.reads) <= info.data_bytes // 100_000
    assert store.block_cache.objects == 1


def test_one_reader_for_all_and_none_when_nobody_holds_it():
    store, (info,) = stored([(b"a", 1 << 16, b"1")])
    reader = store.reader(info)
    assert store.reader(info) is reader
    store.block(info, 0)
    assert store.block_cache.objects == 1
    del reader
    assert store.block_cache.objects == 0


def test_many_threads_that_want_one_block_cause_one_read():
    store, (info,) = stored([(b"%04d" % n, 1 << 16, b"x" * 50) for n in range(500)], block_bytes=500)
    reader = store.reader(info)
    store.object_store.go.clear()
    found = []
    threads = [threading.Thread(target=lambda: found.append(reader.read_block(3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    store.object_store.go.set()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len({id(block) for block in found}) == 1
    assert len(store.object_store.reads) == 2  # the meta and the block


def test_threads_that_waited_for_a_failed_read_fail_as_well_and_the_next_one_reads_again():
    store, (info,) = stored([(b"a", 1 << 16, b"1")])
    reader = store.reader(info)
    data = store.object_store.get(sstable_meta_path(info.name))
    store.object_store.delete([sstable_meta_path(info.name)])
    store.object_store.go.clear()
    errors = []

    def read():
        try:
            reader.read_block(0)
        except ObjectNotFound as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    store.object_store.go.set()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 4
    store.object_store.put(sstable_meta_path(info.name), data)
    assert reader.read_block(0)[0] == (b"a", 1 << 16, b"1")


def test_a_meta_that_goes_from_its_cache_is_read_again():
    store, infos = stored(
        [(b"%04d" % n, 1 << 16, b"x" * 50) for n in range(50)], sstable_bytes=500, meta_cache_bytes=1,
        block_cache_bytes=1)
    assert len(infos) > 2
    readers = [store.reader(info) for info in infos]
    for _ in range(2):
        assert [reader.meta.info.name for reader in readers] == [info.name for info in infos]
    assert store.meta_cache.objects == 1


def test_what_is_cut_off_or_swapped_is_named():
    store, infos = stored([(b"%04d" % n, 1 << 16, b"x" * 50) for n in range(50)], sstable_bytes=500)
    first, second = (sstable_data_path(info.name) for info in infos[:2])
    objects = store.object_store
    one, two = objects.get(first), objects.get(second)
    objects.delete([first, second])
    objects.put(first, two)
    objects.put(second, two[:-1])
    assert one != two
    for info in infos[:2]:
        with pytest.raises(Corruption, match=info.name):
            list(SstableIterator(store, info).entries())
    metas = [sstable_meta_path(info.name) for info in infos[2:4]]
    data = objects.get(metas[0])
    objects.delete(metas)
    objects.put(metas[1], data)
    with pytest.raises(Corruption, match=infos[3].name):
        store.meta(infos[3])
    with pytest.raises(ObjectNotFound, match=infos[2].name):
        store.meta(infos[2])
