"""Fault injection in tasks of a Spark job, once for each range, by a plan stored beside the store."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hummock.compaction import worker_task
from hummock.compaction.worker_task import WorkerTask
from hummock.object_store import directory_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = "tests.support.drivers.spark_chaos:carry_out"
WORKER_FAULTS = ("killed before", "killed between files", "killed after its progress log", "done twice", "store fails")
SLOW_FAULTS = ("slow",)         # for clusters of two hosts: waits until another attempt has begun
OTHER_ATTEMPT_SECONDS = 120     # timeout of that wait


def plan_of(url: str) -> Path:
    return Path(directory_of(url)).with_suffix(".chaos")


def write_plan(url: str, plan: dict[Any, Any]) -> None:
    """Writes the plan of a job: range index -> fault of its first attempt. Removes all marks."""
    directory = plan_of(url)
    directory.mkdir(exist_ok=True)
    for mark in directory.iterdir():
        mark.unlink()
    (directory / "plan").write_text(json.dumps(plan))


@contextmanager
def under_way(url: str) -> Iterator[None]:
    """Marks an attempt at a task as running, by a file lock that ends with its process."""
    with _attempts_of(url).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield


def wait_for_attempts(spark: SparkSession, url: str) -> None:
    """Waits until no attempt runs: neither an overtaken one, nor one whose executor died."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()      # type: ignore[union-attr]
    while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
        time.sleep(0.05)
    with _attempts_of(url).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)


def wait_for_another(mark: Path) -> None:
    """Waits until another attempt has left its mark."""
    until = time.monotonic() + OTHER_ATTEMPT_SECONDS
    while time.monotonic() < until and not mark.exists():
        time.sleep(0.02)


def carry_out(data: bytes) -> bytes:
    """Runs the task as the compactor does, or with the fault of the plan."""
    task = WorkerTask.decode(data)
    with under_way(task.url):
        return _run_with_fault(data, task)


def _run_with_fault(data: bytes, task: WorkerTask) -> bytes:
    fault = _fault_of(task)
    if fault == "killed before":
        _die()
    if fault == "store fails":
        raise OSError("injected")
    if fault == "executor killed":
        daemon = os.getppid()
        os.kill(int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    if fault == "slow":
        wait_for_another(plan_of(task.url) / f"{task.spec.index} again")
    if fault == "killed between files":
        names, mint = [], worker_task.mint_sstable_name

        def minted(*arguments: object) -> str:
            names.append(1)
            return mint(*arguments) if len(names) < 3 else _die()     # type: ignore[arg-type]

        worker_task.mint_sstable_name = minted       # type: ignore[assignment]
    if fault == "done twice":
        worker_task.carry_out(data)
    done = worker_task.carry_out(data)
    if fault == "killed after its progress log":
        _die()
    return done


def _fault_of(task: WorkerTask) -> str | None:
    directory = plan_of(task.url)
    fault = json.loads((directory / "plan").read_text()).get(str(task.spec.index))
    try:
        (directory / f"{task.spec.index}").touch(exist_ok=False)
    except FileExistsError:
        (directory / f"{task.spec.index} again").touch()
        return None
    return fault


def _attempts_of(url: str) -> Path:
    return Path(directory_of(url)).with_suffix(".attempts")


def _die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process continues")
