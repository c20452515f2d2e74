"""EXPLAIN ANALYZE: what a running job does, by fragment and executor; and the meters that count it."""

import threading
import time

import numpy as np
import pytest

import stream
from hummock.errors import InvalidOption
from stream.errors import JobFailed, ProfileInterrupted
from stream.executor.base import Executor
from stream.executor.meter import ExecutorMeter, MeteredExecutor
from stream.message import WAIT
from tests.stream.test_sources import connected
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import amount


@pytest.fixture
def db():
    with stream.connect("memory://", parallelism=2, barrier_interval_ms=amount(100, 20)) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        session.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t WHERE k > 0 GROUP BY k")
        yield session


@pytest.fixture
def load(db):
    """Inserts rows, of which three in four pass the filter, until the test is over."""
    is_over, sent = threading.Event(), []

    def insert():
        while not is_over.is_set():
            first = len(sent) * 400
            db.sql("INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 4})" for n in range(first, first + 400)))
            sent.append(time.monotonic())

    thread = threading.Thread(target=insert)
    thread.start()
    yield sent
    is_over.set()
    thread.join()


def test_a_running_view_has_rows_time_and_state_by_executor(db, load):
    before, began = len(load), time.monotonic()
    rows = db.sql("EXPLAIN ANALYZE (duration_secs = 0.5) MATERIALIZED VIEW v").to_pylist()
    sent, elapsed = (len(load) - before + 1) * 400, time.monotonic() - began
    assert [row["plan"].split()[0] for row in rows] == [
        "fragment", "Materialize", "HashAgg", "Merge", "fragment", "PartialAgg", "Filter", "StreamScan"
    ]  # fmt: skip
    counting, written, grouped, merged, reading, sent_on, passed, scanned = rows
    assert (counting["actors"], reading["actors"], grouped["actors"]) == (2, 1, None)
    assert 0 < scanned["rows_per_second"] <= 2 * sent / elapsed
    assert passed["rows_per_second"] == pytest.approx(0.75 * scanned["rows_per_second"], rel=0.1)
    assert sent_on["rows_per_second"] == pytest.approx(passed["rows_per_second"], rel=0.1), "one actor makes no groups"
    assert merged["rows_per_second"] == pytest.approx(passed["rows_per_second"], rel=0.2)
    assert 0 < written["rows_per_second"] < merged["rows_per_second"] / 10
    assert counting["share"] + reading["share"] == pytest.approx(1, abs=0.001)
    for fragment, executors in ((counting, (written, grouped, merged)), (reading, (sent_on, passed, scanned))):
        cpu = [each["cpu"] for each in executors]
        assert all(0 <= each <= fragment["cpu"] for each in cpu) and sum(cpu) <= 1.2 * fragment["cpu"]
    assert grouped["state_bytes"] > 0 and written["state_bytes"] > 0 and passed["state_bytes"] is None
    assert 0 <= reading["channel_fill"] <= 1


def test_other_ways_to_ask(db):
    db.sql("INSERT INTO t VALUES (1, 1)")
    named = db.analyze("v", seconds=0.01)
    assert named.schema == db.sql("EXPLAIN ANALYZE (duration_secs = 0.01) SELECT n FROM v WHERE k = 1").schema
    assert named["plan"].to_pylist() == db.sql("EXPLAIN ANALYZE (duration_secs = 0.01) v")["plan"].to_pylist()
    (fragment, table, statements) = db.analyze("t", seconds=0.01).to_pylist()
    assert table["plan"].startswith("  Materialize t") and statements["plan"] == "    Dml t"
    assert fragment["rows_per_second"] == 0 and table["state_bytes"] > 0
    text = db.explain("EXPLAIN ANALYZE (duration_secs = 0.01) v").split("\n")
    assert len(text) == 8 and text[0].endswith("actors 2, channels 0% full") and "rows/s" in text[7]
    for seconds in (0, 61):
        with pytest.raises(InvalidOption, match="seconds"):
            db.analyze("v", seconds=seconds)


def test_sinks_and_sources(tmp_path):
    with connected(tmp_path, parallelism=2) as db:
        db.sql("CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', rows_per_second = 20000)")
        db.sql("CREATE SINK k AS SELECT id FROM s WITH (connector = 'blackhole')")
        fragment, sink, source = db.sql("EXPLAIN ANALYZE (duration_secs = 0.5) SINK k").to_pylist()
    assert sink["plan"].startswith("  Sink k") and source["plan"].startswith("    Source")
    assert 5_000 < source["rows_per_second"] < 40_000 and sink["rows_per_second"] == 0 and fragment["actors"] == 1


def test_nothing_is_counted_when_nobody_asks(db, load):
    db.analyze("v", seconds=0.05)
    time.sleep(0.1)
    actors = [each.actor for each in db._playground.node._running.values()]
    counted = [[meter.rows for meter in actor.meters.values()] for actor in actors]
    sent = len(load)
    while len(load) < sent + 3:
        time.sleep(0.01)
    assert counted == [[meter.rows for meter in actor.meters.values()] for actor in actors]
    assert all(not meter.readers for actor in actors for meter in actor.meters.values()) and any(map(sum, counted))


def test_actors_that_are_replaced_meanwhile_are_an_error(db):
    errors = []

    def measure():
        try:
            db.analyze("v", seconds=0.5)
        except ProfileInterrupted as error:
            errors.append(error)

    thread = threading.Thread(target=measure)
    thread.start()
    time.sleep(0.2)
    db.sql("ALTER MATERIALIZED VIEW v SET PARALLELISM = 1")
    thread.join()
    assert [error.job for error in errors] == ["v"]
    assert db.analyze("v", seconds=0.01)["actors"].to_pylist()[0] == 1


def test_a_job_that_was_set_aside_is_not_measured(db):
    meta = db._playground.meta
    meta.failures.refuse({db._playground.catalog.resolve("v").id: ValueError("x")}, db._playground.catalog.snapshot, 1)
    meta.fail(RuntimeError("a recovery"))
    db.flush()
    with pytest.raises(JobFailed, match="set aside"):
        db.sql("EXPLAIN ANALYZE v")


class _Emitting(Executor):
    info = None

    def __init__(self, messages):
        self.messages = messages

    def execute(self):
        yield from self.messages


def test_a_meter_counts_visible_rows_while_it_is_read():
    chunk = from_pretty("I\n+ 1\n+ 2\n- 3").filter(np.array([1, 0, 1], np.uint8))
    messages, meter = [chunk, WAIT, chunk], ExecutorMeter()
    assert list(MeteredExecutor(_Emitting(messages), meter).execute()) == messages and meter.rows == 0
    meter.readers = 1
    assert list(MeteredExecutor(_Emitting(messages), meter).execute()) == messages
    assert meter.rows == 4 and meter.cpu_seconds > 0
