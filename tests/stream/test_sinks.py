"""Sinks that deliver to the outside [R27, R36]: in order, after the commit, whatever the target does and whatever ends
the session."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from stream.errors import ConnectorError, UnknownConnector
from stream.session import session as session_module
from stream.session.session import Session
from tests.stream.test_sources import bids, connected
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.waiting import eventually

INSERTED = (0, 2)


class Receiver:
    """A function that receives changes; may hang, or fail."""

    def __init__(self):
        self.calls, self.failure = [], None
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, epoch, changes):
        table = changes.read_all()
        self.may_go_on.wait(30)
        if self.failure is not None:
            raise self.failure
        self.calls.append((epoch, table))

    @property
    def changes(self):
        return [row for _, table in self.calls for row in table.to_pylist()]


@pytest.fixture
def receiver():
    made = Receiver()
    with stream.arrow_sink("f", made):
        yield made
        made.may_go_on.set()


@pytest.fixture
def db(tmp_path):
    with connected(tmp_path / "store") as session:
        yield session


def folded(changes):
    """The rows that changes leave; each deletes a row that is there."""
    rows = Counter()
    for change in changes:
        op = change.pop("_op")
        key = tuple(change.items())
        rows[key] += 1 if op in INSERTED else -1
        assert rows[key] >= 0, key
    return +rows


def rows_of(db, query):
    return Counter(tuple(row.items()) for row in db.sql(query).rows())


def delivery(db, name="s"):
    (row,) = [row for row in db.sql("SHOW SINKS").to_pylist() if row["name"] == name]
    return row


def state(db, name="s"):
    (row,) = [row for row in db.sql("SHOW JOBS").to_pylist() if row["name"] == name]
    return row


def work(db, rng, statements):
    for number in range(statements):
        key, kind = rng.randrange(30), rng.random()
        if kind < 0.5:
            db.sql(f"DELETE FROM t WHERE id = {key}")
            db.sql(f"INSERT INTO t VALUES ({key}, 'v{number}')")
        elif kind < 0.8:
            db.sql(f"UPDATE t SET v = 'u{number}' WHERE id < {key}")
        else:
            db.sql(f"DELETE FROM t WHERE id = {key}")


def test_a_function_receives_the_changes_of_each_epoch_in_order(db, receiver):
    rng = random.Random(run_seed())
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.sql("INSERT INTO t VALUES (1, 'before')")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
    db.sql("CREATE SINK g AS SELECT v, count(*) AS n FROM t GROUP BY v WITH (connector = 'digest')")
    for _ in range(8):
        work(db, rng, 5)
        db.flush()
    expected = rows_of(db, "SELECT id, v FROM t")
    eventually(lambda: delivery(db)["rows"] == 0)
    epochs = [epoch for epoch, _ in receiver.calls]
    assert epochs == sorted(set(epochs)) and len(epochs) > 5
    assert receiver.calls[0][1].to_pylist() == [{"id": 1, "v": "before", "_op": 0}]
    assert folded(receiver.changes) == expected
    (counts,) = db.sql("SELECT * FROM s").rows()
    assert counts["inserted"] - counts["deleted"] == expected.total() and counts["digest"] is None
    shown = delivery(db)
    assert (shown["bytes"], shown["behind_ms"], shown["error"], shown["is_full"]) == (0, 0, None, False)
    assert shown["delivered_epoch"] == epochs[-1] and delivery(db, "g")["rows"] is None
    assert json.loads(state(db)["delivery"])["delivered_epoch"] == epochs[-1] and state(db, "g")["delivery"] is None


def test_the_schema_is_that_of_the_query(db, receiver):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, d JSONB, n NUMERIC(10, 2), i INTERVAL, l BIGINT[])")
    db.sql("""INSERT INTO t VALUES (1, '{"a": 1}', 1.5, INTERVAL '1 day', ARRAY[1, 2])""")
    db.sql("CREATE SINK s AS SELECT l, n + 1 AS m, d, i, id FROM t WITH (connector = 'arrow', name = 'f')")
    eventually(lambda: receiver.calls)
    table = receiver.calls[0][1]
    assert table.schema.names == ["l", "m", "d", "i", "id", "_op"] and table.schema.field("_op").type == pa.uint8()
    assert table.to_pylist()[0]["l"] == [1, 2] and table.to_pylist()[0]["d"] == '{"a":1}'


def test_a_target_that_hangs_leaves_commits_and_other_sinks_alone(db, receiver, tmp_path):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
    db.sql(f"CREATE SINK files FROM t WITH (connector = 'parquet', path = '{tmp_path}/out')")
    receiver.may_go_on.clear()
    begun = time.monotonic()
    for number in range(20):
        db.sql(f"INSERT INTO t VALUES ({number}, 'x')")
        db.flush()
    eventually(lambda: delivery(db, "files")["rows"] == 0)
    assert sum(pq.read_metadata(file).num_rows for file in (tmp_path / "out").glob("*.parquet")) == 20
    eventually(lambda: delivery(db)["behind_ms"] > 0)
    age_ms = (time.monotonic() - begun) * 1_000
    assert delivery(db)["behind_ms"] < age_ms + 60_000, "since the first of the rows was committed"
    assert delivery(db)["rows"] == 20 and state(db)["state"] == "RUNNING"
    assert db.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 20}]
    receiver.may_go_on.set()
    eventually(lambda: len(receiver.changes) == 20)


def test_a_function_that_fails_or_is_missing_is_waited_for(db):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'late')")
    db.sql("INSERT INTO t VALUES (1), (2)")
    eventually(lambda: "this process has no function 'late'" in (delivery(db)["error"] or ""))
    made = Receiver()
    made.failure = RuntimeError("not today")
    with stream.arrow_sink("late", made):
        eventually(lambda: delivery(db)["error"] == "RuntimeError: not today")
        made.failure = None
        eventually(lambda: len(made.changes) == 2)
        eventually(lambda: delivery(db)["error"] is None)


def test_nothing_is_delivered_twice_within_a_process_however_it_recovers(db, receiver):
    rng = random.Random(run_seed())
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
    for _ in range(10):
        work(db, rng, 4)
        db._playground.meta.fail(RuntimeError("a recovery"))
        work(db, rng, 2)
        db.flush()
    expected = rows_of(db, "SELECT id, v FROM t")
    eventually(lambda: delivery(db)["rows"] == 0)
    epochs = [epoch for epoch, _ in receiver.calls]
    assert epochs == sorted(set(epochs)) and folded(receiver.changes) == expected


def test_a_closed_session_has_delivered_everything_once(tmp_path, receiver):
    with connected(tmp_path) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
        db.sql("INSERT INTO t VALUES (1), (2)")
    assert len(receiver.changes) == 2
    for number in range(3, 6):
        with connected(tmp_path) as db:
            db.sql(f"INSERT INTO t VALUES ({number})")
        assert [row["id"] for row in receiver.changes] == sorted({row["id"] for row in receiver.changes})
    assert len(receiver.changes) == 5


def test_a_session_with_a_target_that_hangs_is_closed_all_the_same(tmp_path, receiver, monkeypatch):
    monkeypatch.setattr(session_module, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr("stream.sink_delivery.JOIN_SECONDS", 0.05)
    receiver.may_go_on.clear()
    with connected(tmp_path) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
        db.sql("INSERT INTO t VALUES (1)")
    receiver.may_go_on.set()
    with connected(tmp_path) as db:
        eventually(lambda: delivery(db)["rows"] == 0)
    assert receiver.changes and all(row["id"] == 1 for row in receiver.changes)


def all_files(path):
    return [row for file in sorted(path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("interval_ms", [0, 40])
def test_files_hold_each_change_once_however_often_the_process_ends(tmp_path, interval_ms):
    rng, out = random.Random(run_seed()), tmp_path / "out"
    with connected(tmp_path / "store") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.sql(f"CREATE SINK s FROM t WITH (connector = 'parquet', path = '{out}', interval_ms = {interval_ms})")
    for _ in range(amount(5, 8)):
        db = connected(tmp_path / "store", barrier_interval_ms=rng.choice((2, 20)))
        work(db, rng, 6)
        if rng.random() < 0.5:
            db.flush()
        time.sleep(rng.random() * 0.05)
        db.abandon() if rng.random() < 0.7 else db.close()
    with connected(tmp_path / "store") as db:
        db.flush()
        expected = rows_of(db, "SELECT id, v FROM t")
        eventually(lambda: folded(all_files(out)) == expected)
        eventually(lambda: delivery(db)["rows"] == 0)
    assert folded(all_files(out)) == expected


def test_a_sink_of_a_source_delivers_each_row_once(tmp_path):
    out = tmp_path / "out"
    with connected(tmp_path / "store", chunk_rows=512) as db:
        db.sql("CREATE SOURCE g (id BIGINT, v INT) WITH (connector = 'datagen', rows = 20000, splits = 2, "
               "fields.id.kind = 'sequence', rows_per_second = 100000)")
        db.sql(f"CREATE SINK s AS SELECT id FROM g WHERE v < 900 WITH (connector = 'parquet', path = '{out}')")
    for _ in range(6):
        db = connected(tmp_path / "store", chunk_rows=512)
        time.sleep(0.03)
        db.abandon()
    with connected(tmp_path / "store") as db:
        eventually(lambda: set(db.source_offsets("s").values()) == {"10000"})
        (counts,) = db.sql("SELECT inserted FROM s").rows()
        eventually(lambda: delivery(db)["rows"] == 0)
    ids = [row["id"] for row in all_files(out)]
    assert len(ids) == len(set(ids)) == counts["inserted"]


def test_a_log_that_is_full_sets_the_sink_aside_and_resumes_when_it_is_delivered(db, receiver):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f', log_bytes = 1000)")
    receiver.may_go_on.clear()
    for number in range(20):
        db.sql(f"INSERT INTO t VALUES ({number}, '{'x' * 400}')")
        db.flush()
    eventually(lambda: state(db)["state"] == "FAILED")
    assert "its log is full" in state(db)["reason"] and state(db, "t")["state"] == "RUNNING"
    db.sql("INSERT INTO t VALUES (100, 'y')")
    db.flush()
    receiver.may_go_on.set()
    eventually(lambda: delivery(db)["rows"] == 0)
    db.sql("ALTER SINK s RESUME")
    eventually(lambda: state(db)["state"] == "RUNNING" and len(receiver.changes) == 21)
    assert folded(receiver.changes) == rows_of(db, "SELECT id, v FROM t")


def test_a_log_that_is_full_may_stop_the_source_instead(tmp_path, receiver):
    with connected(tmp_path / "store", chunk_rows=64) as db:
        pq.write_table(bids(5_000), tmp_path / "0.parquet")
        db.sql("CREATE SOURCE bid (id BIGINT, url VARCHAR) "
               f"WITH (connector = 'parquet', path = '{tmp_path}', rate_limit = 20000)")
        db.sql("CREATE SINK other AS SELECT id FROM bid WITH (connector = 'blackhole')")
        receiver.may_go_on.clear()
        db.sql("CREATE SINK s AS SELECT id FROM bid WHERE id >= 0 "
               "WITH (connector = 'arrow', name = 'f', log_bytes = 2000, when_full = 'wait')")
        eventually(lambda: delivery(db)["is_full"])
        eventually(lambda: db.sql("SELECT inserted FROM other").rows() == [{"inserted": 5_000}])
        db.flush()
        held = db.source_offsets("s")
        db.flush()
        assert state(db)["state"] == "RUNNING" and db.source_offsets("s") == held != db.source_offsets("other")
        receiver.may_go_on.set()
        eventually(lambda: len(receiver.changes) == 5_000)
        assert sorted(row["id"] for row in receiver.changes) == list(range(5_000))


def test_a_dropped_sink_delivers_nothing_more_and_leaves_nothing(db, receiver):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
    db.sql("INSERT INTO t VALUES (1)")
    db.flush()
    eventually(lambda: len(receiver.calls) == 1)
    db.sql("DROP SINK s")
    db.sql("INSERT INTO t VALUES (2)")
    db.flush()
    assert db.sql("SHOW SINKS").num_rows == 0 and db._playground.deliveries.status() == {}
    assert not [name for name in db.sql("SHOW INTERNAL TABLES")["name"].to_pylist() if name.startswith("s.")]
    eventually(lambda: "sink-s" not in {thread.name for thread in threading.enumerate()})
    assert len(receiver.calls) == 1
    db.sql("CREATE SINK s FROM t WITH (connector = 'arrow', name = 'f')")
    eventually(lambda: len(receiver.calls) == 2)
    assert sorted(row["id"] for row in receiver.calls[1][1].to_pylist()) == [1, 2]


@pytest.mark.parametrize(("options", "kind", "fault"), [
    ("connector = 'kafka'", UnknownConnector, "arrow, blackhole, digest, parquet"),
    ("connector = 'arrow'", ConnectorError, "option name is missing"),
    ("connector = 'arrow', name = 'f', log_bytes = 0", ConnectorError, "log_bytes is a whole number"),
    ("connector = 'arrow', name = 'f', when_full = 'drop'", ConnectorError, "fail or wait"),
    ("connector = 'arrow', name = 'f', when_full = 'wait'", ConnectorError, "reads a source itself"),
    ("connector = 'parquet', path = 'x'", ConnectorError, "not absolute"),
    ("connector = 'parquet', path = '/tmp/x', format = 'csv'", ConnectorError, "no option 'format'"),
    ("connector = 'digest', log_bytes = 5", ConnectorError, "no option 'log_bytes'"),
])
def test_invalid_sinks_are_refused_before_anything_changes(db, options, kind, fault):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with pytest.raises(kind, match=fault):
        db.sql(f"CREATE SINK s FROM t WITH ({options})")
    assert db.names() == ("t",) and db.sql("SHOW JOBS").num_rows == 1


def test_the_fluent_face(db, receiver):
    table = db.create_table("t", {"id": "bigint", "v": "varchar"}, primary_key="id")
    assert isinstance(db, Session)
    db.create_sink("s", table.filter(stream.col("id") > 1), connector={"connector": "arrow", "name": "f"})
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    eventually(lambda: receiver.changes == [{"id": 2, "v": "b", "_op": 0}])
    text = db.explain("CREATE SINK x FROM t WITH (connector = 'arrow', name = 'f')")
    assert "x.log: key [seq" in text and "x.batches: key [epoch" in text
