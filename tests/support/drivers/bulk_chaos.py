"""What goes wrong in tasks of a bulk load or a bulk backfill, as a plan beside the store says.

A plan names the task by its stage and its place there; the first attempt at it alone goes wrong. What happened is
marked beside the plan.
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

from relational.spark import load_encoder, load_writer
from relational.spark.load_spec import LoadSpec
from stream.spark import job, tasks
from stream.spark.spec import TaskSpec
from tests.support.drivers.spark_chaos import plan_of, under_way, wait_for_another, write_plan

WORKER_FAULTS = ("killed at once", "killed amid its rows", "killed between files", "killed behind its files",
                 "done twice", "store fails")
EXECUTOR_FAULTS = ("executor killed", "executor killed behind its files")
SLOW_FAULTS = ("slow", "slow behind its files")     # for clusters of two hosts: until another attempt has begun
DRIVER_FAULTS = ("driver killed", "driver killed behind its files")
LOAD_STAGES = ("encode", "write")
BACKFILL_STAGES = ("scan", "arrive 1", "arrive 2")
Batches = Iterator[pa.RecordBatch]


def plan_faults(url: str, faults: dict[str, str]) -> None:
    """Tasks, "stage place", go wrong so."""
    write_plan(url, {"driver": 0, "faults": faults})


def name_driver(url: str, driver: int) -> None:
    """`driver` is the process that some tasks kill; 0: there is none any more."""
    told = plan_of(url) / "plan"
    beside = told.with_suffix(".new")
    beside.write_text(json.dumps({**json.loads(told.read_text()), "driver": driver}))
    beside.rename(told)


def marks_of(url: str) -> set[str]:
    """The tasks that went wrong; those with "again" behind them began another time while they did."""
    return {mark.name for mark in plan_of(url).iterdir()} - {"plan"}


def install(patch: Callable[[object, str, object], None]) -> None:
    """Jobs of this process have tasks that go wrong by the plan; `patch` sets an attribute."""
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


def run_task(told: bytes) -> bytes:
    spec = TaskSpec.from_bytes(told)
    with under_way(spec.backfill.url):
        return _Task(spec.backfill.url, BACKFILL_STAGES[spec.fragment]).answer(told)


_load_encoder, _load_writer = load_encoder.encode_rows, load_writer.write_rows


class _Task:
    """One attempt."""

    def __init__(self, url: str, stage: str):
        from pyspark import TaskContext

        context = TaskContext.get()
        self._place, self._name = plan_of(url), f"{stage} {context.partitionId()}"
        plan = json.loads((self._place / "plan").read_text())
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

    def answer(self, told: bytes) -> bytes:
        """Of a task of a backfill."""
        fault = self._fault
        if fault:
            self._disturb_first()
        if fault == "done twice":
            tasks.run_task(told)
        with ExitStack() as faulty:
            if fault == "killed between files":
                faulty.enter_context(_death_at_a_name(2))
            if fault == "killed amid its rows":
                faulty.enter_context(_death_amid_rows())
            made = tasks.run_task(told)
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
                os.kill(self._driver, signal.SIGKILL)       # and this task goes on, for nobody
        elif self._fault.startswith("executor killed"):
            os.kill(_parent_of(os.getppid()), signal.SIGKILL)   # and this worker goes on for a while
        elif self._fault.startswith("slow"):
            wait_for_another(self._place / f"{self._name} again")
        else:
            _die()

    def _mark(self, name: str) -> bool:
        try:
            (self._place / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _cut_short(batches: Iterable[Any]) -> Iterator[Any]:
    """The first batch, and no more."""
    for batch in batches:
        yield batch
        _die()


@contextmanager
def _death_amid_rows() -> Iterator[None]:
    """Of a task of a backfill: behind the first chunk that its fragment gives."""
    run_fragment = tasks.run_fragment
    tasks.run_fragment = lambda *arguments: _cut_short(run_fragment(*arguments))   # type: ignore[assignment]
    try:
        yield
    finally:
        tasks.run_fragment = run_fragment


@contextmanager
def _death_at_a_name(number: int) -> Iterator[None]:
    """Death at the name of so-manieth file; those before it are there by then, or on their way."""
    names, mint = [], load_writer.mint_sstable_name

    def minted(*arguments: object) -> str:
        names.append(1)
        return mint(*arguments) if len(names) < number else _die()      # type: ignore[arg-type]

    load_writer.mint_sstable_name = tasks.mint_sstable_name = minted     # type: ignore[assignment]
    try:
        yield
    finally:
        load_writer.mint_sstable_name = tasks.mint_sstable_name = mint


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")
