"""The meta store in PostgreSQL: the suite, lost connections and responses, loss and damage of the database."""

import itertools
import threading
import time

import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import wall_clock_ms
from hummock.errors import (
    InvalidOption,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
)
from hummock.meta.store.base import MetaOperations
from hummock.object_store.memory import MemoryObjectStore
from tests.support.drivers.forks import held_by_a_thread, outcomes_in_a_child
from tests.support.suites.meta_store_suite import MetaStoreSuite, a_fork_is_refused, openers_agree, put

psycopg = pytest.importorskip("psycopg")

from hummock.meta.store.postgres import PostgresMetaStore  # noqa: E402

NAMES = itertools.count()


@pytest.fixture
def url(postgres_server):
    """The URL of a new schema."""
    return f"{postgres_server}?schema=test_{next(NAMES)}"


@pytest.fixture
def admin(postgres_server, url):
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"SET search_path = {url.partition('schema=')[2]}")
        yield connection


class TestPostgresMetaStore(MetaStoreSuite):
    @pytest.fixture
    def store(self, url):
        store = PostgresMetaStore(url)
        yield store
        store.close()


def test_reopening_keeps_everything(url):
    objects = MemoryObjectStore()
    store = PostgresMetaStore(url, objects)
    store.transaction(put(a=b"1", b=b"2"))
    store.transaction(MetaOperations(put={"a": b"3"}, delete=("b",)))
    store.close()
    store.close()
    again = PostgresMetaStore(url, objects, create=False)
    assert again.list("") == [("a", b"3")]
    assert again.verify() == 1
    again.close()
    with pytest.raises(StoreClosed):
        again.get("a")


def test_reading_makes_no_store(url, admin):
    with pytest.raises(MetaStoreError, match="there is no store"):
        PostgresMetaStore(url, MemoryObjectStore(), create=False)
    assert admin.execute("SELECT to_regclass('summary')").fetchone() == (None,)


def test_its_name_shows_no_password():
    with pytest.raises(MetaStoreError) as caught:
        PostgresMetaStore("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=1&password=secret")
    assert "secret" not in str(caught.value) and "127.0.0.1:1" in str(caught.value)
    for wrong in ("mysql://h/d", "postgresql://h/d?schema=a;drop", "postgresql://h/d?schema=A"):
        with pytest.raises(InvalidOption):
            PostgresMetaStore(wrong)


def test_two_handles_see_each_other(url):
    one, two = PostgresMetaStore(url), PostgresMetaStore(url)
    one.transaction(put(a=b"1"))
    two.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
    with pytest.raises(PreconditionFailed):
        one.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"3"}))
    assert one.get("a") == b"2"
    assert abs(one.now_ms() - two.now_ms()) < 1_000
    one.close()
    two.close()


def test_many_openers_of_a_new_store_agree(url):
    objects = MemoryObjectStore()
    openers_agree(lambda: PostgresMetaStore(url, objects), count=5)


def test_a_held_store_is_busy_within_the_limit(url, admin):
    store = PostgresMetaStore(url, busy_timeout_ms=100)
    admin.execute("BEGIN")
    admin.execute("SELECT * FROM summary FOR UPDATE")
    with pytest.raises(MetaStoreBusy):
        store.transaction(put(a=b"1"))
    assert store.get("a") is None
    admin.execute("ROLLBACK")
    store.transaction(put(a=b"1"))
    assert store.get("a") == b"1"
    store.close()


def end_sessions(admin):
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hummock'")


def test_a_lost_connection_is_made_again(url, admin):
    store = PostgresMetaStore(url)
    store.transaction(put(a=b"1"))
    for use in (lambda: store.get("a"), lambda: store.list(""), lambda: store.transaction(put(a=b"2")), store.verify):
        end_sessions(admin)
        use()
    assert store.get("a") == b"2"
    store.close()


def test_a_transaction_in_which_its_process_was_frozen_is_done_again(url, admin, monkeypatch):
    store, write, frozen = PostgresMetaStore(url, busy_timeout_ms=2_000), PostgresMetaStore._write, []

    def write_late(self, connection, *arguments):
        while not frozen and admin.execute("SELECT pg_sleep(0.01) FROM pg_stat_activity WHERE pid = %s",
                                           (connection.info.backend_pid,)).fetchone():
            pass            # until the server ends the session
        frozen.append(connection)
        return write(self, connection, *arguments)

    monkeypatch.setattr(PostgresMetaStore, "_write", write_late)
    store.transaction(put(a=b"1"))
    assert store.get("a") == b"1" and store.verify() == 1 and len(frozen) == 2
    store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_answer_was_lost_is_of_unknown_outcome(url, admin, monkeypatch, moment):
    store = PostgresMetaStore(url)
    execute = psycopg.Connection.execute

    def cut(connection, query, *arguments, **options):
        if query != "COMMIT":
            return execute(connection, query, *arguments, **options)
        if moment == "after":
            execute(connection, query)
        end_sessions(admin)
        raise psycopg.OperationalError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", cut)
        with pytest.raises(OutcomeUnknown):
            store.transaction(put(a=b"1"))
    assert store.get("a") == (b"1" if moment == "after" else None)
    assert store.verify() == (moment == "after")
    store.close()


@pytest.mark.parametrize("statement", [
    "UPDATE meta SET value = '\\x00' WHERE key = 'a'",
    "UPDATE meta SET key = 'z' WHERE key = 'a'",
    "DELETE FROM meta WHERE key = 'a'",
    "INSERT INTO meta SELECT 'c', value, digest FROM meta WHERE key = 'a'",
    "UPDATE summary SET serial = 99", "UPDATE summary SET rows = 3", "DELETE FROM summary",
])
def test_rows_changed_behind_its_back_are_refused(url, admin, statement):
    store = PostgresMetaStore(url)
    store.transaction(put(a=b"1", b=b"2"))
    admin.execute(statement)
    for use in (store.verify, lambda: PostgresMetaStore(url)):
        with pytest.raises(MetaStoreCorrupt):
            use()
    store.close()


@pytest.mark.parametrize("loss", ["DROP TABLE meta, summary", "DROP SCHEMA {} CASCADE"])
def test_an_emptied_database_is_refused_by_name(url, admin, loss):
    objects = MemoryObjectStore()
    store = PostgresMetaStore(url, objects)
    store.transaction(put(a=b"1"))
    admin.execute(loss.format(url.partition("schema=")[2]))
    with pytest.raises(MetaStoreEmptied):
        store.get("a")
    with pytest.raises(MetaStoreEmptied):
        store.transaction(put(a=b"2"))
    with pytest.raises(MetaStoreEmptied, match="store/witness"):
        PostgresMetaStore(url, objects)
    store.close()


def test_an_older_copy_and_another_stores_database_are_refused(url, admin):
    objects = MemoryObjectStore()
    store = PostgresMetaStore(url, objects)
    store.transaction(put(a=b"1"))
    admin.execute("CREATE TABLE old_meta AS TABLE meta; CREATE TABLE old_summary AS TABLE summary")
    store.transaction(put(a=b"2"))
    store.close()
    admin.execute("TRUNCATE meta, summary; INSERT INTO meta SELECT * FROM old_meta;"
                  " INSERT INTO summary SELECT * FROM old_summary")
    with pytest.raises(MetaStoreCorrupt, match="last transaction"):
        PostgresMetaStore(url, objects)
    other = MemoryObjectStore()
    PostgresMetaStore(f"{url}_other", other).close()
    with pytest.raises(MetaStoreCorrupt, match="store id"):
        PostgresMetaStore(url, other)


def test_a_fork_may_not_use_the_handle(url):
    store = PostgresMetaStore(url)
    a_fork_is_refused(store)
    store.close()


def test_a_fork_waits_for_no_thread_of_its_parent(url):
    store = PostgresMetaStore(url)
    calls = {"get": lambda: store.get("a"), "transaction": lambda: store.transaction(put(a=b"1")), "close": store.close}
    with held_by_a_thread(store._lock):
        outcomes = outcomes_in_a_child(calls)
    assert outcomes["get"].startswith("MetaStoreForked") and outcomes["transaction"].startswith("MetaStoreForked")
    assert outcomes["close"] == ""
    store.transaction(put(a=b"1"))
    store.close()


@pytest.mark.parametrize("slow", ["lock", "connection"])
def test_its_clock_is_not_ahead_by_a_wait(url, monkeypatch, slow):
    store = PostgresMetaStore(url)
    if slow == "lock":
        reader = threading.Thread(target=store.now_ms)
        with held_by_a_thread(store._lock):
            reader.start()
            time.sleep(0.5)
        reader.join()
    else:
        connect = psycopg.connect
        store._disconnect()
        monkeypatch.setattr(psycopg, "connect", lambda *given, **named: time.sleep(0.5) or connect(*given, **named))
    before = wall_clock_ms()
    now_ms = store.now_ms()
    assert before - 400 < now_ms <= wall_clock_ms()         # the server has this machine's clock
    store.close()


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


def interrupt_at(patch, is_hit, *, after=False):
    """A statement for which `is_hit(query, arguments)` is interrupted, before or after the server has run it."""
    execute = psycopg.Connection.execute

    def cut(connection, query, *arguments, **options):
        if not is_hit(query, arguments):
            return execute(connection, query, *arguments, **options)
        if after:
            execute(connection, query, *arguments, **options)
        raise Interrupted

    patch.setattr(psycopg.Connection, "execute", cut)


def test_an_interrupt_while_it_connects_leaves_no_connection_without_timeouts(url, admin, monkeypatch):
    store = PostgresMetaStore(url)
    store._disconnect()
    made, connect = [], psycopg.connect
    with monkeypatch.context() as patch:
        patch.setattr(psycopg, "connect", lambda *given, **named: made.append(connect(*given, **named)) or made[-1])
        interrupt_at(patch, lambda query, arguments: "set_config" in str(query) and arguments[0][0] == "lock_timeout")
        with pytest.raises(Interrupted):
            store.get("a")
    assert [connection.closed for connection in made] == [True]
    assert store._run(lambda connection: connection.execute("SHOW lock_timeout").fetchone()) == ("10s",)
    store.close()


@pytest.mark.parametrize(("statement", "after"), [("BEGIN", True), ("COMMIT", False), ("ROLLBACK", False)])
def test_an_interrupted_transaction_is_not_left_open(url, admin, monkeypatch, statement, after):
    store = PostgresMetaStore(url, busy_timeout_ms=60_000)
    require = {"x": b"another"} if statement == "ROLLBACK" else {}
    with monkeypatch.context() as patch:
        interrupt_at(patch, lambda query, _: query == statement, after=after)
        with pytest.raises(Interrupted):
            store.transaction(MetaOperations(require=require, put={"a": b"1"}))
    admin.execute("SET lock_timeout = '20s'")           # the server itself would end the transaction after 30 s
    assert admin.execute("SELECT serial FROM summary FOR UPDATE").fetchone() == (0,)
    assert store.verify() == 0
    store.transaction(put(b=b"2"))
    assert store.list("") == [("b", b"2")]
    store.close()


def test_a_store_opens_with_its_metadata_in_the_database(url, tmp_path):
    data_url, epoch = f"file://{tmp_path}", hummock.Epoch(1 << 16)
    with hummock.open(data_url, role="writer", meta=url) as store:
        store.ingest_batch(WriteBatch([(b"key", b"one")]), epoch)
        store.commit(epoch)
    with hummock.open(data_url, meta=url) as store:
        assert store.get(b"key", epoch) == b"one"
