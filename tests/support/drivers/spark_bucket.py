"""A store with metadata and files in a bucket, whose bulk work runs on a cluster of two executors.

    python -m tests.support.drivers.spark_bucket URL

Runs a load, a backfill, changes, reads in three ways and a compaction, and compares each with the same rows in a dict.
The process prints "all is well". Its credentials and those of the executors come from the environment.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import stream
from hummock.base.key import KeyRange
from hummock.compaction.spark import SparkTasks
from hummock.compactor import Compactor
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.options import CompactionOptions
from hummock.spark import spark_session
from relational.spark import source
from relational.spark.pinned_table import PinnedTable
from relational.spark.scan import changes, scan
from tests.support.drivers.bulk_driver import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hummock.compaction.task import RangeResult

MASTER = "local-cluster[2,1,1024]"
ROWS, GROUPS = 20_000, 101
MEMORY_BYTES = 8 << 20          # per range
COMPACTION = CompactionOptions(large_task_bytes=1, sstable_bytes=1 << 16, history_ms=3_600_000)
QUERY = "SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS hi FROM orders GROUP BY k"
Rows = dict[int, tuple[int, int]]           # id -> (k, v)
Groups = dict[int, tuple[int, int, int]]    # k -> (count, sum, maximum)


def view_of(rows: Rows) -> Groups:
    values = defaultdict(list)
    for group, value in rows.values():
        values[group].append(value)
    return {group: (len(each), sum(each), max(each)) for group, each in values.items()}


def loaded(db: stream.Session, spark: SparkSession) -> Rows:
    frame = spark.range(0, ROWS).selectExpr("id", f"id % {GROUPS} AS k", "id * 3 % 1000 AS v")
    report = db.bulk_load(frame, "orders", mode="create", primary_key="id", partitions=4)
    assert (report.rows, report.debt_bytes) == (ROWS, 0), report
    db.create_materialized_view("groups", db.sql(QUERY), backfill=spark)
    return {number: (number % GROUPS, number * 3 % 1000) for number in range(ROWS)}


def changed(db: stream.Session, rows: Rows) -> Rows:
    db.sql("UPDATE orders SET k = k + 1 WHERE id % 97 = 5")
    db.sql("DELETE FROM orders WHERE id % 89 = 7")
    return {number: (group + (number % 97 == 5), value)
            for number, (group, value) in rows.items() if number % 89 != 7}


def check_reads(spark: SparkSession, url: str, before: Rows, after: Rows, since: int) -> None:
    with PinnedTable(url, "orders") as orders:
        assert {row["id"]: (row["k"], row["v"]) for row in scan(spark, orders).collect()} == after
        found = {(row["id"], row["_op"]) for row in changes(spark, orders, since=since).collect()}
    deleted = {(number, "-") for number in before.keys() - after.keys()}
    other = [number for number in after if after[number] != before[number]]
    assert found == deleted | {(number, half) for number in other for half in ("U-", "U+")}
    source.register(spark)
    view = spark.read.format("hummock").options(url=url, table="groups").load().collect()
    assert {row["k"]: (row["n"], int(row["total"]), row["hi"]) for row in view} == view_of(after)


class CountedTasks(SparkTasks):
    """Counts the tasks that run on Spark."""

    count = 0

    def run(self, *arguments: Any, **options: Any) -> list[RangeResult]:
        self.count += 1
        return super().run(*arguments, **options)


def compact(spark: SparkSession, url: str) -> None:
    """Compacts the whole store to one run by large tasks, like another process on the same meta store."""
    with ExitStack() as ended:
        objects = ended.enter_context(closing(open_object_store(url)))
        meta_store = ended.enter_context(closing(open_meta_store(url, None, object_store=objects, create=False)))
        manager = ended.enter_context(closing(HummockManager(meta_store, objects, compaction=COMPACTION)))
        tasks = CountedTasks(spark, objects, memory_bytes=MEMORY_BYTES)
        compactor = ended.enter_context(closing(Compactor(manager, objects, COMPACTION, large=tasks)))
        manager.compact_range(KeyRange())
        while compactor.run_one():
            pass
        runs = [len(level.runs) for level in manager.refresh().levels]
    assert tasks.count > 0 and sum(runs) == 1, (tasks.count, runs)


def main(url: str) -> None:
    spark = spark_session(MASTER, settings=SPARK)
    with stream.connect(url, create=True, history_ms=3_600_000) as db:
        before = loaded(db, spark)
        since = db.flush()
        after = changed(db, before)
        db.flush()
        check_reads(spark, url, before, after, since)
    compact(spark, url)
    check_reads(spark, url, before, after, since)
    spark.stop()
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
