"""Cached file descriptors: reads by descriptor, and files that are truncated, deleted or closed."""

import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from hummock.errors import InvalidPath, StoreClosed
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from hummock.object_store.fd_cache import FdCache, files_limit
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from tests.support.servers.object_store_faults import FaultPlan, FaultyObjectStore


def descriptors(directory):
    """How many files of a directory are open: other threads open and close others."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += each.readlink().is_relative_to(directory)
    return found


@pytest.fixture
def store(tmp_path):
    store = LocalObjectStore(tmp_path)
    store.put("sst/a", bytes(range(100)))
    return store


def test_a_file_is_read_anywhere_and_as_far_as_it_goes(store):
    file = store.open_file("sst/a")
    assert file.path == "sst/a" and store.open_file("sst/a") is file
    assert file.read_at(10, 5) == bytes(range(10, 15))
    assert file.read_at(95, 50) == bytes(range(95, 100)) and file.read_at(100, 1) == file.read_at(1 << 40, 1) == b""


def test_what_cannot_be_opened_is_left_to_get(store, tmp_path):
    (tmp_path / "sst" / "link").symlink_to(tmp_path / "sst" / "a")
    (tmp_path / "sst" / "folder").mkdir()
    assert store.open_file("sst/none") is None and store.open_file("sst/link") is None
    assert store.open_file("sst/folder").read_at(0, 10) is None
    with pytest.raises(InvalidPath):
        store.open_file("../a")


def test_a_cut_file_gives_fewer_bytes(store, tmp_path):
    file = store.open_file("sst/a")
    os.truncate(tmp_path / "sst" / "a", 30)
    assert file.read_at(20, 50) == bytes(range(20, 30))


def test_a_deleted_object_is_closed_and_not_found_again(store, tmp_path):
    file, before = store.open_file("sst/a"), descriptors(tmp_path)
    store.delete(["sst/a"])
    assert not file.is_open and descriptors(tmp_path) == before - 1
    assert file.read_at(0, 10) is None and store.open_file("sst/a") is None


def test_closing_the_store_closes_its_files(store, tmp_path):
    before = descriptors(tmp_path)
    file = store.open_file("sst/a")
    store.close()
    assert not file.is_open and descriptors(tmp_path) == before
    file.close()
    assert file.read_at(0, 1) is None


def test_no_more_files_are_open_than_the_limit(tmp_path):
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"%d" % number)
    table, rng = FdCache(4), random.Random(5)
    for _ in range(300):
        name = str(rng.randrange(20))
        file = table.get(name) or table.open(name, os.fsencode(tmp_path / name))
        assert file.read_at(0, 9) == name.encode()
        assert len(table) == descriptors(tmp_path) <= 4
    table.close()
    assert len(table) == descriptors(tmp_path) == 0
    assert 1 <= files_limit() <= 1_024


def test_a_file_in_use_stays_before_one_that_is_not(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    table = FdCache(2)
    used, idle = (table.open(name, os.fsencode(tmp_path / name)) for name in "ab")
    used.read_at(0, 1)
    table.open("c", os.fsencode(tmp_path / "c"))
    assert used.is_open and not idle.is_open


def test_files_are_closed_under_readers_without_harm(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100_000))
    table, wrong, before = FdCache(2), [], descriptors(tmp_path)

    def read():
        for _ in range(300):
            file = table.get("a") or table.open("a", os.fsencode(tmp_path / "a"))
            if file.read_at(0, 100_000) not in (None, bytes(100_000)):
                wrong.append(file)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        table.forget(["a"])
    for thread in threads:
        thread.join()
    table.close()
    assert not wrong and descriptors(tmp_path) == before


def test_a_forked_child_reads_and_closes_its_own(store):
    file = store.open_file("sst/a")
    child = os.fork()
    if child == 0:
        fine = file.read_at(0, 3) == bytes(range(3))
        store.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read_at(50, 3) == bytes(range(50, 53))


def test_an_instrumented_store_counts_what_is_read_and_refuses_after_its_end(tmp_path):
    metrics = Metrics()
    store = open_object_store(f"file://{tmp_path}", metrics=metrics)
    store.put("sst/a", bytes(100))
    store.open_file("sst/a").read_at(0, 60)
    store.open_file("sst/a").read_at(90, 60)
    assert metrics.total("hummock_object_store_bytes", direction="read") == 70
    assert metrics.total("hummock_object_store_file_reads") == 2
    store.get("sst/a")
    assert metrics.total("hummock_object_store_bytes", direction="read") == 170
    store.close()
    with pytest.raises(StoreClosed):
        store.open_file("sst/a")


def test_stores_that_are_no_disk_or_have_to_do_with_what_is_read_open_no_file(store):
    assert FaultyObjectStore(store, FaultPlan()).open_file("sst/a") is None
    assert MemoryObjectStore().open_file("sst/a") is None
