"""Fault injection in tasks of a bulk load or a bulk backfill, by a plan stored beside the store.

A plan names the task by stage and partition; only its first attempt fails. A mark beside the plan records each fault.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from relational.chunk import StreamChunk
from relational.spark import load_encoder, load_writer
from relational.spark.load_spec import LoadSpec
from stream.spark import job, tasks
from stream.spark.spec import TaskSpec
from tests.support.drivers.spark_chaos import plan_of, under_way, wait_for_another, write_plan

WORKER_FAULTS = ("killed at once", "killed amid its rows", "killed between files", "killed behind its files",
                 "done twice", "store fails")
EXECUTOR_FAULTS = ("executor killed", "executor killed behind its files")
SLOW_FAULTS = ("slow", "slow behind its files")     # for clusters of two hosts: waits until another attempt has begun
DRIVER_FAULTS = ("driver killed", "driver killed behind its files")
LOAD_STAGES = ("encode", "write")
BACKFILL_STAGES = ("scan", "arrive 1", "arrive 2")
Batches = Iterator[pa.RecordBatch]


def plan_faults(url: str, faults: dict[str, str]) -> None:
    """Writes the plan: task, as "stage partition" -> fault."""
    write_plan(url, {"driver": 0, "faults": faults})


def name_driver(url: str, driver: int) -> None:
    """Sets the driver process that some tasks kill; 0: none."""
    plan = plan_of(url) / "plan"
    new = plan.with_suffix(".new")
    new.write_text(json.dumps({**json.loads(plan.read_text()), "driver": driver}))
    new.rename(plan)


def marks_of(url: str) -> set[str]:
    """The tasks with faults; those followed by "again" were started once more."""
    return {mark.name for mark in plan_of(url).iterdir()} - {"plan"}


def install(patch: Callable[[object, str, object], None]) -> None:
    """Makes tasks of this process's jobs fail by the plan; `patch` sets an attribute."""
    from relational.spark import bulk_load

    patch(bulk_load, "encode_rows", encode_rows)
    patch(bulk_load, "write_rows", write_rows)
    patch(job, "WORK", f"{__name__}:{run_task.__name__}")


# -- in tasks ----------------------------------------------------------------------------------------------------


def encode_rows(version: str, spec: bytes, batches: Iterable[pa.RecordBatch]) -> Batches:
    url = LoadSpec.from_bytes(spec).url
    with under_way(url):
        yield from _Task(url, "encode").run(lambda rows: _load_encoder(version, spec, rows), batches)


def write_rows(spec: bytes, batches: Iterable[pa.RecordBatch]) -> Batches:
    url = LoadSpec.from_bytes(spec).url
    with under_way(url):
        yield from _Task(url, "write").run(lambda rows: _load_writer(spec, rows), batches)


def run_task(serialized: bytes) -> bytes:
    spec = TaskSpec.from_bytes(serialized)
    with under_way(spec.backfill.url):
        return _Task(spec.backfill.url, BACKFILL_STAGES[spec.fragment]).answer(serialized)


_load_encoder, _load_writer = load_encoder.encode_rows, load_writer.write_rows


class _Task:
    """One attempt at a task."""

    def __init__(self, url: str, stage: str):
        from pyspark import TaskContext

        context = TaskContext.get()
        self._directory, self._name = plan_of(url), f"{stage} {context.partitionId()}"
        plan = json.loads((self._directory / "plan").read_text())
        self._driver, self._fault = plan["driver"], plan["faults"].get(self._name, "")
        if self._fault and not self._mark(self._name):
            self._mark(f"{self._name} again")
            self._fault = ""

    def run(self, work: Callable[[Iterable[pa.RecordBatch]], Batches], batches: Iterable[pa.RecordBatch]) -> Batches:
        fault = self._fault
        if not fault:
            yield from work(batches)
            return
        self._disturb_first()
        if fault == "killed amid its rows":
            batches = _cut_short(batches)
        if fault == "done twice":
            batches = list(batches)
            list(work(batches))
        with _death_at_a_name(2) if fault == "killed between files" else nullcontext():
            made = list(work(batches))
        if fault.endswith("behind its files"):
            self._disturb()
        yield from made

    def answer(self, serialized: bytes) -> bytes:
        """Runs a task of a backfill."""
        fault = self._fault
        if fault:
            self._disturb_first()
        if fault == "done twice":
            tasks.run_task(serialized)
        with ExitStack() as faulty:
            if fault == "killed between files":
                faulty.enter_context(_death_at_a_name(2))
            if fault == "killed amid its rows":
                faulty.enter_context(_death_amid_rows())
            made = tasks.run_task(serialized)
        if fault.endswith("behind its files"):
            self._disturb()
        return made

    def _disturb_first(self) -> None:
        if self._fault == "killed at once":
            _die()
        if self._fault == "store fails":
            raise OSError("injected")
        if self._fault in ("executor killed", "slow", "driver killed"):
            self._disturb()

    def _disturb(self) -> None:
        if self._fault.startswith("driver killed"):
            if self._driver:
                os.kill(self._driver, signal.SIGKILL)       # this task continues, but its result is lost
        elif self._fault.startswith("executor killed"):
            os.kill(_parent_of(os.getppid()), signal.SIGKILL)   # this worker continues for a while
        elif self._fault.startswith("slow"):
            wait_for_another(self._directory / f"{self._name} again")
        else:
            _die()

    def _mark(self, name: str) -> bool:
        try:
            (self._directory / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _cut_short(batches: Iterable[Any]) -> Iterator[Any]:
    """The first batch; then the process dies."""
    for batch in batches:
        yield batch
        _die()


@contextmanager
def _death_amid_rows() -> Iterator[None]:
    """The process of a backfill task dies after the first chunk of its fragment."""
    run_fragment = tasks.run_fragment
    tasks.run_fragment = lambda *arguments, **options: (           # type: ignore[assignment]
        _cut_short(each for each in run_fragment(*arguments, **options) if isinstance(each, StreamChunk)))
    try:
        yield
    finally:
        tasks.run_fragment = run_fragment


@contextmanager
def _death_at_a_name(number: int) -> Iterator[None]:
    """The process dies at the name of file `number`; earlier files are uploaded or in flight."""
    names, minter = [], load_writer.name_minter

    def counting(*arguments: Any) -> Callable[[], str]:
        mint = minter(*arguments)

        def minted() -> str:
            names.append(1)
            return mint() if len(names) < number else _die()

        return minted

    load_writer.name_minter = tasks.name_minter = counting
    try:
        yield
    finally:
        load_writer.name_minter = tasks.name_minter = minter


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process continues")
