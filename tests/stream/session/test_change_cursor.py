"""Cursors of change feeds: whatever follower dies, the next one goes on, and no change is lost or doubled."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

import stream
from hummock.errors import InvalidOption, MetaStoreCorrupt
from hummock.meta.leases import read_leases
from relational.errors import NotFound
from stream.errors import CursorExpired, CursorTaken
from stream.session.change_cursor import CURSORS, CursorRow
from tests.stream.session.test_change_feed import Follower, rows_at
from tests.support.drivers.seeds import amount, run_seed

NEVER_MS = 3_600_000


@pytest.fixture
def db(url):
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS, l0_runs=2) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        session.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        yield session


def replayed(changes):
    """The rows after changes (op, epoch, *values), each of which must fit."""
    found = set()
    for op, _, *values in changes:
        if op in ("+", "U+"):
            assert tuple(values) not in found
            found.add(tuple(values))
        else:
            found.remove(tuple(values))
    return found


def change(db, rng):
    for _ in range(rng.randrange(1, 4)):
        key = rng.randrange(30)
        if rng.random() < 0.3:
            db.sql(f"DELETE FROM t WHERE id = {key}")
        else:
            db.sql(f"DELETE FROM t WHERE id = {key}; INSERT INTO t VALUES ({key}, {rng.randrange(1 << 40)})")
    return db.flush()


def test_each_feed_goes_on_where_the_one_before_had_passed(db):
    """Feeds end at any moment; what they have given twice is told by its epoch."""
    rng, kept = random.Random(run_seed()), {}
    for _ in range(amount(40, 400)):
        change(db, rng)
        with db.changes("t", cursor="c") as feed:
            for _ in range(rng.randrange(3)):
                batch = feed.read(0)
                if batch is None:
                    break
                rows = [tuple(row.values()) for row in batch.to_pylist()]
                epoch = rows[0][1]
                assert kept.setdefault(epoch, rows) == rows  # the same again, if it is not new
    with db.changes("t", cursor="c", follow=False) as feed:
        for batch in feed:
            rows = [tuple(row.values()) for row in batch.to_pylist()]
            kept.setdefault(rows[0][1], rows)
    assert list(kept) == sorted(kept)
    assert replayed(change for rows in kept.values() for change in rows) == rows_at(db, "t", None)


def test_its_position_stays_readable_while_nobody_uses_it(db):
    rng, mine = random.Random(run_seed()), Follower()
    change(db, rng)
    with db.changes("t", cursor="c") as feed:
        mine.drain(feed)
    for _ in range(20):
        change(db, rng)
    assert db._playground.storage.version.safe_epoch <= feed.epoch
    with db.changes("t", cursor="c") as feed:
        mine.drain(feed)
    assert mine.rows == rows_at(db, "t", None)
    db.drop_cursor("c")
    with pytest.raises(NotFound, match="'c'"):
        db.drop_cursor("c")
    assert db.cursors().num_rows == 0 and not [
        each for each in read_leases(db._playground.meta_store) if each.node.startswith("cursor-")]


def test_a_retention_that_ran_out_is_named(db):
    rng = random.Random(run_seed())
    change(db, rng)
    with db.changes("t", cursor="c", retention_ms=1_000) as feed:
        while feed.read(0) is not None:
            pass
    time.sleep(1.1)
    for _ in range(10):
        change(db, rng)
        db._playground.manager.compaction_debt()
    limit = time.monotonic() + 20
    while db._playground.storage.version.safe_epoch <= feed.epoch:
        assert time.monotonic() < limit
        change(db, rng)
    with pytest.raises(CursorExpired, match=r"drop_cursor\('c'\)"):
        db.changes("t", cursor="c")
    db.drop_cursor("c")
    mine = Follower()
    with db.changes("t", cursor="c") as feed:
        mine.drain(feed)
    assert mine.rows == rows_at(db, "t", None)


def test_a_feed_in_use_keeps_its_lease(db):
    """A retention of a second, which passes three times while nothing changes."""
    with db.changes("t", cursor="c", retention_ms=1_000) as feed:
        assert feed.read(3) is None
        db.sql("INSERT INTO t VALUES (1, 1)")
        epoch = db.flush()
        assert feed.read(5).to_pylist() == [{"_op": "+", "_epoch": epoch, "id": 1, "v": 1}]


def test_one_feed_uses_it(db, url):
    db.sql("INSERT INTO t VALUES (1, 1); FLUSH")
    first = db.changes("t", cursor="c")
    assert first.read(0).num_rows == 1
    with stream.connect(url, role="reader") as reader, reader.changes("t", cursor="c") as second:
        assert second.read(0).num_rows == 1  # the first one had not passed it
        db.sql("INSERT INTO t VALUES (2, 2); FLUSH")
        with pytest.raises(CursorTaken):
            first.read(0)
        reader.wait_epoch(db.committed_epoch)
        assert second.read(0)["id"].to_pylist() == [2]
        (row,) = reader.cursors().to_pylist()
        assert (row["name"], row["table"]) == ("c", "t") and row["epoch"] < db.committed_epoch
        reader.drop_cursor("c")
        db.sql("INSERT INTO t VALUES (3, 3); FLUSH")
        reader.wait_epoch(db.committed_epoch)
        with pytest.raises(CursorTaken):
            second.read(0)
    first.close()


def test_what_is_refused(db):
    for name in ("", "a b", "x" * 300):
        with pytest.raises(InvalidOption):
            db.changes("t", cursor=name)
    for retention in (0, 999, 1 << 60):
        with pytest.raises(InvalidOption, match="retention_ms"):
            db.changes("t", cursor="c", retention_ms=retention)
    db.changes("t", cursor="c").close()
    with pytest.raises(InvalidOption, match="follows another one"):
        db.changes("u", cursor="c")
    assert db.cursors().to_pylist()[0]["name"] == "c"


def test_the_example_of_the_row():
    row = CursorRow(7, 458_752, 524_288, 86_400_000, "ab" * 8)
    data = (b'{"epoch": 458752, "format": 1, "holder": "abababababababab", "retention_ms": 86400000, "table": 7, '
            b'"target": 524288}')
    assert row.to_bytes() == data and CursorRow.from_bytes(CURSORS + "c", data) == row


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "holder": 3}'])
def test_damaged_rows_are_an_error(data):
    with pytest.raises(MetaStoreCorrupt):
        CursorRow.from_bytes(CURSORS + "c", data)


FOLLOWER = """
import sqlite3, sys, stream
kept = sqlite3.connect(sys.argv[2], isolation_level=None)
kept.execute("PRAGMA synchronous = OFF")
with stream.connect(sys.argv[1], role="reader", refresh_ms=10) as reader:
    print("follows", flush=True)
    for batch in reader.changes("t", cursor="c"):
        rows = [(row["_epoch"], row["_op"], row["id"], row["v"]) for row in batch.to_pylist()]
        kept.executemany("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?)", rows)
"""


def test_followers_are_killed_and_none_is_missed(db, url, tmp_path):
    """Each change is kept once, by its epoch and key, whatever was killed in between."""
    rng, path = random.Random(run_seed()), tmp_path / "kept.sqlite"
    with closing(sqlite3.connect(path)) as kept:
        kept.execute("PRAGMA journal_mode = WAL")
        kept.execute("CREATE TABLE change (epoch, op, id, v, PRIMARY KEY (epoch, op, id))")
        kept.commit()
    for _ in range(amount(4, 50)):
        follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, url, str(path)], stdout=subprocess.PIPE)
        assert follower.stdout.readline() == b"follows\n"
        until = time.monotonic() + rng.random() * 0.5
        while time.monotonic() < until:
            change(db, rng)
        follower.kill()
        follower.wait()
        follower.stdout.close()
    last = [row for batch in db.changes("t", cursor="c", follow=False) for row in batch.to_pylist()]
    with closing(sqlite3.connect(path)) as kept:
        kept.executemany("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?)",
                         [(row["_epoch"], row["_op"], row["id"], row["v"]) for row in last])
        changes = kept.execute("SELECT op, epoch, id, v FROM change ORDER BY epoch, op LIKE '%+'").fetchall()
    assert replayed(changes) == rows_at(db, "t", None)
