"""RETURNING gives the rows as they were stored, and those that were deleted. SQLite is the oracle."""

import random
import sqlite3
from decimal import Decimal

import pyarrow as pa
import pytest

import stream
from relational.errors import BindError
from relational.result import ResultSet
from stream.errors import DuplicateKey, InvalidStatement
from tests.support.drivers.seeds import amount, run_seed

NEVER_MS = 3_600_000
CONFLICTS = {"error": ("", ""), "ignore": (" ON CONFLICT IGNORE", " OR IGNORE"),
             "overwrite": (" ON CONFLICT OVERWRITE", " OR REPLACE")}


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        session.sql("""CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR DEFAULT 'none', n NUMERIC(6, 2));
            INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2.5), (3, NULL, NULL)""")
        yield session


def rows(found):
    assert isinstance(found, ResultSet)
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def test_each_kind_of_statement_returns_its_rows(db):
    found = db.sql("INSERT INTO t (n, id) VALUES (7, 4), (8.125, 5) RETURNING id, v || '!' AS shout, n * 2")
    assert found.column_names == ["id", "shout", "?column?"]
    assert rows(found) == [(4, "none!", Decimal("14.00")), (5, "none!", Decimal("16.26"))]
    found = db.sql("UPDATE t AS x SET v = 'new', n = n + 1 WHERE x.id < 3 RETURNING x.*, upper(x.v) up")
    assert found.column_names == ["id", "v", "n", "up"]
    assert rows(found) == [(1, "new", Decimal("2.00"), "NEW"), (2, "new", Decimal("3.50"), "NEW")]
    assert rows(db.sql("DELETE FROM public.t WHERE v = 'new' RETURNING t.id, n")) == [
        (1, Decimal("2.00")), (2, Decimal("3.50"))]
    assert rows(db.sql("INSERT INTO t SELECT 10 + x, 'q', x FROM generate_series(1, 3) AS g(x) RETURNING id")) == [
        (11,), (12,), (13,)]
    assert rows(db.sql("DELETE FROM t WHERE id = 99 RETURNING *")) == []
    assert db.sql("UPDATE t SET v = 'x' WHERE id = 99 RETURNING n").schema.field("n").type == pa.decimal128(6, 2)
    assert rows(db.sql("INSERT INTO t SELECT 1, 'x', 1 WHERE false RETURNING *")) == []
    db.sql("FLUSH")
    assert rows(db.sql("UPDATE t SET v = 'z' WHERE id IN (SELECT max(id) FROM t) RETURNING id, v")) == [(13, "z")]


def test_generated_keys_and_vnodes_do_not_show(db):
    db.sql("CREATE TABLE log (v VARCHAR) APPEND ONLY; CREATE TABLE w (v VARCHAR)")
    assert rows(db.sql("INSERT INTO log VALUES ('a'), ('b') RETURNING *")) == [("a",), ("b",)]
    first, second = db.sql("INSERT INTO w VALUES ('a'), ('a') RETURNING _row_id AS r")["r"].to_pylist()
    assert first != second
    assert rows(db.sql(f"DELETE FROM w WHERE _row_id = {second} RETURNING _row_id, v")) == [(second, "a")]


def test_parameters_and_prepared_statements(db):
    for _ in range(3):
        assert rows(db.sql("UPDATE t SET v = ? WHERE id = ? RETURNING id, v", ("p", 1))) == [(1, "p")]
        named = "UPDATE t SET v = :v WHERE id = :id RETURNING v || :v AS w"
        assert rows(db.sql(named, {"v": "q", "id": 2})) == [("qq",)]
        assert rows(db.sql("UPDATE t SET n = ? WHERE id = 3 RETURNING n + ?", (1, 2))) == [(3,)]
    for key in (20, 21):
        assert rows(db.sql("INSERT INTO t VALUES ($1, $2, 0) RETURNING id, v", (key, "k"))) == [(key, "k")]
    db.sql("PREPARE p AS DELETE FROM t WHERE id = $1 RETURNING id, $2 AS why")
    assert rows(db.sql("EXECUTE p (20, 'old')")) == [(20, "old")]
    assert rows(db.sql("EXECUTE p (20, 'old')")) == []
    with pytest.raises(InvalidStatement, match="leave RETURNING out"):
        db.executemany("INSERT INTO t (id) VALUES (?) RETURNING id", [(30,), (31,)])
    with pytest.raises(InvalidStatement, match="a transaction evaluates its changes at COMMIT"):
        db.sql("BEGIN; INSERT INTO t (id) VALUES (40) RETURNING id")
    db.sql("ROLLBACK; FLUSH")
    assert rows(db.query("SELECT id FROM t WHERE id >= 20")) == [(21,)]


def test_an_expression_without_a_value_fails_the_statement(db):
    db.sql("FLUSH")
    for text in ("INSERT INTO t VALUES (8, 'x', 0) RETURNING 1 / (id - 8)", "DELETE FROM t RETURNING 1 / (id - 2)",
                 "UPDATE t SET v = 'x' RETURNING 1 / (id - 2)"):
        with pytest.raises(InvalidStatement, match="division by zero"):
            db.sql(text)
    db.sql("FLUSH")
    assert rows(db.query("SELECT id, v FROM t")) == [(1, "a"), (2, "b"), (3, None)]


def test_a_column_named_so_is_quoted(db):
    db.sql('CREATE TABLE u (id INT PRIMARY KEY, "returning" INT)')
    assert rows(db.sql("""INSERT INTO u VALUES (1, 2) RETURNING "returning" AS "r " """)) == [(2,)]
    assert rows(db.sql("""UPDATE u SET "returning" = length('RETURNING x') RETURNING *""")) == [(1, 11)]


def test_an_inherited_failure_is_that_of_the_statement(db):
    with pytest.raises(DuplicateKey):
        db.sql("INSERT INTO t VALUES (9, 'x', 0), (1, 'y', 0) RETURNING *")
    with pytest.raises(BindError):
        db.sql("INSERT INTO t VALUES (9, 'x', 0) RETURNING (SELECT max(id) FROM t)")
    db.sql("FLUSH")
    assert rows(db.query("SELECT id FROM t")) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("row_format", ["row", "cell"])
@pytest.mark.parametrize("conflict", CONFLICTS)
def test_random_statements_agree_with_sqlite(conflict, row_format):
    rng = random.Random(run_seed())
    ours, theirs = CONFLICTS[conflict]
    oracle = sqlite3.connect(":memory:", isolation_level=None)
    oracle.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    failed = 0
    with stream.connect("memory://", barrier_interval_ms=2) as db:
        db.sql(f"CREATE TABLE t (k INT PRIMARY KEY, v INT){ours} WITH (row_format = '{row_format}')")
        for step in range(amount(30, 50)):
            key, value = rng.randint(1, 15), rng.randint(0, 99)
            verb, rest = ("INSERT", "INTO t VALUES (1, 1), (1, 2)") if not step else rng.choice([
                ("INSERT", f"INTO t VALUES ({key}, {value}), ({key + 20}, 0), ({rng.randint(1, 15) + 40}, 7)"),
                ("INSERT", f"INTO t VALUES ({key}, {value})"),
                ("UPDATE", f"t SET v = v + {value} WHERE k <= {key}"),
                ("DELETE", f"FROM t WHERE k BETWEEN {key} AND {key + 1} OR v % 5 = 3"),
            ])
            returning = " RETURNING k, v, k * 100 + v AS w"
            try:
                expected = oracle.execute(f"{verb}{theirs if verb == 'INSERT' else ''} {rest}{returning}").fetchall()
            except sqlite3.IntegrityError:
                failed += 1
                with pytest.raises(DuplicateKey):
                    db.sql(f"{verb} {rest}{returning}")
                continue
            assert rows(db.sql(f"{verb} {rest}{returning}")) == sorted(expected, key=repr), rest
        db.flush()
        assert rows(db.query("SELECT k, v FROM t")) == sorted(oracle.execute("SELECT k, v FROM t").fetchall(), key=repr)
    assert failed or conflict != "error"
