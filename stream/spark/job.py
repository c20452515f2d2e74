"""The tasks of a bulk backfill, and of an epoch, on Spark: a job for each fragment or stage, a spec for each task.

The payload sent to executors names a function of the installed package; rows are exchanged through the store at the
backfill's URL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hummock.errors import InvalidOption
from hummock.spark.executor_check import check_executors
from hummock.spark.jobs import OnProgress, cpus_of_task, run_specs, runs_in_driver, slots
from hummock.spark.session import require_spark, spark_session
from hummock.spark.worker import shared_url, task_store
from stream.errors import BackfillRefused
from stream.spark.epoch_spec import EpochReport, EpochTask, edge_schemas
from stream.spark.epoch_task import prepare_worker, run_epoch_task
from stream.spark.spec import TaskSpec
from stream.spark.tasks import TaskReport, run_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = f"{run_task.__module__}:{run_task.__name__}"
PREPARE = f"{prepare_worker.__module__}:{prepare_worker.__name__}"
POOL = "epochs"
"""Of the Python workers of epochs."""
MOST_THREADS = 4
"""Of a task. Its threads share the lock of one interpreter."""
EPOCH_WORK = f"{run_epoch_task.__module__}:{run_epoch_task.__name__}"


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Tasks on Spark's executors. `on_progress(done, total)` is called with the number of finished tasks."""

    spark: SparkSession
    is_cancelled: Callable[[], bool] | None = None
    on_progress: OnProgress | None = None

    @property
    def slots(self) -> int:
        return slots(self.spark)

    def check(self, view: str, url: str) -> None:
        """BackfillRefused, ExecutorUnfit if executors cannot run the tasks of `view` over the store at `url`."""
        try:
            shared_url(url)
        except InvalidOption as error:
            raise BackfillRefused(view, f"executors do not reach a store at {url}") from error
        check_executors(self.spark, url)

    def run(self, view: str, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        """The reports of the tasks. SparkJobFailed, SparkJobCancelled, ExecutorUnfit."""
        name = f"hummock: backfill of {view}, fragment {specs[0].fragment}"
        payloads = [spec.to_bytes() for spec in specs]
        answers = run_specs(
            self.spark, payloads, WORK, name=name, is_cancelled=self.is_cancelled, on_progress=self.on_progress)
        return list(map(TaskReport.from_bytes, answers))

    def delete(self, url: str, paths: Sequence[str]) -> None:
        task_store(url).delete(paths)


@dataclass(frozen=True, slots=True)
class SparkEpochTasks:
    """Tasks of epochs on Spark's executors (`EpochTasks`), each epoch a job for each of its stages. They run in
    processes of their own, so that those find the groups of the epoch before, whatever else the executors do."""

    spark: SparkSession

    @property
    def slots(self) -> int:
        if runs_in_driver(self.spark):
            return -(-slots(self.spark) // self.threads)
        return max(1, slots(self.spark) // self.threads)

    @property
    def threads(self) -> int:
        """Those of a master of this machine, up to MOST_THREADS in one task; elsewhere the CPUs that Spark gives to a
        task."""
        if runs_in_driver(self.spark):
            return min(slots(self.spark), MOST_THREADS)
        return cpus_of_task(self.spark)

    def check(self, url: str) -> None:
        """InvalidOption, ExecutorUnfit if executors cannot run tasks over the store at `url`. Starts their workers."""
        shared_url(url)
        check_executors(self.spark, url)
        run_specs(self.spark, [b""] * self.slots, PREPARE, name="hummock: start of workers", is_urgent=True,
                  pool=POOL)

    def run(
        self, name: str, tasks: Sequence[EpochTask], near: Sequence[str], is_cancelled: Callable[[], bool]
    ) -> list[EpochReport]:
        """The reports of the tasks, in their order. SparkJobFailed, SparkJobCancelled, ExecutorUnfit."""
        payloads = [task.to_bytes() for task in tasks]
        answers = run_specs(self.spark, payloads, EPOCH_WORK, name=name, is_cancelled=is_cancelled, is_urgent=True,
                            pool=POOL, near=near)
        return [EpochReport.from_bytes(answer, edge_schemas(task.actors))
                for task, answer in zip(tasks, answers, strict=True)]


class OwnSpark:
    """The Spark session of this process; if there is none, one on `master`, through which no rows pass, created on
    first use. One thread at a time."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._own: SparkSession | None = None

    def session(self, view: str) -> SparkSession:
        """The session for the backfill of `view`. BackfillRefused if there is neither; SparkMissing, InvalidOption."""
        require_spark(self._master)
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        if not self._master:
            raise BackfillRefused(view, "the session has no option spark_master, and this process no Spark session")
        self._own = spark_session(self._master, name="hummock", carries_rows=False)
        return self._own

    def close(self) -> None:
        if self._own is not None:
            self._own.stop()
            self._own = None
