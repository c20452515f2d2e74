"""What operators keep in memory, by SHOW MEMORY; a join whose state is four times its budget; one row of a dimension
that changes all rows of a join.

"kept": HUMMOCK_STATE_ROWS rows go into a join, a top-n and a DISTINCT aggregation, over tables that only append and
over tables with a primary key. Sixteen rows have a key; of the right side of the join one. Printed by state: bytes of
the columns of a row, and bytes of all buffers beside them by capacity, with the memory of the process.

"a quarter": the same join over tables with a primary key, once with everything in memory and once with
`state_cache_bytes` at a quarter of what that took, keys in any order, or near each other in time; the digests of both
are compared. Printed: the slowdown.

"dimension row": a view joins HUMMOCK_DIMENSION_ROWS rows with one, which is updated. Printed: what the join and the
process take meanwhile, the statements of another table, the barriers that the actors of another job pass, point reads
of another view, each beside the same when nothing happens; and how long the epoch took to commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from relational.catalog.names import ObjectName
from stream import Session
from stream.message import Barrier

ROWS = int(os.environ.get("HUMMOCK_STATE_ROWS", "4000000"))
DIMENSION_ROWS = int(os.environ.get("HUMMOCK_DIMENSION_ROWS", "10000000"))
PER_KEY, KEPT_PER_KEY, GROUPS, SENT = 16, 8, 4_096, 250_000
SEED = 20130101
UNBOUNDED = 16 << 30
COLUMNS = "id BIGINT, k BIGINT, v BIGINT"
TABLES = {
    "append-only": f"CREATE TABLE a ({COLUMNS}) APPEND ONLY; CREATE TABLE b ({COLUMNS}) APPEND ONLY",
    "retracting": f"CREATE TABLE a ({COLUMNS}, PRIMARY KEY (id)); CREATE TABLE b ({COLUMNS}, PRIMARY KEY (id))",
}
OPERATORS = {
    "join": "SELECT a.id, a.k, a.v, b.id AS other, b.v AS w FROM a JOIN b ON a.k = b.k",
    "top-n": f"""SELECT id, k, v FROM (SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS n
             FROM a) AS ranked WHERE n <= {KEPT_PER_KEY}""",
    "distinct": f"SELECT id % {GROUPS} AS g, count(DISTINCT v) AS n FROM a GROUP BY id % {GROUPS}",
}
QUIET_SECONDS = 5.0


def facts(first: int, count: int, keys: int, is_near: bool = False) -> pa.Table:
    """(id, k, v): keys in any order, or within one in 64 of them around a place that moves."""
    rng = np.random.default_rng(SEED + first)
    ids = np.arange(first, first + count)
    k = rng.integers(0, keys, count)
    if is_near:
        k = (ids // PER_KEY + rng.integers(0, max(keys // 64, 1), count)) % keys
    return pa.table({"id": ids, "k": k, "v": rng.integers(0, max(ROWS // 4, 1), count)})


def send(db: Session, is_near: bool = False) -> None:
    """Rows of `a`, and with them those of `b`, one for each key."""
    keys = max(ROWS // PER_KEY, 1)
    for first in range(0, ROWS, SENT):
        count = min(SENT, ROWS - first)
        of_keys = np.arange(first // PER_KEY, (first + count) // PER_KEY)
        db.table("b").insert(pa.table({"id": of_keys, "k": of_keys, "v": of_keys}))
        db.table("a").insert(facts(first, count, keys, is_near))
    db.flush()


def states_of(db: Session, name: str) -> list[dict[str, Any]]:
    return [each for each in db.memory(name).to_pylist() if each["rows"]]


def used(db: Session, name: str) -> int:
    """Bytes of all states of a job."""
    return sum(each["column_bytes"] + each["beside_bytes"] for each in states_of(db, name))


def resident(db: Session) -> int:
    return int(db.memory().to_pylist()[-1]["resident_bytes"])


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_kept(benchmark: Any, operator: str, kind: str, tmp_path: Path) -> None:
    with stream.connect(f"file://{tmp_path}", create=True, parallelism=1, state_cache_bytes=UNBOUNDED) as db:
        db.sql(TABLES[kind])
        db.sql(f"CREATE SINK kept AS {OPERATORS[operator]} WITH (connector = 'digest')")
        before = resident(db)
        benchmark.group = f"{operator}, {kind}"
        benchmark.extra_info |= {"engine": "hummock", "rows": ROWS}
        benchmark.pedantic(send, (db,), rounds=1)
        print(f"\n{operator}, {kind}: {ROWS:,} rows in {benchmark.stats['median']:.1f} s, process {before >> 20} MiB "
              f"before and {resident(db) >> 20} MiB after")
        for each in states_of(db, "kept"):
            columns = each["column_bytes"] / each["rows"]
            print(f"  {each['state']:24} {each['rows']:>11,} rows, {columns:5.1f} bytes of columns a row, "
                  f"{each['beside_per_row']:5.1f} beside, evicted {each['evicted']}")


@pytest.mark.parametrize("is_near", [True, False], ids=["keys near in time", "keys in any order"])
def test_a_quarter(benchmark: Any, is_near: bool, tmp_path: Path) -> None:
    def run(name: str, budget: int) -> tuple[float, Any, int]:
        """(Seconds, the answer, bytes in memory.)"""
        with stream.connect(f"file://{tmp_path}/{name}", create=True, parallelism=1, state_cache_bytes=budget) as db:
            db.sql(TABLES["retracting"])
            db.sql(f"CREATE SINK kept AS {OPERATORS['join']} WITH (connector = 'digest')")
            began = time.perf_counter()
            send(db, is_near)
            seconds = time.perf_counter() - began
            (state,) = db.sql("SELECT * FROM kept").rows()
            return seconds, dict(state), used(db, "kept")

    whole, wanted, bytes_of_all = run("whole", UNBOUNDED)
    benchmark.group = f"a quarter, {'near' if is_near else 'any order'}"
    benchmark.extra_info |= {"engine": "hummock", "rows": ROWS}
    seconds, found, kept = benchmark.pedantic(run, ("quarter", bytes_of_all // 4), rounds=1)
    assert found == wanted, f"{found} instead of {wanted}"
    print(f"\nkeys {'near in time' if is_near else 'in any order'}: {whole:.1f} s with {bytes_of_all >> 20} MiB, "
          f"{seconds:.1f} s with {kept >> 20} of {bytes_of_all >> 22} MiB: {seconds / whole:.2f} times; {found}")


class Repeated(threading.Thread):
    """Calls `work` again and again with a pause between; `latencies` in ms, and the moments at which they began."""

    def __init__(self, work: Callable[[], Any], pause: float) -> None:
        super().__init__()
        self.work, self.pause, self.is_over = work, pause, threading.Event()
        self.latencies: list[float] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            began = time.perf_counter()
            self.work()
            self.latencies.append((time.perf_counter() - began) * 1e3)
            time.sleep(self.pause)


class Passes:
    """How long the actors of a job take from the injection of a barrier until they have passed it: `latencies` in ms.
    Commits do not tell, since an epoch is committed when all actors of the graph have passed."""

    def __init__(self, db: Session, job: str) -> None:
        node: Any = db._playground.node
        job_id = db._playground.catalog.resolve(ObjectName.parse(job)).id
        self.latencies: list[float] = []
        self._actors = {each.spec.actor_id for each in node.actors() if each.spec.job_id == job_id}
        self._began: dict[int, float] = {}
        self._inject, self._collect = node._barriers.inject, node._barriers.collect
        node._barriers.inject, node._barriers.collect = self.inject, self.collect

    def inject(self, barrier: Barrier, *more: Any) -> Any:
        self._began[barrier.epoch.prev] = time.perf_counter()
        return self._inject(barrier, *more)

    def collect(self, actor_id: int, barrier: Barrier) -> None:
        if actor_id in self._actors:
            self.latencies.append((time.perf_counter() - self._began[barrier.epoch.prev]) * 1e3)
        self._collect(actor_id, barrier)


class Beside:
    """What goes on beside a join: statements of another table, barriers of a view over it, point reads of that view;
    and what the join `name` and the process take in memory."""

    def __init__(self, db: Session, name: str) -> None:
        self.db, self.name, self.sent, self.most = db, name, 0, [0, 0]
        db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, k BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM other GROUP BY k")
        self.passes = Passes(db, "counted")

    def measured(self, work: Callable[[], Any]) -> None:
        """Prints figures of the time that `work` takes."""
        self.passes.latencies, self.most = [], [0, 0]
        statements, reads = Repeated(self._insert, 0.005), Repeated(self._read, 0.002)
        beside = {"statements of another table": statements, "point reads": reads}
        watch = Repeated(self._watch, 0.02)
        for each in (*beside.values(), watch):
            each.start()
        work()
        for each in (*beside.values(), watch):
            each.is_over.set()
        for each in (*beside.values(), watch):
            each.join()
        latencies = {name: each.latencies for name, each in beside.items()}
        for name, found in {**latencies, "barriers of another job": self.passes.latencies}.items():
            p50, p99 = np.percentile(found or [0.0], (50, 99))
            print(f"  {name}: p50 {p50:.1f}, p99 {p99:.1f}, most {max(found, default=0):.1f} ms of {len(found)}")
        print(f"  most in memory: the join {self.most[0] >> 20} MiB, the process {self.most[1] >> 20} MiB")

    def _insert(self) -> None:
        self.sent += 1
        self.db.sql(f"INSERT INTO other VALUES ({self.sent}, {self.sent % 100})")

    def _read(self) -> None:
        self.db.query("SELECT n FROM counted WHERE k = ?", (7,))

    def _watch(self) -> None:
        self.most = [max(self.most[0], used(self.db, self.name)), max(self.most[1], resident(self.db))]


@pytest.mark.parametrize("budget", [512 << 20, UNBOUNDED], ids=["default budget", "all in memory"])
def test_dimension_row(benchmark: Any, budget: int, tmp_path: Path) -> None:
    options = {"state_cache_bytes": budget, "barrier_timeout_ms": 3_600_000}
    with stream.connect(f"file://{tmp_path}", create=True, **options) as db:
        db.sql("CREATE TABLE fact (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        db.sql("CREATE TABLE dimension (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.sql("INSERT INTO dimension VALUES (1, 'before')")
        db.sql("""CREATE MATERIALIZED VIEW joined AS
                  SELECT fact.id, v, name FROM fact JOIN dimension ON k = dimension.id""")
        for first in range(0, DIMENSION_ROWS, SENT):
            rows = facts(first, min(SENT, DIMENSION_ROWS - first), 1)
            db.table("fact").insert(rows.set_column(1, "k", pa.array(np.ones(len(rows), np.int64))))
        db.flush()
        beside = Beside(db, "joined")
        print(f"\n{DIMENSION_ROWS:,} rows, {budget >> 20} MiB for both sides, {used(db, 'joined') >> 20} MiB kept, "
              f"process {resident(db) >> 20} MiB; quiet:")
        beside.measured(lambda: time.sleep(QUIET_SECONDS))

        def change() -> None:
            db.sql("UPDATE dimension SET name = 'after' WHERE id = 1")
            db.flush()

        benchmark.group = "one row of a dimension"
        benchmark.extra_info |= {"engine": f"budget {budget >> 20} MiB", "rows": DIMENSION_ROWS}
        print(f"the row changes {DIMENSION_ROWS:,} joined rows:")
        benchmark.pedantic(beside.measured, (change,), rounds=1)
        counted = db.sql("SELECT name, count(*) AS n FROM joined GROUP BY name").rows()
        assert counted == [{"name": "after", "n": DIMENSION_ROWS}], counted
        print(f"  committed after {benchmark.stats['median']:.1f} s")
