"""TPC-H's queries in batch, beside DuckDB on the same rows and cores: with columns in the column cache, and without.

The data is that of tests/support/drivers/tpch.py at HUMMOCK_TPCH_SCALE (default 0.1; 1 has six million line items). The
ratios to DuckDB of all queries, and of their total, are printed, and noted in `extra_info`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import stream
from tests.support.drivers.tpch import QUERIES, SCHEMAS, orders, static_tables

SCALE = float(os.environ.get("HUMMOCK_TPCH_SCALE", "0.1"))
SUPPLIERS, ORDERS, PART = int(10_000 * SCALE), int(1_500_000 * SCALE), 150_000
ROUNDS = 3
CACHE_BYTES = 4 << 30


class Engines(NamedTuple):
    """DuckDB, and our session."""

    duck: Any
    session: stream.Session

    def uncached(self, text: str) -> pa.Table:
        """The rows of a query at a snapshot, which reads no cached columns."""
        with self.session.at() as snapshot:
            return snapshot.sql(text).to_arrow()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    duckdb = pytest.importorskip("duckdb")
    url = f"file://{tmp_path_factory.mktemp('tpch')}/store"
    duck = duckdb.connect(config={"threads": os.cpu_count() or 1})
    db = stream.connect(url, create=True, inbox_poll_ms=0, column_cache_bytes=CACHE_BYTES)
    for name, columns in SCHEMAS.items():
        db.sql(f"CREATE TABLE {name} ({columns})")
        duck.execute(f"CREATE TABLE {name} ({columns})")
    parts = (orders(first, min(PART, ORDERS - first + 1), SUPPLIERS, 1) for first in range(1, ORDERS + 1, PART))
    for tables in (static_tables(SUPPLIERS, 1), *parts):
        for name, rows in tables.items():
            db.table(name).insert(rows)
            duck.register("rows_", rows)
            duck.execute(f"INSERT INTO {name} SELECT * FROM rows_")
            duck.unregister("rows_")
        db.flush()
    yield Engines(duck, db)
    db.close()
    duck.close()


def seconds(run: Any, rounds: int) -> float:
    """The shortest of some runs."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        found.append(time.perf_counter() - begun)
    return min(found)


@pytest.mark.parametrize("is_cached", [True, False], ids=["cached", "cold"])
def test_all_queries(benchmark: Any, engines: Engines, is_cached: bool) -> None:
    """`cold`: columns are decoded for each query, from files whose blocks may be in memory."""
    queries = engines.session.query if is_cached else engines.uncached
    figures: dict[str, tuple[float, float]] = {}

    def all_queries() -> None:
        for number, text in QUERIES.items():
            if is_cached:
                queries(text)  # which fills the cache
            ours = seconds(lambda text=text: queries(text), ROUNDS if is_cached else 1)
            theirs = seconds(lambda text=text: engines.duck.sql(text).to_arrow_table(), ROUNDS)
            figures[f"q{number}"] = (ours, theirs)

    benchmark.group = f"TPC-H at {SCALE:g}"
    benchmark.pedantic(all_queries, rounds=1)
    total = [sum(each) for each in zip(*figures.values(), strict=True)]
    ratios = {name: round(ours / theirs, 2) for name, (ours, theirs) in figures.items()}
    benchmark.extra_info.update(ratios=ratios, total_seconds=total, total_ratio=round(total[0] / total[1], 2))
    for name, (ours, theirs) in sorted(figures.items(), key=lambda each: -each[1][0]):
        print(f"{name:4} ours {ours * 1e3:8.1f} ms   duckdb {theirs * 1e3:8.1f} ms   {ours / theirs:6.1f}x")
    print(f"total ours {total[0]:.2f} s   duckdb {total[1]:.2f} s   {total[0] / total[1]:.2f}x")
