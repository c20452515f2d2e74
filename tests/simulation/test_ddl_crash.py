"""The process dies at each call of a DDL that changes something; what it left has all of the DDL or nothing of it.

Before it died the store had tables, views of all kinds and rows, and rows were on their way that no commit had.
Whoever comes next sees the catalog and the rows from before or from after, goes on with both, and finds no row and no
file that belongs to nothing.
"""

import functools
import random

import pytest

from stream.spark.driver import BulkBackfill
from tests.simulation.ddl_world import Fate, How, World, carry_out, described
from tests.support.drivers.local_shuffle import LocalTasks

BASE = (
    "CREATE SCHEMA shop",
    "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b VARCHAR)",
    "CREATE TABLE shop.u (k INT, v INT)",
    "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'x')",
    "INSERT INTO shop.u VALUES (1, 1), (2, 2)",
    "CREATE MATERIALIZED VIEW sums AS SELECT b, SUM(a) AS total, MIN(a) AS low FROM t GROUP BY b",
    "CREATE MATERIALIZED VIEW sizes AS SELECT total, COUNT(*) AS n FROM sums GROUP BY total",
    "CREATE VIEW shop.big AS SELECT k, v FROM shop.u WHERE v > 1",
    "CREATE MATERIALIZED VIEW shop.counted AS SELECT COUNT(*) AS n FROM shop.big",
    "FLUSH",
)
ON_ITS_WAY = "INSERT INTO t (id, a, b) VALUES (4, 40, 'z')"
DDLS = {
    "create table": "CREATE TABLE fresh (id BIGINT PRIMARY KEY, v INT DEFAULT 5)",
    "create materialized view": "CREATE MATERIALIZED VIEW highs AS SELECT b, MAX(a) AS high FROM t GROUP BY b",
    "create view": "CREATE VIEW few AS SELECT id FROM t WHERE a < 25",
    "create index": "CREATE INDEX by_a ON t (a DESC) INCLUDE (b)",
    "create schema": "CREATE SCHEMA other",
    "create database": "CREATE DATABASE second",
    "add column": "ALTER TABLE t ADD COLUMN c VARCHAR DEFAULT 'old'",
    "drop column": "ALTER TABLE shop.u DROP COLUMN k CASCADE",
    "drop column that nothing reads": "ALTER TABLE t DROP COLUMN unread",
    "drop view cascade": "DROP VIEW shop.big CASCADE",
    "drop table cascade": "DROP TABLE t CASCADE",
    "drop schema cascade": "DROP SCHEMA shop CASCADE",
}


def bulk_materialized_view(session):
    """The same view as above, whose history comes in files."""
    query = session.sql("SELECT b, MAX(a) AS high FROM t GROUP BY b")
    session.create_materialized_view("highs", query, backfill=BulkBackfill(LocalTasks(session, random.Random(1))))


DDLS["bulk materialized view"] = bulk_materialized_view


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["database", "log"])
def base(request):
    """What a process that ended well left behind."""
    world = World(is_log=request.param)
    with world.open() as session:
        for statement in BASE:
            session.sql(statement)
        session.sql("ALTER TABLE t ADD COLUMN unread INT")
    return world


def seen(world):
    with world.open() as session:
        return described(session)


@pytest.fixture(scope="module")
def before(base):
    """What may be there before a DDL: with or without the rows that were on their way."""
    inserted = base.copy()
    assert inserted.live((ON_ITS_WAY, "FLUSH"), Fate())
    return seen(base.copy()), seen(inserted)


@pytest.fixture(scope="module")
def outcome(base):
    """By DDL: how many calls it makes, and what is there after it."""

    @functools.cache
    def found(ddl):
        world, fate = base.copy(), Fate()
        assert world.live((ON_ITS_WAY, ddl), fate)
        return fate.calls, seen(world)

    return found


def check_a_death(base, ddl, fate, before, after):
    """Whether the DDL was done."""
    world = base.copy()
    is_told = world.live((ON_ITS_WAY, ddl), fate)
    world.check_catalog_rows()
    with world.open() as session:
        found = described(session)
        assert found in (*before, after), f"neither before nor after {ddl}"
        assert found == after or not is_told, "it was told to be done"
        check_it_goes_on(session)
        session.flush()
        world.vacuum()
        world.check_files(session)
    is_done = found == after
    if not is_done:
        with world.open() as session:
            carry_out(session, ddl)
            world.check_catalog_rows()
            check_it_goes_on(session)
    return is_done


def check_it_goes_on(session):
    """Tables take rows and views follow them."""
    names = session.names()
    if "t" in names:
        number = session.sql("SELECT MAX(id) AS top FROM t").to_arrow()["top"][0].as_py()
        assert session.sql(f"INSERT INTO t (id, a, b) VALUES ({number + 1}, 1, 'x')") == 1
        assert session.sql(f"UPDATE t SET a = a + 1 WHERE id = {number + 1}") == 1
        session.flush()
        sums = rows(session, "SELECT b, SUM(a) AS total, MIN(a) AS low FROM t GROUP BY b")
        assert rows(session, "SELECT * FROM sums") == sums
        if "highs" in names:
            highs = rows(session, "SELECT b, MAX(a) AS high FROM t GROUP BY b")
            assert rows(session, "SELECT * FROM highs") == highs
        if "by_a" in names:
            assert rows(session, "SELECT a, id, b FROM by_a") == rows(session, "SELECT a, id, b FROM t")
    if "shop.u" in names:
        session.sql("INSERT INTO shop.u (v) VALUES (9)")
        session.flush()
        if "shop.counted" in names:
            large = rows(session, "SELECT COUNT(*) AS n FROM shop.u WHERE v > 1")
            assert rows(session, "SELECT * FROM shop.counted") == large


def rows(session, query):
    return sorted(map(repr, session.sql(query).to_arrow().to_pylist()))


def points_of(calls):
    return [(at, how) for at in range(1, calls + 1) for how in How]


@pytest.mark.parametrize("name", DDLS)
def test_a_death_leaves_all_of_a_ddl_or_nothing(base, before, outcome, name):
    """At the first and the last call, and at one of those between."""
    calls, after = outcome(DDLS[name])
    assert calls >= 2
    rng = random.Random(name)
    points = {(1, How.BEFORE), (calls, How.AFTER), rng.choice(points_of(calls))}
    for at, how in sorted(points):
        check_a_death(base, DDLS[name], Fate(at, how), before, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", DDLS)
def test_a_death_at_any_call_does(base, before, outcome, name):
    calls, after = outcome(DDLS[name])
    done = [check_a_death(base, DDLS[name], Fate(at, how), before, after) for at, how in points_of(calls)]
    assert not done[0] and done[-1], "the last call is the commit, or comes after it"


@pytest.mark.parametrize("name", DDLS)
def test_a_commit_whose_answer_is_lost_is_judged_by_what_is_there(base, outcome, name, monkeypatch):
    """The process lives on: a recovery reads the catalog, and whoever waits for the DDL is told that it was done."""
    _, after = outcome(DDLS[name])
    with base.copy().open() as session:
        committer = session._playground.meta._barriers._committer
        commit, lost = committer.commit, []

        def losing(epoch, sstables, changes):
            commit(epoch, sstables, changes)
            if any(change.operations for change in changes) and not lost:
                lost.append(epoch)
                raise OSError("the answer is lost")

        monkeypatch.setattr(committer, "commit", losing)
        session.sql(ON_ITS_WAY)
        carry_out(session, DDLS[name])
        assert lost and described(session) == after
        check_it_goes_on(session)
