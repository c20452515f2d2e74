"""HUMMOCK_VIEWS views on one source, each with its own offsets, and on one table: threads, memory, barriers.

The source is a generator limited to SOURCE_RATE rows a second for each view; the table takes an INSERT of BATCH_ROWS
rows and a flush, ROUNDS times. Printed: the threads of the process, its resident memory before the views and after the
run, how long the creation of all views took, and the barrier latencies of the run.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from stream import Session

VIEWS = int(os.environ.get("HUMMOCK_VIEWS", "100"))
PARALLELISM, SOURCE_RATE, BATCH_ROWS, ROUNDS, SECONDS = 2, 1_000, 2_000, 40, 20.0


def create_source(db: Session) -> None:
    db.sql("CREATE SOURCE bid (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', type = 'bid', "
           f"rate_limit = {SOURCE_RATE})")


def create_table(db: Session) -> None:
    db.sql("CREATE TABLE bid (id BIGINT PRIMARY KEY, auction BIGINT, price BIGINT)")


def use_source(db: Session) -> None:
    time.sleep(SECONDS)
    offsets = [db.source_offsets(f"v{number}") for number in range(VIEWS)]
    assert all(offsets)


def use_table(db: Session) -> None:
    for number in range(ROUNDS):
        ids = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        db.table("bid").insert(pa.table({"id": ids, "auction": ids % 500, "price": ids % 1_000}))
        db.flush()


def resident_mebibytes(db: Session) -> int:
    return int(db.memory().to_pylist()[-1]["resident_bytes"]) >> 20


KINDS = {"source": (create_source, use_source), "table": (create_table, use_table)}


@pytest.mark.parametrize("kind", KINDS)
def test_many_views(benchmark: Any, kind: str, tmp_path: Path) -> None:
    create, use = KINDS[kind]
    with stream.connect(f"file://{tmp_path}", create=True, parallelism=PARALLELISM) as db:
        create(db)
        before = resident_mebibytes(db)
        began = time.perf_counter()
        for number in range(VIEWS):
            db.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT auction, count(*) AS n, max(price) AS high "
                   f"FROM bid WHERE price % {number + 2} = 0 GROUP BY auction")
        created = time.perf_counter() - began
        cpu = time.process_time()
        benchmark.group = f"{VIEWS} views on one {kind}"
        benchmark.pedantic(use, (db,), rounds=1)
        cpu, figures, threads = time.process_time() - cpu, db.figures, threading.active_count()
        resident = resident_mebibytes(db)
    print(f"\n{VIEWS} views on one {kind}, parallelism {PARALLELISM}: created in {created:.1f} s, {threads} threads, "
          f"resident {before} MiB before and {resident} MiB after, "
          f"barriers p50 {figures.median_ms:.0f} p99 {figures.p99_ms:.0f} ms, "
          f"{cpu:.1f} s of CPU in {benchmark.stats['median']:.1f} s")
