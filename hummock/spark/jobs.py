"""Jobs: a named Spark action, which can be watched and cancelled; and the job that runs one spec per task.

A spec and an answer are bytes of a versioned record. Executors receive the name of a function of the installed package
and no code, so a task runs the code that is installed there; that it is the same version is checked.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from hummock.base.process import installed_version
from hummock.errors import ExecutorUnfit, SparkJobCancelled, SparkJobFailed
from hummock.spark.locality import rdd_near, with_pool
from hummock.spark.worker import SHIPPING, do_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2
ANSWERS = "index long, answer binary, error string"
RAISED = re.compile(r"(?!org\.|java\.|py4j\.)[\w.]*[A-Z]\w*: .")     # last line of a Python traceback
PARTITION_PER_ROW = ("spark.sql.leafNodeDefaultParallelism", str(1 << 20))     # or fewer rows than that
Result = TypeVar("Result")
OnProgress = Callable[[int, int], None]     # tasks finished, and their total

Task = Callable[[Iterable[tuple[int, bytes]]], Iterator[tuple[int, bytes | None, str | None]]]


def run_specs(spark: SparkSession, specs: Sequence[bytes], work: str, *, name: str,
              is_cancelled: Callable[[], bool] | None = None, on_progress: OnProgress | None = None,
              is_urgent: bool = False, pool: str = "", near: Sequence[str] = ()) -> list[bytes]:
    """The answers to `specs`, in their order, each computed by a task of its own.

    `work`, "module:function", takes a spec and returns its answer. It may be called several times for one spec, also
    concurrently: only what is returned here counts. An exception from it ends the job, after retries if it may be
    transient. Tasks have a lower priority than other work of their machine, unless the job `is_urgent`. Jobs with the
    same `pool` share Python workers, which run no other tasks. `near`: the executor that should run each spec, see
    `executor_name`; empty: any. Spark Connect has neither. Raises `SparkJobFailed`, `SparkJobCancelled`, or
    `ExecutorUnfit` where executors have another package.
    """
    if not specs:
        return []
    rows = run_job(spark, lambda: _answers(spark, specs, work, is_urgent, pool, near), name=name,
                   is_cancelled=is_cancelled, on_progress=on_progress)
    answers: list[Any] = [None] * len(specs)
    for index, answer, error in rows:
        if error is not None:
            raise SparkJobFailed(name, f"task {index}: {error}")
        answers[index] = bytes(answer)
    if None in answers:
        raise SparkJobFailed(name, f"task {answers.index(None)} left no answer")
    return answers


def _answers(
    spark: SparkSession, specs: Sequence[bytes], work: str, is_urgent: bool, pool: str, near: Sequence[str]
) -> list[Any]:
    """(index, answer, error) of each spec, a partition of its own: Spark sends a task the rows of its partition alone,
    and what it does once in all. By an RDD, a job of which starts in half the time that one of a frame takes; Spark
    Connect has frames only."""
    task = partial(do_specs, installed_version(), work, is_urgent)
    if not is_connect(spark):
        context = spark.sparkContext
        pairs = list(enumerate(specs))
        rdd = rdd_near(context, pairs, near) if any(near) else context.parallelize(pairs, len(pairs))
        answers = rdd.mapPartitions(task)
        if pool:
            answers.ctx = with_pool(context, pool)
        return answers.collect()
    rows = pa.table({"index": pa.array(range(len(specs)), pa.int64()), "spec": pa.array(specs, pa.binary())})
    spark.conf.set(*PARTITION_PER_ROW)
    try:
        return spark.createDataFrame(rows).mapInArrow(partial(do_batches, task), ANSWERS).collect()
    finally:
        spark.conf.unset(PARTITION_PER_ROW[0])


def do_specs(
    version: str, work: str, is_urgent: bool, specs: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes | None, str | None]]:
    """Runs in a Spark task: (index, answer, error) of each spec in `specs`, pairs of index and spec."""
    for index, spec in specs:
        yield index, *do_spec(version, work, spec, is_urgent=is_urgent)


def do_batches(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `task`, for rows (index, spec) in Arrow batches."""
    for batch in batches:
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        for index, answer, error in task(pairs):
            yield pa.record_batch({"index": pa.array([index], pa.int64()), "answer": pa.array([answer], pa.binary()),
                                   "error": pa.array([error], pa.string())})


def run_job(spark: SparkSession, action: Callable[[], Result], *, name: str,
            is_cancelled: Callable[[], bool] | None = None, on_progress: OnProgress | None = None) -> Result:
    """The result of `action`, which works on frames of `spark`; Spark's UI describes its jobs and stages by `name`.

    It runs on a thread of its own; both callbacks are called here, periodically. Any exception here ends the job.
    Raises `SparkJobFailed`, `SparkJobCancelled` or `ExecutorUnfit`.
    """
    from pyspark import InheritableThread

    if is_cancelled is not None and is_cancelled():
        raise SparkJobCancelled(name)
    job = _Job(spark, name)
    ended = threading.Event()
    outcome: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            with job:
                outcome.append(action())
        except Exception as error:
            errors.append(error)
        finally:
            ended.set()

    thread = InheritableThread(target=run, session=spark)       # inherits the caller's pools and properties
    thread.start()
    was_cancelled = False
    try:
        while not ended.wait(POLL_SECONDS):
            if on_progress is not None and not was_cancelled:
                on_progress(*job.progress())
            if was_cancelled or (is_cancelled is not None and is_cancelled()):
                was_cancelled = True
                job.cancel()            # repeated: a job that is still being planned is not found yet
    finally:
        while not ended.wait(POLL_SECONDS):
            job.cancel()
        thread.join()
    if outcome:
        return outcome[0]
    if was_cancelled:
        raise SparkJobCancelled(name)
    raise _translated(errors[0], name) from errors[0]


def slots(spark: SparkSession) -> int:
    """Number of tasks that run at once, as far as known; at least 1."""
    if is_connect(spark):
        cores, executors = (int(spark.conf.get(f"spark.executor.{key}", "1") or 1) for key in ("cores", "instances"))
        return max(1, cores * executors)
    return max(1, spark.sparkContext.defaultParallelism)


def cpus_of_task(spark: SparkSession) -> int:
    """CPUs that Spark reserves for a task."""
    return int(spark.conf.get("spark.task.cpus", "1") or 1)


def runs_in_driver(spark: SparkSession) -> bool:
    """Whether tasks are threads of the driver's JVM, and so its Python workers on this machine."""
    return not is_connect(spark) and re.match(r"local(\[|$)", spark.sparkContext.master or "") is not None


class _Job:
    """All Spark jobs of the thread inside the block."""

    def __init__(self, spark: SparkSession, name: str):
        self._spark, self._name = spark, name
        self._group = f"hummock-{os.urandom(8).hex()}"

    def __enter__(self) -> None:
        if is_connect(self._spark):
            self._spark.addTag(self._group)
            return
        context = self._spark.sparkContext
        context.setJobGroup(self._group, self._name, interruptOnCancel=True)

    def __exit__(self, *caught: object) -> None:
        if is_connect(self._spark):
            self._spark.removeTag(self._group)

    def cancel(self) -> None:
        if is_connect(self._spark):
            self._spark.interruptTag(self._group)
        else:
            self._spark.sparkContext.cancelJobGroup(self._group)

    def progress(self) -> tuple[int, int]:
        """Tasks finished, and the total known so far; unknown with Spark Connect."""
        if is_connect(self._spark):
            return 0, 0
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has neither RDDs nor a JVM in reach."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _translated(error: Exception, name: str) -> Exception:
    """Our error for one of Spark's."""
    text = str(error)
    for module in ("hummock", "relational", "stream", "pyarrow"):
        if f"No module named '{module}" in text:
            return ExecutorUnfit("an executor", f"its Python does not find {module}", SHIPPING)
    if "PYTHON_VERSION_MISMATCH" in text:
        return ExecutorUnfit("an executor", "its Python has another version than the driver's", SHIPPING)
    return SparkJobFailed(name, _cause_in(text))


def _cause_in(text: str) -> str:
    """The most informative line of a Spark error: the last that names a Python exception, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if RAISED.match(line)]
    return named[-1] if named else next(iter(lines), "unknown")
