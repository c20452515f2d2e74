"""UPDATE and DELETE with subqueries in their WHERE: DuckDB does the same changes, and has the same rows after each."""

from __future__ import annotations

import duckdb
import pytest

import stream
from relational.errors import BindError
from stream.errors import InvalidStatement
from tests.support.suites.duck import assert_same_rows, rows_of

TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, k INT, x INT)",
    "CREATE TABLE b (p INT, q VARCHAR, y INT, PRIMARY KEY (p, q))",
    "CREATE TABLE c (k INT, z INT)",
)
CHANGES = (
    "INSERT INTO a SELECT g, g % 4, g * 10 FROM generate_series(1, 20) AS q(g)",
    "INSERT INTO b SELECT g % 5, 'q' || g, g FROM generate_series(1, 15) AS q(g)",
    "INSERT INTO c SELECT g % 3, g FROM generate_series(1, 9) AS q(g)",
    "DELETE FROM a WHERE k IN (SELECT p FROM b WHERE y > 13)",
    "UPDATE a SET x = x + 1 WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.z > a.id)",
    "DELETE FROM b WHERE y > (SELECT avg(z) FROM c) AND p < 3",
    "UPDATE b SET y = -y WHERE p NOT IN (SELECT k FROM c WHERE k IS NOT NULL)",
    "DELETE FROM c WHERE z = ANY (SELECT id FROM a) OR k = 0",
    "UPDATE c SET z = 100 WHERE k < (SELECT count(*) FROM a WHERE a.k = c.k)",
    "DELETE FROM a WHERE id = (SELECT max(i.id) FROM a AS i WHERE i.k = a.k)",
    "UPDATE a SET k = 7 WHERE x >= ALL (SELECT i.x FROM a AS i) OR id IN (SELECT p FROM b)",
    "DELETE FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.p)",
)


@pytest.fixture
def db(tmp_path):
    with stream.connect(f"file://{tmp_path}/store", create=True,
            barrier_interval_ms=3_600_000, statement_rows=100) as session:
        for table in TABLES:
            session.sql(table)
        yield session


def test_each_change_is_that_of_duckdb(db):
    duck = duckdb.connect()
    for table in TABLES:
        duck.execute(table)
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, sum(x) AS s FROM a GROUP BY k")
    changed = 0
    for change in CHANGES:
        rows = db.sql(change)
        (expected,) = duck.execute(change).fetchone()
        assert rows == expected, change
        changed += rows
        db.flush()
        for query in ("SELECT * FROM a", "SELECT * FROM b", "SELECT * FROM c"):
            theirs = rows_of(duck.sql(query).to_arrow_table())
            assert_same_rows(rows_of(db.sql(query).to_arrow()), theirs, ordered=False)
        grouped = duck.sql("SELECT k, count(*), sum(x) FROM a GROUP BY k").to_arrow_table()
        assert_same_rows(rows_of(db.sql("SELECT * FROM v").to_arrow()), rows_of(grouped), ordered=False)
    assert changed > 60


def test_a_change_sees_those_before_it_that_are_not_committed(db):
    db.sql("INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)")
    db.sql("INSERT INTO c VALUES (2, 5)")
    assert db.sql("DELETE FROM a WHERE k IN (SELECT k FROM c)") == 1
    assert db.sql("UPDATE a SET x = 9 WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k)") == 1
    assert db.sql("DELETE FROM a WHERE k IN (SELECT k FROM c)") == 0
    db.flush()
    assert db.sql("SELECT * FROM a").rows() == [{"id": 1, "k": 1, "x": 9}]


def test_what_such_a_change_cannot_be_is_refused_before_it_changes_anything(db):
    db.sql("INSERT INTO a SELECT g, 1, 1 FROM generate_series(1, 90) AS q(g)")
    db.sql("INSERT INTO a SELECT g, 1, 1 FROM generate_series(101, 190) AS q(g)")
    with pytest.raises(InvalidStatement, match="180 rows in one UPDATE or DELETE with a subquery; the limit is 100"):
        db.sql("DELETE FROM a WHERE k IN (SELECT 1)")
    with pytest.raises(BindError, match="a subquery is not supported here"):
        db.sql("UPDATE a SET x = (SELECT max(z) FROM c)")
    assert db.sql("DELETE FROM a WHERE id < 3 AND k IN (SELECT 1)") == 2
