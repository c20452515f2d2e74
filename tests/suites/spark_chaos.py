"""What goes wrong in tasks of a Spark job, once for each range, as a plan beside the store says."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from hummock.compaction import assignment
from hummock.compaction.assignment import Assignment
from hummock.object_store import directory_of

WORK = "tests.suites.spark_chaos:carry_out"
WORKER_FAULTS = ("killed before", "killed between files", "killed behind its journal", "done twice", "store fails")
EXECUTOR_FAULTS = ("executor killed", "slow")


def plan_of(url: str) -> Path:
    return Path(directory_of(url)).with_suffix(".chaos")


def write_plan(url: str, told: dict[Any, Any]) -> None:
    """Of a job by ranges: what goes wrong at the first attempt at each, by place. No mark is left."""
    place = plan_of(url)
    place.mkdir(exist_ok=True)
    for mark in place.iterdir():
        mark.unlink()
    (place / "plan").write_text(json.dumps(told))


def carry_out(data: bytes) -> bytes:
    """As the compactor's own, or as the plan says."""
    asked = Assignment.decode(data)
    fault = _fault_of(asked)
    if fault == "killed before":
        _die()
    if fault == "store fails":
        raise OSError("injected")
    if fault == "executor killed":
        daemon = os.getppid()
        os.kill(int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    if fault == "slow":
        time.sleep(5)
    if fault == "killed between files":
        names, mint = [], assignment.mint_sstable_name

        def minted(*arguments: object) -> str:
            names.append(1)
            return mint(*arguments) if len(names) < 3 else _die()     # type: ignore[arg-type]

        assignment.mint_sstable_name = minted       # type: ignore[assignment]
    if fault == "done twice":
        assignment.carry_out(data)
    done = assignment.carry_out(data)
    if fault == "killed behind its journal":
        _die()
    return done


def _fault_of(asked: Assignment) -> str | None:
    place = plan_of(asked.url)
    fault = json.loads((place / "plan").read_text()).get(str(asked.spec.place))
    try:
        (place / f"{asked.spec.place}").touch(exist_ok=False)
    except FileExistsError:
        return None
    return fault


def _die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")
