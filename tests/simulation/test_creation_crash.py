"""The process dies at calls of the store while a view is created apart from the graph: the next one continues from the
committed pieces, and the view has the rows of its query.

Statements change the table between the pieces, each of which reads a few rows.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future

import pytest

from stream.executor.backfill_pace import BackfillPace
from tests.simulation.ddl_world import CrashPoint, How, World
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.waiting import SOON_SECONDS

BASE = ("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)",
        "INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 7}, {n * 13 % 31})" for n in range(300)), "FLUSH")
# The first statement also takes back the last one, which may be committed before a death that undoes the creation.
MEANWHILE = ("DELETE FROM t WHERE id % 7 = 3 OR id = 1000", "FLUSH", "UPDATE t SET k = k + 1, v = -v WHERE id % 5 = 0",
             "INSERT INTO t VALUES (1000, 50, 1)", "FLUSH")
QUERIES = {
    "groups": "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo FROM t GROUP BY k",
    "groups of groups": "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS q GROUP BY n",
    "both": "SELECT id, v FROM t WHERE v < 10 UNION ALL SELECT k, v FROM t WHERE v > 20",
}
MOST_EARLY_DEATHS = 20


@pytest.fixture(scope="module")
def base():
    world = World.after(BASE)
    world.stream_options = {"detached_creation_bytes": 0, "snapshot_slice_rows": 30, "parallelism": 2}
    return world


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    """A piece has a few slices only."""
    may_read = BackfillPace.may_read
    monkeypatch.setattr(BackfillPace, "may_read", lambda self: self._rows < 60 and may_read(self))
    read = BackfillPace.read

    def counted(self, rows):
        read(self, rows)
        if self._rows >= 60:
            self.end()

    monkeypatch.setattr(BackfillPace, "read", counted)


def create(name):
    """A function that creates the view in a session, and changes its table meanwhile."""

    def run(session):
        created: Future[None] = Future()

        def statement():
            try:
                created.set_result(session.sql(f"CREATE MATERIALIZED VIEW mv AS {QUERIES[name]}"))
            except BaseException as error:
                created.set_exception(error)

        thread = threading.Thread(target=statement)
        thread.start()
        try:
            for each in MEANWHILE:
                session.sql(each)
            created.result(SOON_SECONDS)
        finally:
            if not created.done():
                session.abandon()  # else nobody notices that the process is dead
            thread.join(SOON_SECONDS)

    return run


def calls_of(base, name):
    crash = CrashPoint()
    assert base.copy().run((create(name),), crash)
    return crash.calls


def check_a_death(base, name, crash):
    """Returns whether the creation had begun."""
    world = base.copy()
    is_acknowledged = world.run((create(name),), crash)
    with world.open() as session:
        world.check_catalog_rows()
        exists = "mv" in session.names()
        assert exists or not is_acknowledged
        if not exists:
            create(name)(session)
        world.check_view(session, QUERIES[name])
    return exists


def check_deaths(base, name, count):
    """At random calls, until a creation had begun at one of them."""
    calls = calls_of(base, name)
    rng = random.Random(run_seed())
    begun = []
    while len(begun) < count or not any(begun):
        assert len(begun) < count + MOST_EARLY_DEATHS
        point = CrashPoint(rng.randrange(1, calls + 1), rng.choice(list(How)))
        begun.append(check_a_death(base, name, point))


@pytest.mark.parametrize("name", QUERIES)
def test_a_creation_continues_after_a_death(base, name):
    check_deaths(base, name, amount(3, 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_creation_continues_after_many_deaths(base, name):
    check_deaths(base, name, 150)
