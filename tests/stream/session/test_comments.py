"""COMMENT ON: kept by the catalog with the object, shown by SHOW CREATE, DESCRIBE and pg_description."""

import pytest

import stream
from relational.errors import BindError, RelationalError
from stream.errors import InvalidStatement

NEVER_MS = 3_600_000
OBJECTS = """CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR); CREATE TABLE log (x INT) APPEND ONLY;
    CREATE INDEX i ON t (v);
    CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; CREATE VIEW w AS SELECT id, v FROM t; CREATE SCHEMA shop;
    CREATE TABLE shop.orders (id INT PRIMARY KEY)"""
COMMENTS = {
    "TABLE t": "what's sold; é", "COLUMN t.v": "a -- word", "COLUMN t.id": "the key", "INDEX i": "by word",
    "MATERIALIZED VIEW m": "counts", "COLUMN m.n": "of t", "VIEW w": "both", "COLUMN w.v": "the word again",
    "TABLE shop.orders": "of the shop", "COLUMN shop.orders.id": "the number", 'COLUMN "log"."x"': "a number",
}


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        session.sql(OBJECTS)
        yield session


def rows(found):
    table = found.to_arrow()
    return [tuple(row.values()) for row in table.to_pylist()]


def comment(db, comments=COMMENTS):
    for what, text in comments.items():
        quoted = text.replace("'", "''")
        assert db.sql(f"COMMENT ON {what} IS '{quoted}'") is None


def described(db, name):
    return {row["name"]: row["comment"] for row in db.sql(f"DESCRIBE {name}").to_pylist()}


DESCRIPTIONS = """SELECT n.nspname, c.relname, d.objsubid, d.description FROM pg_description d
    JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.classoid = 1259 ORDER BY 1, 2, 3"""
LISTED = [
    ("public", "i", 0, "by word"), ("public", "log", 1, "a number"), ("public", "m", 0, "counts"),
    ("public", "m", 1, "of t"), ("public", "t", 0, "what's sold; é"), ("public", "t", 1, "the key"),
    ("public", "t", 2, "a -- word"), ("public", "w", 0, "both"), ("public", "w", 2, "the word again"),
    ("shop", "orders", 0, "of the shop"), ("shop", "orders", 1, "the number"),
]


def test_comments_are_listed_as_in_postgresql(db):
    assert rows(db.sql(DESCRIPTIONS)) == []
    comment(db)
    assert rows(db.sql(DESCRIPTIONS)) == LISTED
    of_tables = """SELECT c.relname, pg_catalog.obj_description(c.oid, 'pg_class') AS a, obj_description(c.oid) AS b,
        obj_description(c.oid, 'pg_type') AS x FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'm', 'v')
        ORDER BY 1"""
    assert rows(db.sql(of_tables)) == [
        ("log", None, None, None), ("m", "counts", "counts", None), ("orders", "of the shop", "of the shop", None),
        ("t", "what's sold; é", "what's sold; é", None), ("w", "both", "both", None)]
    of_columns = """SELECT a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS d
        FROM pg_catalog.pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relname = 't' AND a.attnum > 0 ORDER BY a.attnum"""
    for _ in range(3):  # its plan is kept
        assert rows(db.query(of_columns)) == [("id", "the key"), ("v", "a -- word")]
    db.sql("COMMENT ON COLUMN t.id IS 'other'; COMMENT ON COLUMN t.v IS NULL")
    assert rows(db.query(of_columns)) == [("id", "other"), ("v", None)]
    assert rows(db.sql("SELECT obj_description(NULL) AS a, col_description(1, NULL) AS b")) == [(None, None)]


def test_show_create_and_describe_have_them_and_can_be_executed(db):
    comment(db)
    assert described(db, "t") == {"id": "the key", "v": "a -- word"}
    ((_, text),) = rows(db.sql("SHOW CREATE TABLE t"))
    assert text.split(";\n")[1:] == [
        "COMMENT ON TABLE t IS 'what''s sold; é'", "COMMENT ON COLUMN t.id IS 'the key'",
        "COMMENT ON COLUMN t.v IS 'a -- word'"]
    ((_, of_view),) = rows(db.sql("SHOW CREATE MATERIALIZED VIEW m"))
    ((_, of_other),) = rows(db.sql("SHOW CREATE TABLE shop.orders"))
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as other:
        other.sql(f"CREATE SCHEMA shop; {text}; {of_view}; {of_other}")
        assert rows(other.sql(DESCRIPTIONS)) == [each for each in LISTED if each[1] in ("t", "m", "orders")]


def test_they_stay_with_their_object_over_renames_alters_and_restarts(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        db.sql(OBJECTS)
        comment(db)
        db.sql("""DROP VIEW w; ALTER TABLE t RENAME TO s; ALTER TABLE s RENAME COLUMN v TO word;
            ALTER TABLE s ADD COLUMN more INT; ALTER MATERIALIZED VIEW m RENAME TO n;
            INSERT INTO s VALUES (1, 'a', 2)""")
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        assert described(db, "s") == {"id": "the key", "word": "a -- word", "more": None}
        assert described(db, "n")["n"] == "of t"
        listed = [each for each in rows(db.sql(DESCRIPTIONS)) if each[1] in "ns"]
        assert [each[1:] for each in listed] == [
            ("n", 0, "counts"), ("n", 1, "of t"), ("s", 0, "what's sold; é"), ("s", 1, "the key"),
            ("s", 2, "a -- word")]
        assert rows(db.sql("SELECT id, word, more FROM s")) == [(1, "a", 2)]


def test_they_are_dropped_with_their_object_or_column(db):
    comment(db)
    db.sql("DROP VIEW w; DROP INDEX i; ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v VARCHAR; DROP TABLE log")
    assert described(db, "t") == {"id": "the key", "v": None}
    assert [each for each in rows(db.sql(DESCRIPTIONS)) if each[0] == "public"] == [
        ("public", "m", 0, "counts"), ("public", "m", 1, "of t"), ("public", "t", 0, "what's sold; é"),
        ("public", "t", 1, "the key")]
    db.sql("DROP TABLE t CASCADE; CREATE TABLE t (id INT PRIMARY KEY)")
    assert described(db, "t") == {"id": None}
    db.sql("COMMENT ON TABLE shop.orders IS ''; COMMENT ON COLUMN dev.shop.orders.id IS NULL")
    assert rows(db.sql(DESCRIPTIONS)) == []


def test_jobs_and_plans_go_on(db):
    db.sql("INSERT INTO t VALUES (1, 'a'); FLUSH")
    comment(db)
    db.sql("INSERT INTO t VALUES (2, 'b'); UPDATE t SET v = 'c' WHERE id = 1; FLUSH")
    assert rows(db.sql("SELECT n FROM m")) == [(2,)]
    assert rows(db.sql("SELECT id FROM t WHERE v = 'c'")) == [(1,)]
    with pytest.raises(InvalidStatement, match="a transaction takes"):
        db.sql("BEGIN; COMMENT ON TABLE t IS 'x'")
    db.sql("ROLLBACK")


@pytest.mark.parametrize(("text", "reason"), [
    ("COMMENT ON TABLE t IS '" + "x" * 10_001 + "'", "at most 10,000 characters, this has 10,001"),
    ("CREATE MATERIALIZED VIEW x AS SELECT id, obj_description(id) FROM t", "the catalog of the moment"),
    ("SELECT col_description(1)", "takes 2 arguments, not 1"),
    ("COMMENT ON COLUMN t._row_id IS 'x'", "no column '_row_id'"),
])
def test_what_is_refused(db, text, reason):
    with pytest.raises(BindError, match=reason):
        db.sql(text)
    with pytest.raises(RelationalError):
        db.sql("COMMENT ON TABLE nothing IS 'x'")
