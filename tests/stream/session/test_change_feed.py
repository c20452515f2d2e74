"""Change feeds: what a follower applies is the table, at every epoch that it is told, in each process and form."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

import stream
from hummock.errors import EpochTooOld, InvalidEpoch
from relational.errors import CatalogError, NotFound
from stream.errors import JobFailed, SessionClosed
from tests.support.drivers.seeds import amount, run_seed

NEVER_MS = 3_600_000


@pytest.fixture
def db(url):
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v VARCHAR)")
        session.sql("CREATE MATERIALIZED VIEW m AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        yield session


@pytest.fixture(params=["writer", "reader"])
def follower(request, db, url):
    if request.param == "writer":
        yield db
    else:
        with stream.connect(url, role="reader", refresh_ms=10) as session:
            yield session


class Follower:
    """Applies changes to rows, each of which must fit."""

    def __init__(self):
        self.rows, self.epochs = set(), []

    def apply(self, batch):
        for row in batch.to_pylist():
            op, epoch, *values = row.values()
            if not self.epochs or self.epochs[-1] != epoch:
                assert not self.epochs or self.epochs[-1] < epoch
                self.epochs.append(epoch)
            if op in ("+", "U+"):
                assert tuple(values) not in self.rows
                self.rows.add(tuple(values))
            else:
                self.rows.remove(tuple(values))

    def drain(self, feed):
        while (batch := feed.read(0)) is not None:
            self.apply(batch)


def rows_at(db, name, epoch):
    with db.at(epoch) as snapshot:
        return {tuple(row.values()) for row in snapshot.sql(f"SELECT * FROM {name}").rows()}


def work(db, rng):
    kind, key = rng.random(), rng.randrange(20)
    if kind < 0.4:
        db.sql(f"DELETE FROM t WHERE id = {key}; INSERT INTO t VALUES ({key}, {key % 5}, '{rng.random()}')")
    elif kind < 0.6:
        db.sql(f"UPDATE t SET k = {rng.randrange(5)} WHERE id % 7 = {rng.randrange(7)}")
    elif kind < 0.8:
        db.sql(f"DELETE FROM t WHERE id = {key}")
    else:
        db.flush()


@pytest.mark.parametrize("name", ["t", "m"])
def test_what_is_applied_is_the_table_at_each_epoch(db, follower, name):
    rng, mine = random.Random(f"{run_seed()} {name}"), Follower()
    for _ in range(10):
        work(db, rng)
    follower.wait_epoch(db.flush())
    with follower.changes(name) as feed:
        for _ in range(amount(60, 400)):
            for _ in range(rng.randrange(4)):
                work(db, rng)
            follower.wait_epoch(db.flush())
            if rng.random() < 0.6:
                mine.drain(feed)
                assert mine.rows == rows_at(follower, name, feed.epoch)
        mine.drain(feed)
    assert mine.rows == rows_at(db, name, None) and len(mine.epochs) > 10


def test_it_begins_after_an_epoch_and_ends_with_what_there_is(db, follower):
    db.sql("INSERT INTO t VALUES (1, 1, 'a')")
    first = db.flush()
    follower.wait_epoch(first)
    with follower.at(first):
        db.sql("INSERT INTO t VALUES (2, 1, 'b'); UPDATE t SET v = 'c' WHERE id = 1")
        second = db.flush()
        follower.wait_epoch(second)
        (batch,) = follower.table("t").changes(first, follow=False)
        assert batch.schema.names == ["_op", "_epoch", "id", "k", "v"]
        assert sorted((row["_op"], row["_epoch"], row["id"], row["v"]) for row in batch.to_pylist()) == [
            ("+", second, 2, "b"), ("U+", second, 1, "c"), ("U-", second, 1, "a")]
    rows = [row for batch in follower.changes("m", follow=False) for row in batch.to_pylist()]
    assert [(row["_op"], row["k"], row["n"]) for row in rows] == [("+", 1, 2)]
    assert list(follower.changes("t", second, follow=False)) == []


def test_epochs_that_cannot_be_read_are_refused(db, follower):
    for number in range(5):
        db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a')")
        db.flush()
    follower.wait_epoch(db.flush())
    with pytest.raises((EpochTooOld, InvalidEpoch)):
        follower.changes("t", 1 << 62)
    with pytest.raises(InvalidEpoch, match="take one from"):
        follower.changes("t", db.committed_epoch + 1)
    with pytest.raises(NotFound):
        follower.changes("nothing")
    db.sql("CREATE VIEW p AS SELECT * FROM t")
    with pytest.raises(CatalogError):
        follower.changes("p")


def test_a_position_stays_readable_while_the_feed_rests(db, follower):
    mine = Follower()
    with follower.changes("t") as feed:
        mine.drain(feed)
        for number in range(30):
            db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a'); DELETE FROM t WHERE id = {number - 3}")
            db.flush()
            if number % 10 == 0:
                db._playground.storage.meta_client.refresh()
        follower.wait_epoch(db.committed_epoch)
        mine.drain(feed)
    assert {row[0] for row in mine.rows} == {27, 28, 29} and len(mine.epochs) <= 2


def test_a_waiting_one_hears_of_changes_and_of_its_end(db, follower):
    heard, feed = [], follower.changes("t")
    feed.start(lambda batch: heard.extend(batch["id"].to_pylist()))
    for number in range(5):
        db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a')")
        db.flush()
        limit = time.monotonic() + 20
        while number not in heard:
            assert time.monotonic() < limit and feed.error is None
            time.sleep(0.001)
    feed.close()
    assert feed.error is None and heard == list(range(5)) and not feed._thread.is_alive()
    with pytest.raises(SessionClosed):
        feed.read()


def test_what_a_callback_raises_ends_its_thread(db):
    feed = db.changes("t").start(lambda batch: 1 / 0)
    db.sql("INSERT INTO t VALUES (1, 1, 'a'); FLUSH")
    feed._thread.join(20)
    assert isinstance(feed.error, ZeroDivisionError)
    feed.close()


def test_async_for(db, follower):
    async def follow():
        mine = Follower()
        async for batch in follower.changes("t"):
            mine.apply(batch)
            if len(mine.rows) == 3:
                return mine
        return None

    db.sql("INSERT INTO t VALUES (1, 1, 'a'); FLUSH")
    follower.wait_epoch(db.committed_epoch)
    timer = threading.Timer(0.1, lambda: db.sql("INSERT INTO t VALUES (2, 1, 'a'), (3, 1, 'b'); FLUSH"))
    timer.start()
    assert {row[0] for row in asyncio.run(follow()).rows} == {1, 2, 3}
    timer.join()


def test_nothing_is_read_where_nothing_changed(db):
    db.sql("CREATE TABLE other (a BIGINT)")
    with db.changes("t") as feed:
        assert feed.read(0) is None
        calls = db._playground.storage.stats().changes_calls
        for number in range(5):
            db.sql(f"INSERT INTO other VALUES ({number}); FLUSH")
            assert feed.read(0) is None and feed.epoch == db.committed_epoch
        assert db._playground.storage.stats().changes_calls == calls


def test_changes_of_the_table_itself(db, follower):
    """Added columns are not told of, renamed ones keep their names; a dropped one ends the feed, as does the table."""
    db.sql("INSERT INTO t VALUES (1, 1, 'a'); FLUSH")
    follower.wait_epoch(db.committed_epoch)
    with follower.changes("t") as feed, follower.changes("m") as of_view:
        mine = Follower()
        mine.drain(feed)
        db.sql("ALTER TABLE t ADD COLUMN w INT; ALTER TABLE t RENAME COLUMN v TO x")
        db.sql("INSERT INTO t VALUES (2, 1, 'b', 5)")
        follower.wait_epoch(db.flush())
        mine.drain(feed)
        assert mine.rows == {(1, 1, "a"), (2, 1, "b")} and feed.schema.names[-1] == "v"
        db.sql("ALTER TABLE t DROP COLUMN x")
        db.sql("INSERT INTO t VALUES (3, 1, 6)")
        follower.wait_epoch(db.flush())
        with pytest.raises(CatalogError, match="column 'v'"):
            mine.drain(feed)
        db.sql("DROP MATERIALIZED VIEW m; FLUSH")
        follower.wait_epoch(db.committed_epoch)
        with pytest.raises(NotFound, match="'m' was dropped"):
            while True:
                of_view.read()


def test_a_job_that_is_set_aside_ends_the_feed(db, follower):
    meta = db._playground.meta
    with follower.changes("m") as feed:
        while feed.read(0) is not None:
            pass
        meta.failures.refuse({db.table("m").table.id: ValueError("broken")}, meta.catalog.snapshot, 1)
        db.sql("INSERT INTO t VALUES (1, 1, 'a'); FLUSH")
        with pytest.raises(JobFailed):
            while True:
                feed.read(5)


def test_a_deadline_is_kept(db, follower):
    with follower.changes("t") as feed:
        begun = time.monotonic()
        assert feed.read(0.05) is None and time.monotonic() - begun < 20
        assert feed.read(0) is None
