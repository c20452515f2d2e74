"""Temporal joins through SQL, on both engines: each row with the table's version of its time, once."""

import random
from contextlib import ExitStack

import pytest

from relational.errors import BindError, ParseError
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed

LIFE = amount(2, 4)
"""The steps of a session."""
JOIN = "FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = t.k"
LEFT = "FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.k % 5 = d.k AND d.v > 1"


@pytest.fixture
def store():
    with ExitStack() as undo:
        yield EngineStore(undo)


def created(session):
    session.sql("CREATE TABLE s (id INT PRIMARY KEY, k INT) APPEND ONLY")
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT, w VARCHAR)")
    return session


def rows(session, query):
    return sorted((tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()), key=repr)


def change(session, table, rng):
    """A random change of the table `t`, as the next epoch sees it."""
    key, value = rng.randrange(6), rng.randrange(4)
    if key not in table:
        session.sql(f"INSERT INTO t VALUES ({key}, {value}, 'w{value}')")
    elif rng.random() < 0.4:
        session.sql(f"DELETE FROM t WHERE k = {key}")
        del table[key]
        return
    else:
        session.sql(f"UPDATE t SET v = {value}, w = 'w{value}' WHERE k = {key}")
    table[key] = value


@pytest.mark.parametrize("engines", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("cache_bytes", [1 << 20, 1])
def test_each_row_meets_the_version_of_its_epoch_once(store, engines, cache_bytes):
    rng, table, joined, outer, number = random.Random(run_seed()), {}, [], [], 0
    session = created(store.open(slots=engines[0], state_cache_bytes=cache_bytes))
    for _ in range(6):
        change(session, table, rng)
    session.sql(f"CREATE MATERIALIZED VIEW inner_ AS SELECT s.id, t.v, t.w {JOIN}")
    session.sql(f"CREATE MATERIALIZED VIEW outer_ AS SELECT s.id, d.v {LEFT}")
    session.sql(f"CREATE MATERIALIZED VIEW counts AS SELECT t.v, count(*) AS n {JOIN} GROUP BY t.v")
    for step in range(LIFE * (1 + len(engines))):
        for _ in range(rng.randrange(3)):
            change(session, table, rng)
        session.flush()
        added = [(number + at, rng.choice([None, *range(8)])) for at in range(rng.randrange(1, 5))]
        number += len(added)
        session.sql("INSERT INTO s VALUES " + ", ".join(f"({i}, {'NULL' if k is None else k})" for i, k in added))
        session.flush()
        joined += [(i, table[k], f"w{table[k]}") for i, k in added if k in table]
        outer += [(i, value if (value := table.get(None if k is None else k % 5)) is not None and value > 1 else None)
                  for i, k in added]
        assert rows(session, "SELECT * FROM inner_") == sorted(joined, key=repr), step
        assert rows(session, "SELECT * FROM outer_") == sorted(outer, key=repr), step
        assert sum(n for _, n in rows(session, "SELECT v, n FROM counts")) == len(joined)
        if step % LIFE == LIFE - 1:
            session.close()
            slots = engines[(step // LIFE) % len(engines)]
            session = store.open(slots=slots, state_cache_bytes=cache_bytes)
    session.close()


def test_a_view_that_is_created_later_joins_the_rows_of_before_with_the_table_of_now(store):
    session = created(store.open())
    session.sql("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    session.sql("INSERT INTO s VALUES (1, 1), (2, 2), (3, 3)")
    session.sql("UPDATE t SET v = 11 WHERE k = 1")
    session.flush()
    session.sql(f"CREATE MATERIALIZED VIEW v AS SELECT s.id, t.v {JOIN}")
    assert rows(session, "SELECT * FROM v") == [(1, 11), (2, 20)]
    session.sql("DELETE FROM t WHERE k = 2")
    session.flush()
    assert rows(session, "SELECT * FROM v") == [(1, 11), (2, 20)]
    assert rows(session, f"SELECT s.id, t.v {JOIN}") == [(1, 11)], "a query sees one epoch"


def test_its_rows_are_append_only_and_it_keeps_no_state(store):
    session = created(store.open())
    session.sql(f"CREATE MATERIALIZED VIEW v AS SELECT s.id, t.v {JOIN}")
    assert session.table("v").table.is_append_only
    plan = "\n".join(session.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w AS SELECT s.id, t.v {JOIN}")["plan"].to_pylist())
    assert "TemporalJoin inner on k = k" in plan and "join0" not in plan


@pytest.mark.parametrize(("query", "reason"), [
    ("SELECT s.id FROM s FULL JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = t.k", "a JOIN or a LEFT JOIN"),
    ("SELECT u.k FROM t AS u JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON u.v = t.k", "append-only"),
    ("SELECT s.id FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = t.v", "primary key"),
    ("SELECT s.id FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k > t.k", "primary key"),
    ("SELECT s.id FROM s, t FOR SYSTEM_TIME AS OF PROCTIME() WHERE s.k = t.k", "right side of a JOIN"),
    ("SELECT t.k FROM t FOR SYSTEM_TIME AS OF PROCTIME()", "right side of a JOIN"),
    ("SELECT s.id FROM s JOIN t FOR SYSTEM_TIME AS OF '2020-01-01' ON s.k = t.k", "PROCTIME"),
])  # fmt: skip
def test_what_is_no_temporal_join_is_refused(store, query, reason):
    session = created(store.open())
    with pytest.raises((BindError, ParseError), match=reason):
        session.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
