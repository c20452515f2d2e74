"""SparkRunner: ranges of a compact task as tasks of a Spark job. Rows go from the object store to the task and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hummock.compaction.assignment import Assignment, decode_result
from hummock.compaction.execute import IsCancelled, Progress
from hummock.compaction.journal import Journal
from hummock.compaction.runner import LIMIT_MS
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.errors import SparkJobCancelled, TaskCancelled
from hummock.spark.jobs import run_specs, slots
from hummock.spark.worker import shared_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = "hummock.compaction.assignment:carry_out"


class SparkRunner:
    """A Runner on the executors of `spark`, which reach the store at `url`; each task uses `memory_bytes`.

    An attempt at a range ends `limit_ms` after its beginning at the latest, whoever still waits for it.
    """

    def __init__(self, spark: SparkSession, url: str, *, memory_bytes: int, limit_ms: int = LIMIT_MS):
        self._spark, self._url = spark, shared_url(url)
        self._memory_bytes, self._limit_ms = memory_bytes, limit_ms

    @property
    def slots(self) -> int:
        return slots(self._spark)

    def run(self, specs: Sequence[RangeSpec], prefix: str, *, progress: Progress | None = None,
            is_cancelled: IsCancelled | None = None, journal: Journal | None = None) -> list[RangeResult]:
        """As every Runner. With a `journal` results are written down as they come, for a driver after this one."""
        if not specs:
            return []
        task = specs[0].task
        assignments = [Assignment(spec.narrowed(), self._url, prefix, self._memory_bytes, self._limit_ms,
                                  journal.path(spec.place) if journal is not None else "").encode() for spec in specs]

        def told(done: int, tasks: int) -> None:
            if progress is not None and done:
                progress(task.input_rows * done // max(done, tasks))

        try:
            answers = run_specs(self._spark, assignments, WORK, name=f"hummock: compact task {task.id}",
                                is_cancelled=is_cancelled, on_progress=told)
        except SparkJobCancelled as error:
            raise TaskCancelled(task.id) from error
        return list(map(decode_result, answers))
