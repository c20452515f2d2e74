"""ENOSPC and EIO at every file call of the local store, once and for ever: absorbed or typed, no partial object."""

import errno
import gc
import os
import random
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hummock.errors import DeadlineExceeded, DiskFull, ObjectExists, ObjectNotFound, ObjectStoreError, UploadLost
from hummock.metrics import Metrics
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.local import TEMPORARY, LocalObjectStore
from hummock.options import RetryOptions
from tests.support.drivers.forks import held_by_a_thread, outcomes_in_a_child
from tests.support.drivers.quick_files import quick_directory
from tests.support.servers.file_calls import between

CALLS = ("open", "close", "pwrite", "pread", "preadv", "fsync", "ftruncate", "fstat", "stat", "lstat", "link", "unlink",
         "rename", "replace", "mkdir", "scandir", "listdir", "utime")
NUMBERS = (errno.ENOSPC, errno.EIO)
FOREVER = 1 << 30


@pytest.fixture
def tmp_path():
    """On a disk, which has ways to write that memory has not."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


class Disk:
    """Counts this thread's file calls, of Python and of the compiled writer, or those of one name, by any thread.

    Calls `at` ... `at + times - 1` fail with `number`. A failing write has written some of its bytes; a failing close
    has closed the file.
    """

    def __init__(self, at=FOREVER, number=errno.EIO, times=1, only=""):
        self.at, self.number, self.times, self.only = at, number, times, only
        self.seen, self.hit = [], 0
        self.thread = threading.get_ident()     # others, which earlier tests left, may close their files meanwhile

    @contextmanager
    def inserted(self, monkeypatch):
        with monkeypatch.context() as patch, between(self._native):
            for name in CALLS:
                patch.setattr(os, name, self._faulty(name, getattr(os, name)))
            patch.setattr(LocalObjectStore, "open_file", lambda store, path: None)      # so that reads use `os`
            gc.disable()                # it would close files of earlier tests on this thread
            try:
                yield self
            finally:
                gc.enable()

    def _is_hit(self, name):
        if name == self.only or (not self.only and self.thread == threading.get_ident()):
            self.seen.append(name)
            if self.at < len(self.seen) <= self.at + self.times:
                self.hit += 1
                return True
        return False

    def _native(self, name, real, *args):
        if not self._is_hit(name):
            return real(*args)
        if name == "close":
            real(*args)
        elif name == "pwrite" and args[2] > 1:
            real(args[0], args[1], args[2] // 2, args[3])
        return -self.number

    def _faulty(self, name, real):
        def call(*args, **settings):
            if not self._is_hit(name):
                return real(*args, **settings)
            if name == "close":
                real(*args, **settings)
            raise OSError(self.number, os.strerror(self.number))

        return call


@pytest.fixture
def quick_path():
    with quick_directory() as directory:
        yield directory


def open_store(root):
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    pacing = Pacing(random.Random(1), lambda: clock[0], sleep)
    return InstrumentedObjectStore(LocalObjectStore(root), Metrics(), RetryOptions(attempts=4), pacing)


DATA = {"sst/a": b"first" * 100, "sst/b": b"second" * 50, "new/deep/c": b"third" * 10, "scratch/d": b"fourth" * 20}


def workload(root, outcome):
    """Makes one of each call, whether or not earlier ones failed; `outcome` receives the results and errors."""
    store = open_store(root)

    def attempt(name, call):
        try:
            outcome[name] = call()
        except (DeadlineExceeded, DiskFull, UploadLost) as error:
            outcome[name] = error

    def stream(create, path):
        with create(path) as writer:
            writer.write(DATA[path][:20])
            writer.write(DATA[path][20:])

    attempt("put", lambda: store.put("sst/a", DATA["sst/a"], if_absent=True))
    attempt("replace", lambda: store.put("sst/b", DATA["sst/b"]))
    attempt("stream", lambda: stream(store.create, "new/deep/c"))
    attempt("scratch", lambda: stream(store.create_scratch, "scratch/d"))
    attempt("get", lambda: store.get("old/x"))
    attempt("range", lambda: store.get("old/x", range(2, 5)))
    attempt("into", lambda: store.get_into("old/x", 0, memoryview(bytearray(3))))
    attempt("head", lambda: store.head("old/x").size_bytes)
    attempt("list", lambda: [found.path for found in store.list("old/")])
    attempt("delete", lambda: store.delete(["old/gone"]))


def prepare(root):
    store = LocalObjectStore(root)
    store.put("old/x", b"0123456789")
    store.put("old/gone", b"bye")


def check(root, outcome):
    """After the disk recovers: what succeeded is stored, what failed is whole or absent, old objects are intact."""
    store = LocalObjectStore(root)
    for name, path in (("put", "sst/a"), ("replace", "sst/b"), ("stream", "new/deep/c"), ("scratch", "scratch/d")):
        try:
            assert store.get(path) == DATA[path]
        except ObjectNotFound:
            assert name not in outcome or isinstance(outcome[name], Exception), name
    right = {"get": b"0123456789", "range": b"234", "into": 3, "head": 10}
    for name, value in right.items():
        assert isinstance(outcome.get(name), Exception | None) or outcome[name] == value
    listed = outcome.get("list")
    assert isinstance(listed, Exception | None) or listed == ["old/gone", "old/x"]
    assert store.get("old/x") == b"0123456789"
    if "delete" in outcome and outcome["delete"] is None:
        assert [found.path for found in store.list("old/")] == ["old/x"]
    paths = [found.path for found in store.list()]
    assert paths == sorted(paths) and not any(path.startswith(TEMPORARY) for path in paths)
    for path in ("sst/a", "new/deep/c", "scratch/d"):
        try:
            store.put(path, DATA[path], if_absent=True)
        except ObjectExists:
            assert store.get(path) == DATA[path]


def count_calls(directory, monkeypatch):
    """The calls of the workload, without those that its first run in a process makes in addition, such as imports."""
    prepare(directory / "first")
    workload(directory / "first", {})
    prepare(directory / "count")
    with Disk().inserted(monkeypatch) as disk:
        workload(directory / "count", outcome := {})
    assert not [value for value in outcome.values() if isinstance(value, Exception)]
    assert set(disk.seen) >= {"open", "close", "pwrite", "pread", "preadv", "fsync", "link", "unlink", "rename",
                              "mkdir", "scandir", "stat"}
    return disk.seen


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_a_file_call_that_fails_once_is_absorbed_or_typed(quick_path, monkeypatch, number):
    calls = count_calls(quick_path, monkeypatch)
    for at, name in enumerate(calls):
        root, outcome = quick_path / f"once-{at}", {}
        prepare(root)
        with Disk(at, number).inserted(monkeypatch) as disk, suppress(ObjectStoreError):    # opening is not retried
            workload(root, outcome)
        assert disk.hit == 1
        failed = {key: value for key, value in outcome.items() if isinstance(value, Exception)}
        # The store itself can retry everything but a streamed object.
        assert all(isinstance(value, UploadLost) and name == {"stream": "fsync", "scratch": "close"}.get(key)
                   for key, value in failed.items()), (at, name, failed)
        check(root, outcome)
    assert len(calls) > 60


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_file_calls_that_fail_from_here_on_are_typed(quick_path, monkeypatch, number):
    calls = count_calls(quick_path, monkeypatch)
    for at in range(len(calls)):
        root, outcome = quick_path / f"for-ever-{at}", {}
        prepare(root)
        with Disk(at, number, FOREVER).inserted(monkeypatch) as disk:
            try:
                workload(root, outcome)
            except ObjectStoreError:
                assert outcome == {}                        # it could not even be opened
        assert disk.hit >= 1
        assert not outcome or any(isinstance(value, Exception) for value in outcome.values()) or at > len(calls) - 3
        check(root, outcome)


def test_a_file_that_was_not_synced_is_lost_and_never_synced_again(tmp_path, monkeypatch):
    store = LocalObjectStore(tmp_path)
    writer = store.create("a")
    writer.write(b"x")
    with Disk(0, errno.EIO).inserted(monkeypatch) as disk, pytest.raises(UploadLost):
        writer.close()
    assert disk.seen.count("fsync") == 1
    assert list(store.list()) == [] and list((tmp_path / TEMPORARY).iterdir()) == []


def test_a_directory_that_was_not_synced_is_synced_by_the_next_close(tmp_path):
    store = LocalObjectStore(tmp_path)
    writer = store.create("a")
    writer.write(b"x")
    syncs = []

    def fail_the_second_sync(name, real, *arguments):
        if name != "fsync":
            return real(*arguments)
        syncs.append(arguments)
        return -errno.EIO if len(syncs) == 2 else real(*arguments)

    with between(fail_the_second_sync):
        with pytest.raises(ObjectStoreError):
            writer.close()
        writer.close()
    assert len(syncs) == 3 and store.get("a") == b"x"


def test_a_scratch_object_is_never_synced_and_passes_no_cache_by(tmp_path):
    store, called = LocalObjectStore(tmp_path), []
    store.put("deep/first", b"makes the directory")

    def note(name, real, *arguments):
        called.append(name)
        return real(*arguments)

    with between(note), store.create_scratch("deep/a") as writer:
        writer.write(LARGE)
        writer.write(b"end")
    assert called == ["open", "pwrite", "pwrite", "close", "link", "unlink"]
    assert store.get("deep/a") == LARGE + b"end"


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_a_scratch_object_whose_file_fails_to_close_is_lost(tmp_path, monkeypatch, number):
    store = LocalObjectStore(tmp_path)
    writer = store.create_scratch("a")
    writer.write(b"x")
    with Disk(0, number, only="close").inserted(monkeypatch), pytest.raises(UploadLost):
        writer.close()
    assert list(store.list()) == [] and list((tmp_path / TEMPORARY).iterdir()) == []


def test_what_a_failed_write_left_is_cut_off(tmp_path, monkeypatch):
    store = LocalObjectStore(tmp_path)
    writer = store.create("a")
    writer.write(b"begin")
    with Disk(0, errno.ENOSPC).inserted(monkeypatch), pytest.raises(ObjectStoreError):
        writer.write(b"0123456789")
    writer.write(b"-")
    writer.close()
    assert store.get("a") == b"begin-"


LARGE = bytes(range(256)) * (5 << 10)        # 1.25 MiB


@pytest.mark.parametrize("sizes", [(3, 0, 5), (0, 7, 0), (4096, 1, 4095)], ids=str)
def test_large_pieces_from_any_memory_between_small_ones_are_written_as_they_are(tmp_path, sizes):
    store, parts = LocalObjectStore(tmp_path), []
    with store.create("a") as writer:
        for size in sizes:
            for part in (LARGE[:size], memoryview(LARGE + b"tail")[1:], LARGE):
                writer.write(part)
                parts.append(bytes(part))
    assert store.get("a") == b"".join(parts)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_a_large_piece_that_failed_half_way_can_be_written_again(tmp_path, monkeypatch, number):
    store = LocalObjectStore(tmp_path)
    writer = store.create("a")
    writer.write(LARGE)
    with Disk(0, number).inserted(monkeypatch), pytest.raises(ObjectStoreError):
        writer.write(LARGE)
    writer.write(LARGE)
    writer.close()
    assert store.get("a") == LARGE * 2


def test_a_fork_waits_for_no_thread_of_its_parent(tmp_path):
    store = LocalObjectStore(tmp_path)
    store.put("d/a", b"1")
    with held_by_a_thread(store._lock):
        assert outcomes_in_a_child({"get": lambda: store.get("d/a")}) == {"get": ""}
