"""Rows of values: written as (a, b), read by their fields, assigned field by field; windows with an offset."""

from datetime import datetime

import pytest

import stream
from relational.errors import BindError, EvaluationError, ParseError


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("""SET rw_implicit_flush = true;
            CREATE TABLE t (id INT PRIMARY KEY, s STRUCT<a INT, b STRUCT<c DATE, d VARCHAR>>);
            CREATE MATERIALIZED VIEW fields AS SELECT id, (s).*, (s).b.d AS deep FROM t;
            CREATE MATERIALIZED VIEW groups AS SELECT (s).b, count(*) AS n FROM t GROUP BY (s).b;
            INSERT INTO t VALUES (1, (10, ('2020-01-02', 'x'))), (2, ROW(20, ROW(NULL, 'y'))), (3, NULL)""")
        yield session


def rows(db, query):
    return [tuple(row.values()) for row in db.sql(query).to_arrow().to_pylist()]


def test_fields_of_rows(db):
    day = datetime(2020, 1, 2).date()
    expected = [(1, 10, {"c": day, "d": "x"}, "x"), (2, 20, {"c": None, "d": "y"}, "y"), (3, None, None, None)]
    assert rows(db, "SELECT * FROM fields ORDER BY id") == expected
    assert rows(db, "SELECT id, (t.s).*, ((s).b).d FROM t ORDER BY id") == expected
    assert db.sql("SELECT (s).a, (s).b.c FROM t").columns == ("a", "c")
    db.sql("UPDATE t SET s = (11, ('2020-01-02', 'x')) WHERE id = 3; DELETE FROM t WHERE id = 2")
    assert rows(db, "SELECT id, a, deep FROM fields ORDER BY id") == [(1, 10, "x"), (3, 11, "x")]
    assert rows(db, "SELECT n FROM groups") == [(2,)]
    assert rows(db, "SELECT id FROM t WHERE (id, (s).a) IN ((1, 10), (2, 20), (3, 12))") == [(1,)]
    assert rows(db, "SELECT id, count(*) AS n FROM t GROUP BY (id, (s).a) ORDER BY (id, 1)") == [(1, 1), (3, 1)]
    assert rows(db, "SELECT id FROM t WHERE s = (11, ('2020-01-02'::date, 'x'))") == [(3,)]


def test_columns_are_set_together(db):
    db.sql("CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT DEFAULT 7); INSERT INTO p VALUES (1, 2, 3)")
    db.sql("UPDATE p SET (a, b) = (b, a)")
    assert rows(db, "SELECT a, b FROM p") == [(3, 2)]
    db.sql("UPDATE p SET (a, b) = (a + 1, DEFAULT)")
    assert rows(db, "SELECT a, b FROM p") == [(4, 7)]


@pytest.mark.parametrize(("text", "kind", "fault"), [
    ("INSERT INTO t VALUES (9, (1, 2, 3))", BindError, "write a CAST"),
    ("INSERT INTO t VALUES (9, (1, (2, 3)))", BindError, "write a CAST"),
    ("INSERT INTO t VALUES (9, (1, ('x', 'y')))", EvaluationError, "invalid text for DATE"),
    ("SELECT (id).* FROM t", BindError, "INT has no fields"),
    ("SELECT (s).z FROM t", BindError, "no field 'z'"),
    ("SELECT (1, NULL) IS NOT NULL", ParseError, "test its values"),
    ("SELECT (1, 2) = (1, 2, 3)", BindError, "rows of 2 and 3 values"),
    ("UPDATE t SET (id, s) = (1)", ParseError, "SET takes"),
    ("UPDATE t SET (s, s) = (NULL, NULL)", BindError, "set twice"),
    ("UPDATE t SET (s) = 1, 2 = 3", ParseError, "SET takes"),
])  # fmt: skip
def test_what_is_refused(db, text, kind, fault):
    with pytest.raises(kind, match=fault):
        answer = db.sql(text)
        answer.to_arrow()
    assert rows(db, "SELECT count(*) AS n FROM t") == [(3,)]


def test_windows_begin_so_much_later_as_their_offset(db):
    db.sql("CREATE TABLE e (id INT PRIMARY KEY, at TIMESTAMP)")
    db.sql("""CREATE MATERIALIZED VIEW w AS
        SELECT id, window_start FROM TUMBLE(e, at, INTERVAL '10' MINUTE, INTERVAL '3' MINUTE)""")
    db.sql("INSERT INTO e VALUES (1, '2020-01-01 00:02:59'), (2, '2020-01-01 00:03:00'), (3, NULL)")
    first, second = datetime(2019, 12, 31, 23, 53), datetime(2020, 1, 1, 0, 3)
    assert rows(db, "SELECT id, window_start FROM w ORDER BY id") == [(1, first), (2, second)]
    lengths = "INTERVAL '5' MINUTE, INTERVAL '10' MINUTE, INTERVAL '-2' MINUTE"
    assert rows(db, f"SELECT window_start, window_end FROM HOP(e, at, {lengths}) WHERE id = 2 ORDER BY 1") == [
        (datetime(2019, 12, 31, 23, 58), datetime(2020, 1, 1, 0, 8)), (second, datetime(2020, 1, 1, 0, 13)),
    ]
    for offset in ("INTERVAL '1' MONTH", "INTERVAL '99999 days'", "id"):
        with pytest.raises(BindError):
            db.sql(f"SELECT * FROM TUMBLE(e, at, INTERVAL '1' DAY, {offset})")
