"""The disk cache: it returns the object's bytes even if its own files are damaged, and its size is bounded."""

import random
import threading

import pytest

import hummock
from hummock.errors import Corruption, DiskCacheInUse, InvalidOption, ObjectNotFound
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.cached import DiskCachedObjectStore
from hummock.object_store.disk_cache import RECORD, WINDOW_BYTES, DiskCache
from hummock.object_store.memory import MemoryObjectStore
from tests.support.worlds.manager_parts import epoch_of

SLOT = WINDOW_BYTES + RECORD.size


class CountedStore(MemoryObjectStore):
    """Records each read; reads wait for `go`."""

    def __init__(self):
        super().__init__()
        self.reads, self.go = [], threading.Event()
        self.go.set()

    def get(self, path, byte_range=None):
        self.reads.append((path, byte_range))
        assert self.go.wait(20)
        return super().get(path, byte_range)


def opened(directory, store, slots=8):
    cache = DiskCache(str(directory), slots * SLOT, store.url)
    return cache, DiskCachedObjectStore(store, cache)


def filled(rng, files):
    store, objects = CountedStore(), {}
    for number in range(files):
        for path in (sstable_data_path(f"{number:032x}"), sstable_meta_path(f"{number:032x}")):
            objects[path] = rng.randbytes(rng.choice([1, 900, WINDOW_BYTES, 3 * WINDOW_BYTES,
                                                      rng.randrange(1, 6 * WINDOW_BYTES)]))
            store.put(path, objects[path])
    return store, objects


def damage(rng, directory):
    """Flips a bit, overwrites a range or cuts the end of one of the cache's files."""
    path = directory / rng.choice(["windows", "index"])
    content = bytearray(path.read_bytes())
    at, how = rng.randrange(len(content)), rng.random()
    if how < .4:
        content[at] ^= 1 << rng.randrange(8)
    elif how < .8:
        content[at:at + 5_000] = rng.randbytes(len(content[at:at + 5_000]))
    else:
        del content[at:]
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(4))
def test_reads_are_the_objects_bytes_through_evictions_restarts_and_damage(tmp_path, seed):
    rng = random.Random(f"disk cache {seed}")
    store, objects = filled(rng, 5)
    slots = rng.choice([1, 3, 12])
    cache, cached = opened(tmp_path, store, slots)
    seen = cache.counts
    for _ in range(120):
        path = rng.choice(list(objects))
        what, start = rng.random(), rng.randrange(len(objects[path]))
        end = min(len(objects[path]), start + rng.choice([1, 100, WINDOW_BYTES, 4 * WINDOW_BYTES]))
        if what < .8:
            assert cached.get(path, range(start, end)) == objects[path][start:end], f"seed {seed}"
        elif what < .86:
            assert cached.get(path) == objects[path]
        elif what < .9:
            target = bytearray(end - start)
            assert cached.get_into(path, start, memoryview(target)) == end - start
            assert target == objects[path][start:end]
        elif what < .93:
            cache.forget(path)
        else:
            cache.close()
            if what > .96:
                damage(rng, tmp_path)
            slots = rng.choice([slots, 1, 5])
            cache, cached = opened(tmp_path, store, slots)
        assert cache.used_bytes <= slots * SLOT
    assert seen.misses > 0


def test_what_was_read_once_is_not_asked_for_again_by_this_process_nor_by_the_next(tmp_path):
    store, objects = filled(random.Random(1), 1)
    path = sstable_data_path(f"{0:032x}")
    store.put(path, random.Random(2).randbytes(5 * WINDOW_BYTES + 7))
    objects[path] = MemoryObjectStore.get(store, path)
    for opening in range(2):
        cache, cached = opened(tmp_path, store)
        for start in range(0, len(objects[path]), 30_000):
            assert cached.get(path, range(start, start + 30_000)) == objects[path][start:start + 30_000]
        assert cached.get(path) == objects[path]
        assert len(store.reads) == 6, f"opening {opening}"      # of one window each
        cache.close()
    assert cache.counts.misses == cache.counts.damaged == 0


def test_neighbours_that_are_missing_are_one_request(tmp_path):
    store = CountedStore()
    path = sstable_data_path("a" * 32)
    store.put(path, bytes(8 * WINDOW_BYTES))
    _, cached = opened(tmp_path, store)
    cached.get(path, range(3 * WINDOW_BYTES + 5, 3 * WINDOW_BYTES + 9))
    cached.get(path, range(8 * WINDOW_BYTES))
    assert [(asked.start // WINDOW_BYTES, asked.stop // WINDOW_BYTES) for _, asked in store.reads] == [
        (3, 4), (0, 3), (4, 8)]


def test_the_least_recently_used_window_goes_first(tmp_path):
    store = CountedStore()
    path = sstable_data_path("a" * 32)
    store.put(path, bytes(4 * WINDOW_BYTES))
    cache, cached = opened(tmp_path, store, slots=3)
    for window in (0, 1, 2, 0, 3):
        cached.get(path, range(window * WINDOW_BYTES, window * WINDOW_BYTES + 1))
    assert cache.counts.evictions == 1
    assert [cache.get(path, window) is not None for window in range(4)] == [True, False, True, True]


def test_threads_that_want_one_window_wait_for_one_read(tmp_path):
    store = CountedStore()
    path, found = sstable_data_path("a" * 32), []
    store.put(path, b"x" * (3 * WINDOW_BYTES))
    _, cached = opened(tmp_path, store)
    store.go.clear()
    threads = [threading.Thread(target=lambda: found.append(cached.get(path, range(3 * WINDOW_BYTES - 5))))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    store.go.set()
    for thread in threads:
        thread.join()
    assert len(store.reads) == 1 and set(found) == {b"x" * (3 * WINDOW_BYTES - 5)}


def test_a_failed_read_fails_every_reader_and_is_not_kept(tmp_path):
    store = CountedStore()
    _, cached = opened(tmp_path, store)
    path = sstable_data_path("a" * 32)
    for _ in range(2):
        with pytest.raises(ObjectNotFound):
            cached.get(path, range(10))
    store.put(path, b"late")
    assert cached.get(path, range(10)) == b"late"


def test_files_that_left_the_version_leave_the_cache_for_good(tmp_path):
    store, objects = filled(random.Random(3), 3)
    cache, cached = opened(tmp_path, store, slots=100)
    for path in objects:
        cached.get(path)
    cache.retain([f"{1:032x}"])
    for again in range(2):
        held = [path for path in objects if cache.get(path, 0) is not None]
        assert held == [path for path in objects if f"{1:032x}" in path], again
        cache.close()
        cache, _ = opened(tmp_path, store, slots=100)


def test_one_process_at_a_time_keeps_a_directory(tmp_path):
    store = CountedStore()
    cache, _ = opened(tmp_path, store)
    with pytest.raises(DiskCacheInUse):
        opened(tmp_path, store)
    cache.close()
    opened(tmp_path, store)


def test_another_stores_windows_and_strange_files_are_no_data(tmp_path):
    store, objects = filled(random.Random(4), 2)
    cache, cached = opened(tmp_path, store)
    for path in objects:
        cached.get(path)
    cache.close()
    other = DiskCache(str(tmp_path), 8 * SLOT, "s3://elsewhere")
    assert other.used_bytes == 0
    other.close()
    for name in ("windows", "index", "owner"):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(20_000))
    cache, cached = opened(tmp_path, store)
    assert cache.used_bytes == 0 and all(cached.get(path) == content for path, content in objects.items())


def test_a_directory_that_cannot_be_is_an_invalid_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="disk_cache_directory"):
        DiskCache(str(tmp_path / "file" / "below"), SLOT, "memory://")


def written(url):
    rng, keys = random.Random(8), [hummock.user_key(1, 0, b"%05d" % number) for number in range(4_000)]
    rows = [(key, rng.randbytes(100)) for key in keys]
    with hummock.open(url, role="writer", compaction=False, block_bytes=4_096) as store:
        store.ingest_batch(hummock.WriteBatch(rows), epoch_of(1))
        store.commit(epoch_of(1))
    return rows


def read_all(store, rows):
    assert list(store.scan(hummock.KeyRange.table(1), epoch_of(1))) == rows
    keys = [key for key, _ in rows[::7]]
    assert store.get_many(keys, epoch_of(1)).to_arrow().to_pylist() == [value for _, value in rows[::7]]


def test_a_store_reads_through_it_and_again_after_a_restart(tmp_path):
    url = f"file://{tmp_path}/store"
    rows, options = written(url), {"disk_cache_bytes": 64 * SLOT, "disk_cache_directory": f"{tmp_path}/cache"}
    requests = []
    for _ in range(2):
        with hummock.open(url, **options) as store:
            read_all(store, rows)
            requests.append(store.metrics.total("hummock_object_store_bytes", direction="read"))
            figures = store.stats()
            with pytest.raises(DiskCacheInUse):
                hummock.open(url, **options)
    assert figures.disk_cache_hits > 0 and figures.disk_cache_misses == figures.disk_cache_damaged == 0
    assert 0 < figures.disk_cache_bytes <= 64 * SLOT
    assert requests[1] < requests[0] / 50


def test_bytes_that_came_wrong_are_read_again_from_the_store(tmp_path):
    """A window damaged before it was cached matches its record: only the SSTable's own checksums detect it."""
    url = f"file://{tmp_path}/store"
    rows, options = written(url), {"disk_cache_bytes": 64 * SLOT, "disk_cache_directory": f"{tmp_path}/cache"}
    for suffix in (".data", ".meta"):
        with hummock.open(url, **options) as store:
            cache = store._sstable_store.disk_cache
            path = next(info.path for info in store._sstable_store.object_store.list("sst/")
                        if info.path.endswith(suffix))
            true, is_last = store._sstable_store.object_store.get(path)[:WINDOW_BYTES], False
            is_last = len(true) < WINDOW_BYTES
            cache.forget(path)
            cache.put(path, 0, memoryview(true[:40] + bytes([true[40] ^ 1]) + true[41:]), is_last)
            assert store.get_many([rows[0][0]], epoch_of(1)).to_arrow().to_pylist() == [rows[0][1]]
            assert cache.get(path, 0)[0] == true


def test_a_scan_over_bytes_that_came_wrong_fails_once(tmp_path):
    url = f"file://{tmp_path}/store"
    rows, options = written(url), {"disk_cache_bytes": 64 * SLOT, "disk_cache_directory": f"{tmp_path}/cache"}
    with hummock.open(url, **options) as store:
        cache, objects = store._sstable_store.disk_cache, store._sstable_store.object_store
        path = next(info.path for info in objects.list("sst/") if info.path.endswith(".data"))
        wrong = bytearray(objects.get(path)[:WINDOW_BYTES])
        wrong[60_000] ^= 1
        cache.forget(path)
        cache.put(path, 0, memoryview(wrong), False)
        with pytest.raises(Corruption):
            list(store.scan(hummock.KeyRange.table(1), epoch_of(1)))
        read_all(store, rows)


def test_a_disk_that_fails_is_a_cache_that_misses(tmp_path, monkeypatch):
    store, objects = filled(random.Random(5), 2)
    cache, cached = opened(tmp_path, store)

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr("hummock.object_store.disk_cache.os.pwrite", broken)
    for path, content in objects.items():
        assert cached.get(path) == content
    assert cache.used_bytes == 0
    monkeypatch.undo()
    for path, content in objects.items():
        assert cached.get(path) == content
    assert cache.used_bytes > 0
    monkeypatch.setattr("hummock.object_store.disk_cache.os.pread", broken)
    for path, content in objects.items():
        assert cached.get(path) == content
