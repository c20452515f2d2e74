"""What goes wrong in tasks of a Spark job, once for each range, as a plan beside the store says."""

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
WORKER_FAULTS = ("killed before", "killed between files", "killed behind its journal", "done twice", "store fails")
SLOW_FAULTS = ("slow",)         # for clusters of two hosts: until another attempt has begun
OTHER_ATTEMPT_SECONDS = 120     # that a slow task waits for it


def plan_of(url: str) -> Path:
    return Path(directory_of(url)).with_suffix(".chaos")


def write_plan(url: str, told: dict[Any, Any]) -> None:
    """Of a job by ranges: what goes wrong at the first attempt at each, by place. No mark is left."""
    place = plan_of(url)
    place.mkdir(exist_ok=True)
    for mark in place.iterdir():
        mark.unlink()
    (place / "plan").write_text(json.dumps(told))


@contextmanager
def under_way(url: str) -> Iterator[None]:
    """Of an attempt at a task; it ends with its process too."""
    with _attempts_of(url).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield


def wait_for_attempts(spark: SparkSession, url: str) -> None:
    """None goes on: neither one that was overtaken, nor one whose executor died."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()      # type: ignore[union-attr]
    while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
        time.sleep(0.05)
    with _attempts_of(url).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)


def wait_for_another(mark: Path) -> None:
    """Until another attempt has left its mark."""
    until = time.monotonic() + OTHER_ATTEMPT_SECONDS
    while time.monotonic() < until and not mark.exists():
        time.sleep(0.02)


def carry_out(data: bytes) -> bytes:
    """As the compactor's own, or as the plan says."""
    asked = WorkerTask.decode(data)
    with under_way(asked.url):
        return _carried_out(data, asked)


def _carried_out(data: bytes, asked: WorkerTask) -> bytes:
    fault = _fault_of(asked)
    if fault == "killed before":
        _die()
    if fault == "store fails":
        raise OSError("injected")
    if fault == "executor killed":
        daemon = os.getppid()
        os.kill(int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    if fault == "slow":
        wait_for_another(plan_of(asked.url) / f"{asked.spec.index} again")
    if fault == "killed between files":
        names, mint = [], worker_task.mint_sstable_name

        def minted(*arguments: object) -> str:
            names.append(1)
            return mint(*arguments) if len(names) < 3 else _die()     # type: ignore[arg-type]

        worker_task.mint_sstable_name = minted       # type: ignore[assignment]
    if fault == "done twice":
        worker_task.carry_out(data)
    done = worker_task.carry_out(data)
    if fault == "killed behind its journal":
        _die()
    return done


def _fault_of(asked: WorkerTask) -> str | None:
    place = plan_of(asked.url)
    fault = json.loads((place / "plan").read_text()).get(str(asked.spec.index))
    try:
        (place / f"{asked.spec.index}").touch(exist_ok=False)
    except FileExistsError:
        (place / f"{asked.spec.index} again").touch()
        return None
    return fault


def _attempts_of(url: str) -> Path:
    return Path(directory_of(url)).with_suffix(".attempts")


def _die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")
