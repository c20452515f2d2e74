"""A full disk raises `DiskFull` at once in every layer, and only the write that failed is lost."""

import errno
import pickle
import random
import sqlite3

import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import DiskFull, MetaStoreError, ObjectStoreError, OutcomeUnknown
from hummock.meta import MetaOperations, ObjectLogMetaStore, SqliteMetaStore
from hummock.metrics import Metrics
from hummock.object_store.instrumented import FULL_DISK_SECONDS, InstrumentedObjectStore, Pacing
from hummock.object_store.local import LocalObjectStore
from hummock.options import RetryOptions
from tests.support.servers.file_calls import between

FULL = (errno.ENOSPC, errno.EDQUOT)


def full_disk(number=errno.ENOSPC, calls=("pwrite",)):
    return between(lambda name, real, *arguments: -number if name in calls else real(*arguments))


def retrying_store(root):
    """A store that retries by a simulated clock, and the clock."""
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    pacing = Pacing(random.Random(1), lambda: clock[0], sleep)
    return InstrumentedObjectStore(LocalObjectStore(root), Metrics(), RetryOptions(), pacing), clock


@pytest.mark.parametrize("number", FULL, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", ["pwrite", "fsync", "link", "open"])
def test_an_object_for_which_the_disk_is_full_fails_in_less_than_a_second(tmp_path, call, number):
    store, clock = retrying_store(tmp_path)
    store.put("sst/old", b"old")
    clock[0] = 0.0
    with full_disk(number, (call,)), pytest.raises(DiskFull) as caught:
        store.put("sst/new", b"x" * 1_000, if_absent=True)
    assert clock[0] <= FULL_DISK_SECONDS < 1
    assert caught.value.directory == str(tmp_path) and errno.errorcode[number] in str(caught.value)
    assert isinstance(caught.value, ObjectStoreError) and isinstance(caught.value, MetaStoreError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.directory) == (DiskFull, str(caught.value), str(tmp_path))
    store.put("sst/new", b"x")
    assert (store.get("sst/old"), store.get("sst/new")) == (b"old", b"x")


def test_a_full_disk_that_gets_space_in_time_is_waited_for(tmp_path):
    store, _ = retrying_store(tmp_path)
    left = [3]

    def call(name, real, *arguments):
        if name == "pwrite" and left[0]:
            left[0] -= 1
            return -errno.ENOSPC
        return real(*arguments)

    with between(call):
        store.put("a", b"data")
    assert (store.get("a"), left) == (b"data", [0])


def test_a_log_in_a_full_directory_says_so_and_knows_that_nothing_happened(tmp_path):
    store, clock = retrying_store(tmp_path)
    log = ObjectLogMetaStore(store, monotonic=lambda: clock[0])
    log.transaction(MetaOperations(put={"a": b"1"}))
    with full_disk(), pytest.raises(DiskFull):
        log.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
    assert log.get("a") == b"1"
    log.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
    assert (log.get("a"), log.verify()) == (b"2", 1)


def test_a_full_database_reports_it_and_knows_that_nothing_happened(tmp_path):
    store = SqliteMetaStore(tmp_path / "meta.sqlite")
    store.transaction(MetaOperations(put={"a": b"1"}))
    pages, = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match="database or disk is full"):
        store.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2", "b": bytes(100_000)}))
    assert (store.get("a"), store.get("b")) == (b"1", None)
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2", "b": bytes(100_000)}))
    assert store.verify() == 2


class FailsAtCommit:
    """A connection whose commit raises SQLITE_FULL, before or `after` it took effect."""

    def __init__(self, connection, after):
        self._connection, self._after = connection, after

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def commit(self):
        if self._after:
            self._connection.commit()
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


@pytest.mark.parametrize(("after", "error"), [(False, DiskFull), (True, OutcomeUnknown)])
def test_a_commit_that_ends_with_a_full_disk_is_looked_at(tmp_path, after, error):
    store = SqliteMetaStore(tmp_path / "meta.sqlite")
    store.transaction(MetaOperations(put={"a": b"1"}))
    connection, store._connection = store._connection, FailsAtCommit(store._connection, after)
    with pytest.raises(error):
        store.transaction(MetaOperations(put={"a": b"2"}))
    store._connection = connection
    assert store.get("a") == (b"2" if after else b"1")


@pytest.mark.parametrize("meta", [None, "log"])
def test_a_store_on_a_full_disk_keeps_what_was_committed_and_what_waits(tmp_path, meta):
    with hummock.open(f"file://{tmp_path}/store", role="writer", meta=meta, compaction=False, inline_bytes=0) as store:
        for number in (1, 2):
            store.ingest_batch(WriteBatch([(b"k", b"%d" % number)]), Epoch(number << 16))
            if number == 1:
                store.commit(Epoch(1 << 16))
        with full_disk(), pytest.raises(DiskFull):
            store.commit(Epoch(2 << 16))
        assert (store.get(b"k", Epoch(1 << 16)), store.get(b"k", Epoch(2 << 16))) == (b"1", b"2")
        store.commit(Epoch(2 << 16))
        assert store.committed_epoch == Epoch(2 << 16)
