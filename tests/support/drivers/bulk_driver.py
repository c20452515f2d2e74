"""Bulk loads and bulk backfills as plain values, and a driver that runs one and dies at a given step.

    python -m tests.support.drivers.bulk_driver FILE

FILE has a `DriverJob` as JSON. The process prints "done" if nothing killed it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stream
from hummock.meta.records import LOADS
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.spark import spark_session
from relational.table.storage_table import StorageTable
from stream.playground import open_playground
from stream.session import bulk_load
from stream.session.connect import playground_options
from stream.spark.driver import BulkBackfill
from stream.spark.job import SparkTasks
from stream.spark.spec import TaskSpec
from stream.spark.tasks import TaskReport
from tests.support.drivers import bulk_chaos

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = "catalog/name/"
SPARK = {"spark.ui.enabled": "false", "spark.speculation.minTaskRuntime": "100ms", "spark.speculation.interval": "50ms",
         "spark.speculation.task.duration.threshold": "2s",
         "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1", "spark.task.maxFailures": "8",
         "spark.deploy.maxExecutorRetries": "-1"}
QUERY = ("SELECT c, COUNT(*) AS g, SUM(s) AS s, MIN(lo) AS lo, MAX(hi) AS hi FROM ("
         "SELECT k, COUNT(*) AS c, SUM(n) AS s, MIN(v) AS lo, MAX(v) AS hi FROM t GROUP BY k) AS q GROUP BY c")
GROUPS = 97
SSTABLE_BYTES, BLOCK_BYTES = 4 << 10, 1 << 10
MEANWHILE = ("UPDATE t SET k = k + 1 WHERE id % 5 = 2", "DELETE FROM t WHERE id % 11 = 3", "FLUSH",
             "UPDATE t SET n = -n WHERE id % 7 = 1", "FLUSH")
LOAD_ENDS = ("before the job", "behind the job", "before its files' commit", "behind its files' commit",
             "behind the call")
BACKFILL_ENDS = ("before the job", "behind the job", "before its files' commit", "behind its files' commit",
                 "before the view's commit", "behind the view's commit", "amid its changes", "behind the call")


@dataclass(frozen=True, slots=True)
class Load:
    """`rows` rows over `keys` keys from `first` on, with values that begin with `mark`."""

    mark: str
    first: int
    keys: int
    rows: int
    table: str = "t"
    mode: str = "append"
    on_duplicate: str = "error"
    partitions: int = 4

    def frame(self, spark: SparkSession) -> DataFrame:
        numbers = spark.range(0, self.rows, 1, 4)
        key = f"{self.first} + id % {self.keys}"
        return numbers.selectExpr(f"{key} AS id", f"id % {GROUPS} AS k", "id AS n", f"concat('{self.mark} ', id) AS v")

    def after(self, stored: dict[int, tuple]) -> dict[int, tuple]:
        """The rows of the table by key after a load into `stored`."""
        numbers = range(self.rows) if self.on_duplicate != "first" else reversed(range(self.rows))
        loaded = {self.first + n % self.keys: (n % GROUPS, n, f"{self.mark} {n}") for n in numbers}
        if self.mode != "append":
            return loaded
        return loaded | stored if self.on_duplicate == "first" else stored | loaded

    def run(self, session: stream.Session, spark: SparkSession) -> bulk_load.LoadReport:
        return session.bulk_load(
            self.frame(spark), self.table, mode=self.mode, on_duplicate=self.on_duplicate, load_id=self.mark,
            partitions=self.partitions, primary_key="id" if self.mode == "create" else None, memory_bytes=1 << 15)


class Meanwhile:
    """Runs tasks on Spark; statements change the table between them and the first barrier of the view."""

    def __init__(self, tasks: SparkTasks, session: stream.Session) -> None:
        self.slots, self.check, self.delete = tasks.slots, tasks.check, tasks.delete
        self._tasks, self._session = tasks, session

    def run(self, view: str, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        reports = self._tasks.run(view, specs)
        if is_last(specs):
            self.behind()
        return reports

    def behind(self) -> None:
        for statement in MEANWHILE:
            self._session.sql(statement)


def is_last(specs: Sequence[TaskSpec]) -> bool:
    """Whether `specs` are the last tasks of the backfill."""
    return specs[0].fragment == len(specs[0].backfill.tasks) - 1


def backfill(session: stream.Session, spark: SparkSession) -> None:
    tasks = Meanwhile(SparkTasks(spark), session)
    session.create_materialized_view("mv", session.sql(QUERY), backfill=BulkBackfill(tasks, task_rows=150))


def open_session(url: str, *, is_maintained: bool = True) -> stream.Session:
    options = playground_options(
        {"barrier_interval_ms": 100, "sstable_bytes": SSTABLE_BYTES, "block_bytes": BLOCK_BYTES})
    return stream.Session(open_playground(url, replace(options, is_maintained=is_maintained)))


# -- a driver ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverJob:
    """`end`: the step at which the driver kills itself; "" if a task kills it, or nothing does."""

    url: str
    master: str
    end: str
    load: dict[str, Any] | None = None      # None: a backfill

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def drive(job: DriverJob) -> None:
    bulk_chaos.name_driver(job.url, os.getpid())
    bulk_chaos.install(setattr)
    arrange(job.end)
    spark = spark_session(job.master, settings=SPARK)
    with open_session(job.url) as session:
        if job.load is None:
            backfill(session, spark)
        else:
            Load(**job.load).run(session, spark)
        if job.end == "behind the call":
            die()
    print("done", flush=True)


def arrange(end: str) -> None:
    """Arranges that this process dies at the step."""
    if end == "before the job":
        bulk_load.write_frame = SparkTasks.run = die        # type: ignore[assignment]
    elif end == "behind the job":
        bulk_load.write_frame = _and_die(bulk_load.write_frame)
        Meanwhile.behind = _and_die(Meanwhile.behind)       # type: ignore[method-assign]
    elif end == "amid its changes":
        StorageTable.changes = _first_alone(StorageTable.changes)      # type: ignore[method-assign]
    elif end.endswith("commit"):
        row = LOADS if "files" in end else NAMES
        SqliteMetaStore.transaction = _dying(SqliteMetaStore.transaction, row, end)     # type: ignore[method-assign]


def _and_die(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **options: Any) -> Any:
        call(*arguments, **options)
        die()

    return called


def _first_alone(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        for chunk in call(*arguments):
            yield chunk
            die()

    return called


def _dying(transaction: Callable[..., Any], row: str, end: str) -> Callable[..., Any]:
    def transacted(store: SqliteMetaStore, operations: Any) -> None:
        matches = any(key.startswith(row) for key in operations.put)
        if matches and end.startswith("before"):
            die()
        transaction(store, operations)
        if matches:
            die()

    return transacted


def die(*arguments: Any, **options: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    drive(DriverJob(**json.loads(Path(sys.argv[1]).read_text())))
