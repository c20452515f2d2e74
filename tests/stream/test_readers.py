"""Reader sessions: committed rows beside the writer, its epochs followed, one epoch a read, none going back."""

from __future__ import annotations

import random
import threading

import pytest

import stream
from hummock.errors import InvalidOption, StoreNotFound
from relational.errors import BindError, NotFound
from stream.errors import JobCreating, ReadOnlySession, SessionClosed
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.waiting import eventually


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def writer(url):
    with stream.connect(url, create=True, barrier_interval_ms=50) as session:
        yield session


@pytest.fixture
def reader(writer, url):
    with stream.connect(url, role="reader", refresh_ms=20) as session:
        yield session


def rows(db, query):
    return sorted(tuple(row.values()) for row in db.sql(query).rows())


def leases(db):
    return [key for key, _ in db._playground.meta_store.list("hummock/lease/")]


def test_a_reader_sees_what_is_committed_and_what_comes(writer, reader):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    writer.sql("CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(v) AS v FROM t")
    writer.sql("CREATE VIEW large AS SELECT id FROM t WHERE v > 5")
    writer.sql("INSERT INTO t VALUES (1, 1), (2, 20)")
    reader.wait_epoch(writer.flush())
    assert rows(reader, "SELECT * FROM t") == [(1, 1), (2, 20)]
    assert rows(reader, "SELECT * FROM total") == [(2, 21)]
    assert rows(reader, "SELECT * FROM large") == [(2,)]
    assert reader.table("t").get(2) == {"id": 2, "v": 20}
    assert reader.query("SELECT v FROM t WHERE id = ?", [1]).to_pylist() == [{"v": 1}]
    assert reader.sql("SELECT v FROM t WHERE id = :id", {"id": 2}).rows() == [{"v": 20}]
    assert set(reader.names()) >= {"t", "total", "large"}
    before = reader.committed_epoch
    with reader.at() as snapshot:
        writer.sql("DELETE FROM t WHERE id = 1")
        reader.wait_epoch(writer.flush())
        assert rows(reader, "SELECT * FROM total") == [(1, 20)] and reader.committed_epoch > before
        assert snapshot.sql("SELECT * FROM total").rows() == [{"n": 2, "v": 21}]


def test_what_a_reader_shows(writer, reader):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    writer.sql("CREATE MATERIALIZED VIEW w AS SELECT 1 / v AS x FROM t")
    writer.sql("INSERT INTO t VALUES (1, 0)")
    reader.wait_epoch(writer.flush())
    assert [(row["name"], row["state"]) for row in reader.sql("SHOW JOBS").to_pylist()] == [
        ("t", "RUNNING"), ("w", "RUNNING")]
    assert reader.sql("SHOW ERRORS").to_pylist() == writer.sql("SHOW ERRORS").to_pylist() != []
    assert reader.sql("SHOW TABLES").num_rows == 1 and reader.sql("DESCRIBE t").num_rows > 1
    assert "Scan" in reader.explain("SELECT * FROM t") and "only" not in reader.explain("SELECT * FROM t")
    assert reader.source_offsets("t") == {} and reader.failed_jobs == ()
    reader.sql("BEGIN")
    assert rows(reader, "SELECT id FROM t") == [(1,)]
    writer.sql("DELETE FROM t WHERE id = 1")
    reader.wait_epoch(writer.flush())
    assert rows(reader, "SELECT id FROM t") == [(1,)]
    reader.sql("COMMIT")
    assert rows(reader, "SELECT id FROM t") == []


CHANGES = (
    "INSERT INTO t VALUES (1, 1)", "UPDATE t SET v = 1", "DELETE FROM t WHERE id = 1", "CREATE TABLE u (a INT)",
    "CREATE MATERIALIZED VIEW m AS SELECT * FROM t", "CREATE VIEW p AS SELECT * FROM t", "DROP TABLE t", "FLUSH",
    "ALTER TABLE t ADD COLUMN w INT", "SHOW MEMORY", "SHOW EPOCHS", "INSERT INTO t SELECT * FROM t",
    "CREATE SCHEMA s", "CREATE INDEX i ON t (v)", "EXPLAIN ANALYZE t",
)  # fmt: skip


@pytest.mark.parametrize("statement", CHANGES)
def test_changes_are_refused_before_anything_happens(writer, reader, statement):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT); INSERT INTO t VALUES (7, 7); FLUSH")
    reader.wait_epoch(writer.committed_epoch)
    with pytest.raises(ReadOnlySession, match=r"stream\.Inbox"):
        reader.sql(statement)
    with pytest.raises(ReadOnlySession):
        reader.sql("BEGIN; INSERT INTO t VALUES (1, 1)")
    reader.sql("ROLLBACK")
    assert rows(reader, "SELECT * FROM t") == rows(writer, "SELECT * FROM t") == [(7, 7)]


def test_changes_of_handles_are_refused(writer, reader):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT); FLUSH")
    reader.wait_epoch(writer.committed_epoch)
    table = reader.table("t")
    for change in (lambda: table.insert([(1, 1)]), lambda: table.update({"v": 1}), lambda: table.delete(id=1),
                   lambda: reader.sql("INSERT INTO t VALUES (?, ?)", [1, 2])):
        with pytest.raises(ReadOnlySession):
            change()
    assert not hasattr(reader, "create_table")


def test_nothing_is_created_where_no_store_is(tmp_path):
    with pytest.raises(StoreNotFound):
        stream.connect(f"file://{tmp_path}/nothing", role="reader")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(InvalidOption, match="writer, reader"):
        stream.connect(f"file://{tmp_path}/nothing", role="both")


def test_leases_end_with_their_sessions(writer, url):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); FLUSH")
    alone = leases(writer)
    opened = [stream.connect(url, role="reader") for _ in range(5)]
    assert len(leases(writer)) == len(alone) + 5
    for each in opened:
        assert rows(each, "SELECT * FROM t") == []
        each.close()
        each.close()
        with pytest.raises(SessionClosed):
            each.sql("SELECT * FROM t")
    assert leases(writer) == alone


def test_names_appear_with_their_rows_and_vanish_with_them(writer, reader):
    """The reader asks for objects while they are created, altered and dropped."""
    ended, wrong = threading.Event(), []

    def read():
        while not ended.wait(0.001):        # a thread that never waits would have the interpreter most of the time
            try:
                found = rows(reader, "SELECT id, v FROM t")
                total = rows(reader, "SELECT n FROM m")
            except (BindError, JobCreating, NotFound):
                continue
            if len(found) != 100 or total != [(100,)]:
                wrong.append((len(found), total))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(amount(5, 30)):
            writer.sql("CREATE TABLE s AS SELECT n AS id, n AS v FROM generate_series(1, 100) AS g(n)")
            writer.sql("ALTER TABLE s RENAME TO t; CREATE MATERIALIZED VIEW m AS SELECT COUNT(*) AS n FROM t")
            writer.sql(f"ALTER TABLE t ADD COLUMN more{number} INT; FLUSH")
            writer.sql("DROP MATERIALIZED VIEW m; DROP TABLE t")
    finally:
        ended.set()
        thread.join()
    assert wrong == []


def test_each_read_is_at_one_epoch_and_none_goes_back(writer, url):
    """Amounts move between accounts; their total stays, in the table, in views and in joins of both."""
    writer.sql("CREATE TABLE account (id BIGINT PRIMARY KEY, amount BIGINT, changes BIGINT)")
    writer.sql("CREATE MATERIALIZED VIEW total AS SELECT SUM(amount) AS amount, SUM(changes) AS changes FROM account")
    writer.sql("INSERT INTO account SELECT n, 100, 0 FROM generate_series(1, 20) AS g(n); FLUSH")
    ended, wrong, reads = threading.Event(), [], []

    def read():
        last = 0
        with stream.connect(url, role="reader", refresh_ms=10) as reader:
            while not ended.is_set():
                ((amount, changes, of_view),) = rows(
                    reader, "SELECT SUM(amount) AS a, SUM(changes) AS c, (SELECT changes FROM total) AS v FROM account")
                if amount != 2_000 or changes != of_view or changes < last:
                    wrong.append((amount, changes, of_view, last))
                last = changes
                reads.append(changes)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    rng = random.Random(run_seed())
    for _ in range(amount(60, 400)):
        source, target = rng.sample(range(1, 21), 2)
        with writer.transaction():
            writer.sql(f"UPDATE account SET amount = amount - 5, changes = changes + 1 WHERE id = {source}")
            writer.sql(f"UPDATE account SET amount = amount + 5 WHERE id = {target}")
    ended.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(set(reads)) > 3


def test_a_reader_goes_on_when_the_writer_is_another_one(writer, reader, url):
    writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
    reader.wait_epoch(writer.committed_epoch)
    writer.abandon()
    assert rows(reader, "SELECT id FROM t") == [(1,)]
    with stream.connect(url, create=True) as other:
        other.sql("INSERT INTO t VALUES (2)")
        reader.wait_epoch(other.flush())
        assert rows(reader, "SELECT id FROM t") == [(1,), (2,)]


def test_a_job_that_was_set_aside_is_named(writer, reader):
    writer.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT); CREATE TABLE u (id BIGINT PRIMARY KEY, k BIGINT)")
    writer.sql("CREATE SINK s INTO t AS SELECT k, COUNT(*) AS n FROM u GROUP BY k")
    writer.sql("INSERT INTO u VALUES (9, NULL)")
    failed = lambda: {row["name"]: row["state"] for row in reader.sql("SHOW JOBS").to_pylist()}.get("s") == "FAILED"  # noqa: E731
    eventually(failed)
    eventually(lambda: writer.failed_jobs)      # which may learn of its own commit a moment later
    assert [each.reason for each in reader.failed_jobs] == [each.reason for each in writer.failed_jobs] != []


class OnAnotherHost:
    """In place of a CommitListener: hears nothing."""

    def __init__(self, url, refresh):
        pass

    def close(self):
        pass


def test_a_reader_of_a_bucket_asks_little(url, monkeypatch):
    """Of a log of objects: one request a look; for a commit of a few rows its records, which have the rows, and the end
    of the log."""
    monkeypatch.setattr("stream.serving.CommitListener", OnAnotherHost)
    never = 3_600_000
    with (stream.connect(url, create=True, meta="log", barrier_interval_ms=never) as writer,
          stream.connect(url, role="reader", meta="log", refresh_ms=never) as reader):
        writer.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        look, asked = reader._host.manager.refresh, []
        look()
        objects = reader._host.object_store
        get = objects.get
        monkeypatch.setattr(objects, "get", lambda path, *args: asked.append(path) or get(path, *args))
        with reader.changes("t", reader.committed_epoch) as feed:
            for number in range(5):
                for _ in range(20):         # the first looks may find a merge of the commit before
                    asked.clear()
                    look()
                    if len(asked) == 1:
                        break
                (path,) = asked
                assert path.startswith("meta/")
                writer.sql(f"INSERT INTO t VALUES ({number}); FLUSH")
                asked.clear()
                look()
                assert feed.read(0)["id"].to_pylist() == [number]
                assert len(set(asked)) == len(asked)
                assert all(path.startswith("meta/") for path in asked)
                assert len(asked) <= 5, "two of them of merges that may have come in between"
                asked.clear()
