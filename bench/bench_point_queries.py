"""Point queries by SQL on two million rows: prepared, and written anew for each key, while a view over the table is
updated; ranges, changes by key; beside SQLite in the same run, whose table has the same rows and an index on the key.

Latencies of single statements are in `extra_info`, in microseconds. One thread sends them; the engine's barriers and
the updates, where there are any, run beside it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from bench.latencies import milliseconds

ROWS, STEP, RANGE = 2_000_000, 7_919, 1_000
QUERIES, CHANGES, ROUNDS = 5_000, 2_000, 5
INGEST_ROWS, INGEST_SECONDS = 2_000, float(os.environ.get("HUMMOCK_REAL_SECONDS", "10"))
POINT = "SELECT id, region, amount, x FROM t WHERE id = ?"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stream.Session]:
    url = f"file://{tmp_path_factory.mktemp('points')}/store"
    with stream.connect(url, create=True, barrier_interval_ms=1_000, inbox_poll_ms=0) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, region VARCHAR, amount DOUBLE PRECISION, x BIGINT)")
        for first in range(0, ROWS, 500_000):
            db.table("t").insert(rows(first, 500_000))
            db.flush()
        db.sql("CREATE MATERIALIZED VIEW per_region AS SELECT region, sum(x) AS total FROM t GROUP BY region")
        yield db


@pytest.fixture(scope="module")
def theirs() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, region TEXT, amount REAL, x INTEGER)")
    connection.execute("BEGIN")
    for first in range(0, ROWS, 500_000):
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)",
                               zip(*(column.to_pylist() for column in rows(first, 500_000).columns), strict=True))
    connection.execute("COMMIT")
    yield connection
    connection.close()


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    regions = pa.array([f"region {number}" for number in range(50)]).take(pa.array(ids % 50))
    return pa.table({"id": ids, "region": regions, "amount": ids / 4, "x": ids % 1_000})


@pytest.fixture
def updates(ours: stream.Session) -> Iterator[None]:
    """Changes of the table, a few hundred a second, which the view follows."""
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.wait(0.005):
            number += 1
            ours.sql("UPDATE t SET x = x + 1 WHERE id = ?", (number * 31 % ROWS,))

    writer = threading.Thread(target=write)
    writer.start()
    yield
    done.set()
    writer.join()


def measured(benchmark: Any, group: str, engine: str, count: int, run: Callable[[int], Any], scale: int = 1) -> None:
    """Runs statements number 0 to `count`, each of which has `scale` rows, and notes their latencies."""
    latencies: list[float] = []

    def some() -> None:
        for number in range(count):
            begun = time.perf_counter()
            run(number)
            latencies.append(time.perf_counter() - begun)

    benchmark.group = group
    benchmark.pedantic(some, rounds=ROUNDS, warmup_rounds=1)
    p50, p99 = np.percentile(latencies, (50, 99)) * 1e6
    benchmark.extra_info.update(engine=engine, rows=count * scale, p50_us=round(float(p50)), p99_us=round(float(p99)))


def key(number: int) -> int:
    return number * STEP % ROWS


def test_prepared(benchmark: Any, ours: stream.Session) -> None:
    measured(benchmark, "point, prepared", "hummock", QUERIES, lambda n: ours.query(POINT, (key(n),)))


def test_prepared_while_updated(benchmark: Any, ours: stream.Session, updates: None) -> None:
    measured(benchmark, "point, prepared, updated", "hummock", QUERIES, lambda n: ours.query(POINT, (key(n),)))


@pytest.mark.timeout(INGEST_SECONDS + 300)
@pytest.mark.usefixtures("prepared_process")
def test_prepared_beside_ingest(benchmark: Any, ours: stream.Session) -> None:
    """While a thread inserts INGEST_ROWS new rows at a time, durably, for INGEST_SECONDS."""
    latencies, commits = array("f"), array("f")     # seconds
    is_over = threading.Event()

    def ingest() -> None:
        first = ROWS
        while not is_over.is_set():
            begun = time.perf_counter()
            ours.table("t").insert(rows(first, INGEST_ROWS))
            ours.flush()
            commits.append(time.perf_counter() - begun)
            first += INGEST_ROWS

    def ask() -> None:
        until, number = time.monotonic() + INGEST_SECONDS, 0
        while time.monotonic() < until:
            begun = time.perf_counter()
            assert len(ours.query(POINT, (key(number),))) == 1
            latencies.append(time.perf_counter() - begun)
            number += 1

    writer = threading.Thread(target=ingest)
    writer.start()
    try:
        benchmark.group = "point, prepared, beside ingest"
        benchmark.pedantic(ask, rounds=1)
    finally:
        is_over.set()
        writer.join()
    ms = milliseconds(select=latencies, commit=commits)
    benchmark.extra_info.update(engine="hummock", rows=len(latencies), commits=len(commits), ms=ms)
    print(f"\n{len(latencies)} queries, {len(commits)} commits of {INGEST_ROWS} rows, ms: {ms}")


def test_prepared_sqlite(benchmark: Any, theirs: sqlite3.Connection) -> None:
    measured(benchmark, "point, prepared", "sqlite", QUERIES, lambda n: theirs.execute(POINT, (key(n),)).fetchall())


def test_unprepared(benchmark: Any, ours: stream.Session) -> None:
    measured(benchmark, "point, unprepared", "hummock", QUERIES, lambda n: ours.query(POINT.replace("?", str(key(n)))))


def test_unprepared_and_parsed(benchmark: Any, ours: stream.Session) -> None:
    """A condition that is not one of those whose constants become parameters: parsed, bound and planned each time."""
    text = POINT.replace("?", "{0} AND x IS NOT NULL")
    measured(benchmark, "point, parsed each time", "hummock", 500, lambda n: ours.query(text.format(key(n))))


def test_unprepared_sqlite(benchmark: Any, theirs: sqlite3.Connection) -> None:
    measured(benchmark, "point, unprepared", "sqlite", QUERIES,
             lambda n: theirs.execute(POINT.replace("?", str(key(n)))).fetchall())


def test_range(benchmark: Any, ours: stream.Session) -> None:
    text = "SELECT * FROM t WHERE id >= ? AND id < ?"
    measured(benchmark, "range of 1,000 keys", "hummock", 100,
             lambda n: ours.query(text, (key(n) % 1_990_000, key(n) % 1_990_000 + RANGE)), RANGE)


def test_range_sqlite(benchmark: Any, theirs: sqlite3.Connection) -> None:
    text = "SELECT * FROM t WHERE id >= ? AND id < ?"
    measured(benchmark, "range of 1,000 keys", "sqlite", 100,
             lambda n: theirs.execute(text, (key(n) % 1_990_000, key(n) % 1_990_000 + RANGE)).fetchall(), RANGE)


CHANGE = "UPDATE t SET x = x + ? WHERE id = ?"


def many(benchmark: Any, group: str, engine: str, run: Callable[[int], Any]) -> None:
    """`run(number)`: CHANGES statements, others for each number."""
    numbers = iter(range(1_000))
    benchmark.group = group
    benchmark.extra_info.update(engine=engine, rows=CHANGES)
    benchmark.pedantic(lambda: run(next(numbers)), rounds=ROUNDS, warmup_rounds=1)


def test_update(benchmark: Any, ours: stream.Session) -> None:
    many(benchmark, "update by key, executemany", "hummock",
         lambda number: ours.executemany(CHANGE, ((1, key(number * CHANGES + n)) for n in range(CHANGES))))


def test_update_one_by_one(benchmark: Any, ours: stream.Session) -> None:
    measured(benchmark, "update by key, one by one", "hummock", 1_000, lambda n: ours.sql(CHANGE, (1, key(n))))


def test_update_by_sessions(benchmark: Any, ours: stream.Session) -> None:
    """Four threads, each of which waits for its statement: they share epochs."""
    def run(number: int) -> None:
        def work(start: int) -> None:
            for n in range(start, CHANGES, 4):
                ours.sql(CHANGE, (1, key(number * CHANGES + n)))

        threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    many(benchmark, "update by key, four threads", "hummock", run)


def test_update_sqlite(benchmark: Any, theirs: sqlite3.Connection) -> None:
    many(benchmark, "update by key, executemany", "sqlite",
         lambda number: theirs.executemany(CHANGE, ((1, key(number * CHANGES + n)) for n in range(CHANGES))))


def test_delete(benchmark: Any, ours: stream.Session) -> None:
    def run(number: int) -> None:
        first = number * CHANGES
        assert ours.executemany("DELETE FROM t WHERE id = ?", ((key(first + n),) for n in range(CHANGES))) == CHANGES

    many(benchmark, "delete by key, executemany", "hummock", run)
