"""Fault injection in tasks of epochs, by a plan stored beside the store.

Every attempt at a task is numbered when it starts, and counts its steps: what it builds and injects, each name of an
object that it writes, each call of its object store, before and behind it, and its end. The plan names attempts and
the step at which each is hit; one with fewer steps is hit at its end. A mark beside the plan records each fault.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from hummock.errors import ObjectStoreError
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.sstable.store import SstableStore
from stream.message import Barrier
from stream.protocol import ActorSpec
from stream.spark import epoch_task
from stream.spark.epoch_spec import EpochTask
from stream.spark.shuffle_nodes import SentEdge, ShuffleEnds
from stream.worker.compute_node import ComputeNode
from tests.support.drivers.spark_chaos import plan_of, under_way, wait_for_another, write_plan
from tests.support.servers.object_store_faults import FaultPlan, FaultyObjectStore

WORK = "tests.support.drivers.epoch_chaos:run_task"
WORKER_FAULTS = ("killed", "raises", "store fails", "store is slow", "done twice")
EXECUTOR_KILLED, DRIVER_KILLED, OVERTAKEN, HELD = "executor killed", "driver killed", "overtaken", "held"
RELEASED = "released"
FAILING_CALLS, SLOW_CALLS, SLOW_SECONDS = 3, 4, 0.3
HELD_SECONDS = 120.0

Faults = Mapping[int, tuple[str, int]]
"""By number of the attempt: the fault, and the step that it hits."""


def plan_faults(url: str, faults: Faults) -> None:
    """Attempts are numbered from 1 on from here."""
    write_plan(url, {"driver": 0, "faults": faults})


def marks_of(url: str) -> dict[str, str]:
    """What has happened so far: mark -> where it happened. A fault has the mark "<number> <fault>"."""
    return {mark.name: mark.read_text() for mark in plan_of(url).iterdir() if mark.name != "plan"}


def again(task: str) -> str:
    """The mark of a task that was attempted more than once; `task`: as its faults are marked."""
    return f"again {task}"


def release(url: str) -> None:
    """Attempts that are held continue."""
    (plan_of(url) / RELEASED).touch()


def run_task(serialized: bytes) -> bytes:
    """Runs a task of an epoch as an executor does, or with the fault of the plan."""
    url = EpochTask.from_bytes(serialized).url
    with under_way(url):
        return _Attempt(url, serialized).run(serialized)


class _Attempt:
    """One attempt at a task."""

    def __init__(self, url: str, serialized: bytes) -> None:
        self._directory = plan_of(url)
        plan = json.loads((self._directory / "plan").read_text())
        self._driver: int = plan["driver"]
        self._task = f"{zlib.crc32(serialized):08x}"
        self._number = next(number for number in range(1, 1 << 20) if self._mark(f"attempt {number}"))
        if not self._mark(f"begun {self._task}"):
            self._mark(again(self._task))
        self._fault, self._step = plan["faults"].get(str(self._number), ("", 0))
        self._lock, self._steps, self._is_hit = threading.Lock(), 0, False

    def run(self, serialized: bytes) -> bytes:
        if not self._fault:
            return epoch_task.run_epoch_task(serialized)
        if self._fault == "done twice":
            epoch_task.run_epoch_task(serialized)
        minter, attempt = epoch_task.name_minter, self

        class Node(ComputeNode):
            def build(self, specs: Sequence[ActorSpec]) -> None:
                attempt.reach("build")
                super().build(specs)

            def inject(self, barrier: Barrier, on_passed: Callable[[], None] = lambda: None) -> Any:
                attempt.reach("inject")
                found = super().inject(barrier, on_passed)
                attempt.reach("injected")
                return found

        class Ends(ShuffleEnds):
            def finish(self) -> dict[int, SentEdge]:
                attempt.reach("finish")
                found = super().finish()
                attempt.reach("finished")
                return found

        def counted_minter(*arguments: Any) -> Callable[[], str]:
            mint = minter(*arguments)

            def minted() -> str:
                attempt.reach("name")
                return mint()

            return minted

        objects = _CountedObjectStore(epoch_task.task_store(EpochTask.from_bytes(serialized).url), self.call)
        files = SstableStore(objects, StorageOptions())
        with mock.patch.multiple(epoch_task, ComputeNode=Node, ShuffleEnds=Ends, name_minter=counted_minter,
                                 task_store=lambda url: objects, files_of=lambda url: files):
            report = epoch_task.run_epoch_task(serialized)
        if not self._is_hit:
            self._strike(f"the end, step {self._steps}")
        return report

    def call(self, operation: str, path: str, call: Callable[[], object]) -> object:
        """`call()` as two steps; it fails or takes long by the plan."""
        self.reach(f"{operation} {path}")
        if self._fault == "store fails" and 0 <= self._steps - self._step < 2 * FAILING_CALLS:
            raise ObjectStoreError(path, "injected fault")
        if self._fault == "store is slow" and 0 <= self._steps - self._step < 2 * SLOW_CALLS:
            time.sleep(SLOW_SECONDS)
        found = call()
        self.reach(f"behind {operation} {path}")
        return found

    def reach(self, what: str) -> None:
        """The next step begins."""
        with self._lock:
            self._steps += 1
            is_now = self._steps == self._step
        if is_now:
            self._is_hit = True
            self._strike(f"{what}, step {self._steps}")

    def _strike(self, where: str) -> None:
        self._mark(f"{self._number} {self._fault}", f"{where} of task {self._task}")
        if self._fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._fault == "raises":
            raise OSError("injected fault")
        elif self._fault == EXECUTOR_KILLED:
            os.kill(_parent_of(os.getppid()), signal.SIGKILL)  # this worker continues for a while
        elif self._fault == DRIVER_KILLED and self._driver:
            os.kill(self._driver, signal.SIGKILL)  # this task continues, but its report is lost
        elif self._fault == OVERTAKEN:
            wait_for_another(self._directory / again(self._task))
        elif self._fault == HELD:
            until = time.monotonic() + HELD_SECONDS
            while time.monotonic() < until and not (self._directory / RELEASED).exists():
                time.sleep(0.02)

    def _mark(self, name: str, text: str = "") -> bool:
        """Whether there was no such mark."""
        try:
            with (self._directory / name).open("x") as mark:
                mark.write(text)
        except FileExistsError:
            return False
        return True


class _CountedObjectStore(FaultyObjectStore):
    """Every call, and what a writer writes when it is closed, passes through `around(operation, path, call)`."""

    def __init__(self, store: ObjectStore, around: Callable[[str, str, Callable[[], object]], object]) -> None:
        super().__init__(store, FaultPlan())
        self._around = around

    def _run(self, operation: str, path: str, call: Callable[[], object], *tear: object) -> object:
        return self._around(operation, path, call)


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
