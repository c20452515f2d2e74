"""ASOF joins against a loop over all pairs, and DuckDB: queries, and views whose rows come, change and go, on both
engines."""

import random
from contextlib import ExitStack

import duckdb
import pytest

from relational.errors import RelationalError
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed

COMPARISONS = {
    "<": (lambda a, b: a < b, min), "<=": (lambda a, b: a <= b, min),
    ">": (lambda a, b: a > b, max), ">=": (lambda a, b: a >= b, max),
}  # fmt: skip
JOINS = [(kind, sign) for kind in ("JOIN", "LEFT JOIN") for sign in COMPARISONS]
VIEWS = [("JOIN", "<"), ("LEFT JOIN", "<="), ("LEFT JOIN", ">"), ("JOIN", ">=")]
KEYS, VALUES = (None, 1, 2), (None, 0, 1, 2, 3, 4, 5)
SWITCHES = {1: {"slots": 2}, 2: {"parallelism": 2}}
"""After so many rounds another engine goes on: tasks with slots, else the graph."""
ROUNDS = amount(3, 4)


def expected(kind, sign, left, right):
    """(id, id of the closest right row or None) of each row of the join."""
    holds, closest = COMPARISONS[sign]
    found = set()
    for row, (key, value) in left.items():
        fitting = {other: at for other, (own, at) in right.items()
                   if None not in (key, value, own, at) and key == own and holds(value, at)}
        best = closest(fitting.values(), default=None)
        if fitting or kind == "LEFT JOIN":
            found.add((row, min((other for other, at in fitting.items() if at == best), default=None)))
    return found


def query(kind, sign):
    return f"SELECT a.id AS a, b.id AS b FROM a ASOF {kind} b ON b.k = a.k AND a.v {sign} b.v"


def rows_of(db, text):
    return {(row["a"], row["b"]) for row in db.sql(text).to_arrow().to_pylist()}


def changed(db, rng, name, rows):
    """Some rows of a table come, change their key or value, or go."""
    for _ in range(5):
        row, key, value = rng.randrange(12), rng.choice(KEYS), rng.choice(VALUES)
        k, v = ("NULL" if each is None else each for each in (key, value))
        if row not in rows:
            db.sql(f"INSERT INTO {name} VALUES ({row}, {k}, {v})")
            rows[row] = key, value
        elif rng.random() < 0.6:
            db.sql(f"UPDATE {name} SET k = {k}, v = {v} WHERE id = {row}")
            rows[row] = key, value
        else:
            db.sql(f"DELETE FROM {name} WHERE id = {row}")
            del rows[row]


def test_queries_and_views_have_the_closest_rows():
    rng = random.Random(run_seed())
    left, right = {}, {}
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(parallelism=2, chunk_rows=4)
        db.sql("CREATE TABLE a (id INT PRIMARY KEY, k INT, v BIGINT)")
        db.sql("CREATE TABLE b (id INT PRIMARY KEY, k BIGINT, v NUMERIC(6, 2))")
        changed(db, rng, "a", left)
        changed(db, rng, "b", right)
        db.flush()
        for number, join in enumerate(VIEWS):
            db.sql(f"CREATE MATERIALIZED VIEW m{number} AS {query(*join)}")
        for at in range(ROUNDS):
            if at in SWITCHES:
                db.close()
                db = store.open(chunk_rows=4, **SWITCHES[at])
            changed(db, rng, "a", left)
            changed(db, rng, "b", right)
            db.flush()
            assert not db.failed_jobs, db.failed_jobs
            for number, join in enumerate(VIEWS):
                wanted = expected(*join, left, right)
                assert rows_of(db, f"SELECT * FROM m{number}") == wanted, (join, left, right)
                assert rows_of(db, query(*join)) == wanted, (join, left, right)
        assert store.counts["tasks"]


@pytest.fixture(scope="module")
def both():
    """A session and DuckDB with the same rows, whose right values differ within a key."""
    rng = random.Random(5)
    with ExitStack() as undo:
        db = EngineStore(undo).open()
        duck = undo.enter_context(duckdb.connect())
        for each in (db, duck):
            run = each.sql if each is db else each.execute
            run("CREATE TABLE a (id INT PRIMARY KEY, k VARCHAR, v DOUBLE)")
            run("CREATE TABLE b (id INT PRIMARY KEY, k VARCHAR, v DOUBLE)")
        for name, count in (("a", 300), ("b", 100)):
            values = rng.sample(range(2000), count)
            cells = ", ".join(f"({at}, '{rng.choice('xyz')}', {value / 4})" for at, value in enumerate(values))
            db.sql(f"INSERT INTO {name} VALUES {cells}")
            duck.execute(f"INSERT INTO {name} VALUES {cells}")
        db.flush()
        yield db, duck


@pytest.mark.parametrize(("kind", "sign"), JOINS)
def test_a_query_agrees_with_duckdb(kind, sign, both):
    db, duck = both
    assert rows_of(db, query(kind, sign)) == set(duck.execute(query(kind, sign)).fetchall())


def test_a_query_may_use_all_columns_of_both_sides(both):
    db, duck = both
    text = ("SELECT count(*) AS n, sum(a.v - b.v) AS s, max(b.k || a.k) AS m FROM (SELECT * FROM a WHERE id < 90) AS a "
            "ASOF LEFT JOIN b ON a.k = b.k AND b.v + 1 <= a.v WHERE b.id IS NULL OR b.id % 2 = 0")
    (ours,) = db.sql(text).to_arrow().to_pylist()
    assert tuple(ours.values()) == duck.execute(text).fetchone()


ONE = "an ASOF join has an equality at least, and one comparison < <= > or >= of both sides"


@pytest.mark.parametrize(("text", "reason"), [
    ("ASOF JOIN b ON a.k = b.k", ONE),
    ("ASOF JOIN b ON a.v < b.v", ONE),
    ("ASOF JOIN b ON a.k = b.k AND a.v < b.v AND a.id < b.id", ONE),
    ("ASOF JOIN b ON a.k = b.k AND a.v < 3", ONE),
    ("ASOF JOIN b ON a.k = b.k AND a.v <> b.v", ONE),
    ("ASOF JOIN b ON a.k = b.k AND a.v + b.v < b.v", ONE),
    ("ASOF RIGHT JOIN b ON a.k = b.k AND a.v < b.v", "an ASOF join is an ASOF JOIN or an ASOF LEFT JOIN"),
    ("ASOF JOIN b USING (k)", "ASOF JOIN needs ON"),
    ("ASOF JOIN b ON a.k = b.k AND a.v < (SELECT 1)", "a subquery is not supported here"),
])  # fmt: skip
def test_what_is_no_such_join_is_refused(text, reason, both):
    with pytest.raises(RelationalError) as caught:
        both[0].sql(f"SELECT * FROM a {text}")
    assert caught.value.message == reason and "ASOF" in str(caught.value)
