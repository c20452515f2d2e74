"""Compaction on Spark: a range is a task of a Spark job, which reads rows from the object store and writes them back.

Importing this module does not import pyspark; its functions do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hummock.compaction.progress_log import TaskProgressLog
from hummock.compaction.subcompaction import IsCancelled, Progress
from hummock.compaction.subcompaction_planner import Split, range_bytes_for, read_samples, split_of
from hummock.compaction.task import CompactTask, RangeResult, RangeSpec
from hummock.compaction.worker_task import WorkerTask, decode_result
from hummock.errors import SparkJobCancelled, TaskCancelled
from hummock.object_store.base import ObjectStore
from hummock.spark.jobs import run_specs, slots
from hummock.spark.worker import shared_url, task_store
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SplitSample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = "hummock.compaction.worker_task:carry_out"
LIMIT_MS = 600_000          # limit of a subcompaction
SAMPLING = "hummock.compaction.spark:sample"
SAMPLED_HERE = 2_000        # files whose samples the driver reads itself
SAMPLED_BY_TASK = 500       # per Spark task, if there are more


class SparkRunner:
    """Runs ranges on the executors of `spark`, which reach the store at `url`; each task uses `memory_bytes`.

    An attempt at a range ends `limit_ms` after its beginning at the latest, even if nothing waits for it any more.
    """

    def __init__(self, spark: SparkSession, url: str, *, memory_bytes: int, limit_ms: int = LIMIT_MS):
        self._spark, self._url = spark, shared_url(url)
        self._memory_bytes, self._limit_ms = memory_bytes, limit_ms

    @property
    def slots(self) -> int:
        return slots(self._spark)

    def run(self, specs: Sequence[RangeSpec], prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None, log: TaskProgressLog | None = None) -> list[RangeResult]:
        """See `ThreadRunner.run`. With a `log` results are recorded when they are ready, for a later driver."""
        if not specs:
            return []
        task = specs[0].task
        encoded = [WorkerTask(spec.narrowed(), self._url, prefix, self._memory_bytes, self._limit_ms,
                              log.path(spec.index) if log is not None else "").encode() for spec in specs]

        def report_tasks(done: int, tasks: int) -> None:
            if progress is not None and done:
                progress(task.input_rows * done // max(done, tasks))

        try:
            answers = run_specs(self._spark, encoded, WORK, name=f"hummock: compact task {task.id}",
                                is_cancelled=is_cancelled, on_progress=report_tasks)
        except SparkJobCancelled as error:
            raise TaskCancelled(task.id) from error
        return list(map(decode_result, answers))


class SparkTasks:
    """Runs whole compact tasks on Spark, over the files in `store`. Work that an earlier driver finished is not
    repeated.

    Each range of a task takes about `memory_bytes` of its worker, and at most `limit_ms`.
    """

    def __init__(self, spark: SparkSession, store: ObjectStore, *, memory_bytes: int, limit_ms: int = LIMIT_MS):
        self._runner = SparkRunner(spark, store.url, memory_bytes=memory_bytes, limit_ms=limit_ms)
        self._spark, self._store = spark, store

    def run(self, task: CompactTask, prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None) -> list[RangeResult]:
        """The results of all ranges of `task`, possibly some of earlier attempts. Raises what `ThreadRunner.run`
        raises.
        """
        log = TaskProgressLog(self._store, task)
        split = log.split(partial(self._split, task))
        specs = replace(task, cuts=split.cuts).ranges()
        done = log.results(len(specs))
        rows_done = sum(result.rows_read for result in done.values())

        def report_rows(rows: int) -> None:
            if progress is not None:
                progress(min(task.input_rows, rows_done + rows * (task.input_rows - rows_done) // task.input_rows))

        left = [specs[index] for index in split.largest_first() if index not in done]
        for result in self._runner.run(left, prefix, progress=report_rows, is_cancelled=is_cancelled, log=log):
            done[result.index] = result
        return [done[index] for index in range(len(specs))]

    def forget(self, task: CompactTask) -> None:
        """Deletes the progress log of an ended task."""
        TaskProgressLog(self._store, task).clear()

    def _split(self, task: CompactTask) -> Split:
        files = [info for part in task.inputs for info in part.sstables]
        return split_of(files, range_bytes_for(task.input_bytes, self._runner.slots), self._samples)

    def _samples(self, files: Sequence[SstableInfo]) -> Iterator[Sequence[SplitSample]]:
        if len(files) <= SAMPLED_HERE:
            yield from read_samples(self._store, files)
            return
        specs = [json.dumps({"url": self._store.url, "files": [
            info.to_json() for info in files[at:at + SAMPLED_BY_TASK]]}).encode()
            for at in range(0, len(files), SAMPLED_BY_TASK)]
        for answer in run_specs(self._spark, specs, SAMPLING, name=f"hummock: samples of {len(files)} files"):
            for samples in json.loads(answer):
                yield [SplitSample(bytes.fromhex(key), offset) for key, offset in samples]


def sample(spec: bytes) -> bytes:
    """Runs in a Spark task: reads the split samples of some files."""
    record = json.loads(spec)
    files = list(map(SstableInfo.from_json, record["files"]))
    return json.dumps([[(key.hex(), offset) for key, offset in samples]
                       for samples in read_samples(task_store(record["url"]), files)]).encode()
