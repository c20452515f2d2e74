"""Bulk loads on Spark: rows of real frames are read back and compared with DuckDB's."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import signal
import threading
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

import stream
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.options import VacuumOptions
from stream.errors import BulkLoadRefused, DuplicateRows

pytestmark = pytest.mark.spark
NEVER_MS = 3_600_000


@pytest.fixture
def db(tmp_path):
    with stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=NEVER_MS) as session:
        yield session


def test_rows_of_many_types_come_through_as_duckdb_reads_them(spark, db, tmp_path):
    """A frame over a Parquet file with skewed and NULL values; a key of two columns, one of them text."""
    path = str(tmp_path / "rows.parquet")
    duckdb.sql(f"""
        COPY (SELECT i AS id, 'kind ' || (i % 7) AS kind, CASE WHEN i % 5 > 0 THEN i * 0.25 END AS amount,
                     CAST(i % 1000 AS SMALLINT) AS small, DATE '2013-01-01' + CAST(i % 365 AS INT) AS day,
                     TIMESTAMP '2013-01-01 05:00:00' + INTERVAL (i) MINUTE AS moment, i % 3 = 0 AS flag,
                     CAST(i AS DECIMAL(12, 3)) / 8 AS price, repeat('x', CAST(i % 50 AS INT)) AS text
              FROM range(20000) r(i)) TO '{path}' (FORMAT parquet)""")
    frame = spark.read.parquet(path)
    frame = frame.withColumn("price", frame.price.cast("decimal(18,6)")).withColumn(
        "amount", frame.amount.cast("double")).withColumn("moment", frame.moment.cast("timestamp_ntz"))
    report = db.bulk_load(frame, "rows", mode="create", primary_key=["kind", "id"])
    assert (report.rows, report.level, report.debt_bytes) == (20_000, 6, 0)
    found = db.sql("SELECT id, kind, amount, small, day, moment, flag, price, text FROM rows").to_arrow()
    assert found.num_rows == 20_000
    other = duckdb.sql(f"""SELECT * FROM (SELECT id, kind, CAST(amount AS DOUBLE) AS amount, small, day, moment, flag,
                                                 CAST(price AS DECIMAL(18, 6)) AS price, text
                                          FROM read_parquet('{path}')) EXCEPT ALL SELECT * FROM found""")
    assert other.fetchall() == []
    row = db.table("rows").get("kind 3", 10)
    assert row["moment"] == datetime.datetime(2013, 1, 1, 5, 10) and row["price"] == Decimal("1.25")


def test_numbers_widen_and_everything_else_that_does_not_fit_is_named(spark, db):
    db.create_table("t", {"id": "bigint", "ratio": "double", "price": "numeric(20, 4)"}, primary_key="id")
    frame = spark.range(0, 100, 1, 3).selectExpr("CAST(id AS INT) AS id", "CAST(0.5 AS FLOAT) AS ratio",
                                                  "CAST(id AS DECIMAL(10, 2)) AS price")
    assert db.bulk_load(frame, "t").rows == 100
    bad = frame.selectExpr("CAST(id AS STRING) AS id", "ratio", "CAST(1 AS DECIMAL(30, 2)) AS price", "1 AS extra")
    with pytest.raises(BulkLoadRefused) as caught:
        db.bulk_load(bad, "t")
    for part in ("'extra' is none of the table's", "'id' is VARCHAR where the table has BIGINT", "'price' is"):
        assert part in str(caught.value)
    with pytest.raises(BulkLoadRefused, match="'id' is part of the key and is missing"):
        db.bulk_load(frame.select("ratio"), "t")
    with pytest.raises(BulkLoadRefused, match=r"column 'id', row \d+: .* NULL"):
        db.bulk_load(frame.selectExpr("CASE WHEN id < 50 THEN id END AS id", "ratio"), "t")
    assert db.sql("SELECT COUNT(*) AS n FROM t").to_arrow()["n"].to_pylist() == [100]


def test_duplicates_across_tasks_follow_the_order_of_the_frame(spark, db):
    """By partition, then by row; also with runs spilled to local disk."""
    db.create_table("t", {"id": "bigint", "v": "bigint"}, primary_key="id")
    frame = spark.range(0, 10_000, 1, 4).selectExpr("id % 3000 AS id", "id AS v")
    with pytest.raises(DuplicateRows) as caught:
        db.bulk_load(frame, "t")
    assert caught.value.count == 7_000 and len(caught.value.keys) == 10
    assert db.bulk_load(frame, "t", on_duplicate="last", memory_bytes=20_000).rows == 3_000
    assert db.sql("SELECT id, v FROM t WHERE v < 7000").to_arrow().num_rows == 0
    report = db.bulk_load(frame, "t", on_duplicate="first", mode="overwrite")
    assert (report.rows, report.rows_dropped) == (3_000, 7_000)
    assert db.sql("SELECT id FROM t WHERE v <> id").to_arrow().num_rows == 0


def test_a_frame_without_rows_or_partitions(spark, db):
    db.create_table("t", {"id": "bigint", "v": "bigint"}, primary_key="id")
    assert db.bulk_load(spark.createDataFrame([], "id bigint, v bigint"), "t").rows == 0
    assert db.bulk_load(spark.range(10).selectExpr("id", "id AS v").where("id > 10"), "t").rows == 0


def workers():
    """Processes that run Python tasks: children of pyspark's daemon."""
    parents, named = {}, set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    named.add(int(entry.name))

    def is_ours(process):
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return [process for process in named if parents[process] in named and is_ours(process)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_die_change_nothing(spark, db, seed):
    """Three workers are killed at random times; vacuum removes the files they wrote."""
    rng = random.Random(seed)
    db.create_table("t", {"id": "bigint", "v": "varchar"}, primary_key="id")
    frame = spark.range(0, 400_000, 1, 6).selectExpr("id", "repeat(CAST(id AS STRING), 6) AS v")
    killed, ended = [], threading.Event()

    def kill():
        while len(killed) < 3 and not ended.wait(rng.uniform(0.05, 0.6)):
            if found := workers():
                killed.append(rng.choice(sorted(found)))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        report = db.bulk_load(frame, "t", partitions=6, memory_bytes=4 << 20)
    finally:
        ended.set()
        thread.join()
    assert report.rows == 400_000
    (row,) = db.sql("SELECT COUNT(*) AS n, SUM(id) AS total, MAX(v) AS last FROM t").to_arrow().to_pylist()
    assert (row["n"], row["total"], row["last"]) == (400_000, 400_000 * 399_999 // 2, "99999" * 6)
    playground = db._playground
    store = playground.storage._sstable_store.object_store
    Vacuum(playground.catalog._store, store, options=VacuumOptions(grace_ms=0)).run()
    there = {found.path.rsplit("/", 1)[-1].split(".")[0] for found in store.list("sst/")}
    assert there == {info.name for info in playground.manager.refresh().sstables}
