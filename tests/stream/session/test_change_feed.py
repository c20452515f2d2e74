"""Change feeds: what a follower applies is the table, at every epoch that it is told, in each process and form."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import threading
import time

import pytest

import stream
from hummock.errors import EpochTooOld, InvalidEpoch
from relational.errors import CatalogError, NotFound
from relational.table.storage_table import StorageTable
from stream.errors import JobFailed, SessionClosed, StreamError
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


def insert(db, follower, number):
    db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a'); FLUSH")
    follower.wait_epoch(db.committed_epoch)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def ended(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_within(main, seconds=60):
    """The result of `asyncio.run(main())`, which must return by then."""
    results = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(main())), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "asyncio.run waits for a thread of a follower that was cancelled"
    return results[0]


async def ids_of(feed, found):
    async for batch in feed:
        found += batch["id"].to_pylist()


def test_a_program_ends_while_a_follower_that_it_cancelled_was_waiting(follower):
    async def main():
        task = asyncio.create_task(ids_of(follower.changes("t"), []))
        await asyncio.sleep(0.1)
        await ended(task)
        return True

    assert run_within(main)


def test_followers_that_wait_hold_no_thread(db, follower):
    """Neither live nor cancelled ones: each of many hears of a change, and the pool of the loop does other work."""
    insert(db, follower, 1)

    async def main():
        gone, live = [], []
        for _ in range(40):
            found = []
            gone.append(asyncio.create_task(ids_of(follower.changes("t"), found)))
            await until(lambda found=found: found == [1])
        await ended(*gone)
        founds = [[] for _ in range(40)]
        for found in founds:
            live.append(asyncio.create_task(ids_of(follower.changes("t"), found)))
        await until(lambda: founds == [[1]] * 40)
        await asyncio.to_thread(insert, db, follower, 2)
        await until(lambda: founds == [[1, 2]] * 40)
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "done") == "done"
        await ended(*live)
        return True

    assert run_within(main, 120)


def test_a_read_that_was_cancelled_loses_no_batch(db, follower, monkeypatch):
    insert(db, follower, 1)
    begun, goes_on = threading.Event(), threading.Event()
    scan = StorageTable.scan

    def slow(*arguments, **named):
        for chunk in scan(*arguments, **named):
            begun.set()
            assert goes_on.wait(60)
            yield chunk

    monkeypatch.setattr(StorageTable, "scan", slow)

    async def main():
        feed = follower.changes("t")
        task = asyncio.create_task(anext(aiter(feed)))
        await until(begun.is_set)
        await ended(task)
        assert task.cancelled()
        again = asyncio.create_task(anext(aiter(feed)))
        await asyncio.sleep(0.01)
        goes_on.set()
        async with asyncio.timeout(60):
            assert (await again)["id"].to_pylist() == [1]
        await asyncio.to_thread(insert, db, follower, 2)
        assert feed.read(60)["id"].to_pylist() == [2]
        return True

    assert run_within(main)


def test_a_wait_with_a_time_limit_goes_on_afterwards(db, follower):
    async def main():
        batches = aiter(follower.changes("t"))
        found = []
        for number in range(4):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(batches), 0.02)
            insert(db, follower, number)
            async with asyncio.timeout(60):
                found += (await anext(batches))["id"].to_pylist()
        return found

    assert run_within(main) == [0, 1, 2, 3]


def test_the_end_of_the_session_ends_followers(url):
    async def main(session):
        found = []
        task = asyncio.create_task(ids_of(session.changes("t"), found))
        await until(lambda: found == [1])
        session.close()
        async with asyncio.timeout(60):
            await task
        return found

    with stream.connect(url, create=True) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        assert run_within(lambda: main(session)) == [1]


def test_what_fails_within_a_step_leaves_nothing_out(db, follower, monkeypatch):
    insert(db, follower, 1)

    def failing(*arguments, **named):
        raise MemoryError
        yield

    monkeypatch.setattr(StorageTable, "scan", failing)
    with follower.changes("t") as feed:
        with pytest.raises(MemoryError):
            feed.read(0)
        monkeypatch.undo()
        with pytest.raises(StreamError, match="begin another one"):
            feed.read(0)


def follow_by_for(session):
    for _ in session.changes("t"):
        break


def follow_by_async_for(session):
    async def main():
        async for _ in session.changes("t"):
            return

    asyncio.run(main())


def follow_and_fail(session):
    with contextlib.suppress(ZeroDivisionError):
        for batch in session.changes("t"):
            batch["id"][0].as_py() / 0


@pytest.mark.parametrize("follow", [follow_by_for, follow_by_async_for, follow_and_fail])
def test_a_feed_that_nobody_has_is_closed(db, follow):
    """Its epoch is read no longer, and no commit wakes it."""
    for number in range(3):
        db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a'); FLUSH")
    subscribers = len(db._playground.manager.notifications._subscriptions)
    epoch = db.committed_epoch
    follow(db)
    gc.collect()
    assert not db._playground.feeds
    limit = time.monotonic() + 60
    with pytest.raises(EpochTooOld):
        for number in itertools.count(10):
            db.at(epoch).close()
            assert time.monotonic() < limit
            db.sql(f"INSERT INTO t VALUES ({number}, 1, 'a'); FLUSH")
            time.sleep(0.05)
    assert len(db._playground.manager.notifications._subscriptions) == subscribers


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
