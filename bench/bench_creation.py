"""A view is created over HUMMOCK_CREATION_ROWS rows while its table takes HUMMOCK_CREATION_RATE changes a second.

Printed: flush latencies of the same table and of another one, before and during the creation, at the same load; rows
per second of the backfill. And how much of the work of a creation survives `kill -9`: the process that creates the view
is killed when about half is read; what is committed then is what another process continues from.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import stream
from stream import Session

ROWS = int(os.environ.get("HUMMOCK_CREATION_ROWS", "10000000"))
RATE = int(os.environ.get("HUMMOCK_CREATION_RATE", "100000"))
KEYS, LOADED_AT_ONCE, WRITES_PER_SECOND = 300_000, 500_000, 20
BEFORE_SECONDS = 10.0
VIEW = "CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k"


def rows_of(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "k": ids % KEYS, "v": ids % 1_000})


def load(db: Session) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
    db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, v BIGINT)")
    for first in range(0, ROWS, LOADED_AT_ONCE):
        db.table("t").insert(rows_of(first, min(LOADED_AT_ONCE, ROWS - first)))
    db.flush()


class Writer(threading.Thread):
    """Inserts RATE rows a second into `t` until it is stopped."""

    def __init__(self, db: Session) -> None:
        super().__init__()
        self.db, self.sent, self.is_stopped = db, 0, threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self.is_stopped.is_set():
            self.db.table("t").insert(rows_of(ROWS + self.sent, RATE // WRITES_PER_SECOND))
            self.sent += RATE // WRITES_PER_SECOND
            due = max(due + 1 / WRITES_PER_SECOND, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))


class Flusher(threading.Thread):
    """Inserts a row into a table and flushes, again and again; the latencies of the flushes in ms."""

    def __init__(self, db: Session, name: str) -> None:
        super().__init__()
        self.db, self.name, self.is_stopped = db, name, threading.Event()
        self.latencies: list[float] = []

    def run(self) -> None:
        while not self.is_stopped.is_set():
            number = time.time_ns()
            columns = "(id, k, v) VALUES ({}, 1, 1)" if self.name == "t" else "VALUES ({}, 1)"
            self.db.sql(f"INSERT INTO {self.name} {columns.format(number)}")
            began = time.perf_counter()
            self.db.flush()
            self.latencies.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.02)


def measured(db: Session, until: threading.Event) -> dict[str, np.ndarray]:
    flushers = {name: Flusher(db, name) for name in ("t", "other")}
    for each in flushers.values():
        each.start()
    until.wait()
    for each in flushers.values():
        each.is_stopped.set()
    for each in flushers.values():
        each.join()
    return {name: np.array(each.latencies) for name, each in flushers.items()}


def show(when: str, latencies: dict[str, np.ndarray]) -> None:
    for name, found in latencies.items():
        p50, p99 = np.percentile(found, (50, 99))
        print(f"{when}: flush of {name}: p50 {p50:.0f}, p99 {p99:.0f}, most {found.max():.0f} ms of {len(found)}")


def test_creation_beside_writes(benchmark: Any, tmp_path: Path) -> None:
    with stream.connect(f"file://{tmp_path}", create=True) as db:
        load(db)
        writer = Writer(db)
        writer.start()
        elapsed = threading.Event()
        threading.Timer(BEFORE_SECONDS, elapsed.set).start()
        before, sent = measured(db, elapsed), writer.sent
        created, figures = threading.Event(), {}

        def create() -> None:
            began, cpu = time.perf_counter(), time.process_time()
            db.sql(VIEW)
            figures.update(wall=time.perf_counter() - began, cpu=time.process_time() - cpu)
            created.set()

        threading.Thread(target=create).start()
        during = benchmark.pedantic(measured, (db, created), rounds=1)
        sent = writer.sent - sent
        writer.is_stopped.set()
        writer.join()
        db.flush()
        ((counted,),) = [tuple(row.values()) for row in db.sql("SELECT sum(n) AS n FROM sums").rows()]
        ((stored,),) = [tuple(row.values()) for row in db.sql("SELECT count(*) AS n FROM t").rows()]
    assert int(counted) == stored
    print()
    show("before", before)
    show("during", during)
    print(f"created over {ROWS:,} rows in {figures['wall']:.1f} s ({ROWS / figures['wall'] / 1e6:.2f} M rows/s), "
          f"{figures['cpu']:.1f} s of CPU, beside {sent / figures['wall'] / 1e3:.0f} k changes/s")


def progress(db: Session) -> float:
    """Share of the rows that the creation of the view has read, as of the last commit; 1 when it is created."""
    for row in db.jobs().to_pylist():
        if row["name"] == "sums":
            return 1.0 if row["state"] == "RUNNING" else float(row["progress"] or 0)
    return 0.0


def test_kill_during_a_creation(benchmark: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with stream.connect(url, create=True) as db:
        load(db)
    child = subprocess.Popen([sys.executable, "-m", "bench.bench_creation", url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = 0.0
    while seen < 0.5:
        seen = float(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.wait()
    with stream.connect(url, create=True, sources_paused=True) as db:
        kept = progress(db)

        def finish() -> None:
            while progress(db) < 1:
                time.sleep(0.01)

        benchmark.pedantic(finish, rounds=1)
    print(f"\nkilled after {seen:.0%}, {kept:.0%} were kept: {kept / seen:.0%} of the work")


def main(url: str) -> None:
    """Create the view; print its progress until the process is killed."""
    with stream.connect(url, create=True) as db:
        threading.Thread(target=lambda: db.sql(VIEW), daemon=True).start()
        while True:
            print(progress(db), flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1])
