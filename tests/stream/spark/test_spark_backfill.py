"""Views with a backfill by Spark, with two local slots."""

import os
import random
import subprocess
import sys
import threading
from itertools import count

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import stream
from hummock.errors import SparkJobFailed
from relational.errors import BindError
from stream.errors import BackfillRefused
from stream.spark.spec import TaskSpec
from tests.support.drivers.stored_views import entries, stored, tables_of

GROUPS = "SELECT k, COUNT(*) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi FROM t GROUP BY k"
NESTED = "SELECT c, COUNT(*) AS n FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k) AS q GROUP BY c"
ROWS = 20_000
MANY_ROWS = int(os.environ.get("HUMMOCK_BENCH_ROWS", "10000000"))   # of the slow test
pytestmark = pytest.mark.spark


@pytest.fixture
def session(tmp_path):
    rng = np.random.default_rng(5)
    with stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=100) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT)")
        keys, values = rng.integers(0, 500, ROWS), rng.integers(-99, 99, ROWS).astype(np.int32)
        session.table("t").insert(pa.table({"id": np.arange(ROWS), "k": keys, "v": values}))
        session.flush()
        yield session


def rows(session, query):
    return sorted(map(repr, session.sql(query).to_arrow().to_pylist()))


def same_as_duckdb(session, query):
    """Checks the view against DuckDB's result over the table."""
    with duckdb.connect() as connection:
        connection.register("t", session.sql("SELECT * FROM t").to_arrow())
        columns = "k, c, s, lo, hi" if query == GROUPS else "c, n"
        expected = connection.execute(f"SELECT {columns} FROM ({query})").fetchall()
    found = [column.cast("int64").to_pylist() for column in session.sql(f"SELECT {columns} FROM mv").to_arrow().columns]
    assert sorted(map(str, zip(*found, strict=True))) == sorted(map(str, expected))


TWICE = pytest.param(NESTED, marks=pytest.mark.slow)


@pytest.mark.parametrize("query", [GROUPS, TWICE], ids=["one shuffle", "two shuffles"])
def test_the_stream_goes_on_and_its_changes_are_in_the_view(session, spark, query):
    ended, changed = threading.Event(), threading.Event()

    def churn():
        rng = random.Random(7)
        while not ended.is_set():
            session.sql(f"UPDATE t SET v = -v, k = k + 1 WHERE id % 97 = {rng.randrange(97)}")
            session.sql(f"DELETE FROM t WHERE id % 997 = {rng.randrange(997)}")
            changed.set()

    changing = threading.Thread(target=churn)
    changing.start()
    try:
        changed.wait()
        session.create_materialized_view("mv", session.sql(query), backfill=spark)
    finally:
        ended.set()
        changing.join()
    session.flush()
    same_as_duckdb(session, query)
    assert rows(session, "SELECT * FROM mv") == rows(session, query)
    session.sql(f"CREATE MATERIALIZED VIEW twin AS {query}")
    assert stored(session, "mv") == stored(session, "twin")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_rows_leave_what_the_stream_leaves(spark, tmp_path):
    """Compares each state table by key and value, with concurrent changes."""
    rng = np.random.default_rng(11)
    with stream.connect(f"file://{tmp_path}", create=True, statement_rows=500_000) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT)")
        for first in range(0, MANY_ROWS, 500_000):
            keys, values = rng.integers(0, MANY_ROWS // 33, 500_000), rng.integers(-999, 999, 500_000)
            rows = {"id": np.arange(first, first + 500_000), "k": keys, "v": values.astype(np.int32)}
            session.table("t").insert(pa.table(rows))
        session.flush()
        ended = threading.Event()

        def churn():
            for number in count():
                first = number * 1_000
                session.sql(f"UPDATE t SET v = -v, k = k + 1 WHERE id BETWEEN {first} AND {first + 99}")
                session.sql(f"DELETE FROM t WHERE id BETWEEN {first + 100} AND {first + 199}")
                session.sql(f"INSERT INTO t VALUES ({MANY_ROWS + number}, {number}, 7777)")
                if ended.is_set():
                    return

        changing = threading.Thread(target=churn)
        changing.start()
        try:
            session.create_materialized_view("mv", session.sql(GROUPS), backfill=spark)
        finally:
            ended.set()
            changing.join()
        session.flush()
        same_as_duckdb(session, GROUPS)
        session.sql(f"CREATE MATERIALIZED VIEW twin AS {GROUPS}")
        epoch = session.flush()
        for ours, theirs in zip(tables_of(session, "mv"), tables_of(session, "twin"), strict=True):
            compared = 0
            for found, expected in zip(entries(session, ours, epoch), entries(session, theirs, epoch), strict=True):
                assert found == expected, ours.name
                compared += 1
            assert compared > 0


def test_the_sql_option_takes_the_session_of_this_process(session, spark):
    session.sql(f"CREATE MATERIALIZED VIEW mv WITH (backfill = 'spark') AS {GROUPS}")
    assert rows(session, "SELECT * FROM mv") == rows(session, GROUPS)
    with pytest.raises(BindError, match="backfill"):
        session.sql(f"CREATE MATERIALIZED VIEW other WITH (speed = 'high') AS {GROUPS}")


@pytest.mark.slow
def test_a_job_that_fails_leaves_nothing(session, spark, monkeypatch):
    monkeypatch.setattr("stream.spark.driver.scans_of", lambda spec, *_: [TaskSpec(spec, 0, scan=b"no scan")])
    with pytest.raises(SparkJobFailed):
        session.create_materialized_view("mv", session.sql(GROUPS), backfill=spark)
    assert session.names() == ("t",)
    assert not session._playground.catalog.refresh().loaded


def test_a_store_in_memory_is_refused_by_name(spark):
    with stream.connect("memory://") as session:
        session.sql("CREATE TABLE t (k BIGINT, v INT)")
        with pytest.raises(BackfillRefused, match="memory://"):
            session.sql(f"CREATE MATERIALIZED VIEW mv WITH (backfill = 'spark') AS {GROUPS}")


@pytest.mark.slow
def test_the_command_makes_the_view(session, tmp_path):
    session.close()
    arguments = ["backfill", f"file://{tmp_path}", "mv", GROUPS, "--spark", "local[2]"]
    done = subprocess.run([sys.executable, "-m", "stream", *arguments], capture_output=True, text=True, check=True)
    assert "mv: 500 rows" in done.stdout
    with stream.connect(f"file://{tmp_path}", create=True) as again:
        assert rows(again, "SELECT * FROM mv") == rows(again, GROUPS)
