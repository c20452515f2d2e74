"""Batches of streaming writers in the session that serves the table."""

import random
import threading

import pandas as pd
import pyarrow as pa
import pytest

import stream
from hummock.errors import InvalidOption
from relational.errors import BatchGap, BindError, CheckpointChanged, NotFound
from relational.inbox.records import WRITERS
from stream.errors import DuplicateKey, InvalidStatement
from tests.support.drivers.seeds import run_seed

NEVER_MS = 3_600_000


@pytest.fixture
def db():
    session = stream.connect("memory://", barrier_interval_ms=NEVER_MS, ingest_bytes=10_000)
    session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    session.sql("CREATE MATERIALIZED VIEW m AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    yield session
    session.abandon()


def rows(first, count=3, v="a"):
    return pa.table({"id": list(range(first, first + count)), "v": [v] * count})


def ingest(db, batch_id, batch, table="t", writer="w", checkpoint="c"):
    return db.ingest(batch, table=table, writer=writer, batch_id=batch_id, checkpoint=checkpoint)


def ids(db, table="t"):
    return sorted(db.sql(f"SELECT id FROM {table}").to_arrow()["id"].to_pylist())


def test_a_batch_is_readable_when_it_returns_and_a_view_follows(db):
    report = ingest(db, 0, rows(1))
    assert (report.rows, report.was_repeated, report.table, report.writer, report.batch_id) == (3, False, "t", "w", 0)
    assert report.epoch == db.committed_epoch
    assert ids(db) == [1, 2, 3] and db.sql("SELECT * FROM m").rows() == [{"v": "a", "n": 3}]


def test_a_batch_that_is_there_is_skipped_whatever_rows_it_brings(db):
    first = ingest(db, 0, rows(1))
    ingest(db, 1, rows(10))
    again = ingest(db, 1, rows(50))
    assert (again.was_repeated, again.rows) == (True, 3)
    old = ingest(db, 0, rows(1))
    assert (old.was_repeated, old.rows) == (True, 0) and old.epoch > first.epoch
    assert ids(db) == [1, 2, 3, 10, 11, 12]


def test_a_gap_and_another_checkpoint_change_nothing(db):
    ingest(db, 7, rows(1))
    with pytest.raises(BatchGap):
        ingest(db, 9, rows(10))
    with pytest.raises(CheckpointChanged):
        ingest(db, 0, rows(10), checkpoint="new")
    with pytest.raises(CheckpointChanged):
        ingest(db, 8, rows(10), checkpoint="new")
    db.flush()
    assert ids(db) == [1, 2, 3]
    ingest(db, 8, rows(10))
    assert ids(db) == [1, 2, 3, 10, 11, 12]


def test_an_empty_batch_counts(db):
    ingest(db, 0, rows(1))
    assert ingest(db, 1, rows(0, 0)).rows == 0
    assert ingest(db, 2, []).rows == 0
    assert ingest(db, 2, rows(5)).was_repeated
    ingest(db, 3, rows(5))
    assert ids(db) == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize(("bad", "error"), [
    (pa.table({"id": [5, 1], "v": ["x", "y"]}), DuplicateKey),
    (pa.table({"id": [5, 5], "v": ["x", "y"]}), DuplicateKey),
    (pa.table({"id": [5, None], "v": ["x", "y"]}), InvalidStatement),
    (pa.table({"id": [5], "other": ["x"]}), InvalidStatement),
    (pa.table({"id": ["five"], "v": ["x"]}), InvalidStatement),
    (pa.table({"id": range(100, 600), "v": ["x" * 50] * 500}), InvalidStatement),
    ([(5, "x", 7)], InvalidStatement),
])
def test_rows_that_the_table_refuses_change_nothing_and_the_batch_can_be_sent_again(db, bad, error):
    ingest(db, 0, rows(1))
    with pytest.raises(error):
        ingest(db, 1, bad)
    db.flush()
    assert ids(db) == [1, 2, 3]
    assert not ingest(db, 1, rows(10)).was_repeated
    assert ids(db) == [1, 2, 3, 10, 11, 12]


def test_the_limit_of_a_batch_is_named_with_a_cure(db):
    with pytest.raises(InvalidStatement, match=r"ingest_bytes is 10,000: send less at once: maxFilesPerTrigger"):
        ingest(db, 0, pa.table({"id": range(2_000), "v": ["x"] * 2_000}))


def test_what_is_accepted_as_rows(db):
    ingest(db, 0, pd.DataFrame({"id": [1], "v": ["a"]}))
    ingest(db, 1, [(2, "b")])
    ingest(db, 2, [{"id": 3, "v": "c"}])
    ingest(db, 3, pa.record_batch({"v": ["d"], "id": [4]}))
    assert ids(db) == [1, 2, 3, 4]


def test_each_table_and_each_writer_has_its_own_count(db):
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR)")
    ingest(db, 0, rows(1))
    assert not ingest(db, 0, rows(1), table="u").was_repeated
    assert not ingest(db, 5, rows(10), writer="other").was_repeated
    assert ids(db) == [1, 2, 3, 10, 11, 12] and ids(db, "u") == [1, 2, 3]


def test_a_table_created_anew_begins_anew(db):
    ingest(db, 0, rows(1))
    db.sql("DROP TABLE t CASCADE")
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    assert not ingest(db, 0, rows(1)).was_repeated
    assert ids(db) == [1, 2, 3]


def test_rows_replace_those_of_their_key_where_the_table_says_so(db):
    db.create_table("u", {"id": "bigint", "v": "varchar"}, primary_key="id", on_conflict="overwrite")
    ingest(db, 0, rows(1), table="u")
    ingest(db, 1, rows(2, v="b"), table="u")
    assert db.sql("SELECT * FROM u ORDER BY id").rows() == [
        {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "b"}, {"id": 4, "v": "b"}]


def test_a_repeated_batch_is_not_doubled_where_rows_have_no_key_of_their_own(db):
    db.sql("CREATE TABLE log (id BIGINT, v VARCHAR)")
    for number in (0, 0, 1, 1, 0):
        ingest(db, number, rows(number), table="log")
    assert ids(db, "log") == [0, 1, 1, 2, 2, 3]


def test_wrong_arguments_are_named(db):
    for changed in ({"writer": "a b"}, {"batch_id": -1}, {"batch_id": "1"}, {"checkpoint": ""}, {"checkpoint": None}):
        arguments = {"writer": "w", "batch_id": 0, "checkpoint": "c"} | changed
        with pytest.raises(InvalidOption, match=next(iter(changed))):
            db.ingest(rows(1), "t", **arguments)
    with pytest.raises(NotFound):
        ingest(db, 0, rows(1), table="missing")
    with pytest.raises(BindError):
        ingest(db, 0, rows(1), table="m")
    db.flush()
    assert db._playground.meta_store.list(WRITERS) == []


def test_threads_that_send_the_same_batches_write_each_once(db):
    """As after a timeout whose first attempt is still under way."""
    rng = random.Random(f"threads {run_seed()}")
    sizes = [rng.randrange(0, 6) for _ in range(12)]
    reports, errors = [], []

    def send(start):
        try:
            for number in range(start, len(sizes)):
                reports.append(ingest(db, number, rows(number * 100, sizes[number])))
        except BatchGap:
            return          # it overtook the others
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(0,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and ids(db) == [number * 100 + at for number, size in enumerate(sizes) for at in range(size)]
    written = [report for report in reports if not report.was_repeated]
    assert sorted(report.batch_id for report in written) == list(range(12)) and len(reports) == 48


def test_statements_of_one_epoch_and_a_batch_are_committed_together(db):
    db.sql("INSERT INTO t VALUES (100, 'x')")
    report = ingest(db, 0, rows(1))
    assert ids(db) == [1, 2, 3, 100] and report.epoch == db.committed_epoch


def test_the_position_survives_a_restart(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        ingest(db, 0, rows(1))
    with stream.connect(url, create=True) as db:
        assert ingest(db, 0, rows(1)).was_repeated
        with pytest.raises(BatchGap):
            ingest(db, 2, rows(10))
        ingest(db, 1, rows(10))
        assert ids(db) == [1, 2, 3, 10, 11, 12]
