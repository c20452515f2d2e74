"""Views over queries with subqueries, while rows come, change and go: DuckDB answers the same query over the same rows.

`test_random_queries` and `test_view_model` have subqueries too; here is one for each form.
"""

from __future__ import annotations

import duckdb
import pytest

import stream
from relational.errors import EvaluationError
from tests.support.drivers.seeds import amount
from tests.support.suites.duck import assert_same_rows, rows_of

QUERIES = """
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b LIMIT 1)
SELECT id FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.y > a.x)
SELECT id FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM (SELECT k, count(*) AS c FROM b GROUP BY k) q WHERE q.k = a.k AND q.c > 1)
SELECT id FROM a WHERE k IN (SELECT k FROM b)
SELECT id FROM a WHERE k IN (SELECT k FROM b GROUP BY k HAVING count(*) > 1)
SELECT id FROM a WHERE (k, x) IN (SELECT k, y FROM b)
SELECT id FROM a WHERE k NOT IN (SELECT k FROM b)
SELECT id FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)
SELECT id FROM a WHERE id NOT IN (SELECT id FROM b)
SELECT id FROM a WHERE k IN (SELECT k FROM b) OR x > 3
SELECT id, k IN (SELECT k FROM b WHERE b.y = a.x) AS found FROM a
SELECT id, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR x > 3 AS e FROM a
SELECT id FROM a WHERE x > (SELECT avg(y) FROM b)
SELECT id FROM a WHERE x > (SELECT avg(y) FROM b WHERE b.k = a.k)
SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT count(*) + 1 FROM b WHERE b.k = a.k AND y > 2) AS n FROM a
SELECT id, (SELECT max(y) + a.x FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT y FROM b WHERE b.id = a.id) AS n FROM a
SELECT k, sum(x) AS s FROM a GROUP BY k HAVING sum(x) > (SELECT min(y) FROM b)
SELECT k, sum(x) AS s, (SELECT max(y) FROM b WHERE b.k = a.k) AS m FROM a GROUP BY k
SELECT id FROM a WHERE x >= (SELECT max(b.y) FROM b WHERE b.k = a.k AND b.id IN (SELECT id FROM a WHERE x > 1))
SELECT id FROM a AS o WHERE x = (SELECT max(i.x) FROM a AS i WHERE i.k = o.k)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b JOIN a AS c ON b.k = c.k WHERE b.y = a.x AND c.id <> a.id)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k IS NOT DISTINCT FROM a.k)
SELECT CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.y = a.x) THEN 'y' ELSE 'n' END AS c, id FROM a
""".strip().split("\n")
CHANGES = (
    "INSERT INTO a VALUES (1, 1, 1), (2, 1, 5), (3, 2, 3), (4, NULL, 4), (5, 3, 2)",
    "INSERT INTO b VALUES (1, 1, 1), (2, 1, 6), (3, 2, 3), (5, 7, 1)",
    "INSERT INTO b VALUES (4, NULL, 4)",
    "UPDATE b SET k = 3 WHERE id = 2",
    "DELETE FROM b WHERE k = 1",
    "UPDATE a SET k = 7 WHERE id = 3",
    "DELETE FROM b",
)


@pytest.fixture(scope="module", params=[2, 1][:amount(1, 2)], ids=["two actors", "one actor"][:amount(1, 2)])
def kept(request, tmp_path_factory):
    """For each query, the view's rows and DuckDB's after each change."""
    directory = tmp_path_factory.mktemp("subqueries")
    found: dict[str, list] = {query: [] for query in QUERIES}
    with stream.connect(f"file://{directory}/store", create=True,
            barrier_interval_ms=3_600_000, parallelism=request.param) as db:
        duck = duckdb.connect()
        for table in ("a (id INT PRIMARY KEY, k INT, x INT)", "b (id INT PRIMARY KEY, k INT, y INT)"):
            db.sql(f"CREATE TABLE {table}")
            duck.execute(f"CREATE TABLE {table}")
        for number, query in enumerate(QUERIES):
            db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        for at, change in enumerate(("", *CHANGES)):
            if change:
                db.sql(change)
                duck.execute(change)
            db.flush()
            for number, query in enumerate(QUERIES):
                expected = rows_of(duck.sql(query).to_arrow_table())
                found[query].append((rows_of(db.sql(f"SELECT * FROM v{number}").to_arrow()), expected))
                if at % amount(3, 1) == amount(1, 0):
                    assert_same_rows(rows_of(db.sql(query).to_arrow()), expected, ordered=False)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_view_with_a_subquery_is_what_duckdb_says_after_each_change(kept, query):
    for ours, theirs in kept[query]:
        assert_same_rows(ours, theirs, ordered=False)


def test_a_value_of_several_rows_is_an_error_of_a_query_and_null_in_a_view_until_it_is_one_row(tmp_path):
    query = "SELECT id, (SELECT y FROM b WHERE b.k = a.id) AS y FROM a"
    with stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=3_600_000) as db:
        db.sql("CREATE TABLE a (id INT PRIMARY KEY)")
        db.sql("CREATE TABLE b (id INT PRIMARY KEY, k INT, y INT)")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        db.sql("INSERT INTO a VALUES (1), (2)")
        db.sql("INSERT INTO b VALUES (10, 1, 5), (11, 1, 6), (12, 2, 7)")
        db.flush()
        with pytest.raises(EvaluationError, match="more than one row"):
            db.sql(query).rows()
        by_id = "SELECT id, y FROM v ORDER BY id"
        assert [tuple(row.values()) for row in db.sql(by_id).rows()] == [(1, None), (2, 7)]
        db.sql("DELETE FROM b WHERE id = 11")
        db.flush()
        assert [tuple(row.values()) for row in db.sql(by_id).rows()] == [(1, 5), (2, 7)]
