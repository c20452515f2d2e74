"""Delta joins through SQL: views without rows of their own equal the ordinary join, after random changes, restarts and
backfills, on both engines."""

import random
from contextlib import ExitStack

import pytest

from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import rows_of

QUERIES = {
    "by_index": "SELECT a.id, a.v, b.id AS other, b.w FROM a JOIN b ON a.k = b.k",
    "by_key": "SELECT a.id, c.k, c.x FROM a JOIN c ON a.k = c.k AND a.v < c.x",
    "filtered": "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k WHERE a.v > 1 AND b.w <> 2",
}


@pytest.fixture
def store():
    with ExitStack() as undo:
        yield EngineStore(undo)


def created(session):
    session.sql("CREATE TABLE a (id INT PRIMARY KEY, k INT, v INT)")
    session.sql("CREATE TABLE b (id INT PRIMARY KEY, k INT, w INT)")
    session.sql("CREATE TABLE c (k INT PRIMARY KEY, x INT)")
    session.sql("CREATE INDEX a_k ON a (k) INCLUDE (v)")
    session.sql("CREATE INDEX b_k ON b (k) INCLUDE (w)")
    return session


def rows(session, query):
    return sorted(rows_of(session.sql(query).to_arrow()), key=repr)


def change(session, rng):
    table, key, value = rng.choice("aabbc"), rng.randrange(12), rng.randrange(5)
    k = rng.choice(["NULL", *map(str, range(4))])
    kind = rng.random()
    if table == "c":
        key %= 4
        session.sql(f"DELETE FROM c WHERE k = {key}")
        if kind < 0.7:
            session.sql(f"INSERT INTO c VALUES ({key}, {value})")
        return
    if kind < 0.3:
        session.sql(f"DELETE FROM {table} WHERE id = {key}")
    elif kind < 0.6:
        session.sql(f"UPDATE {table} SET k = {k}, {'v' if table == 'a' else 'w'} = {value} WHERE id = {key}")
    else:
        session.sql(f"DELETE FROM {table} WHERE id = {key}")
        session.sql(f"INSERT INTO {table} VALUES ({key}, {k}, {value})")


def views(session, names, suffix=""):
    session.sql("SET streaming_enable_delta_join = true")
    for name in names:
        session.sql(f"CREATE MATERIALIZED VIEW {name}{suffix} AS {QUERIES[name]}")


@pytest.mark.parametrize("engines", [(0,), (2,), (0, 2)])
def test_delta_joins_are_what_the_query_says_at_each_epoch(store, engines):
    rng = random.Random(run_seed())
    session = created(store.open(slots=engines[0]))
    for _ in range(20):
        change(session, rng)
    views(session, QUERIES)
    for step in range(10):
        for _ in range(rng.randrange(6)):
            change(session, rng)
        session.flush()
        for name, query in QUERIES.items():
            assert rows(session, f"SELECT * FROM {name}") == rows(session, query), (step, name)
        if step % 3 == 2:
            session.close()
            session = store.open(slots=engines[step // 3 % len(engines)])
    names = {table.name for table in session._playground.catalog.snapshot.tables.values()}
    assert not any(".join" in name for name in names), "they have no rows of their own"
    session.close()
