import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hummock.errors import (
    HummockError,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreReplaced,
    MetaStoreRolledBack,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
)
from hummock.meta import open_meta_store
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.rollback_guard_file import Acknowledged, RollbackGuard
from hummock.meta.store.row_digests import DatabaseDigest, row_digest
from hummock.meta.store.sqlite import META, SCHEMAS, TABLES, SqliteMetaStore
from tests.support.drivers.quick_files import quick_directory
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.suites.meta_store_suite import MetaStoreSuite, a_fork_is_refused, openers_agree, put


class TestMemoryMetaStore(MetaStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryMetaStore()


class TestSqliteMetaStore(MetaStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        store = SqliteMetaStore(tmp_path / "meta.sqlite")
        yield store
        store.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "meta.sqlite"


def test_urls_open_their_stores(tmp_path):
    open_meta_store(f"file://{tmp_path}/new/deep").transaction(put(a=b"1"))
    assert open_meta_store(f"file://{tmp_path}/new/deep", create=False).get("a") == b"1"
    assert open_meta_store("memory://").get("a") is None
    with pytest.raises(MetaStoreError, match="there is no store"):
        open_meta_store(f"file://{tmp_path}/nothing", create=False)
    assert not (tmp_path / "nothing").exists()


class TestSqlite:
    def test_reopening_keeps_everything(self, path):
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1", b=b"2"))
        store.transaction(MetaOperations(put={"a": b"3"}, delete=("b",)))
        store.close()
        again = SqliteMetaStore(path, create=False)
        assert again.list("") == [("a", b"3")]
        assert again.verify() == 1

    def test_it_is_durable_by_settings(self, path):
        store = SqliteMetaStore(path)
        with store._session() as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)

    def test_two_handles_see_each_other(self, path):
        one, two = SqliteMetaStore(path), SqliteMetaStore(path)
        one.transaction(put(a=b"1"))
        two.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
        with pytest.raises(PreconditionFailed):
            one.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"3"}))
        assert one.get("a") == b"2"

    def test_a_held_store_is_busy_within_the_limit(self, path):
        store = SqliteMetaStore(path, busy_timeout_ms=100)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(MetaStoreBusy):
            store.transaction(put(a=b"1"))
        assert time.monotonic() - began < 5
        assert store.get("a") is None
        holder.execute("ROLLBACK")
        store.transaction(put(a=b"1"))
        assert store.get("a") == b"1"

    @pytest.mark.parametrize("leftover", ["missing", "zero bytes", "no tables"])
    def test_an_emptied_store_is_refused_by_name(self, path, leftover):
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1"))
        store.close()
        path.unlink()
        if leftover == "zero bytes":
            path.touch()
        elif leftover == "no tables":
            sqlite3.connect(path).execute("VACUUM").close()
            empty = sqlite3.connect(path)
            empty.executescript("CREATE TABLE x (y); DROP TABLE x;")
            empty.close()
        with pytest.raises(MetaStoreEmptied) as caught:
            SqliteMetaStore(path)
        assert str(path) in str(caught.value) and "initialised" in str(caught.value)

    def test_an_older_copy_is_refused(self, path, tmp_path):
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1"))
        store.close()
        shutil.copy(path, tmp_path / "backup")
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"2"))
        store.close()
        shutil.copy(tmp_path / "backup", path)
        with pytest.raises(MetaStoreCorrupt, match="last transaction"):
            SqliteMetaStore(path)

    @pytest.mark.parametrize("names", [1, 2])
    def test_an_older_copy_of_the_whole_directory_is_refused_until_it_is_accepted(self, tmp_path, names):
        """Files written after the backup remain, as when a backup is restored over a directory."""
        directory, backup = tmp_path / "store", tmp_path / "backup"
        directory.mkdir()
        store = SqliteMetaStore(directory / "meta.sqlite")
        store.transaction(put(a=b"1"))
        store.close()
        shutil.copytree(directory, backup)
        stores = [SqliteMetaStore(directory / "meta.sqlite") for _ in range(names)]
        for number in range(7):
            stores[number % names].transaction(put(a=b"%d" % number))
        for store in stores:
            store.close()
        for suffix in ("-wal", "-shm"):
            (directory / f"meta.sqlite{suffix}").unlink(missing_ok=True)
        shutil.copytree(backup, directory, dirs_exist_ok=True)
        for create in (False, True):
            with pytest.raises(MetaStoreRolledBack, match=r"is 1, and .*witness.* knows of transaction 8") as e:
                SqliteMetaStore(directory / "meta.sqlite", create=create)
        assert (e.value.found, e.value.acknowledged) == (1, 8) and Path(e.value.guard).exists()
        store = SqliteMetaStore(directory / "meta.sqlite", accept_rollback=True)
        assert store.get("a") == b"1"
        store.transaction(put(b=b"2"))
        store.close()
        assert len(list((directory / "witness").iterdir())) == 1
        assert SqliteMetaStore(directory / "meta.sqlite").list("") == [("a", b"1"), ("b", b"2")]

    def test_a_directory_where_nothing_more_can_be_named_serves_on(self, path):
        (path.parent / "witness").write_bytes(b"in the way")
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1"))
        store.close()
        assert SqliteMetaStore(path).get("a") == b"1"

    def test_another_store_under_the_same_path_is_refused(self, path, tmp_path):
        SqliteMetaStore(path).close()
        SqliteMetaStore(tmp_path / "other").close()
        shutil.copy(tmp_path / "other", path)
        with pytest.raises(MetaStoreCorrupt, match="store id"):
            SqliteMetaStore(path)

    def test_a_foreign_database_is_refused_untouched(self, path):
        foreign = sqlite3.connect(path)
        foreign.executescript("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);")
        foreign.close()
        before = path.read_bytes()
        with pytest.raises(MetaStoreCorrupt, match="schema"):
            SqliteMetaStore(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("statement", [
        "UPDATE meta SET value = x'00' WHERE key = 'a'",
        "UPDATE meta SET key = 'z' WHERE key = 'a'",
        "DELETE FROM meta WHERE key = 'a'",
        "INSERT INTO meta SELECT 'c', value, digest FROM meta WHERE key = 'a'",
        "UPDATE summary SET serial = 99", "UPDATE summary SET rows = 3", "DELETE FROM summary",
        "UPDATE meta SET value = 'text' WHERE key = 'a'", "CREATE TABLE more (x)",
    ])
    def test_rows_changed_behind_its_back_are_refused(self, path, statement):
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1", b=b"2"))
        store.close()
        changed = sqlite3.connect(path)
        changed.execute(statement)
        changed.commit()
        changed.close()
        with pytest.raises(MetaStoreCorrupt):
            SqliteMetaStore(path)

    def test_a_row_damaged_while_open_is_refused_when_read(self, path):
        store = SqliteMetaStore(path)
        store.transaction(put(a=b"1", b=b"2"))
        changed = sqlite3.connect(path)
        changed.execute("UPDATE meta SET value = x'00' WHERE key = 'a'")
        changed.commit()
        for call in (lambda: store.get("a"), lambda: store.list(""), store.verify,
                     lambda: store.transaction(put(a=b"3"))):
            with pytest.raises(MetaStoreCorrupt):
                call()
        assert store.get("b") == b"2"

    def test_a_large_transaction_reads_and_replaces_every_row_it_names(self, path):
        store = SqliteMetaStore(path)
        rows = {f"row {number}": bytes([number % 256]) * (number % 7) for number in range(450)}
        rows["large"] = b"x" * 100_000
        store.transaction(MetaOperations(put=rows))
        changed = {key: value + b"'; \n" for key, value in rows.items()}
        gone = tuple(f"row {number}" for number in range(0, 450, 2))
        with pytest.raises(PreconditionFailed, match="row 449"):
            store.transaction(MetaOperations(require={**rows, "row 449": b"?"}, put={"large": b"2"}, delete=gone))
        store.transaction(MetaOperations(require=rows, delete=gone, put={
            key: value for key, value in changed.items() if key not in gone}))
        assert dict(store.list("")) == {key: value for key, value in changed.items() if key not in gone}
        assert store.verify() == 226

    def test_a_database_of_format_1_gets_row_ids_with_its_first_transaction(self, path):
        rows = {f"k{number}": bytes([number]) * 70_000 for number in range(5)}
        self.as_format_1(path, rows)
        reader, store = SqliteMetaStore(path), SqliteMetaStore(path)
        with pytest.raises(PreconditionFailed):
            store.transaction(MetaOperations(require={"k1": b"other"}, put={"k2": b""}))
        assert self.format_of(path) == (1, SCHEMAS[1]) and dict(reader.list("")) == rows
        store.transaction(MetaOperations(require={"k1": rows["k1"]}, put={"k9": b"new"}, delete=("k0",)))
        assert self.format_of(path) == (2, SCHEMAS[2])
        rows = {**rows, "k9": b"new"}
        del rows["k0"]
        reader.transaction(MetaOperations(put={"k3": b"again"}))
        rows["k3"] = b"again"
        for opened in (reader, store, SqliteMetaStore(path)):
            assert dict(opened.list("")) == rows and opened.verify() == len(rows)
            opened.close()

    def test_a_process_that_dies_while_it_adds_row_ids_leaves_format_1(self, path, monkeypatch):
        rows = {"a": b"1", "b": b"2"}
        self.as_format_1(path, rows)
        store = SqliteMetaStore(path)
        monkeypatch.setattr(store, "_apply", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            store.transaction(MetaOperations(put={"c": b"3"}))
        store.close()
        assert self.format_of(path) == (1, SCHEMAS[1])
        opened = SqliteMetaStore(path)
        assert dict(opened.list("")) == rows and opened.verify() == 2

    def test_tables_of_another_format_than_the_summary_are_refused(self, path):
        self.as_format_1(path, {"a": b"1"})
        connection = sqlite3.connect(path)
        connection.executescript(f"ALTER TABLE meta RENAME TO former; {META};"
                                 "INSERT INTO meta SELECT * FROM former; DROP TABLE former")
        connection.close()
        with pytest.raises(MetaStoreCorrupt, match="schema"):
            SqliteMetaStore(path)

    @staticmethod
    def as_format_1(path, rows):
        """A database as the releases before wrote it."""
        SqliteMetaStore(path).close()
        summary = DatabaseDigest(b"s" * 16).after(MetaOperations(put=rows), [])
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE meta")
        connection.execute(SCHEMAS[1][0])
        connection.executemany("INSERT INTO meta VALUES (?, ?, ?)",
                               [(key, value, row_digest(key, value)) for key, value in rows.items()])
        connection.execute("UPDATE summary SET format = ?, store_id = ?, serial = ?, rows = ?, total = ?, digest = ?",
                           summary.row()[1:])
        connection.commit()
        connection.close()
        guard = RollbackGuard(path.with_name(path.name + ".initialised"))
        guard.replace(Acknowledged(summary.store_id, summary.serial))

    @staticmethod
    def format_of(path):
        connection = sqlite3.connect(path)
        tables = tuple(sql for (sql,) in connection.execute(TABLES))
        (number,), = connection.execute("SELECT format FROM summary")
        connection.close()
        return number, tables

    def test_a_lost_guard_record_is_written_again(self, path):
        SqliteMetaStore(path).close()
        marker = path.with_name("meta.sqlite.initialised")
        marker.unlink()
        SqliteMetaStore(path).close()
        assert marker.exists()

    def test_a_fork_may_not_use_the_handle(self, path):
        a_fork_is_refused(SqliteMetaStore(path))

    def test_a_closed_store_says_so(self, path):
        store = SqliteMetaStore(path)
        store.close()
        store.close()
        with pytest.raises(StoreClosed):
            store.get("a")

    def test_a_commit_that_the_guard_does_not_record_is_of_unknown_outcome(self, path, monkeypatch):
        store = SqliteMetaStore(path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "input/output error")))
            with pytest.raises(OutcomeUnknown):
                store.transaction(put(a=b"1"))
        assert store.get("a") == b"1"
        store.transaction(put(a=b"2"))
        store.close()
        assert SqliteMetaStore(path).get("a") == b"2"

    def test_a_directory_that_is_emptied_and_used_again_gets_nothing_of_a_process_that_lives_on(self, path):
        live = SqliteMetaStore(path)
        live.transaction(put(a=b"1"))
        for file in path.parent.glob(path.name + "*"):
            file.unlink()
        with pytest.raises(MetaStoreEmptied):
            live.transaction(put(a=b"2"))
        other = SqliteMetaStore(path)
        other.transaction(put(a=b"other"))
        with pytest.raises(MetaStoreReplaced):
            live.transaction(put(a=b"2"))
        live.close()
        other.transaction(put(b=b"1"))
        assert SqliteMetaStore(path).list("") == [("a", b"other"), ("b", b"1")]

    def test_many_openers_of_a_new_store_agree(self, path):
        openers_agree(lambda: SqliteMetaStore(path))

    @pytest.mark.parametrize("held", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
    def test_opening_waits_for_another_that_creates_the_store(self, path, held):
        holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        holder.execute(held)
        with pytest.raises(MetaStoreBusy):
            SqliteMetaStore(path, busy_timeout_ms=50)
        release = threading.Timer(0.1, holder.close)
        release.start()
        SqliteMetaStore(path).transaction(put(a=b"1"))
        release.join()

    def test_acknowledged_transactions_survive_kill(self, path, tmp_path):
        program = (
            "import sys; from hummock.meta.store.sqlite import SqliteMetaStore; "
            "from hummock.meta.store.base import MetaOperations\n"
            "store = SqliteMetaStore(sys.argv[1])\n"
            "for n in range(10**6):\n"
            "    store.transaction(MetaOperations(put={'n': b'%d' % n, f'k/{n % 50}': b'x' * (n % 3000)}))\n"
            "    print(n, flush=True)\n")
        rng = random.Random(5)
        for _ in range(5):
            process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
            for _ in range(rng.randrange(1, 60)):
                acknowledged = int(process.stdout.readline())
            process.kill()
            rest = process.stdout.read().split()
            process.wait()
            if rest:
                acknowledged = int(rest[-1])
            store = SqliteMetaStore(path)
            assert acknowledged <= int(store.get("n")) <= acknowledged + 1
            store.close()


class TestRollbackGuard:
    def test_the_newest_whole_slot_speaks(self, tmp_path):
        guard = RollbackGuard(tmp_path / "w")
        assert guard.read() is None
        for serial in range(5):
            guard.write(Acknowledged(b"i" * 16, serial))
            assert guard.read() == Acknowledged(b"i" * 16, serial)
        data = bytearray(guard.path.read_bytes())
        data[20] ^= 1
        guard.path.write_bytes(data)
        assert guard.read() == Acknowledged(b"i" * 16, 3)
        data[512 + 20] ^= 1
        guard.path.write_bytes(data)
        with pytest.raises(MetaStoreCorrupt):
            guard.read()

    def test_a_slot_is_these_bytes(self):
        slot = Acknowledged(bytes(range(16)), 258).encode()
        assert len(slot) == 512
        assert slot[:32].hex() == "484d4b5749543031000102030405060708090a0b0c0d0e0f0201000000000000"
        assert Acknowledged.decode(slot) == Acknowledged(bytes(range(16)), 258)


def test_faults_of_transactions_say_what_a_caller_can_know():
    plan = FaultPlan([Fault(FaultKind.BEFORE, "transaction", "a"), Fault(FaultKind.AFTER, "transaction", "b"),
                      Fault(FaultKind.TORN, "transaction", "c"), Fault(FaultKind.BEFORE, "get", "d")])
    store = FaultyMetaStore(MemoryMetaStore(), plan)
    with pytest.raises(MetaStoreError) as caught:
        store.transaction(put(a=b"1"))
    assert not isinstance(caught.value, OutcomeUnknown)
    for key in "bc":
        with pytest.raises(OutcomeUnknown):
            store.transaction(put(**{key: b"1"}))
    with pytest.raises(MetaStoreError):
        store.get("d")
    assert store.list("") == [("b", b"1")]


class TestDamage:
    """A flipped bit or a truncation in any file of the store yields right answers or a typed error."""

    def build(self, path):
        rng, store = random.Random(3), SqliteMetaStore(path)
        for number in range(60):
            store.transaction(MetaOperations(put={f"k/{rng.randrange(40)}": rng.randbytes(rng.randrange(600)),
                                                  "head": b"%d" % number}))
        return store, store.list("")

    def states(self, tmp_path):
        """The files by name, after a kill (with the write-ahead log) and after a close; and the rows."""
        store, rows = self.build(tmp_path / "made" / "m" if (tmp_path / "made").mkdir() is None else None)
        killed = {found.name: found.read_bytes() for found in (tmp_path / "made").iterdir() if found.is_file()}
        store.close()
        closed = {found.name: found.read_bytes() for found in (tmp_path / "made").iterdir() if found.is_file()}
        assert "m-wal" in killed and "m-wal" not in closed
        return (killed, closed), rows

    def outcome(self, directory, files, name, data, rows):
        shutil.rmtree(directory / "witness", ignore_errors=True)
        for old in directory.iterdir():
            old.unlink()
        for other, content in files.items():
            (directory / other).write_bytes(data if other == name else content)
        try:
            store = SqliteMetaStore(directory / "m", create=False)
        except HummockError:
            return "refused"
        try:
            assert store.list("") == rows
            assert [store.get(key) for key, _ in rows] == [value for _, value in rows]
            store.transaction(put(new=b"1"))
            assert store.list("") == sorted([*rows, ("new", b"1")])
        except HummockError:
            return "refused"
        finally:
            store.close()
        return "right"

    @pytest.fixture
    def directory(self):
        """A directory for damaged stores."""
        with quick_directory() as directory:
            yield directory

    def test_flipped_bits_give_right_answers_or_typed_errors(self, tmp_path, directory):
        counts = self.sweep(tmp_path, directory, 1, 500)
        assert counts["refused"] > 50 and counts["right"] > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(100, 110))
    def test_twenty_thousand_flips_give_right_answers_or_typed_errors(self, tmp_path, directory, seed):
        counts = self.sweep(tmp_path, directory, seed, 2_000)
        assert counts["refused"] > 200 and counts["right"] > 0

    def sweep(self, tmp_path, directory, seed, flips):
        rng, counts = random.Random(seed), {"right": 0, "refused": 0}
        states, rows = self.states(tmp_path)
        for number in range(flips):
            files = states[number % 2]
            name = rng.choices(list(files), [len(data) for data in files.values()])[0]
            data = bytearray(files[name])
            offset, bit = rng.randrange(len(data)), rng.randrange(8)
            data[offset] ^= 1 << bit
            try:
                counts[self.outcome(directory, files, name, bytes(data), rows)] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, flip {number}: {name} byte {offset} bit {bit}") from error
        print(f"seed {seed}: {counts}")
        return counts

    def test_truncations_give_right_answers_or_typed_errors(self, tmp_path, directory):
        states, rows = self.states(tmp_path)
        for files in states:
            for name, data in files.items():
                for size in range(0, len(data), 2048):
                    assert self.outcome(directory, files, name, data[:size], rows) in ("right", "refused")
