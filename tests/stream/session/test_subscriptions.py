"""SUBSCRIBE and subscriptions in SQL: FETCH gives each change once, to whichever session asks."""

from __future__ import annotations

import random

import pytest

import stream
from hummock.errors import InvalidOption
from relational.errors import BindError, CatalogError, DependencyError, Duplicate, NotFound, ParseError
from stream.errors import CursorTaken, InvalidStatement, SessionClosed
from tests.stream.session.test_change_cursor import replayed
from tests.stream.session.test_change_feed import rows_at
from tests.support.drivers.seeds import amount, run_seed

NEVER_MS = 3_600_000


@pytest.fixture
def db(url):
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        yield session


def fetched(db, count="ALL"):
    return [tuple(row.values()) for row in db.sql(f"FETCH {count} FROM s").rows()]


def test_rows_that_are_there_and_what_changes(db):
    db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); FLUSH")
    db.sql("CREATE SUBSCRIPTION s FROM t WITH (retention = '2 hours')")
    assert db.sql("SHOW SUBSCRIPTIONS").to_pylist() == [{"name": "s", "table": "t", "epoch": None}]
    first = fetched(db, "2")
    assert len(first) == 2 and len(fetched(db, "NEXT")) == 1 and fetched(db, "5") == []
    db.sql("UPDATE t SET v = 20 WHERE id = 2")
    assert fetched(db) == []
    epoch = db.flush()
    assert fetched(db) == [("U-", epoch, 2, 2), ("U+", epoch, 2, 20)]
    db.sql("DROP SUBSCRIPTION s")
    for statement in ("FETCH FROM s", "DROP SUBSCRIPTION s"):
        with pytest.raises(NotFound, match="'s'"):
            db.sql(statement)
    db.sql("DROP SUBSCRIPTION IF EXISTS s")
    assert len(db.sql("SHOW SUBSCRIPTIONS")) == 0


def kept(db):
    """What the store keeps for subscriptions."""
    store = db._host.meta_store
    return [key for prefix in ("stream/cursor/", "hummock/lease/cursor-") for key, _ in store.list(prefix)]


def test_a_table_with_a_subscription_is_dropped_by_cascade(db):
    db.sql("INSERT INTO t VALUES (1, 1); FLUSH; CREATE SUBSCRIPTION s FROM t")
    with pytest.raises(DependencyError, match="'t' is read by subscription s; DROP … CASCADE") as refused:
        db.sql("DROP TABLE t")
    assert refused.value.dependents == ("subscription s",)
    assert len(fetched(db)) == 1 and len(kept(db)) == 2
    db.sql("DROP TABLE t CASCADE")
    assert len(db.sql("SHOW SUBSCRIPTIONS")) == 0 and kept(db) == []
    for _ in range(2):
        with pytest.raises(NotFound, match="no subscription"):
            fetched(db)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE SUBSCRIPTION s FROM t; DROP SUBSCRIPTION s; DROP TABLE t")


@pytest.mark.parametrize(
    "drop", ["DROP TABLE t CASCADE", "ALTER TABLE t DROP COLUMN v CASCADE", "DROP MATERIALIZED VIEW m CASCADE"])
def test_a_view_that_is_dropped_with_others_takes_its_subscription_along(db, drop):
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT v FROM t; CREATE SUBSCRIPTION s FROM m; CREATE TABLE o (id INT)")
    db.sql("CREATE SUBSCRIPTION other FROM o")
    with pytest.raises(DependencyError, match="read by m"):
        db.sql("DROP TABLE t")
    with pytest.raises(DependencyError, match="read by subscription s"):
        db.sql("DROP MATERIALIZED VIEW m")
    db.sql(drop)
    assert [row["name"] for row in db.sql("SHOW SUBSCRIPTIONS").to_pylist()] == ["other"]


def test_a_schema_goes_with_its_subscriptions(db):
    db.sql("CREATE SCHEMA more; CREATE TABLE more.x (id INT); CREATE SUBSCRIPTION s FROM more.x")
    with pytest.raises(DependencyError, match=r"more\.x"):
        db.sql("DROP SCHEMA more")
    db.sql("DROP SCHEMA more CASCADE")
    assert kept(db) == []


def test_a_subscription_goes_on_without_a_column_that_was_dropped(db):
    db.sql("INSERT INTO t VALUES (1, 1); FLUSH; CREATE SUBSCRIPTION s FROM t")
    assert len(fetched(db)) == 1
    db.sql("INSERT INTO t VALUES (2, 2); FLUSH; ALTER TABLE t DROP COLUMN v")
    with pytest.raises(CatalogError, match="'v' was dropped: the next FETCH FROM s goes on without it"):
        fetched(db)
    assert [(row[0], *row[2:]) for row in fetched(db)] == [("+", 2)]


def test_sessions_take_turns_and_lose_nothing(db, url):
    rng, kept = random.Random(run_seed()), {}
    db.sql("CREATE SUBSCRIPTION s FROM t")
    readers = [stream.connect(url, role="reader", refresh_ms=10) for _ in range(2)]
    try:
        for _ in range(amount(40, 300)):
            key = rng.randrange(10)
            db.sql(f"DELETE FROM t WHERE id = {key}")
            if rng.random() < 0.7:
                db.sql(f"INSERT INTO t VALUES ({key}, {rng.randrange(1_000)})")
            db.flush()
            asking = rng.choice((db, *readers))
            asking.wait_epoch(db.committed_epoch)
            try:
                for row in fetched(asking, rng.choice(("1", "2", "ALL"))):
                    kept.setdefault(row[1], {})[row] = None
            except CursorTaken:
                continue
        for _ in range(2):
            try:
                for row in fetched(db):
                    kept.setdefault(row[1], {})[row] = None
                break
            except CursorTaken:
                continue
    finally:
        for reader in readers:
            reader.close()
    in_order = [row for epoch in sorted(kept) for row in sorted(kept[epoch], key=lambda row: row[0] in ("+", "U+"))]
    assert replayed(in_order) == rows_at(db, "t", None)


def test_a_later_process_goes_on(db, url):
    db.sql("INSERT INTO t VALUES (1, 1); FLUSH; CREATE SUBSCRIPTION s FROM t")
    assert len(fetched(db)) == 1
    db.close()
    with stream.connect(url, barrier_interval_ms=NEVER_MS) as again:
        assert fetched(again) == []
        again.sql("INSERT INTO t VALUES (2, 2); FLUSH")
        assert [row[2] for row in fetched(again)] == [2]


def test_subscribe_gives_a_feed_that_ends_with_its_session(db):
    feed = db.sql("SUBSCRIBE TO t")
    db.sql("INSERT INTO t VALUES (1, 1)")
    epoch = db.flush()
    assert feed.read(5)["id"].to_pylist() == [1]
    db.sql("INSERT INTO t VALUES (2, 2); FLUSH")
    assert db.sql(f"SUBSCRIBE t SINCE {epoch}").read(5)["id"].to_pylist() == [2]
    heard = []
    waiting = db.changes("t", db.committed_epoch).start(heard.append)
    db.close()
    assert waiting.error is None and not waiting._thread.is_alive()
    with pytest.raises(SessionClosed):
        feed.read()
    assert list(feed) == []


@pytest.mark.parametrize(
    ("statement", "error", "match"),
    [
        ("SUBSCRIBE nothing", BindError, "nothing"),
        ("SUBSCRIBE p", BindError, "no rows of its own"),
        ("SUBSCRIBE t SINCE now", ParseError, "an epoch"),
        ("SUBSCRIBE t, t", ParseError, "nothing is expected"),
        ("CREATE SUBSCRIPTION s", ParseError, "FROM"),
        ("CREATE SUBSCRIPTION s FROM p", BindError, "no rows of its own"),
        ("CREATE SUBSCRIPTION s FROM t WITH (retention = 'long')", BindError, "retention"),
        ("CREATE SUBSCRIPTION s FROM t WITH (x = '1')", BindError, "retention"),
        ('CREATE SUBSCRIPTION "a b" FROM t', InvalidOption, "a b"),
        ("CREATE SUBSCRIPTION there FROM t", Duplicate, "'there'"),
        ("FETCH FROM s", NotFound, "'s'"),
        ("BEGIN; CREATE SUBSCRIPTION s FROM t", InvalidStatement, "transaction"),
    ],
)
def test_what_is_refused(db, statement, error, match):
    db.sql("CREATE VIEW p AS SELECT * FROM t; CREATE SUBSCRIPTION there FROM t")
    db.sql("CREATE SUBSCRIPTION IF NOT EXISTS there FROM t")
    with pytest.raises(error, match=match):
        db.sql(statement)
    db.sql("ROLLBACK")
    assert [row["name"] for row in db.sql("SHOW SUBSCRIPTIONS").to_pylist()] == ["there"]


def test_cursors_of_a_session_come_before_subscriptions(db):
    db.sql("INSERT INTO t VALUES (1, 1); FLUSH; CREATE SUBSCRIPTION s FROM t; DECLARE s CURSOR FOR SELECT id FROM t")
    assert fetched(db) == [(1,)]
    db.sql("CLOSE s")
    assert fetched(db)[0][2:] == (1, 1)
