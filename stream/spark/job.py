"""The Spark job of a bulk backfill: one stage for each fragment, a shuffle of parcels between two of them.

What travels to executors names functions of the installed package. A parcel is a row of Spark's, which is asked for
nothing but to bring it to its receiver; the order in which it does so is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.errors import InvalidOption
from hummock.process import installed_version
from hummock.spark.jobs import OnProgress, run_job, slots
from hummock.spark.probe import check_executors
from hummock.spark.session import require_spark, spark_session
from hummock.spark.worker import begin_task, shared_url, task_store
from relational.spark.read_spec import ReadSpec, files_of, read_chunks
from stream.errors import BackfillRefused
from stream.spark.spec import BackfillSpec
from stream.spark.tasks import TaskReport, arrival_task, scan_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "part int, kind byte, sender int, number int, body binary"
BATCH_PARCELS = 16  # that a task is handed at once


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Tasks on Spark's executors. `on_progress` is told of tasks that are done, of how many."""

    spark: SparkSession
    is_cancelled: Callable[[], bool] | None = None
    on_progress: OnProgress | None = None

    @property
    def slots(self) -> int:
        return slots(self.spark)

    def check(self, view: str, url: str) -> None:
        """BackfillRefused, ExecutorUnfit where executors cannot do the tasks of `view` over the store at `url`."""
        try:
            shared_url(url)
        except InvalidOption as error:
            raise BackfillRefused(view, f"executors do not reach a store at {url}") from error
        if not hasattr(self.spark.range(1), "repartitionById"):
            raise BackfillRefused(view, f"it needs Spark 4.1 or later, this is {self.spark.version}")
        check_executors(self.spark, url)

    def run(self, spec: BackfillSpec, scans: Sequence[bytes]) -> list[TaskReport]:
        """What all tasks report. SparkJobFailed, SparkJobCancelled, ExecutorUnfit."""
        shared = spec.to_bytes()
        version = installed_version()
        session = _own_session(self.spark)
        frame = session.range(0, len(scans), 1, len(scans)).mapInArrow(
            partial(scan_stage, version, shared, tuple(scans)), COLUMNS
        )
        for fragment, tasks in enumerate(spec.tasks[1:], 1):
            frame = frame.repartitionById(tasks, "part").mapInArrow(
                partial(arrival_stage, version, shared, fragment), COLUMNS
            )
        rows = run_job(
            session,
            frame.select("body").collect,
            name=f"hummock: backfill of {spec.view.name}",
            is_cancelled=self.is_cancelled,
            on_progress=self.on_progress,
        )
        return [TaskReport.from_bytes(bytes(row.body)) for row in rows]


class OwnSpark:
    """The Spark session of this process; where it has none one on `master`, begun when first asked for. One thread at
    a time."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._own: SparkSession | None = None

    def session(self, view: str) -> SparkSession:
        """For the backfill of `view`. BackfillRefused where there is neither; SparkMissing, InvalidOption."""
        require_spark(self._master)
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        if not self._master:
            raise BackfillRefused(view, "the session has no option spark_master, and this process no Spark session")
        self._own = spark_session(self._master, name="hummock")
        return self._own

    def close(self) -> None:
        if self._own is not None:
            self._own.stop()
            self._own = None


def scan_stage(version: str, shared: bytes, scans: Sequence[bytes],
               batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition of the first stage: the rows of `batches` are the places of its tasks."""
    spec = _spec(version, shared)
    for batch in batches:
        for place in batch.column(0).to_pylist():
            rows = read_chunks(ReadSpec.from_bytes(scans[place]), files_of(spec.url))
            yield from scan_task(spec, place, rows, task_store(spec.url))


def arrival_stage(version: str, shared: bytes, fragment: int,
                  batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition of a later stage."""
    spec = _spec(version, shared)
    yield from arrival_task(spec, fragment, batches, task_store(spec.url))


def _spec(version: str, shared: bytes) -> BackfillSpec:
    begin_task(version)
    return BackfillSpec.from_bytes(shared)


def _own_session(spark: SparkSession) -> SparkSession:
    """A session beside the caller's, whose settings stay as they are, that hands out few parcels at once."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_PARCELS))
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session
