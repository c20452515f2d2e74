import errno
import os
import random
import threading

import pytest

from hummock.errors import (
    DeadlineExceeded,
    InvalidOption,
    InvalidPath,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    StoreClosed,
)
from hummock.metrics import Metrics
from hummock.object_store import directory_of, open_object_store
from hummock.object_store.base import (
    is_sstable_name,
    mint_sstable_name,
    sstable_data_path,
    sstable_meta_path,
    sstable_name_of,
)
from hummock.object_store.instrumented import LISTED_AT_ONCE, InstrumentedObjectStore, Pacing
from hummock.object_store.local import TEMPORARY, TEMPORARY_KEPT_MS, LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import RetryOptions
from tests.support.servers.file_calls import between
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.suites.object_store_suite import ObjectStoreSuite


class Waits:
    """A clock that only its own sleep advances."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def pacing(self, seed=1):
        return Pacing(random.Random(seed), lambda: self.now, self.sleep)


class TestMemoryObjectStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryObjectStore()


class TestLocalObjectStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalObjectStore(tmp_path / "store")


class TestInstrumentedObjectStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self):
        return InstrumentedObjectStore(MemoryObjectStore(), Metrics(), RetryOptions(), Waits().pacing())


class TestInstrumentedUnderFaults(ObjectStoreSuite):
    """Every third call fails, before or after it takes effect; retries hide that from callers."""

    @pytest.fixture
    def store(self):
        kinds = [FaultKind.BEFORE, FaultKind.AFTER]
        operations = ("put", "get", "delete", "list", "head")
        plan = FaultPlan([Fault(kinds[number % 2], operation, skip=3 * number)
                          for number in range(2000) for operation in operations])
        faulty = FaultyObjectStore(MemoryObjectStore(), plan)
        return InstrumentedObjectStore(faulty, Metrics(), RetryOptions(), Waits().pacing())


def test_names_of_sstables_are_minted_and_found_again():
    name = mint_sstable_name(random.Random(1).randbytes)
    assert is_sstable_name(name) and not is_sstable_name(name.upper()) and not is_sstable_name("1")
    assert sstable_data_path(name) == f"sst/{name}.data"
    assert sstable_name_of(sstable_meta_path(name)) == name
    assert sstable_name_of("sst/other") is None and sstable_name_of(f"meta/{name}.data") is None


def test_urls_open_their_stores(tmp_path):
    store = open_object_store(f"file://{tmp_path}/a%20b")
    store.put("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    assert store.url == f"file://{tmp_path}/a%20b"
    open_object_store("memory://").put("x", b"1")
    for url in ("file://host/a", "file:a", "ftp://x", "/plain/path", ""):
        with pytest.raises(InvalidOption):
            directory_of(url)


class TestLocalDisk:
    @pytest.fixture
    def root(self, tmp_path):
        return tmp_path / "store"

    @pytest.fixture
    def store(self, root):
        return LocalObjectStore(root)

    def test_links_that_lead_out_are_refused(self, store, root, tmp_path):
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "x").write_bytes(b"secret")
        (root / "directory-link").symlink_to(secret)
        (root / "file-link").symlink_to(secret / "x")
        for call in (lambda: store.get("directory-link/x"), lambda: store.put("directory-link/y", b""),
                     lambda: store.get("file-link"), lambda: store.delete(["directory-link/x"])):
            with pytest.raises(InvalidPath):
                call()
        with pytest.raises(ObjectNotFound):
            store.head("file-link")
        assert [found.path for found in store.list()] == []
        assert (secret / "x").exists() and not (secret / "y").exists()

    def test_the_stores_own_directory_is_no_object(self, store):
        with pytest.raises(InvalidPath):
            store.put(f"{TEMPORARY}/x", b"")
        assert list(store.list(TEMPORARY)) == []

    def test_leftovers_of_dead_puts_vanish_and_young_ones_stay(self, store, root):
        old, young = root / TEMPORARY / "old", root / TEMPORARY / "young"
        old.parent.mkdir()
        old.write_bytes(b"x")
        young.write_bytes(b"x")
        past = old.stat().st_mtime - TEMPORARY_KEPT_MS / 1000 - 60
        os.utime(old, (past, past))
        LocalObjectStore(root)
        assert not old.exists() and young.exists()

    def test_opening_makes_nothing_unless_asked(self, tmp_path):
        LocalObjectStore(tmp_path, create=False)
        LocalObjectStore(tmp_path / "absent", create=False)
        assert list(tmp_path.iterdir()) == []
        store = LocalObjectStore(tmp_path, create=False)
        store.put("sst/x", b"x")
        assert store.get("sst/x") == b"x" and [found.path for found in store.list("")] == ["sst/x"]

    def test_everything_is_synced_before_put_returns(self, root):
        calls = []

        def noted(name, real, *arguments):
            calls.append(name)
            return real(*arguments)

        store = LocalObjectStore(root)
        store.put("sst/a", b"1")
        with between(noted):
            store.put("sst/b", b"1", if_absent=True)
        assert calls == ["open", "pwrite", "fsync", "close", "link", "unlink", "open", "fsync", "close"]

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE])
    @pytest.mark.parametrize("call", ["pwrite", "fsync", "link", "open"])
    def test_a_failing_system_call_is_typed(self, store, root, call, number):
        store.put("sst/old", b"old")
        failing = between(lambda name, real, *arguments: -number if name == call else real(*arguments))
        with failing, pytest.raises(ObjectStoreError, match="sst/new"):
            store.put("sst/new", b"x" * 1000, if_absent=True)
        assert list((root / TEMPORARY).iterdir()) == []
        assert store.get("sst/old") == b"old"
        assert [found.size_bytes for found in store.list("sst/new")] in ([], [1000])

    def test_short_writes_and_reads_are_continued(self, store, monkeypatch):
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 5), at))
        data = bytes(range(100))
        with between(lambda name, real, *arguments: real(
                *(min(arguments[2], 7) if name == "pwrite" and at == 2 else argument
                  for at, argument in enumerate(arguments)))):
            store.put("a", data)
        assert store.get("a") == data
        assert store.get("a", range(20, 60)) == data[20:60]

    def test_a_removed_directory_is_made_again_at_the_next_try(self, store, root):
        store.put("sst/a", b"1")
        (root / "sst" / "a").unlink()
        (root / "sst").rmdir()
        with pytest.raises(ObjectStoreError):
            store.put("sst/b", b"2")
        store.put("sst/b", b"2")
        assert store.get("sst/b") == b"2"

    def test_where_a_file_is_no_directory_can_be(self, store):
        store.put("a", b"1")
        with pytest.raises(ObjectStoreError):
            store.put("a/b", b"2")
        assert store.get("a") == b"1"


class TestFaults:
    def test_before_after_torn_and_delay(self):
        waits, inner, plan = Waits(), MemoryObjectStore(), FaultPlan()
        store = FaultyObjectStore(inner, plan, waits.sleep)
        for path, kind, left in (("a", FaultKind.BEFORE, None), ("b", FaultKind.AFTER, b"1234"),
                                 ("c", FaultKind.TORN, b"12")):
            plan.add(Fault(kind, "put", path))
            with pytest.raises(ObjectStoreError, match=kind.value):
                store.put(path, b"1234")
            assert [inner.get(found.path) for found in inner.list(path)] == ([] if left is None else [left])
        plan.add(Fault(FaultKind.DELAY, delay_ms=1500))
        assert store.get("b") == b"1234"
        assert waits.slept == [1.5]
        assert plan.hits == 4

    def test_only_the_chosen_calls_are_hit(self):
        plan = FaultPlan([Fault(FaultKind.BEFORE, "get", "x/", skip=1, times=2)])
        store = FaultyObjectStore(MemoryObjectStore(), plan)
        store.put("x/a", b"")
        store.put("y", b"")
        outcomes = []
        for _ in range(4):
            store.get("y")
            try:
                store.get("x/a")
                outcomes.append("read")
            except ObjectStoreError:
                outcomes.append("failed")
        assert outcomes == ["read", "failed", "failed", "read"]


class TestRetries:
    def build(self, plan, waits, **settings):
        self.metrics = Metrics()
        self.inner = MemoryObjectStore()
        return InstrumentedObjectStore(FaultyObjectStore(self.inner, plan, waits.sleep), self.metrics,
                                       RetryOptions(**settings), waits.pacing())

    def count(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    def test_what_passes_is_tried_again(self):
        waits = Waits()
        store = self.build(FaultPlan([Fault(FaultKind.BEFORE, times=5)]), waits)
        store.put("a", b"12")
        assert len(waits.slept) == 5
        assert self.count("hummock_object_store_failures_total", operation="put",
                          error="ObjectStoreError") == 5
        assert self.count("hummock_object_store_bytes_total", direction="written") == 2
        assert self.count("hummock_object_store_seconds_count", operation="put") == 1

    def test_attempts_have_a_limit(self):
        waits = Waits()
        store = self.build(FaultPlan([Fault(FaultKind.BEFORE, times=99)]), waits, attempts=4)
        with pytest.raises(DeadlineExceeded) as caught:
            store.get("a")
        assert caught.value.attempts == 4 and len(waits.slept) == 3
        assert isinstance(caught.value, TimeoutError)

    def test_the_whole_call_has_a_deadline(self):
        waits = Waits()
        plan = FaultPlan([Fault(FaultKind.DELAY, times=10**9, delay_ms=400),
                          Fault(FaultKind.BEFORE, times=10**9)])
        store = self.build(plan, waits, attempts=10**6, deadline_ms=5000)
        with pytest.raises(DeadlineExceeded):
            store.put("a", b"")
        assert 3 < waits.now <= 5.5

    def test_delays_double_and_are_a_random_share(self):
        waits = Waits()
        plan = FaultPlan([Fault(FaultKind.BEFORE, times=99)])
        store = self.build(plan, waits, attempts=9, max_delay_ms=500)
        with pytest.raises(DeadlineExceeded):
            store.put("a", b"")
        limits = [min(0.5, 0.02 * 2**number) for number in range(8)]
        assert all(slept <= limit for slept, limit in zip(waits.slept, limits, strict=True))
        assert len(set(waits.slept)) == 8

    def test_final_errors_are_not_tried_again(self):
        waits = Waits()
        store = self.build(FaultPlan(), waits)
        store.put("a", b"1")
        with pytest.raises(ObjectNotFound):
            store.get("b")
        with pytest.raises(ObjectExists):
            store.put("a", b"2", if_absent=True)
        with pytest.raises(InvalidPath):
            store.get("../a")
        assert waits.slept == []

    def test_a_lost_answer_of_a_creation_is_recognised_by_its_bytes(self):
        waits = Waits()
        store = self.build(FaultPlan([Fault(FaultKind.AFTER, "put")]), waits)
        store.put("a", b"mine", if_absent=True)
        assert store.get("a") == b"mine"

    def test_a_creation_lost_to_another_stays_lost(self):
        waits = Waits()
        store = self.build(FaultPlan([Fault(FaultKind.BEFORE, "put")]), waits)
        self.inner.put("a", b"theirs")
        with pytest.raises(ObjectExists):
            store.put("a", b"mine", if_absent=True)
        assert store.get("a") == b"theirs"

    def test_a_listing_that_breaks_in_the_middle_goes_on(self):
        class Breaking(MemoryObjectStore):
            breaks = 3

            def list(self, prefix="", *, after=""):
                for number, found in enumerate(super().list(prefix, after=after)):
                    if self.breaks and number == 300 * self.breaks:
                        self.breaks -= 1
                        raise ObjectStoreError(prefix, "connection reset")
                    yield found

        inner = Breaking()
        paths = [f"o/{number:05d}" for number in range(2 * LISTED_AT_ONCE + 10)]
        for path in paths:
            inner.put(path, b"")
        store = InstrumentedObjectStore(inner, Metrics(), RetryOptions(), Waits().pacing())
        assert [found.path for found in store.list("o/")] == paths
        assert inner.breaks == 0

    def test_a_closed_store_says_so(self):
        store = self.build(FaultPlan(), Waits())
        store.close()
        store.close()
        with pytest.raises(StoreClosed):
            store.get("a")

    def test_calls_of_many_threads_are_all_counted(self):
        store = self.build(FaultPlan(), Waits())
        threads = [threading.Thread(target=lambda n=n: [store.put(f"{n}/{i}", b"123") for i in range(100)])
                   for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.count("hummock_object_store_bytes_total", direction="written") == 2400
        assert len(list(store.list())) == 800
