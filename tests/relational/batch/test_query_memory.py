"""Queries with less memory than their rows take give the rows that they give with all the memory there is."""

import gc
import math
import random

import pytest

from relational.batch import QueryMemory, plan_query, run_query
from relational.batch.run import chunks_of
from relational.chunk import Op
from relational.errors import QueryTooLarge
from relational.sql import bind_sql
from tests.relational.random_rows import random_rows
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.seeds import run_seed

ROWS = 4_000
MEMORY = [800_000 >> half for half in range(0, 6, 2)]
TABLES = {
    "t": "id BIGINT PRIMARY KEY, k INT, d DOUBLE, s VARCHAR, n NUMERIC(20, 4), j JSONB, a INT[], "
         "p STRUCT<x INT, y VARCHAR>, seen TIMESTAMP, span INTERVAL, b BOOLEAN, raw BYTEA",
    "u": "id BIGINT PRIMARY KEY, k INT, d DOUBLE, v VARCHAR",
}
QUERIES = {
    "order by text": "SELECT * FROM t ORDER BY s, id",
    "order by several": "SELECT * FROM t ORDER BY d DESC NULLS LAST, n, b, id DESC",
    "order by nested values": "SELECT p, a, j, id FROM t ORDER BY p, a, j, id",
    "ties": "SELECT k, id FROM t ORDER BY k",
    "many first rows": "SELECT id, s FROM t ORDER BY s, id LIMIT 2000000 OFFSET 100",
    "inner join": "SELECT t.*, u.v FROM t JOIN u ON t.k = u.k",
    "inner join by floats": "SELECT t.id, u.id AS uid FROM t JOIN u ON t.d = u.d AND t.k = u.k",
    "left join": "SELECT t.id, t.raw, u.id AS uid FROM t LEFT JOIN u ON t.k = u.k AND u.id % 3 = 0",
    "right join": "SELECT t.id, t.span, u.* FROM t RIGHT JOIN u ON t.k = u.k",
    "full join": "SELECT t.id, t.p, u.id AS uid FROM t FULL JOIN u ON t.k = u.k AND t.id < u.id",
    "null-safe join": "SELECT t.id, u.id AS uid FROM t JOIN u ON t.k IS NOT DISTINCT FROM u.k AND t.d = u.d",
    "semi join": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.id > t.id)",
    "anti join": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "not in": "SELECT id, s FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL AND id % 2 = 0)",
    "rows without columns": "SELECT count(*) AS n FROM t JOIN u ON t.k = u.k",
    "groups": "SELECT s, k, count(*) AS c, sum(n) AS n, max(seen) AS m FROM t GROUP BY s, k",
    "groups by floats": "SELECT d, count(*) AS c, sum(id) AS i FROM t GROUP BY d",
    "groups by nested values": "SELECT p, a, count(*) AS c FROM t GROUP BY p, a",
    "distinct arguments": "SELECT k, count(DISTINCT s) AS c, sum(DISTINCT n) AS n FROM t GROUP BY k",
    "kept rows": "SELECT k, array_agg(s ORDER BY id) AS a, string_agg(s, ',' ORDER BY id DESC) AS t, "
                 "percentile_disc(0.5) WITHIN GROUP (ORDER BY id) AS p FROM t GROUP BY k",
    "distinct rows": "SELECT DISTINCT s, b, d FROM t",
    "windows": "SELECT id, row_number() OVER w AS r, sum(n) OVER w AS s, lag(s) OVER w AS l FROM t "
               "WINDOW w AS (PARTITION BY k ORDER BY seen, id)",
    "union": "SELECT k, d FROM t UNION SELECT k, d FROM u",
    "except": "SELECT k, d FROM t EXCEPT SELECT k, d FROM u",
    "a shared query": "WITH q AS (SELECT s, k, count(*) AS n, min(id) AS id FROM t GROUP BY s, k) "
                      "SELECT a.s, b.s AS t, a.n FROM q AS a JOIN q AS b ON a.id = b.id + 1",
    "all of it": "WITH q AS (SELECT t.k, t.s, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY t.k, t.s) "
                 "SELECT *, rank() OVER (PARTITION BY k ORDER BY n, s) AS r FROM q ORDER BY n, k, s",
}

ORDERED = ("order by text", "order by several", "order by nested values", "ties", "many first rows", "all of it")


@pytest.fixture(scope="module")
def session():
    rng, session = random.Random(run_seed()), BatchSession()
    for name, columns in TABLES.items():
        session.sql(f"CREATE TABLE {name} ({columns})")
        table = session.catalog.resolve(name)
        rows = random_rows(rng, list(table.schema.types[3:]), ROWS)
        ids = rng.sample(range(3 * ROWS), ROWS)
        whole = ((id, key(rng), float_key(rng), *rest) for id, rest in zip(ids, rows, strict=True))
        session.write(table, [(Op.INSERT, row) for row in whole])
    return session


def key(rng):
    return None if rng.random() < 0.05 else rng.randrange(900)


def float_key(rng):
    """Some of these are equal in SQL's sense alone."""
    return rng.choice([None, 0.0, -0.0, math.nan, *map(float, range(300))])


def answer(session, query, memory):
    (statement,) = bind_sql(query, session.catalog)
    plan, shown = statement.plan, statement.plan.visible
    chunks = chunks_of(plan_query(plan), session.store, session.epoch, memory=memory)
    return [repr(row) for chunk in chunks for row in chunk.project(shown).rows()]


@pytest.mark.parametrize(("name", "query"), QUERIES.items(), ids=QUERIES)
def test_less_memory_gives_the_same_rows(session, name, query):
    expected, spilled = answer(session, query, None), 0
    for size in MEMORY:
        memory = QueryMemory(size)
        try:
            found = answer(session, query, memory)
        except QueryTooLarge as error:  # the rows of one key do not fit
            assert error.option == "query_memory_bytes"
        else:
            assert sorted(found) == sorted(expected)
            assert found == expected or name not in ORDERED
            spilled += memory.counts.query_spilled_bytes > 0
        gc.collect()
        assert (memory.counts.query_memory_bytes, memory.counts.query_disk_bytes) == (0, 0)
    assert spilled, "the tables have too few rows for these sizes of memory"


@pytest.mark.parametrize(("query", "what"), [
    ("SELECT * FROM t", "the result of a query"),
    ("SELECT count(DISTINCT s || id::text) FROM t", "the groups of an aggregation"),
    ("SELECT lag(s) OVER (ORDER BY id) FROM t", "the rows of a window"),
    ("SELECT count(*) FROM t JOIN u ON t.id < u.id", "rows that a join keeps"),
])
def test_what_cannot_be_on_disk_is_refused(session, query, what):
    (statement,) = bind_sql(query, session.catalog)
    memory = QueryMemory(100_000)
    with pytest.raises(QueryTooLarge, match=f"bytes of {what} beyond the limit of 100,000, which query_memory_bytes"):
        run_query(statement.plan, session.store, session.epoch, memory=memory)
    gc.collect()
    assert (memory.counts.query_memory_bytes, memory.counts.query_disk_bytes) == (0, 0)
