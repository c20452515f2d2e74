"""Rows without a value: counted per job and reason, committed with the rows, subtracted on deletes."""

import random
from dataclasses import replace

import pytest

import stream
from relational.catalog.names import ObjectName
from stream.spark.driver import BulkBackfill
from tests.support.drivers.local_shuffle import LocalTasks

QUOTIENTS = "CREATE MATERIALIZED VIEW v AS SELECT id, 10 / n AS q FROM t"
SUMS = "CREATE MATERIALIZED VIEW v AS SELECT n, COUNT(*) FILTER (WHERE 10 / n > 1) AS c FROM t GROUP BY n"
CASTS = "CREATE MATERIALIZED VIEW w AS SELECT id FROM t WHERE note::int > 0"
BY_ZERO, NO_INT = "division by zero", "invalid text for INT"


def table_of(session):
    session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, note VARCHAR)")
    return session.table("t")


@pytest.fixture
def session():
    with stream.connect("memory://", barrier_interval_ms=50) as session:
        table_of(session)
        yield session


def errors_of(session):
    session.flush()
    table = session.sql("SHOW ERRORS")
    assert session.errors() == table
    return {(row["job"], row["reason"]): row["rows"] for row in table.to_pylist()}


def stored_bytes(session, view):
    """The files that contain rows of the view's error table."""
    playground = session._playground
    view_id = playground.catalog.resolve(ObjectName(view)).id
    (table,) = [each for each in playground.catalog.internal_tables(view_id) if each.name.endswith(".errors")]
    return [info for run in playground.storage.version.levels for info in getattr(run, "sstables", ())
            if table.id in info.table_ids]


@pytest.mark.parametrize("query", [QUOTIENTS, SUMS])
def test_what_comes_is_counted_and_what_goes_is_subtracted(session, query):
    session.sql(query)
    session.sql(CASTS)
    session.sql("INSERT INTO t VALUES (1, 0, '7'), (2, 0, 'x'), (3, 5, '')")
    assert errors_of(session) == {("v", BY_ZERO): 2, ("w", NO_INT): 2}
    session.sql("UPDATE t SET n = 0, note = '1' WHERE id = 3")
    assert errors_of(session) == {("v", BY_ZERO): 3, ("w", NO_INT): 1}
    session.sql("DELETE FROM t")
    assert errors_of(session) == {}
    assert not session.sql("SELECT * FROM w").to_arrow().num_rows


def test_counts_survive_the_process(tmp_path):
    url = f"file://{tmp_path}"
    with stream.connect(url, create=True, barrier_interval_ms=50) as session:
        table_of(session)
        session.sql(QUOTIENTS)
        session.sql("INSERT INTO t VALUES (1, 0, '7'), (2, 0, 'x'), (3, 5, '')")
        assert errors_of(session) == {("v", BY_ZERO): 2}
    with stream.connect(url, create=True, barrier_interval_ms=50) as session:
        assert errors_of(session) == {("v", BY_ZERO): 2}
        session.sql("DELETE FROM t WHERE id = 1")
        assert errors_of(session) == {("v", BY_ZERO): 1}


def test_a_bulk_history_is_counted_like_any_other(session):
    rng = random.Random(7)
    session.table("t").insert([(number, number % 4, "x") for number in range(200)])
    session.flush()
    query = session.sql("SELECT id, 10 / n AS q FROM t")
    session.create_materialized_view("v", query, backfill=BulkBackfill(LocalTasks(session, rng, lambda: None)))
    assert errors_of(session) == {("v", BY_ZERO): 50}
    session.sql("DELETE FROM t WHERE id < 100")
    assert errors_of(session) == {("v", BY_ZERO): 25}


def test_a_job_without_a_table_of_errors_counts_in_memory(session, monkeypatch):
    from stream.plan import planner

    def without(job, query, table_ids, planned=planner.plan_query):
        return replace(planned(job, query, table_ids), error_table=None)

    monkeypatch.setattr(planner, "plan_query", without)
    session.sql(QUOTIENTS)
    session.sql("INSERT INTO t VALUES (1, 0, '7'), (2, 0, 'x')")
    assert errors_of(session) == {("v", BY_ZERO): 2}


def test_a_view_without_errors_writes_none(session):
    session.sql(QUOTIENTS)
    session.sql("INSERT INTO t VALUES (1, 1, '7')")
    session.flush()
    assert errors_of(session) == {} and not stored_bytes(session, "v")


def test_metrics_have_them_by_job_and_reason_while_it_runs(session):
    session.sql(QUOTIENTS)
    session.sql("INSERT INTO t VALUES (1, 0, '7'), (2, 0, 'x')")
    session.flush()
    labels = {"job": "v", "id": str(session._playground.catalog.resolve(ObjectName("v")).id), "reason": BY_ZERO}
    registry = session._playground.metrics.registry
    assert registry.get_sample_value("stream_rows_without_value", labels) == 2
    session.sql("DELETE FROM t WHERE id = 1")
    session.flush()
    assert registry.get_sample_value("stream_rows_without_value", labels) == 1
