"""pg_catalog and information_schema, as psql, DBeaver and SQLAlchemy read them."""

import pytest

import stream
from relational.errors import BindError

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE t (id INT, a VARCHAR(10) NOT NULL, b NUMERIC(10, 2) DEFAULT 1.5, c INT[], PRIMARY KEY (a, id));
CREATE TABLE shop.u (x DOUBLE);
CREATE VIEW v AS SELECT a FROM t;
CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a;
CREATE INDEX i ON t (b DESC);
"""


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql(TABLES)
        yield session


def rows(db, query):
    return [tuple(row.values()) for row in db.sql(query).to_arrow().to_pylist()]


def test_what_psql_lists(db):
    listed = rows(db, """
        SELECT n.nspname AS "Schema", c.relname AS "Name",
          CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
            WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' END AS "Type",
          pg_catalog.pg_get_userbyid(c.relowner) AS "Owner"
        FROM pg_catalog.pg_class c
          LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
        WHERE c.relkind IN ('r','p','v','m','S','f','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
          AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid)
        ORDER BY 1, 2""")
    assert listed == [
        ("public", "m", "materialized view", "root"), ("public", "t", "table", "root"), ("public", "v", "view", "root"),
        ("shop", "u", "table", "root"),
    ]


def test_what_psql_describes(db):
    ((oid, schema, name),) = rows(db, """
        SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
          LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default
          AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3""")
    assert (schema, name) == ("public", "t")
    columns = rows(db, f"""
        SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, d.adbin
        FROM pg_catalog.pg_attribute a
          LEFT JOIN pg_catalog.pg_attrdef d ON (a.attrelid = d.adrelid AND a.attnum = d.adnum)
        WHERE a.attrelid = '{oid}' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum""")
    assert columns == [
        ("id", "integer", False, None), ("a", "character varying(10)", True, None),
        ("b", "numeric(10,2)", False, "1.50"), ("c", "integer[]", False, None),
    ]
    indexes = rows(db, f"""
        SELECT c2.relname, i.indisprimary, i.indisunique, i.indkey, con.contype
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON c.oid = i.indrelid
          JOIN pg_catalog.pg_class c2 ON i.indexrelid = c2.oid
          LEFT JOIN pg_catalog.pg_constraint con ON con.conindid = i.indexrelid
        WHERE c.oid = {oid} ORDER BY i.indisprimary DESC, c2.relname""")
    assert indexes == [("t_pkey", True, True, [2, 1], "p"), ("i", False, False, [3, 2, 1], None)]


def test_information_schema(db):
    assert rows(db, "SELECT table_schema, table_name, table_type FROM information_schema.tables ORDER BY 1, 2") == [
        ("public", "m", "MATERIALIZED VIEW"), ("public", "t", "BASE TABLE"), ("public", "v", "VIEW"),
        ("shop", "u", "BASE TABLE"),
    ]
    assert rows(db, """
        SELECT column_name, data_type, udt_name, is_nullable, character_maximum_length, numeric_precision, numeric_scale
        FROM information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position""") == [
        ("id", "integer", "int4", "NO", None, 32, 0), ("a", "character varying", "varchar", "NO", 10, None, None),
        ("b", "numeric", "numeric", "YES", None, 10, 2), ("c", "ARRAY", "_int4", "YES", None, None, None),
    ]
    assert rows(db, """SELECT k.column_name FROM information_schema.table_constraints c
        JOIN information_schema.key_column_usage k USING (constraint_schema, constraint_name)
        WHERE c.constraint_type = 'PRIMARY KEY' ORDER BY k.ordinal_position""") == [("a",), ("id",)]
    schemas = {"information_schema", "pg_catalog", "public", "shop"}
    assert {name for (name,) in rows(db, "SELECT schema_name FROM information_schema.schemata")} == schemas


def test_the_rows_are_those_of_the_statement(db):
    count = "SELECT count(*) AS n FROM pg_tables"
    assert rows(db, count) == [(2,)]
    db.sql("CREATE TABLE w (x INT)")
    assert rows(db, count) == [(3,)]
    db.sql("DROP TABLE w")
    assert rows(db, count) == [(2,)]
    db.sql("INSERT INTO shop.u SELECT count(*) FROM pg_class; FLUSH")
    assert rows(db, "SELECT x FROM shop.u") == [(6.0,)]


def test_every_table_can_be_read(db):
    from relational.sql.system_catalog import _TABLES

    for schema, name in _TABLES:
        found = db.sql(f"SELECT * FROM {schema}.{name}").to_arrow()
        assert found.num_columns == len(_TABLES[schema, name].columns)


def test_a_table_of_ones_own_goes_before_pg_catalog_without_a_schema(db):
    db.sql("CREATE TABLE pg_am (x INT)")
    assert db.sql("SELECT * FROM pg_am").columns == ("x",)
    assert "amname" in db.sql("SELECT * FROM pg_catalog.pg_am").columns


@pytest.mark.parametrize(("text", "fault"), [
    ("SELECT * FROM pg_catalog.pg_clas", "did you mean 'pg_class'"),
    ("SELECT * FROM information_schema.pg_class", "no table of information_schema"),
    ("CREATE VIEW w AS SELECT * FROM pg_class", "catalog of the moment"),
    ("CREATE MATERIALIZED VIEW w AS SELECT relname FROM pg_class", "catalog of the moment"),
    ("CREATE SCHEMA pg_catalog", "system catalog"),
    ("INSERT INTO pg_class (relname) VALUES ('x')", "no table or view 'pg_class'"),
    ("DROP TABLE pg_class", "no table or view 'pg_class'"),
])  # fmt: skip
def test_what_is_refused(db, text, fault):
    with pytest.raises(BindError, match=fault):
        db.sql(text)
    with pytest.raises(BindError, match="list of values"):
        db.create_materialized_view("w", db.sql("SELECT relname FROM pg_class"))
