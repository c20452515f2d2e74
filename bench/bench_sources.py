"""Nexmark through SQL: Arrow IPC files, a source, the plan of a view, a digest sink; state on local disk.

Every row is read once, from HUMMOCK_NEXMARK_FILES files of HUMMOCK_NEXMARK_ROWS bids, each a split, mapped into memory.
A run of the default size takes a few seconds. It begins with CREATE SINK and ends when the offsets of the ends of all
files are committed, at the default barrier interval. Beside it: DuckDB, once, over the columns of the first file in
memory; it keeps nothing. Printed with each: CPU ns per row, and the barrier latencies of the same run.

q12 counts by event time: windows of 10 s are the seconds of the epoch divided by 10.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stream
from bench.nexmark import BATCH_ROWS, write_bids

ROWS = int(os.environ.get("HUMMOCK_NEXMARK_ROWS", "4000000"))
FILES = int(os.environ.get("HUMMOCK_NEXMARK_FILES", "10"))
COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
READ = ["auction", "bidder", "price", "date_time"]
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 2019"
          " OR auction = 2087",
    "q12": "SELECT bidder, count(*) AS bids, window_start FROM (SELECT bidder,"
           " (EXTRACT(EPOCH FROM date_time) / 10)::BIGINT AS window_start FROM bid) b GROUP BY bidder, window_start",
    "q17": "SELECT auction, day, count(*) AS total, count(*) FILTER (WHERE price < 10000) AS rank1,"
           " count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,"
           " count(*) FILTER (WHERE price >= 1000000) AS rank3, min(price) AS low, max(price) AS high,"
           " avg(price) AS mean, sum(price) AS whole FROM (SELECT auction, price, date_time::DATE AS day FROM bid) b"
           " GROUP BY auction, day",
}


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """The bids in files of ROWS, of the columns that the queries name, read once into the page cache."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(FILES):
            path = Path(directory) / f"{number:04}.arrow"
            write_bids(path, number * ROWS, ROWS, READ)
            path.read_bytes()
        yield Path(directory)


@pytest.mark.parametrize("name", QUERIES)
def test_source_to_digest(benchmark: Any, name: str, files: Path, tmp_path: Path) -> None:
    rows, end = ROWS * FILES, f"{-(-ROWS // BATCH_ROWS)}:0"
    with stream.connect(f"file://{tmp_path}") as db:
        db.sql(f"CREATE SOURCE bid ({COLUMNS}) WITH (connector = 'arrow', path = '{files}')")
        figures: dict[str, float] = {}

        def run() -> None:
            began = time.process_time()
            db.sql(f"CREATE SINK {name} AS {QUERIES[name]} WITH (connector = 'digest')")
            while set(db.source_offsets(name).values()) != {end}:
                time.sleep(0.01)
            figures["cpu"] = (time.process_time() - began) / rows * 1e9

        benchmark.group = name
        benchmark.extra_info.update(engine="hummock", rows=rows)
        benchmark.pedantic(run, rounds=1)
        latencies = db.figures
        (state,) = db.sql(f"SELECT * FROM {name}").rows()
    rate = rows / benchmark.stats["median"] / 1e6
    print(f"\n{name}: {rate:.2f} M rows/s in {rows / rate / 1e6:.1f} s, {figures['cpu']:.0f} CPU ns a row, barriers "
          f"median {latencies.median_ms:.0f} p99 {latencies.p99_ms:.0f} ms, {state}")


@pytest.mark.parametrize("name", QUERIES)
def test_duckdb_once(benchmark: Any, name: str, files: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with pa.memory_map(str(files / "0000.arrow")) as source:
        bid = pa.ipc.open_file(source).read_all()
        connection = duckdb.connect()
        connection.register("bid", bid)
        query = QUERIES[name]
        benchmark.group = name
        benchmark.extra_info.update(engine="duckdb once", rows=ROWS)
        began = time.process_time()
        benchmark.pedantic(lambda: connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}"), rounds=1)
        cpu = (time.process_time() - began) / ROWS * 1e9
        connection.close()
    print(f"\n{name}: DuckDB once, {cpu:.0f} CPU ns a row")
