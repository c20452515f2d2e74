"""A store with bulk loads and bulk backfills by Spark, while all processes involved die.

A round changes some rows by statements, runs one job with faults in its tasks and its driver, lets the next process
detect how far the job came and repeat it, and checks: all rows or none, no orphaned and no missing file, no damaged
file. Killed processes are real; a process that slept past its lease is simulated by an advanced clock elsewhere.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

import stream
from hummock.errors import Fenced, InvalidEpoch, LoadRefused, SnapshotExpired, SstableRefused
from hummock.meta.hummock_manager import HummockManager
from hummock.options import CompactionOptions
from stream.errors import StreamError
from stream.session import bulk_load
from stream.spark.job import SparkTasks
from tests.support.drivers import bulk_chaos
from tests.support.drivers.bulk_driver import (
    BACKFILL_ENDS,
    BLOCK_BYTES,
    GROUPS,
    LOAD_ENDS,
    QUERY,
    SSTABLE_BYTES,
    DriverJob,
    Load,
    backfill,
    is_last,
    open_session,
)
from tests.support.worlds.checked_store import LATER_MS, PROCESS_SECONDS, CheckedStore

ROOT = Path(__file__).resolve().parents[3]
SHAPE = CompactionOptions(sstable_bytes=SSTABLE_BYTES, block_bytes=BLOCK_BYTES)
LOAD_TURNS = ("lives", *LOAD_ENDS, "killed by a task", "slept past its lease", "slept, and its files are gone",
              "was replaced", "commits twice and late")
BACKFILL_TURNS = ("lives", *BACKFILL_ENDS, "killed by a task", "slept past its lease", "slept, and its files are gone",
                  "was replaced")
ENTER = {"lives", "behind the call", "behind the view's commit", "commits twice and late"}
LOADS = (("append", "error"), ("append", "last"), ("append", "first"), ("overwrite", "last"), ("create", "first"))


class BulkWorld(CheckedStore):
    """`spark` serves drivers that survive; those that die start their own session on `master`."""

    def __init__(self, spark, directory: Path, seed: int, master: str = "local[2]"):
        super().__init__(spark, directory, SHAPE)
        self.master = master
        self.rng, self.model, self.rounds = random.Random(seed), {}, 0
        with self.session() as session:
            session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, n BIGINT, v VARCHAR)")
            session.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
            session.sql("CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM u")

    def session(self, *, is_maintained: bool = True) -> stream.Session:
        return open_session(self.url, is_maintained=is_maintained)

    # -- rounds ----------------------------------------------------------------------------------------------

    def load_round(self, turn: str, faults: dict[str, str]) -> None:
        self._begin(faults)
        load = self._next_load()
        before = self.model if load.table == "t" else None
        after = load.after(before or {})
        self._turn(turn, load)
        with self.session() as session:
            found = self.rows(session, load.table)
            assert found in (before, after), "some rows of the load"
            if turn != "killed by a task":
                assert (found == after) == self._enters(turn, load), turn
            report = load.run(session, self.spark)
            assert report.was_repeated == (found == after)
            assert self.rows(session, load.table) == after
            assert report.rows == len(after) if load.mode != "append" else report.rows <= load.keys
            if load.mode == "create":
                session.sql(f"DROP TABLE {load.table}")
            else:
                self.model = after
            self._check_other_tables(session)
        self.check()

    def backfill_round(self, turn: str, faults: dict[str, str]) -> None:
        self._begin(faults)
        self._turn(turn, None)
        with self.session() as session:
            assert not session._playground.catalog.refresh().loaded
            exists = "mv" in session.names()
            if turn != "killed by a task":
                assert exists == self._enters(turn, None), turn
            if not exists:
                backfill(session, self.spark)
            self.check_view(session)
            self.model = self.rows(session, "t")
            self._change_rows(session)
            self.check_view(session)
            session.sql("DROP MATERIALIZED VIEW mv")
            self._check_other_tables(session)
        self.check()

    def _begin(self, faults: dict[str, str]) -> None:
        self.rounds += 1
        with self.session(is_maintained=False) as session:
            self._change_rows(session)
        bulk_chaos.plan_faults(self.url, faults)

    def _change_rows(self, session: stream.Session) -> None:
        """Changes rows by statements, in the table and in the model."""
        first = max(self.model, default=0) + 1
        new = {first + index: (self.rng.randrange(GROUPS), self.rng.randrange(-99, 99), f"row {first + index}")
               for index in range(300)}
        session.table("t").insert([(key, *row) for key, row in new.items()])
        remainder = self.rng.randrange(17)
        session.sql(f"DELETE FROM t WHERE id % 17 = {remainder}")
        session.flush()
        self.model = {key: row for key, row in (self.model | new).items() if key % 17 != remainder}

    def _next_load(self) -> Load:
        mode, rule = self.rng.choice(LOADS)
        mark, keys = f"load-{self.rounds}", self.rng.randrange(800, 1_600)
        free = max(self.model) + 1
        first = free if rule == "error" or mode == "overwrite" else self.rng.randrange(max(1, free - 500), free)
        rows = keys if rule == "error" else keys + self.rng.randrange(200)
        return Load(mark, first, keys, rows, f"made_{self.rounds}" if mode == "create" else "t", mode, rule)

    @staticmethod
    def _enters(turn: str, load: Load | None) -> bool:
        """Whether the result of a job that ends by `turn` is committed."""
        if turn == "slept, and its files are gone":
            return load is not None and load.mode != "append"       # these loads read no files
        return turn in ENTER or (load is not None and turn == "behind its files' commit")

    # -- the ends of a job ---------------------------------------------------------------------------------

    def _turn(self, turn: str, load: Load | None) -> None:
        if turn in (*LOAD_ENDS, *BACKFILL_ENDS, "killed by a task"):
            self._driver_dies("" if turn == "killed by a task" else turn, load)
            return
        with pytest.MonkeyPatch.context() as patch:
            bulk_chaos.install(patch.setattr)
            getattr(self, "_" + re.sub(r"\W+", "_", turn))(load, patch)

    def _do(self, session: stream.Session, load: Load | None) -> None:
        if load is None:
            backfill(session, self.spark)
        else:
            load.run(session, self.spark)

    def _lives(self, load: Load | None, patch: pytest.MonkeyPatch) -> None:
        with self.session() as session:
            self._do(session, load)

    def _slept_past_its_lease(self, load: Load | None, patch: pytest.MonkeyPatch) -> None:
        """After its job; vacuum removed its lease, or only its files if the lease pinned no obsolete files."""
        self._around_the_job(patch, lambda: None, lambda: self.vacuum(LATER_MS))
        with self.session() as session, pytest.raises((SnapshotExpired, LoadRefused)):
            self._do(session, load)

    def _slept_and_its_files_are_gone(self, load: Load | None, patch: pytest.MonkeyPatch) -> None:
        """Before its tasks read the files that it had pinned."""
        def sleep() -> None:
            self.compact()
            assert self.vacuum(LATER_MS)

        self._around_the_job(patch, sleep, lambda: None)
        enters = self._enters("slept, and its files are gone", load)
        outcome = nullcontext() if enters else pytest.raises(SnapshotExpired)
        with self.session(is_maintained=False) as session, outcome:
            self._do(session, load)

    def _was_replaced(self, load: Load | None, patch: pytest.MonkeyPatch) -> None:
        """Another process took over the writer role while the job ran."""
        self._around_the_job(patch, lambda: None, lambda: self.session().close())
        session = self.session()
        with pytest.raises((Fenced, StreamError)):
            self._do(session, load)
        session.abandon()

    def _commits_twice_and_late(self, load: Load | None, patch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[Any, ...]] = []
        commit = HummockManager.commit_epoch

        def recorded(manager: HummockManager, *arguments: Any, **options: Any) -> Any:
            made = commit(manager, *arguments, **options)
            if options.get("loads"):
                calls.append((arguments, options))
                assert commit(manager, *arguments, **options).max_committed_epoch == made.max_committed_epoch
            return made

        patch.setattr(HummockManager, "commit_epoch", recorded)
        with self.session() as session:
            self._do(session, load)
            (arguments, options), = calls
            manager, version = session._playground.manager, session._playground.manager.refresh()
            assert commit(manager, *arguments, **options).id >= version.id
            session.sql("INSERT INTO u VALUES (-1)")
            session.sql("DELETE FROM u WHERE id = -1")
            later = session.flush()
            with pytest.raises(InvalidEpoch):
                commit(manager, arguments[0], later, (), loads=options["loads"])
            with pytest.raises((LoadRefused, SstableRefused)):
                commit(manager, arguments[0], later + (1 << 40), (), loads=options["loads"])
        with self.session() as session, pytest.raises((Fenced, LoadRefused, SstableRefused)):
            commit(session._playground.manager, arguments[0], later + (1 << 40), (), loads=options["loads"])

    def _around_the_job(self, patch: pytest.MonkeyPatch, before: Callable[[], object],
                        behind: Callable[[], object]) -> None:
        """Calls `before` before each Spark job of this process, and `behind` after the last one."""
        run = SparkTasks.run

        def disturbed(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                before()
                made = call(*arguments, **options)
                if call is not run or is_last(arguments[-1]):
                    behind()
                return made

            return called

        patch.setattr(bulk_load, "write_frame", disturbed(bulk_load.write_frame))
        patch.setattr(SparkTasks, "run", disturbed(run))

    def _driver_dies(self, end: str, load: Load | None) -> None:
        """A driver that is killed; its tasks may still run beside the next process."""
        job = DriverJob(self.url, self.master, end, None if load is None else asdict(load))
        job_file, log = self.directory / "job", self.directory / "log"
        job_file.write_text(job.to_json())
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.support.drivers.bulk_driver", str(job_file)], cwd=ROOT, stdout=output,
                stderr=output, start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
            self.drivers.append(driver.pid)
            ended = driver.wait(PROCESS_SECONDS)
        bulk_chaos.name_driver(self.url, 0)
        assert ended == -9, (ended, end, log.read_text()[-4_000:])

    # -- checks --------------------------------------------------------------------------------------------

    def rows(self, session: stream.Session, table: str) -> dict[int, tuple] | None:
        """The rows of a table by key; None if there is no such table."""
        if table not in session.names():
            return None
        columns = session.sql(f"SELECT id, k, n, v FROM {table}").to_arrow().columns
        return {key: tuple(row) for key, *row in zip(*(column.to_pylist() for column in columns), strict=True)}

    def check_view(self, session: stream.Session) -> None:
        """Compares the view with DuckDB's result over the table."""
        session.flush()
        with duckdb.connect() as connection:
            connection.register("t", session.sql("SELECT * FROM t").to_arrow())
            expected = connection.execute(QUERY).fetchall()
        found = [row.values() for row in session.sql("SELECT * FROM mv").to_arrow().to_pylist()]
        assert sorted((c, g, int(s), lo, hi) for c, g, s, lo, hi in found) == sorted(expected)

    def _check_other_tables(self, session: stream.Session) -> None:
        session.sql(f"INSERT INTO u VALUES ({self.rounds})")
        session.flush()
        (row,) = session.sql("SELECT n FROM counted").to_arrow().to_pylist()
        assert row["n"] == self.rounds

    def check(self) -> None:
        """Once all processes have ended: no orphaned, missing or damaged file, and the rows are those of the model."""
        self.check_files()
        with self.session() as session:
            assert self.rows(session, "t") == self.model
