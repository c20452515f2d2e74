"""A store whose epochs run as tasks on Spark, while tasks, workers, executors and drivers die, and others take over.

    python -m tests.support.worlds.epoch_world threads|executors|hosts DIRECTORY SEED FIRST ROUNDS

A round has one driver, with faults in its tasks; then another process checks every row and continues, and nothing is
left of what does not count. The process runs the rounds from number FIRST on and prints "all is well".
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hummock.cli.output import Output
from hummock.cli.store import opened
from hummock.errors import Fenced
from hummock.meta.upload_registry import read_uploads
from hummock.meta.vacuum.obsolete_files import read_obsolete
from hummock.object_store.base import (
    SSTABLE_PREFIX,
    name_prefix,
    sstable_meta_path,
    sstable_name_of,
)
from hummock.options import CompactionOptions
from hummock.spark import spark_session
from stream.session.session import Session
from stream.spark import job as on_spark
from tests.reliability.epoch_workload import OPTIONS, STRANGE_ID, check, create, open_session, rows_read, work
from tests.support.drivers import epoch_chaos
from tests.support.drivers.bulk_chaos import name_driver
from tests.support.drivers.bulk_driver import SPARK
from tests.support.drivers.epoch_chaos import (
    DRIVER_KILLED,
    EXECUTOR_KILLED,
    HELD,
    OVERTAKEN,
    WORKER_FAULTS,
    Faults,
    marks_of,
    plan_faults,
)
from tests.support.drivers.epoch_driver import BY_A_TASK, ENDS, DriverJob
from tests.support.drivers.spark_chaos import wait_for_attempts
from tests.support.drivers.spark_overtaken import session_on_two_hosts
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.checked_store import PROCESS_SECONDS, CheckedStore

ROOT = Path(__file__).resolve().parents[3]
SHAPE = CompactionOptions(sstable_bytes=int(OPTIONS["sstable_bytes"]), block_bytes=int(OPTIONS["block_bytes"]))
LIVES, JOB_FAILS, STORE_FAILS = "lives", "its job fails", "its store fails"
REPLACED, ABANDONED = "replaced", "abandoned"
TURNS = (LIVES, REPLACED, JOB_FAILS, ABANDONED, STORE_FAILS, *ENDS)
COMPLETE = (LIVES, JOB_FAILS, STORE_FAILS, REPLACED)
STORE_FAULTS, MOST_CALLS = 6, 150
"""Of the objects of a driver whose store fails, and the calls among which they are."""
STORE_FAULT_KINDS = (FaultKind.BEFORE, FaultKind.AFTER, FaultKind.DELAY)
TASK_FAILURES = 4
"""Of a task, which end its job where tasks are threads of the driver."""
MOST_TIMES = 12
"""The step at which a driver is killed may have been reached so often."""
STATEMENTS = 3
"""Of the driver of a round."""
ROUNDS_OF_A_STORE = 10
FIRST_ATTEMPTS, MOST_STEPS = 30, 18
SOON_SECONDS = 120.0
OF_CLUSTERS = {"executors": EXECUTOR_KILLED, "hosts": OVERTAKEN}
"""The fault that only a cluster can have, in each of its rounds."""
MASTERS = {"threads": "local[6]", "executors": "local-cluster[2,1,1024]"}
"""Of sessions. Six threads are two tasks at once, so rows are exchanged between tasks; two threads are one task."""


class EpochWorld(CheckedStore):
    """`spark` serves drivers that survive; those that are killed start their own session."""

    def __init__(self, spark, directory: Path, seed: int):
        super().__init__(spark, directory, SHAPE)
        self.seed, self.rng = seed, random.Random(seed)
        self.statements = self.rows = 0
        self.counts: Counter[str] = Counter()
        create(self.url)

    def round(self, turn: str, faults: Faults) -> None:
        plan_faults(self.url, faults)
        began, first = time.monotonic(), self.statements
        notes = self._turn(turn)
        sent = max((number for what, number in notes if what == "sent"), default=first)
        flushed = max((number for what, number in notes if what == "flushed"), default=first)
        self.wait_for_processes()
        with open_session(self.url) as db:
            self.statements = check(db, self.seed, flushed, sent)
            assert turn not in COMPLETE or self.statements == first + STATEMENTS
            self._check_rows(db, max((number for what, number in notes if what == "read"), default=0))
            work(db, self.seed, self.statements, 1, lambda text: None)
            self.statements = check(db, self.seed, self.statements + 1, self.statements + 1)
            self._check_rows(db, 0)
        marks = marks_of(self.url)
        self.counts.update(f"{kind} left to vacuum" for kind in self.remains())
        self.check_files()
        hits = {mark: where for mark, where in marks.items() if mark.partition(" ")[2] in
                (*WORKER_FAULTS, DRIVER_KILLED, EXECUTOR_KILLED, OVERTAKEN, HELD)}
        for mark, where in hits.items():
            assert OVERTAKEN not in mark or epoch_chaos.again(where.split()[-1]) in marks, f"{mark}: no other attempt"
        self.counts.update([turn, *(mark.partition(" ")[2] for mark in hits)])
        seconds = time.monotonic() - began
        print(f"  {seconds:.0f} s, {self.statements} statements, {self.rows} rows, hit: {hits}", flush=True)

    def _check_rows(self, db: Session, least: int) -> None:
        rows = rows_read(db)
        assert rows >= max(least, self.rows), f"{rows} rows after {max(least, self.rows)}"
        self.rows = rows

    def remains(self) -> list[str]:
        """Files that no version needs or needed, named "shuffle file" or "file": what attempts have left that do not
        count. A shuffle file has no metadata beside it."""
        wait_for_attempts(self.spark, self.url)
        with opened(self.url, None, Output(True)) as store:
            needed = {info.name for info in store.manager.refresh().sstables}
            needed |= {name for row in read_obsolete(store.meta_store) for name, _ in row.files}
            paths = {found.path for found in store.object_store.list(SSTABLE_PREFIX)}
        names = {sstable_name_of(path) for path in paths} - needed - {None}
        return ["file" if sstable_meta_path(name) in paths else "shuffle file" for name in names if name]

    # -- the ends of a driver ----------------------------------------------------------------------------------

    def _turn(self, turn: str) -> list[tuple[str, int]]:
        """What the driver noted."""
        if turn in ENDS:
            return self._is_killed(turn)
        notes: list[str] = []
        with chaos():
            {LIVES: self._lives, JOB_FAILS: self._lives, STORE_FAILS: self._store_fails,
             REPLACED: self._is_replaced, ABANDONED: self._is_abandoned}[turn](notes)
        return _parsed(notes)

    def _lives(self, notes: list[str]) -> None:
        with self.driver() as db:
            work(db, self.seed, self.statements, STATEMENTS, notes.append)
        with opened(self.url, None, Output(True)) as store:
            assert not read_uploads(store.meta_store), "prefixes of a driver that was closed"

    def driver(self, plan: FaultPlan | None = None) -> Session:
        """A driver on Spark in this process; calls of its objects fail by `plan`."""
        return open_session(
            self.url,
            self.spark,
            around=lambda objects: objects if plan is None else FaultyObjectStore(objects, plan),
            detached_creation_bytes=self.rng.choice([0, 1 << 40]),
        )

    def _store_fails(self, notes: list[str]) -> None:
        """Calls of the driver's own objects fail or are slow, of epochs as of compaction."""
        rng, plan = self.rng, FaultPlan()
        with self.driver(plan) as db:
            for _ in range(STORE_FAULTS):
                kind, operation = rng.choice(STORE_FAULT_KINDS), rng.choice(["put", "get", "delete", ""])
                plan.add(Fault(kind, operation, SSTABLE_PREFIX, rng.randrange(MOST_CALLS), rng.randint(1, 3), 300))
            work(db, self.seed, self.statements, STATEMENTS, notes.append, can_read=False)
            plan.clear()
        self.counts["calls of a driver's store failed or slow"] += plan.hits

    def _is_abandoned(self, notes: list[str]) -> None:
        """The driver is closed without a flush while a task is under way, which may go on."""
        plan_faults(self.url, {1: (HELD, self.rng.randint(1, MOST_STEPS))})
        db, ends = self.driver(), []
        number = self.statements

        def end() -> None:
            try:
                work(db, self.seed, number, 1, notes.append)
            except Exception as error:
                ends.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        self._wait_for_mark(f"1 {HELD}")
        db.abandon()
        epoch_chaos.release(self.url)
        thread.join(SOON_SECONDS)
        assert not thread.is_alive() and ends, "a statement of a driver that was abandoned was acknowledged"

    def _is_replaced(self, notes: list[str]) -> None:
        """Another driver takes over while a task of this one is under way: what it commits later is refused."""
        plan_faults(self.url, {1: (HELD, self.rng.randint(1, MOST_STEPS))})
        old, ends = self.driver(), []

        def end() -> None:
            try:
                old.resume()
                old.sql(f"INSERT INTO m VALUES ({STRANGE_ID}, 0, 0)")
                old.flush()
            except Exception as error:
                ends.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        self._wait_for_mark(f"1 {HELD}")
        new = open_session(self.url, self.rng.choice([None, self.spark]))
        work(new, self.seed, self.statements, STATEMENTS, notes.append)
        new.pause()
        self.vacuum(0)
        names = old._playground.node._context.prefixes  # type: ignore[attr-defined]
        epoch_chaos.release(self.url)
        thread.join(SOON_SECONDS)
        assert not thread.is_alive(), "a driver that was replaced goes on"
        assert ends and isinstance(ends[0], Fenced), ends
        assert not [info for info in new._playground.manager.refresh().sstables if name_prefix(info.name) in names]
        old.abandon()
        new.close()

    def _wait_for_mark(self, mark: str) -> None:
        until = time.monotonic() + SOON_SECONDS
        while mark not in marks_of(self.url):
            assert time.monotonic() < until, marks_of(self.url)
            time.sleep(0.02)

    def _is_killed(self, end: str) -> list[tuple[str, int]]:
        """A driver that is killed; its tasks may still run beside the next process."""
        job_file, log, notes = (self.directory / name for name in ("job", "log", "notes"))
        notes.unlink(missing_ok=True)
        master = self.rng.choice(["local[2]", MASTERS["threads"]])
        job = DriverJob(self.url, master, self.seed, self.statements, 10 * STATEMENTS, end,
                        self.rng.randint(1, MOST_TIMES), str(notes))
        job_file.write_text(job.to_json())
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.support.drivers.epoch_driver", str(job_file)], cwd=ROOT, stdout=output,
                stderr=output, start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
            self.drivers.append(driver.pid)
            ended = driver.wait(PROCESS_SECONDS)
        name_driver(self.url, 0)
        assert ended == -9, (ended, end, log.read_text()[-4_000:])
        return _parsed(notes.read_text().splitlines()) if notes.exists() else []


@contextmanager
def chaos() -> Iterator[None]:
    """Tasks of drivers in this process fail by the plan."""
    work_before = on_spark.EPOCH_WORK
    on_spark.EPOCH_WORK = epoch_chaos.WORK
    try:
        yield
    finally:
        on_spark.EPOCH_WORK = work_before


def _parsed(notes: list[str]) -> list[tuple[str, int]]:
    return [(what, int(number)) for what, number in (note.split() for note in notes)]


def faults_of_round(rng: random.Random, turn: str, share: float) -> dict[int, tuple[str, int]]:
    """Faults of a share of the first attempts of a round, each at a random step."""
    faults = {number: (rng.choice(WORKER_FAULTS), rng.randint(1, MOST_STEPS))
              for number in range(1, FIRST_ATTEMPTS + 1) if rng.random() < share}
    if turn == JOB_FAILS:
        return {number: ("raises", rng.randint(1, MOST_STEPS)) for number in range(1, 2 * TASK_FAILURES)}
    if turn == BY_A_TASK:
        faults[rng.randint(1, 12)] = (DRIVER_KILLED, rng.randint(1, MOST_STEPS))
    return faults


def run_rounds(spark, kind: str, directory: Path, seed: int, first: int, rounds: int) -> Counter[str]:
    """Rounds from number `first` on; how often each end of a driver and each fault of a task was seen."""
    counts: Counter[str] = Counter()
    world = None
    for number in range(first, first + rounds):
        rng = random.Random(f"{seed} {kind} {number}")
        if world is None or number % ROUNDS_OF_A_STORE == 0:
            world = EpochWorld(spark, directory / f"from-{number}", rng.randrange(1 << 30))
        turn = TURNS[number % len(TURNS)] if kind == "threads" else LIVES
        faults = faults_of_round(rng, turn, 0.05 if kind == "hosts" else 0.25)
        if kind != "threads":
            faults[rng.randint(1, 30)] = (OF_CLUSTERS[kind], rng.randint(1, MOST_STEPS))
        print(number, turn, json.dumps(faults), flush=True)
        world.round(turn, faults)
        assert kind == "threads" or world.counts[OF_CLUSTERS[kind]]
        counts.update(world.counts)
        world.counts.clear()
    return counts


def main(kind: str, directory: str, seed: str, first: str, rounds: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    if kind == "hosts":
        with session_on_two_hosts(Path(directory)) as session:
            counts = run_rounds(session, kind, Path(directory), int(seed), int(first), int(rounds))
    else:
        session = spark_session(MASTERS[kind], settings=SPARK, carries_rows=False)
        counts = run_rounds(session, kind, Path(directory), int(seed), int(first), int(rounds))
        session.stop()
    print(dict(counts))
    print("all is well", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
