"""Metrics of running jobs, as Prometheus reads them from a session."""

import urllib.request

import pytest

import stream
from hummock.errors import InvalidOption


@pytest.fixture
def db():
    with stream.connect("memory://", parallelism=2, barrier_interval_ms=20, metrics_port=0) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        session.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        yield session


def sample(db, name, **labels):
    return db._playground.metrics.registry.get_sample_value(name, labels)


def test_fragments_have_actors_rows_and_cpu_time(db):
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.flush()
    job = db._playground.catalog.resolve("v").id
    table = db._playground.catalog.resolve("t").id

    def of(name, fragment):
        return sample(db, name, job="v", id=str(job), fragment=str(fragment))

    assert (of("stream_fragment_actors", 0), of("stream_fragment_actors", 1)) == (1, 2)
    assert (of("stream_fragment_rows_total", 0), of("stream_fragment_rows_total", 1)) == (3, 2)
    assert of("stream_fragment_cpu_seconds_total", 1) > 0
    assert of("stream_fragment_waiting_rows", 1) == of("stream_fragment_waiting_bytes", 1) == 0
    assert sample(db, "stream_fragment_rows_total", job="t", id=str(table), fragment="0") == 3
    db.sql("DROP MATERIALIZED VIEW v")
    assert of("stream_fragment_actors", 1) is None


def test_rows_that_a_filter_hides_are_not_emitted(db):
    db.sql("CREATE MATERIALIZED VIEW even AS SELECT k, COUNT(*) AS n FROM t WHERE id % 2 = 0 GROUP BY k")
    db.table("t").insert([(number, number) for number in range(10_000)])
    db.flush()
    job = db._playground.catalog.resolve("even").id
    assert sample(db, "stream_fragment_rows_total", job="even", id=str(job), fragment="0") == 5_000


def test_barriers_have_latencies_and_steps(db):
    db.flush()
    assert sample(db, "stream_barriers_total") >= 1
    assert sample(db, "stream_barrier_seconds", quantile="0.99") > 0
    assert sample(db, "stream_barrier_step_seconds", step="commit") > 0
    assert sample(db, "stream_ready_actors") >= 0


def test_a_session_serves_them(db):
    with urllib.request.urlopen(db.metrics_url) as answer:
        text = answer.read().decode()
    assert "stream_fragment_rows_total{" in text and "hummock_committed_epoch" in text
    with stream.connect("memory://") as quiet:
        assert quiet.metrics_url is None
    port = int(db.metrics_url.split(":")[2].split("/")[0])
    with pytest.raises(InvalidOption, match="port"):
        stream.connect("memory://", metrics_port=port)
