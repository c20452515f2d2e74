"""A driver whose epochs run as tasks on Spark, and which is killed at a given step.

    python -m tests.support.drivers.epoch_driver FILE

FILE has a `DriverJob` as JSON. The process appends what it does to the file of its notes, and prints "done" if nothing
killed it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hummock.spark import spark_session
from stream.protocol import Step
from stream.spark import job as on_spark
from stream.spark.epoch_spec import EpochReport, EpochTask
from stream.spark.job import SparkEpochTasks
from tests.reliability.epoch_workload import open_session, work
from tests.support.drivers import epoch_chaos
from tests.support.drivers.bulk_chaos import name_driver
from tests.support.drivers.bulk_driver import SPARK

BEFORE_A_JOB, BEHIND_A_JOB, BY_A_TASK = "before a job", "behind a job", "by a task"
ENDS = (*map(str, Step), BEFORE_A_JOB, BEHIND_A_JOB, BY_A_TASK)
"""Where a driver is killed: at a step of a checkpoint, around the Spark job of a stage, or while its tasks run."""


@dataclass(frozen=True, slots=True)
class DriverJob:
    """`count` statements from number `first` on; the process is killed when `end` is reached for the `at`-th time."""

    url: str
    master: str
    seed: int
    first: int
    count: int
    end: str
    at: int
    notes: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class _Death:
    """Kills this process at the step of a job."""

    def __init__(self, job: DriverJob) -> None:
        self._end, self._left = job.end, job.at

    def observe(self, step: Step, epoch: int) -> None:
        self.reach(str(step))

    def reach(self, step: str) -> None:
        if step == self._end:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def drive(job: DriverJob) -> None:
    name_driver(job.url, os.getpid())
    on_spark.EPOCH_WORK = epoch_chaos.WORK
    death, run = _Death(job), SparkEpochTasks.run

    def deadly_run(
        tasks: SparkEpochTasks,
        name: str,
        specs: Sequence[EpochTask],
        near: Sequence[str],
        is_cancelled: Callable[[], bool],
    ) -> list[EpochReport]:
        death.reach(BEFORE_A_JOB)
        reports = run(tasks, name, specs, near, is_cancelled)
        death.reach(BEHIND_A_JOB)
        return reports

    SparkEpochTasks.run = deadly_run  # type: ignore[method-assign]
    spark = spark_session(job.master, settings=SPARK, carries_rows=False)
    notes = os.open(job.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    detached_bytes = random.Random(job.first).choice([0, 1 << 40])
    with open_session(job.url, spark, death.observe, detached_creation_bytes=detached_bytes) as db:
        work(db, job.seed, job.first, job.count, lambda text: _write(notes, text))
    print("done", flush=True)


def _write(file: int, text: str) -> None:
    os.write(file, f"{text}\n".encode())


if __name__ == "__main__":
    drive(DriverJob(**json.loads(Path(sys.argv[1]).read_text())))
