"""The process dies at each call of a DDL that changes something; the store then has all of the DDL or nothing of it.

The store has tables, views of all kinds and rows, and uncommitted rows when the process dies. The next process sees the
catalog and the rows from before or from after, continues with both, and finds no orphaned row or file.
"""

import functools
import random

import pytest

from stream.spark.driver import BulkBackfill
from tests.simulation.ddl_world import CrashPoint, How, World, described, execute
from tests.support.drivers.local_shuffle import LocalTasks
from tests.support.drivers.seeds import amount

BASE = (
    "CREATE SCHEMA shop",
    "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b VARCHAR)",
    "CREATE TABLE shop.u (k INT, v INT)",
    "CREATE TABLE kept_long (id BIGINT) APPEND ONLY",
    "CREATE TABLE log (id BIGINT, a INT) APPEND ONLY",
    "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'x')",
    "INSERT INTO shop.u VALUES (1, 1), (2, 2)",
    "CREATE MATERIALIZED VIEW sums AS SELECT b, SUM(a) AS total, MIN(a) AS low FROM t GROUP BY b",
    "CREATE MATERIALIZED VIEW sizes AS SELECT total, COUNT(*) AS n FROM sums GROUP BY total",
    "CREATE TABLE filled (b VARCHAR PRIMARY KEY, n BIGINT) ON CONFLICT OVERWRITE",
    "CREATE SINK kept INTO shop.u (k, v) AS SELECT id, a FROM log",
    "INSERT INTO log VALUES (7, 70)",
    "CREATE VIEW shop.big AS SELECT k, v FROM shop.u WHERE v > 1",
    "CREATE MATERIALIZED VIEW shop.counted AS SELECT COUNT(*) AS n FROM shop.big",
    "FLUSH",
)
UNCOMMITTED = "INSERT INTO t (id, a, b) VALUES (4, 40, 'z')"
DDLS = {
    "create table": "CREATE TABLE fresh (id BIGINT PRIMARY KEY, v INT DEFAULT 5)",
    "create table as": "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT id, a FROM t WHERE id < 4",
    "create sink into": "CREATE SINK fill INTO filled AS SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    "drop sink into": "DROP SINK kept",
    "create materialized view": "CREATE MATERIALIZED VIEW highs AS SELECT b, MAX(a) AS high FROM t GROUP BY b",
    "create view": "CREATE VIEW few AS SELECT id FROM t WHERE a < 25",
    "create index": "CREATE INDEX by_a ON t (a DESC) INCLUDE (b)",
    "create schema": "CREATE SCHEMA other",
    "create database": "CREATE DATABASE second",
    "add column": "ALTER TABLE t ADD COLUMN c VARCHAR DEFAULT 'old'",
    "set ttl": "ALTER TABLE kept_long SET (ttl = '1000 days')",
    "drop column": "ALTER TABLE shop.u DROP COLUMN k CASCADE",
    "drop column that nothing reads": "ALTER TABLE t DROP COLUMN unread",
    "drop view cascade": "DROP VIEW shop.big CASCADE",
    "drop table cascade": "DROP TABLE t CASCADE",
    "drop schema cascade": "DROP SCHEMA shop CASCADE",
}


def bulk_materialized_view(session):
    """The same view as above, whose backfill arrives in files."""
    query = session.sql("SELECT b, MAX(a) AS high FROM t GROUP BY b")
    session.create_materialized_view("highs", query, backfill=BulkBackfill(LocalTasks(session, random.Random(1))))


DDLS["bulk materialized view"] = bulk_materialized_view


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["database", "log"])
def base(request):
    """The store of a process that ended normally."""
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
    """The possible states before a DDL: with or without the uncommitted rows."""
    inserted = base.copy()
    assert inserted.run((UNCOMMITTED, "FLUSH"), CrashPoint())
    return seen(base.copy()), seen(inserted)


@pytest.fixture(scope="module")
def outcome(base):
    """DDL -> the number of its calls, and the state after it."""

    @functools.cache
    def found(ddl):
        world, crash = base.copy(), CrashPoint()
        assert world.run((UNCOMMITTED, ddl), crash)
        return crash.calls, seen(world)

    return found


def check_a_death(base, ddl, crash, before, after):
    """Returns whether the DDL was committed."""
    world = base.copy()
    is_acknowledged = world.run((UNCOMMITTED, ddl), crash)
    world.check_catalog_rows()
    with world.open() as session:
        found = described(session)
        assert found in (*before, after), f"neither before nor after {ddl}"
        assert found == after or not is_acknowledged, "an acknowledged DDL is lost"
        check_it_continues(session)
        session.flush()
        world.vacuum()
        world.check_files(session)
    is_done = found == after
    if not is_done:
        with world.open() as session:
            execute(session, ddl)
            world.check_catalog_rows()
            check_it_continues(session)
    return is_done


def check_it_continues(session):
    """Tables accept rows and views follow them."""
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
    """At the last call; at the first one or one in between, by the DDL."""
    calls, after = outcome(DDLS[name])
    assert calls >= 2
    rng = random.Random(name)
    others = [(1, How.BEFORE), rng.choice(points_of(calls))]
    chosen = others if amount(False, True) else [others[list(DDLS).index(name) % 2]]
    for at, how in sorted({(calls, How.AFTER), *chosen}):
        check_a_death(base, DDLS[name], CrashPoint(at, how), before, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", DDLS)
def test_a_death_at_any_call_does(base, before, outcome, name):
    calls, after = outcome(DDLS[name])
    done = [check_a_death(base, DDLS[name], CrashPoint(at, how), before, after) for at, how in points_of(calls)]
    assert not done[0] and done[-1], "the last call is the commit, or comes after it"


@pytest.mark.parametrize("name", DDLS)
def test_a_commit_whose_answer_is_lost_is_judged_by_what_is_there(base, outcome, name, monkeypatch):
    """The process survives: a recovery reads the catalog and acknowledges the DDL to the waiting statement."""
    _, after = outcome(DDLS[name])
    with base.copy().open() as session:
        committer = session._playground.meta._barriers._committer
        commit, lost = committer.commit, []

        def losing(collected, changes):
            commit(collected, changes)
            if any(change.operations for change in changes) and not lost:
                lost.append(collected.epoch)
                raise OSError("the answer is lost")

        monkeypatch.setattr(committer, "commit", losing)
        session.sql(UNCOMMITTED)
        execute(session, DDLS[name])
        assert lost and described(session) == after
        check_it_continues(session)
