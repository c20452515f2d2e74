"""Batch queries: whole statements against DuckDB, reads at an epoch, and their plans."""

import math
import random
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from relational.batch import run_query
from relational.errors import EvaluationError
from relational.sql import bind_sql
from relational.table.storage_table import StorageTable
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.query_chunks import query_chunks
from tests.support.suites.duck import assert_same_rows, oracle, rows_of
from tests.support.suites.sql_cases import CASES

TABLE = """CREATE TABLE sales (id INT PRIMARY KEY, region VARCHAR, kind VARCHAR, amount INT,
    price NUMERIC(10, 2), weight DOUBLE PRECISION, big BIGINT, sold TIMESTAMP)"""
REGIONS = ("EUROPE", "ASIA", "AFRICA", "AMERICA", "", None)
ROWS = 200


def sales(rng):
    for number in range(ROWS):
        weight = rng.choice((0.0, -0.0, 1.25, rng.uniform(-5, 5), math.nan, None))
        yield (
            number,
            rng.choice(REGIONS),
            rng.choice(("a", "b", "c", None)),
            rng.choice((0, 1, 5, rng.randint(-20, 20), None)),
            rng.choice((Decimal(rng.randint(-10000, 10000)).scaleb(-2), None)),
            weight,
            rng.choice((rng.randint(-(2**62), 2**62), None)),
            rng.choice((datetime(2020, 1, 1) + timedelta(minutes=rng.randint(0, 400_000)), None)),
        )


@pytest.fixture(scope="module")
def session():
    session = BatchSession()
    session.sql(TABLE)
    session.table("sales").insert(sales(random.Random(3)))
    return session


@pytest.fixture(scope="module")
def duck(session):
    connection = oracle()
    rows = session.sql("SELECT * FROM sales")
    connection.register("rows_", rows)
    connection.execute("CREATE TABLE sales AS SELECT * FROM rows_")
    return connection


QUERIES = [
    line for line in (CASES / "queries.txt").read_text().split("\n") if line and not line.startswith("#")
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_agrees_with_duckdb(text, session, duck):
    ours = session.sql(text)
    theirs = duck.sql(text).to_arrow_table()
    assert ours.num_columns == theirs.num_columns
    assert_same_rows(rows_of(ours), rows_of(theirs), ordered="ORDER BY" in text)


def test_a_result_has_the_declared_types(session):
    table = session.sql("SELECT id, price, sum(big) AS s FROM sales WHERE id < 0 GROUP BY id, price")
    assert table.schema == pa.schema(
        [("id", pa.int32()), ("price", pa.decimal128(10, 2)), ("s", pa.decimal128(38, 0))]
    )


def test_hidden_columns_are_not_shown():
    session = BatchSession()
    session.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (2), (1), (2)")
    assert session.sql("SELECT * FROM t ORDER BY _row_id DESC").to_pydict() == {"v": [2, 1, 2]}
    assert session.sql("SELECT v FROM t ORDER BY v").to_pydict() == {"v": [1, 2, 2]}


def test_an_old_epoch_shows_what_was_then():
    session = BatchSession()
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 10), (2, 20)")
    before = session.epoch
    assert session.sql("UPDATE t SET v = v + 1 WHERE k = 1") == 1
    assert session.sql("DELETE FROM t WHERE v = 20") == 1
    (statement,) = bind_sql("SELECT * FROM t ORDER BY k", session.catalog)
    assert run_query(statement.plan, session.store, before).to_pydict() == {"k": [1, 2], "v": [10, 20]}
    assert session.sql("SELECT * FROM t").to_pydict() == {"k": [1], "v": [11]}


def test_a_row_without_a_value_is_an_error(session):
    with pytest.raises(EvaluationError, match="division by zero"):
        session.sql("SELECT 1 / (id - 3) FROM sales")
    assert session.sql("SELECT 1 / (id - 3) AS q FROM sales WHERE id = 4").to_pydict() == {"q": [1]}


def test_exact_sums_do_not_wrap():
    session = BatchSession()
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, v BIGINT)")
    session.table("t").insert([(k, 2**62) for k in range(8)])
    assert session.sql("SELECT sum(v) AS s, avg(v) AS a FROM t").to_pylist() == [
        {"s": Decimal(2**65), "a": Decimal(2**62)}
    ]


def test_zero_and_minus_zero_are_one_group_and_nan_is_one():
    session = BatchSession()
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, d DOUBLE PRECISION)")
    session.table("t").insert([(1, 0.0), (2, -0.0), (3, math.nan), (4, -math.nan), (5, None)])
    counts = session.sql("SELECT count(*) AS n FROM t GROUP BY d ORDER BY d")["n"].to_pylist()
    assert counts == [2, 2, 1]


@pytest.mark.parametrize("key", ["1", "1.0", "CAST(1 AS BIGINT)"])
def test_a_point_get_is_used_for_a_whole_key(key, session):
    (statement,) = bind_sql(f"EXPLAIN SELECT id FROM sales WHERE id = {key}", session.catalog)
    rows = run_query(statement.statement.plan, session.store, session.epoch)
    assert rows.to_pydict() == {"id": [1]}


def test_chunks_carry_all_columns_of_a_plan():
    session = BatchSession()
    session.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)")
    (statement,) = bind_sql("SELECT * FROM t ORDER BY _row_id", session.catalog)
    (chunk,) = query_chunks(statement.plan, session.store, session.epoch)
    assert list(chunk.rows()) == [(7, 1)]


def test_a_limit_stops_the_scan(session):
    assert session.sql("SELECT id FROM sales LIMIT 3").num_rows == 3
    assert session.sql("SELECT id FROM sales LIMIT 3 OFFSET 198").num_rows == 2
    assert session.sql("SELECT id FROM sales LIMIT 3 OFFSET 500").num_rows == 0


@pytest.fixture
def scans(monkeypatch):
    """The limits of the scans of a query, in order."""
    found, scan = [], StorageTable.scan

    def counted(self, epoch, *, limit=None, **how):
        found.append(limit)
        return scan(self, epoch, limit=limit, **how)

    def counted_whole(self, epoch, read_in_order, whole=StorageTable.scan_parts):
        found.append(None)
        return whole(self, epoch, read_in_order)

    monkeypatch.setattr(StorageTable, "scan", counted)
    monkeypatch.setattr(StorageTable, "scan_parts", counted_whole)
    return found


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("WITH n AS (SELECT kind, count(*) FROM sales GROUP BY 1) SELECT kind FROM n UNION ALL SELECT kind FROM n",
         [None]),
        ("WITH s AS (SELECT id FROM sales UNION ALL SELECT id FROM sales) SELECT id FROM s UNION ALL SELECT id FROM s",
         [None] * 4),
        ("WITH f AS (SELECT id FROM sales LIMIT 5) SELECT id FROM f UNION ALL SELECT -id FROM f", [5]),
        ("SELECT id FROM sales UNION ALL SELECT amount FROM sales LIMIT 3", [3]),
    ],
    ids=["kept", "repeated", "a limit is kept", "no branch after the limit"],
)
def test_a_shared_input_is_computed_once_if_that_saves_work(text, limits, session, scans):
    assert session.sql(text).num_rows > 0
    assert scans == limits


def test_readers_of_a_kept_input_that_stop_early_leave_the_rest_to_others(session):
    text = """WITH s AS (SELECT id FROM sales ORDER BY id) SELECT * FROM (SELECT id FROM s LIMIT 2) AS a
        UNION ALL SELECT count(*) FROM s UNION ALL SELECT * FROM (SELECT id FROM s LIMIT 3) AS b"""
    assert session.sql(text)["id"].to_pylist() == [0, 1, ROWS, 0, 1, 2]


def test_a_union_has_the_common_types_and_the_first_names(session):
    table = session.sql("SELECT id AS n, price FROM sales UNION ALL SELECT big, amount FROM sales LIMIT 0")
    assert table.schema == pa.schema([("n", pa.int64()), ("price", pa.decimal128(12, 2))])


def test_hidden_columns_of_a_branch_are_no_columns_of_the_union():
    session = BatchSession()
    session.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (2), (1)")
    text = "SELECT * FROM t UNION ALL (SELECT v FROM t ORDER BY _row_id DESC LIMIT 1) ORDER BY v"
    assert session.sql(text).to_pydict() == {"v": [1, 1, 2]}
