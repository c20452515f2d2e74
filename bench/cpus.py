"""Which CPUs a process, or an executor of Spark, may use: a cluster's manager gives an executor of one core one CPU.
And whether they have other work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 60      # that executors may take
LOOK_SECONDS, QUIET_SHARE = 0.15, 0.25


def confine(process: int, cpus: set[int]) -> None:
    """All threads that it has, and so whatever they begin, to `cpus`."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cpus)


@contextmanager
def confined(cpus: set[int]) -> Iterator[None]:
    """This process, as long as the block runs."""
    before = os.sched_getaffinity(0)
    confine(os.getpid(), cpus)
    try:
        yield
    finally:
        confine(os.getpid(), before)


def confine_executors(spark: Any, count: int) -> None:
    """Each of so many, once they are there, to a CPU of its own, with what it starts."""
    for executor, cpu in zip(executors_of(spark, count), sorted(os.sched_getaffinity(0)), strict=False):
        confine(executor, {cpu})


def executors_of(spark: Any, count: int) -> list[int]:
    """The processes of the executors, once there are `count`. Raises TimeoutError."""
    application, until = spark.sparkContext.applicationId.encode(), time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                if application in command and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(process.name))
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"after {START_SECONDS} s there are {len(found)} of {count} executors")


def wait_for_quiet(most_seconds: float) -> bool:
    """Returns once all CPUs together have worked for less than QUIET_SHARE of LOOK_SECONDS, which is True, or after
    `most_seconds`."""
    until = time.monotonic() + most_seconds
    before = _cpu_ticks()
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        now = _cpu_ticks()
        if now[0] - before[0] < QUIET_SHARE * (now[1] - before[1]):
            return True
        before = now
    return False


def _cpu_ticks() -> tuple[int, int]:
    """Ticks of work of all CPUs, and all ticks."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)
