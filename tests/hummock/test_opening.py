"""Opening by URL: roles, location of the meta store, and several processes on one store."""

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import hummock
import hummock.cli.store
import hummock.opening
from hummock.base.key_watermark import KeyWatermark
from hummock.cli import main
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import (
    HummockError,
    InvalidOption,
    MetaStoreCorrupt,
    MetaStoreError,
    ObjectNotFound,
    ObjectStoreRefused,
    SnapshotExpired,
    StoreClosed,
)
from hummock.meta import open_meta_store
from hummock.meta.leases import read_leases
from hummock.meta.records import lease_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.options import CompactionOptions, MetaOptions
from tests.support.drivers.waiting import eventually

READER = """
import sys, time
import hummock
pause = __import__("threading").Event()
with hummock.open(sys.argv[1], meta=sys.argv[2], refresh_ms=5) as store:
    print("open", store.committed_epoch, flush=True)
    for line in sys.stdin:
        deadline = time.monotonic() + 20
        while store.committed_epoch < int(line) and time.monotonic() < deadline:
            pause.wait(0.002)           # only the refresher reads the meta store
        print(store.committed_epoch, store.get(b"key", int(line)).decode(), flush=True)
"""


def epoch_of(number):
    return Epoch(number << 16)


def commit(store, number, *pairs):
    store.ingest_batch(WriteBatch(list(pairs)), epoch_of(number))
    store.commit(epoch_of(number))


@pytest.mark.parametrize("meta", ["sqlite:", "log"])
def test_another_process_sees_each_commit_while_it_runs(tmp_path, meta):
    url = f"file://{tmp_path}"
    with hummock.open(url, role="writer", meta=meta) as store:
        commit(store, 1, (b"key", b"one"))
        with subprocess.Popen([sys.executable, "-c", READER, url, meta], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as reader:
            assert reader.stdout.readline() == f"open {epoch_of(1)}\n"
            for number in range(2, 8):
                commit(store, number, (b"key", b"at %d" % number))
                print(epoch_of(number), file=reader.stdin, flush=True)
                assert reader.stdout.readline() == f"{epoch_of(number)} at {number}\n"
            reader.stdin.close()
            assert reader.wait(20) == 0
        with closing(open_meta_store(url, meta)) as meta_store:
            assert len(read_leases(meta_store)) == 1


def test_a_refresher_that_fails_says_why_until_it_succeeds(tmp_path):
    with hummock.open(f"file://{tmp_path}", role="writer", refresh_ms=2) as store:
        commit(store, 1, (b"key", b"one"))
        database = tmp_path / "meta.sqlite"
        with closing(sqlite3.connect(database)) as other:
            lease, = other.execute("SELECT value FROM meta WHERE key = 'hummock/head'").fetchone()
            other.execute("UPDATE meta SET value = x'00' WHERE key = 'hummock/head'")
            other.commit()
            eventually(lambda: isinstance(store.follow_error, MetaStoreCorrupt))
            assert store.get(b"key", epoch_of(1)) == b"one"
            other.execute("UPDATE meta SET value = ? WHERE key = 'hummock/head'", (lease,))
            other.commit()
        eventually(lambda: store.follow_error is None)


def test_pins_outlive_many_leases_while_the_store_is_open(tmp_path):
    url = f"file://{tmp_path}"
    with hummock.open(url, role="writer") as writer:
        commit(writer, 1, (b"key", b"one"))
        with hummock.open(url, meta_options=MetaOptions(lease_ms=1_000), refresh_ms=10_000) as reader:
            database = SqliteMetaStore(tmp_path / "meta.sqlite")
            first = min(lease.expires_ms for lease in read_leases(database))
            eventually(lambda: min(lease.expires_ms for lease in read_leases(database)) > first + 2_500)
            assert reader.follow_error is None
        assert len(read_leases(database)) == 1
        database.close()


def test_a_missing_file_of_a_lost_lease_is_an_expired_snapshot_at_once(tmp_path):
    """The process slept past its lease and reads before its refresher runs."""
    url = f"file://{tmp_path}"
    with hummock.open(url, role="writer", inline_bytes=0, block_cache_bytes=1, meta_cache_bytes=1,
                      refresh_ms=10_000) as store:
        commit(store, 1, (b"key", b"one"))
        database = SqliteMetaStore(tmp_path / "meta.sqlite")
        database.transaction(MetaOperations(delete=tuple(lease_key(lease.node) for lease in read_leases(database))))
        for path in (tmp_path / "sst").iterdir():
            path.unlink()
        with pytest.raises(SnapshotExpired):
            store.get(b"key", epoch_of(1))
        with hummock.open(url) as other, pytest.raises(ObjectNotFound):     # no lease was lost: damage
            other.get(b"key", epoch_of(1))
        database.close()


def test_a_version_held_for_others_whose_lease_was_lost_is_an_expired_snapshot(tmp_path):
    """The error may come from any code that uses its files."""
    with hummock.open(f"file://{tmp_path}", role="writer", refresh_ms=10_000) as store:
        commit(store, 1, (b"key", b"one"))
        with pytest.raises(ObjectNotFound), store.pinned_version() as pinned:
            pinned.check()
            raise ObjectNotFound("a file")
        database = SqliteMetaStore(tmp_path / "meta.sqlite")
        with pytest.raises(SnapshotExpired) as caught, store.pinned_version():
            database.transaction(MetaOperations(delete=tuple(lease_key(each.node) for each in read_leases(database))))
            raise ObjectNotFound("a file")
        assert isinstance(caught.value.__cause__, ObjectNotFound)
        with store.pinned_version() as again:
            again.check()
        database.close()


def test_the_meta_store_may_be_in_another_directory(tmp_path):
    url, meta = f"file://{tmp_path}/data", f"sqlite://{tmp_path}/elsewhere/meta.db"
    with hummock.open(url, role="writer", meta=meta) as store:
        commit(store, 1, (b"key", b"one"))
    assert not (tmp_path / "data" / "meta.sqlite").exists()
    with hummock.open(url, meta=meta) as store:
        assert store.get(b"key", epoch_of(1)) == b"one"
    with pytest.raises(MetaStoreError, match="no store"):
        hummock.open(url)
    assert not (tmp_path / "data" / "meta").exists()
    with hummock.open(url + "2", role="writer", meta="log") as store:
        commit(store, 1, (b"key", b"two"))
    with hummock.open(url + "2", meta="log") as store:
        assert store.get(b"key", epoch_of(1)) == b"two"
    for wrong in ("sqlite.db", "ftp://x", "", "mysql://h/d"):
        with pytest.raises(InvalidOption, match="meta"):
            hummock.open(url, meta=wrong)


def test_a_store_that_cannot_be_opened_leaves_nothing_open(tmp_path):
    before = threading.active_count()
    with pytest.raises(InvalidOption):
        hummock.open("memory://", block_bytes=0)
    with pytest.raises(MetaStoreError):
        hummock.open(f"file://{tmp_path}/nothing")
    assert threading.active_count() == before


def test_closing_ends_the_refresher_and_the_lease(tmp_path):
    before = threading.active_count()
    store = hummock.open(f"file://{tmp_path}", role="writer", compaction=False, refresh_ms=1)
    assert threading.active_count() == before + 1
    store.close()
    store.close()
    assert threading.active_count() == before
    assert read_leases(SqliteMetaStore(tmp_path / "meta.sqlite")) == []
    with pytest.raises(StoreClosed):
        store.get(b"key", epoch_of(1))


class TestMaintenance:
    def test_a_writer_keeps_its_store_in_shape(self, tmp_path):
        options = CompactionOptions(history_ms=0, l0_runs=2)
        with hummock.open(f"file://{tmp_path}", role="writer", compaction=options) as store:
            key, epochs = hummock.user_key(1, 0, b"key"), [epoch_of(1_000 * number) for number in range(1, 7)]
            for epoch in epochs:
                store.ingest_batch(hummock.WriteBatch([(key, b"%d" % epoch)]), epoch)
                store.commit(epoch)
            assert store.compact(timeout=60)
            assert [level.number for level in store.version.levels if level.runs] == [6]
            assert store.get(key, epochs[-1]) == b"%d" % epochs[-1]
            report = store.vacuum()
            assert (report.dry_run, store.maintenance.error) == (False, None)

    def test_closing_ends_its_threads(self, tmp_path):
        before = threading.active_count()
        hummock.open(f"file://{tmp_path}", role="writer").close()
        assert threading.active_count() == before

    @pytest.mark.parametrize(("arguments", "remedy"), [
        ({"role": "reader"}, 'role="writer"'), ({"role": "writer", "compaction": False}, "compaction=True")])
    def test_a_store_without_it_says_how_to_get_it(self, tmp_path, arguments, remedy):
        hummock.open(f"file://{tmp_path}", role="writer").close()
        with hummock.open(f"file://{tmp_path}", **arguments) as store, pytest.raises(HummockError, match=remedy):
            store.compact()


@pytest.mark.parametrize("compaction", ["x", None, 1, {}], ids=repr)
def test_what_does_not_configure_compaction_is_refused(tmp_path, compaction):
    with pytest.raises(InvalidOption, match="compaction"):
        hummock.open(tmp_path / "store", role="writer", compaction=compaction)
    assert list(tmp_path.iterdir()) == []


def test_a_store_on_read_only_media_says_what_to_do(tmp_path, monkeypatch):
    """What is written first fails there, in words that depend on what it is."""
    hummock.open(tmp_path / "store", role="writer").close()
    flags = os.statvfs(tmp_path)

    def refused(*parts, **options):
        raise MetaStoreError("unable to open database file")

    for module in (hummock.opening, hummock.cli.store):
        monkeypatch.setattr(module, "open_meta_store", refused)
    with pytest.raises(MetaStoreError, match="unable"):
        hummock.open(tmp_path / "store")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags.f_flag | os.ST_RDONLY))
    with pytest.raises(ObjectStoreRefused, match="copy the directory"):
        hummock.open(tmp_path / "store")
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "store")])
    assert result.exit_code == 1 and "copy the directory" in result.stderr and len(result.stderr.splitlines()) == 1


CALLS = {
    "compact": lambda store: store.compact(),
    "wait_compacted": lambda store: store.wait_compacted(),
    "vacuum": lambda store: store.vacuum(),
    "announce_rules": lambda store: store.announce_rules({}),
    "advance_watermark": lambda store: store.advance_watermark(1, KeyWatermark(Epoch(1 << 16), ((0, 0, b"k"),))),
    "wait_for_level0": lambda store: store.wait_for_level0(1),
    "write": lambda store: store.write({b"k": b"v"}),
    "ingest_batch": lambda store: store.ingest_batch({b"k": b"v"}, Epoch(1 << 16)),
    "seal_epoch": lambda store: store.seal_epoch(Epoch(1 << 16)),
    "sync": lambda store: store.sync(Epoch(1 << 16)),
    "commit": lambda store: store.commit(Epoch(1 << 16)),
    "clear_uncommitted": lambda store: store.clear_uncommitted(),
    "wait_epoch": lambda store: store.wait_epoch(Epoch(1 << 16)),
    "get": lambda store: store.get(b"k"),
    "scan": lambda store: store.scan(),
    "changes": lambda store: store.changes(hummock.KeyRange(), Epoch(1 << 16), Epoch(2 << 16)),
    "stats": lambda store: store.stats(),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_a_closed_store_says_that_it_is_closed(call):
    store = hummock.open("memory://")
    store.close()
    with pytest.raises(StoreClosed):
        CALLS[call](store)
