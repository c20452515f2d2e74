"""ALTER … RENAME of tables, views, indexes and columns, with jobs that read them, across restarts; TRUNCATE."""

import time

import pytest

import stream
from relational.errors import BindError
from stream.errors import AppendOnlyViolation
from tests.support.drivers.seeds import amount


def rows(db, query):
    return sorted((tuple(row.values()) for row in db.sql(query).to_arrow().to_pylist()), key=str)


def opened(url):
    db = stream.connect(url, create=True, barrier_interval_ms=amount(100, 20))
    db.sql("SET rw_implicit_flush = true")
    return db


def test_names_change_and_jobs_go_on_after_a_restart(tmp_path):
    url = f"file://{tmp_path}/store"
    with opened(url) as db:
        db.sql("""
            CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR, b INT);
            CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n, max(b) AS most FROM t GROUP BY a;
            CREATE MATERIALIZED VIEW over AS SELECT sum(n) AS n FROM m;
            CREATE VIEW v AS SELECT a FROM t;
            CREATE INDEX i ON t (a);
            INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20), (3, NULL, NULL);
            ALTER TABLE t RENAME TO u;
            ALTER TABLE u RENAME COLUMN b TO c;
            ALTER MATERIALIZED VIEW m RENAME TO "M 2";
            ALTER INDEX i RENAME TO j;
            ALTER VIEW v RENAME TO w;
            INSERT INTO u (id, a, c) VALUES (4, 'x', 40);
        """)
        expected = {
            "SELECT * FROM u": [(1, "x", 10), (2, "y", 20), (3, None, None), (4, "x", 40)],
            'SELECT * FROM "M 2" WHERE a IS NOT NULL': [("x", 2, 40), ("y", 1, 20)],
            "SELECT n FROM over": [(4,)],
            "SELECT count(a) AS n FROM w": [(3,)],
            "SELECT count(*) AS n FROM j": [(4,)],
        }
        assert {query: rows(db, query) for query in expected} == expected
        for kind, name in (("TABLE", "t"), ("MATERIALIZED VIEW", "m"), ("INDEX", "i"), ("VIEW", "v")):
            with pytest.raises(BindError, match="there is no table or view"):
                db.sql(f"DROP {kind} {name}")
        assert db.sql("SHOW CREATE TABLE u")["definition"][0].as_py().startswith("CREATE TABLE u (id INT, a VARCHAR, c")
        shown = db.sql('SHOW CREATE MATERIALIZED VIEW "M 2"')["definition"][0].as_py()
        assert shown.startswith('CREATE MATERIALIZED VIEW "M 2" AS SELECT a, count(*)')
    with opened(url) as db:
        db.sql("""DELETE FROM u WHERE id = 4; UPDATE u SET c = 5 WHERE id = 1; INSERT INTO u VALUES (5, 'y', 50);
            CREATE TABLE t (z INT); ALTER TABLE u ADD COLUMN d INT DEFAULT 1""")
        assert rows(db, 'SELECT * FROM "M 2" WHERE a IS NOT NULL') == [("x", 1, 5), ("y", 2, 50)]
        assert rows(db, "SELECT n FROM over") == [(4,)]
        assert rows(db, "SELECT count(*) AS n FROM j") == [(4,)]
        db.sql("DROP TABLE u CASCADE; DROP TABLE t")
        assert db.names() == ()


def test_a_view_of_a_source_keeps_its_offsets(tmp_path):
    url = f"file://{tmp_path}/store"
    with opened(url) as db:
        db.sql("""CREATE SOURCE s (k BIGINT) WITH (connector = 'datagen', rows = 3000, rows_per_second = 2000,
            fields.k.kind = 'sequence', fields.k.start = 1, fields.k.end = 1000000);
            CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(k) AS s FROM s;
            ALTER MATERIALIZED VIEW m RENAME TO k""")
        assert db.source_offsets("k")
    with opened(url) as db:
        for _ in range(300):
            ((n, s),) = rows(db, "SELECT n, s FROM k")
            if n == 3000:
                break
            time.sleep(0.02)
        assert (n, s) == (3000, 3000 * 3001 // 2)


@pytest.mark.parametrize(("text", "fault"), [
    ("ALTER TABLE t RENAME TO v", "already a table or view 'v'"),
    ("ALTER TABLE t RENAME TO \"\"", "cannot name a table"),
    ("ALTER TABLE t RENAME COLUMN a TO id", "has a column 'id' already"),
    ("ALTER TABLE t RENAME b TO c", "no column 'b'"),
    ("ALTER TABLE t RENAME a TO b", "is read by v: drop it first"),
    ("ALTER VIEW t RENAME TO w", "use ALTER TABLE"),
    ("ALTER SINK k RENAME TO w", "which keeps its name"),
    ("ALTER TABLE into_this RENAME TO x", "is written by w: drop it first"),
    ("TRUNCATE v", "a view"),
    ("TRUNCATE log", "TRUNCATE of append-only table"),
])  # fmt: skip
def test_what_is_refused(text, fault):
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as db:
        db.sql("""CREATE TABLE t (id INT PRIMARY KEY, a INT); CREATE VIEW v AS SELECT a FROM t;
            CREATE TABLE log (x INT) APPEND ONLY; CREATE SINK k FROM t WITH (connector = 'blackhole');
            CREATE TABLE into_this (id INT PRIMARY KEY); CREATE SINK w INTO into_this AS SELECT id FROM t""")
        before = db._playground.catalog.version
        with pytest.raises((BindError, AppendOnlyViolation), match=fault):
            db.sql(text)
        assert db._playground.catalog.version == before


def test_truncate_is_a_delete_that_views_follow():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as db:
        db.sql("""SET rw_implicit_flush = true; CREATE TABLE t (id INT PRIMARY KEY);
            CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; INSERT INTO t VALUES (1), (2)""")
        assert db.sql("TRUNCATE TABLE t") == 2
        assert rows(db, "SELECT n FROM m") == [(0,)]
        assert db.sql("TRUNCATE t") == 0
