"""LATERAL and subqueries in WHERE: for which rows they are computed, and which errors that leaves out."""

from __future__ import annotations

import pytest

import stream
from relational.errors import EvaluationError


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 5), (2, 0), (3, 2); FLUSH")
        yield session


def rows(db, query):
    return sorted((tuple(row) for row in db.sql(query)), key=str)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a.id, q.s FROM t a, LATERAL (SELECT sum(b.id * 10 / a.v) AS s FROM t b WHERE b.id < a.id) q "
         "WHERE a.v <> 0", [(1, None), (3, 15)]),
        ("SELECT a.id FROM t a WHERE (SELECT max(b.v / a.v) FROM t b WHERE b.id < a.id) > 1 AND a.v <> 0", [(3,)]),
        ("SELECT a.id FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.id < a.id AND 4 / a.v > 1 LIMIT 1) AND a.id = 3",
         [(3,)]),
        ("SELECT a.id, q.id FROM (SELECT id, v FROM t WHERE v <> 0) a, LATERAL (SELECT id FROM t b WHERE b.id < a.id "
         "ORDER BY id DESC LIMIT 1) q WHERE 10 / a.v = 5", [(3, 2)]),
    ],
)  # fmt: skip
def test_rows_that_where_leaves_out_fail_nothing(db, query, expected):
    assert rows(db, query) == expected
    db.sql(f"CREATE MATERIALIZED VIEW m AS {query.replace('q.id', 'q.id AS other')}")
    assert rows(db, "SELECT * FROM m") == expected and len(db.sql("SHOW ERRORS")) == 0


def test_a_cell_of_written_rows_fails_for_itself_alone(db):
    query = "SELECT id, x FROM t CROSS JOIN LATERAL (VALUES (id * 10), (10 / v), (7)) AS q(x)"
    with pytest.raises(EvaluationError, match="division by zero"):
        rows(db, query)
    db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
    db.sql("UPDATE t SET v = 1 WHERE id = 1; FLUSH")
    assert rows(db, "SELECT * FROM m") == [
        (1, 10), (1, 10), (1, 7), (2, 20), (2, 7), (2, None), (3, 30), (3, 5), (3, 7)]


def test_lists_stay_whole_as_cells_of_written_rows(db):
    query = "SELECT id, l FROM t, LATERAL (VALUES (ARRAY[1, 2], v), (NULL, 1)) AS q(l, x) WHERE x = 2"
    assert rows(db, query) == [(3, [1, 2])]
