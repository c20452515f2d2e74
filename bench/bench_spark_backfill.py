"""The history of a new view over a large table: by the view's own actor, and in bulk by Spark's executors.

GROUP BY with count, sum, avg and retractable min and max over ten million rows (HUMMOCK_BENCH_ROWS), 300,000 groups.
Reported are wall seconds and CPU seconds per row of the process and all below it, Java included, after the session's
start, of the first round, in which a JVM and its workers are cold, and of the best; and how long a flush takes
meanwhile, beside one with nothing else to do. The session is one that carries no rows, as `hummock backfill` begins
it. An executor that is "pinned" has one CPU for its JVM and its workers, as a cluster's manager gives it.
HUMMOCK_BENCH_STORE names a directory in which the table is kept from one run to the next. `-k "two executors"` and the
like choose who runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from bench.cpus import confine_executors
from bench.tree_cpu import measured
from hummock.spark import spark_session

ROWS = int(os.environ.get("HUMMOCK_BENCH_ROWS", "10000000"))
GROUPS, BATCH = 300_000, 500_000
WARM_TURNS, QUIET_SECONDS = 6, 5
SEED = 20130101
QUERY = "SELECT k, COUNT(*) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi FROM t GROUP BY k"
MASTERS = {"two threads": "local[2]", "one executor": "local-cluster[1,1,1024]",
           "two executors": "local-cluster[2,1,1024]", "one executor, pinned": "local-cluster[1,1,1024]",
           "two executors, pinned": "local-cluster[2,1,1024]"}  # fmt: skip


def filled(url: str) -> stream.Session:
    """A session over the table, made unless it is there."""
    session = stream.connect(url, create=True, statement_rows=BATCH, barrier_interval_ms=1_000)
    if not session.names():
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT, x DOUBLE)")
        session.sql("CREATE TABLE beside (id BIGINT PRIMARY KEY)")
        rng = np.random.default_rng(SEED)
        for first in range(0, ROWS, BATCH):
            keys, values = rng.integers(0, GROUPS, BATCH), rng.integers(-1000, 1000, BATCH).astype(np.int32)
            rows = {"id": np.arange(first, first + BATCH), "k": keys, "v": values, "x": rng.random(BATCH)}
            session.table("t").insert(pa.table(rows))
        session.flush()
    return session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stream.Session]:
    folder = os.environ.get("HUMMOCK_BENCH_STORE") or str(tmp_path_factory.mktemp("store"))
    with filled(f"file://{Path(folder).absolute()}") as session:
        yield session


@contextmanager
def flushing(session: stream.Session) -> Iterator[list[float]]:
    """How many seconds each flush took while the block ran, in which a row is written beside every 50 ms."""
    taken: list[float] = []
    ended = threading.Event()

    def flush() -> None:
        number = time.time_ns()
        while not ended.wait(0.05):
            number += 1
            session.sql(f"INSERT INTO beside VALUES ({number})")
            begun = time.monotonic()
            session.flush()
            taken.append(time.monotonic() - begun)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def who(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The Spark session of a benchmark's parameter; None for the stream's own executors."""
    if request.param == "in process":
        yield None
        return
    spark = spark_session(MASTERS[request.param], settings={"spark.ui.enabled": "false"}, carries_rows=False)
    if "pinned" in request.param:
        confine_executors(spark, 2 if "two" in request.param else 1)
    yield spark
    spark.stop()


@pytest.mark.parametrize("who", ["in process", *MASTERS], indirect=True)
@pytest.mark.parametrize("rounds", [4])
def test_history(benchmark: Any, session: stream.Session, who: Any, rounds: int, request: Any) -> None:
    engine = request.node.callspec.params["who"]
    query = session.sql(QUERY)
    used: list[float] = []
    taken: list[float] = []

    def run() -> None:
        seconds, cpu, _ = measured(lambda: session.create_materialized_view("mv", query, backfill=who))
        used.append(cpu)
        taken.append(seconds)

    def drop() -> None:
        if "mv" in session.names():
            session.drop("mv")

    benchmark.group = f"{ROWS:,} rows"
    benchmark.extra_info |= {"engine": "hummock" if engine == "in process" else engine, "rows": ROWS}
    benchmark.pedantic(run, setup=drop, rounds=rounds)
    drop()
    print(f"\n{engine}: {min(used) / ROWS * 1e6:.3f} us CPU a row (first round {used[0] / ROWS * 1e6:.3f}), "
          f"{min(taken):.2f} s (first round {taken[0]:.2f}, median {np.median(taken):.2f})")


@pytest.mark.parametrize("who", ["in process", "two threads", "one executor, pinned"], indirect=True)
def test_flushes_meanwhile(session: stream.Session, who: Any, request: Any) -> None:
    """The first time, and all later turns together. A pinned executor leaves a CPU to this process."""
    query = session.sql(QUERY)
    for turns, when in ((1, "cold"), (WARM_TURNS, "warm")):
        alone: list[float] = []
        beside: list[float] = []
        for _ in range(turns):
            with flushing(session) as taken:
                time.sleep(QUIET_SECONDS)
            alone += taken
            with flushing(session) as taken:
                session.create_materialized_view("mv", query, backfill=who)
            beside += taken
            session.drop("mv")
        engine = request.node.callspec.params["who"]
        print(f"\n{engine}, {when}: a flush takes {latencies(beside)}; with nothing else to do {latencies(alone)}")


def latencies(taken: list[float]) -> str:
    median, high = np.percentile(taken, [50, 99]) * 1e3 if taken else (np.nan, np.nan)
    return f"median {median:.1f} ms, p99 {high:.1f} ms ({len(taken)} times)"
