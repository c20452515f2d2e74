"""The process dies at each call of a bulk backfill that changes something: the view exists with all rows or not at all.

Statements change its table between the reads of the tasks and the first barrier of the view, which has to catch up.
"""

import random

import pytest

from stream.spark.driver import BulkBackfill
from tests.simulation.ddl_world import CrashPoint, How, World, described
from tests.support.drivers.local_shuffle import LocalTasks
from tests.support.drivers.seeds import amount

BASE = ("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)",
        "INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 7}, {n * 13 % 31})" for n in range(90)), "FLUSH")
MEANWHILE = ("DELETE FROM t WHERE id % 7 = 3", "UPDATE t SET k = k + 1, v = -v WHERE id % 5 = 0",
             "INSERT INTO t VALUES (1000, 50, 1)", "FLUSH")
QUERIES = {
    "groups": "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo FROM t GROUP BY k",
    "groups of groups": "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS q GROUP BY n",
}


@pytest.fixture(scope="module")
def base():
    return World.after(BASE)


def backfill(name, meanwhile=()):
    """A function that creates the view in a session."""
    def create(session):
        def during():
            for statement in meanwhile:
                session.sql(statement)

        tasks = LocalTasks(session, random.Random(name), during)
        session.create_materialized_view("mv", session.sql(QUERIES[name]), backfill=BulkBackfill(tasks))

    return create


def calls_of(base, name):
    crash = CrashPoint()
    assert base.copy().run((backfill(name, MEANWHILE),), crash)
    return crash.calls


def check_a_death(base, name, crash):
    world = base.copy()
    is_acknowledged = world.run((backfill(name, MEANWHILE),), crash)
    with world.open() as session:
        world.check_catalog_rows()                  # the start has finished or undone what a dead process left
        assert not session._playground.catalog.refresh().loaded
        exists = "mv" in described(session)
        assert exists or not is_acknowledged
        if not exists:
            backfill(name)(session)
        world.check_view(session, QUERIES[name])


def points_of(calls):
    return [(at, how) for at in range(1, calls + 1) for how in How]


@pytest.mark.parametrize("name", QUERIES)
def test_a_death_leaves_all_of_a_view_or_nothing(base, name):
    """At the first and the last call, and at some in between."""
    calls = calls_of(base, name)
    points = {(1, How.BEFORE), (calls, How.AFTER), *random.Random(name).sample(points_of(calls), amount(4, 10))}
    for at, how in sorted(points):
        check_a_death(base, name, CrashPoint(at, how))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_death_at_any_call_does(base, name):
    for at, how in points_of(calls_of(base, name)):
        check_a_death(base, name, CrashPoint(at, how))
