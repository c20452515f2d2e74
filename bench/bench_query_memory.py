"""Queries that hold more rows than their memory: a sort, a join, groups and window functions over HUMMOCK_QUERY_ROWS
rows, with all the memory they want and with `query_memory_bytes` at 64 MiB, beside DuckDB on the same rows and cores
with its `memory_limit` at as much.

Printed for each: the time, the resident memory that the query takes at its peak, and the bytes it writes to disk. The
answers are compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import stream
from bench.whole_run import forget_peak, rss_bytes
from hummock.columnar.buffer_pool import pool_kept_bytes
from relational.hash.record_arena import pooled_record_bytes

ROWS = int(os.environ.get("HUMMOCK_QUERY_ROWS", "2000000"))
SENT = 500_000
LITTLE, MUCH = 64 << 20, 16 << 30
QUERIES = {
    "sort": "SELECT id FROM a ORDER BY s, id",
    "join": "SELECT count(*) AS n, sum(length(a.s)) AS x, sum(length(b.s)) AS y FROM a JOIN b ON a.k = b.id",
    "groups": """SELECT count(*) AS n, sum(c) AS c, max(s) AS s
        FROM (SELECT k, count(*) AS c, max(s) AS s FROM a GROUP BY k) AS g""",
    "windows": """SELECT count(*) AS n, sum(r) AS r, sum(t) AS t
        FROM (SELECT row_number() OVER w AS r, length(lag(s) OVER w) AS t FROM a
              WINDOW w AS (PARTITION BY k ORDER BY v, id)) AS q""",
}


class Engines(NamedTuple):
    """Our session with all the memory, one with little, and DuckDB."""

    much: stream.Session
    little: Any
    duck: Any


def rows(first: int, seed: int) -> pa.Table:
    rng = np.random.default_rng((seed, first))
    texts = rng.integers(0, 1 << 62, SENT).astype("U20")
    return pa.table({"id": np.arange(first, first + SENT), "k": rng.integers(0, ROWS, SENT),
                     "v": rng.integers(0, 1_000, SENT), "s": pa.array(np.char.add(texts, texts))})


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("query-memory")
    options = {"column_cache_bytes": 0, "query_directory": str(folder), "inbox_poll_ms": 0}
    duck = duckdb.connect(str(folder / "duck.db"), config={"threads": os.cpu_count() or 1})
    with stream.connect(f"file://{folder}/store", create=True, query_memory_bytes=MUCH, **options) as much:
        for seed, name in enumerate("ab"):
            much.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, s VARCHAR)")
            duck.execute(f"CREATE TABLE {name} (id BIGINT, k BIGINT, v BIGINT, s VARCHAR)")
            for first in range(0, ROWS, SENT):
                sent = rows(first, seed)
                much.table(name).insert(sent)
                duck.execute(f"INSERT INTO {name} SELECT * FROM sent")
            much.flush()
        with stream.connect(f"file://{folder}/store", role="reader", query_memory_bytes=LITTLE, **options) as little:
            yield Engines(much, little, duck)
    duck.close()


def measured(run: Callable[[], Any]) -> tuple[Any, float, int]:
    """(The answer, seconds, bytes that are resident at the peak beyond those before.) Without freed memory that is kept
    for reuse, whose limits are its own."""
    forget_peak()
    before, begun = rss_bytes("VmRSS") - reusable_bytes(), time.perf_counter()
    answer = run()
    return answer, time.perf_counter() - begun, rss_bytes("VmHWM") - reusable_bytes() - before


def reusable_bytes() -> int:
    return pool_kept_bytes() + pooled_record_bytes()


@pytest.mark.parametrize("memory", ["much", "little"])
@pytest.mark.parametrize("name", QUERIES)
def test_query(benchmark: Any, engines: Engines, name: str, memory: str) -> None:
    query, session = QUERIES[name], getattr(engines, memory)
    engines.duck.execute(f"SET memory_limit = '{(LITTLE if memory == 'little' else MUCH) >> 20}MiB'")
    spilled = session.metrics["hummock_store_query_spilled_bytes_total"]
    found = benchmark.pedantic(lambda: measured(lambda: session.query(query)), rounds=1)
    answer, seconds, peak = found
    spilled = session.metrics["hummock_store_query_spilled_bytes_total"] - spilled
    theirs, their_seconds, their_peak = measured(lambda: engines.duck.execute(query).to_arrow_table())
    assert answer.to_pydict() == theirs.to_pydict()
    benchmark.group = f"{name} of {ROWS:,} rows"
    benchmark.extra_info.update(peak_bytes=peak, spilled_bytes=int(spilled), duckdb_seconds=their_seconds,
                                duckdb_peak_bytes=their_peak, ratio=round(seconds / their_seconds, 2))
    print(f"\n{name:8} {memory:7} {seconds:6.2f} s, peak {peak >> 20:5} MiB, on disk {int(spilled) >> 20:5} MiB; "
          f"DuckDB {their_seconds:6.2f} s, {their_peak >> 20:5} MiB; {seconds / their_seconds:.1f}x")
