"""Windows that overlap, counted by their panes, over a table whose rows change, against DuckDB."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import stream
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.duck import answer, assert_same_rows, rows_of

HOP = "HOP(t, seen, INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND) AS w"
CALLS = "count(*) AS n, count(v) FILTER (WHERE v % 3 = 0) AS c, sum(v) AS s"
QUERIES = {
    "by_key": f"SELECT k, window_start, {CALLS} FROM {HOP} GROUP BY k, window_start",
    "by_both": f"SELECT window_start, window_end, {CALLS} FROM {HOP} GROUP BY window_start, window_end",
    "by_end": f"SELECT window_end, k, {CALLS} FROM {HOP} WHERE k IS NOT NULL GROUP BY window_end, k",
    "of_distinct": f"SELECT window_start, count(DISTINCT k) AS n FROM {HOP} GROUP BY window_start",
}
LENGTHS = [(1, 4), (2, 10), (3, 3), (5, 20), (2, 40)]


def in_duckdb(query: str, slide: int, size: int) -> str:
    pane = f"CAST(floor(epoch_us(seen) / {slide}e6) AS BIGINT)"
    start = f"TIMESTAMP '1970-01-01' + to_seconds(({pane} - r.n) * {slide})"
    rows = (f"(SELECT *, {start} AS window_start, {start} + to_seconds({size}) AS window_end FROM t, "
            f"range({size // slide}) AS r(n) WHERE seen IS NOT NULL) AS w")
    return query.replace(HOP, rows)


def new_rows(rng: np.random.Generator, first: int, rows: int) -> pa.Table:
    seen = np.datetime64("1970-01-01", "us") + rng.integers(-30_000_000, 30_000_000, rows)
    return pa.table({"id": range(first, first + rows),
                     "k": pa.array(rng.integers(0, 5, rows), mask=rng.random(rows) < 0.1),
                     "v": pa.array(rng.integers(-50, 50, rows).astype(np.int32), mask=rng.random(rows) < 0.1),
                     "seen": pa.array(seen, mask=rng.random(rows) < 0.05)})


@pytest.mark.parametrize(("slide", "size"), LENGTHS)
def test_windows_of_rows_that_change(tmp_path, slide, size):
    numbers, rng, made = np.random.default_rng(run_seed()), random.Random(run_seed()), 0
    asked = {name: query.replace(HOP, HOP.format(slide=slide, size=size)) for name, query in QUERIES.items()}
    for turn in range(2):
        with stream.connect(f"file://{tmp_path}", create=True, parallelism=2, barrier_interval_ms=3_600_000) as db:
            if turn == 0:
                db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT, seen TIMESTAMP)")
                for name, query in asked.items():
                    db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
            for _ in range(amount(2, 6)):
                db.table("t").insert(new_rows(numbers, made, 300))
                made += 300
                db.sql(f"DELETE FROM t WHERE id % 7 = {rng.randrange(7)}")
                db.sql(f"UPDATE t SET seen = seen + INTERVAL '{rng.randrange(1, 9)}' SECOND, v = v + 1"
                       f" WHERE id % 5 = {rng.randrange(5)}")
                db.flush()
                rows = db.sql("SELECT * FROM t").to_arrow()
                for name, query in QUERIES.items():
                    expected = rows_of(answer(in_duckdb(query, slide, size), {"t": rows}))
                    for found in (db.sql(f"SELECT * FROM {name}"), db.sql(asked[name])):
                        assert_same_rows(rows_of(found.to_arrow()), expected, ordered=False)
