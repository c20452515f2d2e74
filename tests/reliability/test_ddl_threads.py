"""Threads that create and drop tables and views concurrently with writers: no recovery, and no statement is lost.

HUMMOCK_TEST_SEED repeats the choices of a run, HUMMOCK_DDL_SECONDS sets its length."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager

import pyarrow as pa
import pytest

import stream
from tests.support.drivers.seeds import run_seed

SECONDS = float(os.environ.get("HUMMOCK_DDL_SECONDS", "3"))
BATCHES = (1, 10, 1_000, 20_000)
DROPPED_ROWS = 100_000
ROWS_LIMIT = 2_000_000
"""Rows of the shared table after which its writers slow down: the test is about DDL, not about size."""


class Threads:
    """Runs functions in a loop, each on a thread, until the time is over or one of them raises."""

    def __init__(self, seed: int) -> None:
        self.over = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds: Counter[str] = Counter()
        self._seed = seed
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[str, random.Random], None], name: str) -> None:
        thread = threading.Thread(target=self._run, args=(work, name), name=name)
        self._threads.append(thread)

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[str, random.Random], None], name: str) -> None:
        choices = random.Random(f"{self._seed} {name}")
        try:
            while not self.over.is_set():
                work(name, choices)
                self.rounds[name] += 1
        except BaseException as error:
            self.errors.append(error)
            self.over.set()


class Workload:
    """The rounds of each kind of thread, all on one session."""

    def __init__(self, db: stream.Session) -> None:
        self.db = db
        self.written: Counter[str] = Counter()
        db.sql("CREATE TABLE base (id BIGINT PRIMARY KEY, g INT, v BIGINT)")

    def write(self, name: str, choices: random.Random) -> None:
        rows, first = choices.choice(BATCHES), int(name[-1]) * 10**9 + self.written[name]
        if sum(self.written.values()) > ROWS_LIMIT:
            rows = 1
        numbers = range(first, first + rows)
        columns = {
            "id": pa.array(numbers, pa.int64()),
            "g": pa.array([number % 7 for number in numbers], pa.int32()),
            "v": pa.array(numbers, pa.int64()),
        }
        assert self.db.table("base").insert(pa.table(columns)) == rows
        self.written[name] += rows
        if choices.random() < 0.2:
            self.db.flush()

    def views(self, name: str, choices: random.Random) -> None:
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT g, COUNT(*) c, SUM(v) s FROM base GROUP BY g")
        if choices.random() < 0.5:
            self.db.sql(f"CREATE MATERIALIZED VIEW over_{name} AS SELECT g, c FROM {name} WHERE c > 3")
            self.db.sql(f"DROP MATERIALIZED VIEW over_{name}")
        self.db.sql(f"DROP MATERIALIZED VIEW {name}")

    def tables(self, name: str, choices: random.Random) -> None:
        self.db.sql(f"CREATE TABLE {name} (a BIGINT PRIMARY KEY, b VARCHAR)")
        assert self.db.sql(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')") == 2
        if choices.random() < 0.3:
            self.db.flush()
        self.db.sql(f"DROP TABLE {name}")

    def large_epoch(self, name: str, choices: random.Random) -> None:
        """Drops a view in an epoch that it takes long to process."""
        self.db.sql(f"CREATE TABLE {name} (a BIGINT PRIMARY KEY, b BIGINT)")
        self.db.sql(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT b, COUNT(*) c FROM {name} GROUP BY b")
        numbers = pa.array(range(DROPPED_ROWS), pa.int64())
        self.db.table(name).insert(pa.table({"a": numbers, "b": numbers}))
        self.db.sql(f"DROP MATERIALIZED VIEW of_{name}")
        self.db.sql(f"DROP TABLE {name}")

    def flush(self, name: str, choices: random.Random) -> None:
        self.db.flush()
        threading.Event().wait(0.002)


@contextmanager
def counted_recoveries(db: stream.Session):
    """The errors that caused a recovery while the block ran."""
    barriers, found = db._playground.meta._barriers, []
    fail = barriers.fail

    def record(error: BaseException) -> None:
        found.append(error)
        fail(error)

    barriers.fail = record
    yield found


def test_ddl_beside_writers_undoes_nothing():
    with stream.connect("memory://") as db, counted_recoveries(db) as recoveries:
        work, threads = Workload(db), Threads(run_seed())
        for name in ("writer_0", "writer_1"):
            threads.add(work.write, name)
        for name in ("view_0", "view_1"):
            threads.add(work.views, name)
        for name in ("table_0", "table_1"):
            threads.add(work.tables, name)
        threads.add(work.large_epoch, "large")
        threads.add(work.flush, "flusher")
        threads.run(SECONDS)
        print(dict(threads.rounds))
        assert threads.errors == [] and recoveries == []
        assert min(threads.rounds.values()) >= 1
        db.flush()
        expected = [{"rows": sum(work.written.values())}]
        assert db.sql("SELECT COUNT(*) AS rows FROM base").rows() == expected


@pytest.mark.parametrize("batch", [300_000])
def test_a_view_that_is_dropped_with_a_large_epoch_beside_a_flush_loses_no_statement(batch):
    numbers = pa.array(range(batch), pa.int64())
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as db, counted_recoveries(db) as recoveries:
        db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW large AS SELECT v, COUNT(*) AS c FROM t GROUP BY v")
        db.table("t").insert(pa.table({"k": numbers, "v": numbers}))
        dropper = threading.Thread(target=db.drop, args=("large",))
        dropper.start()
        while dropper.is_alive():
            db.flush()
        dropper.join()
        assert recoveries == []
        assert db.sql("SELECT COUNT(*) AS c FROM t").rows() == [{"c": batch}]
