"""What options and rules of tables give, through SQL, by CPU time of the process.

row_format    UPDATE of one of 20 BIGINT columns of all rows, with the bytes that it writes for each value
prefixes      a view of minima whose state is in FILES files over the same keys, not compacted: each round deletes
              the least rows of some groups, and the barrier reads the next ones. Beside it the same without filters,
              as before state tables had prefix rules: filters of whole keys do not help a lookup by prefix
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from hummock.options import StorageOptions
from stream import Session
from stream.options import StreamOptions
from stream.playground import PlaygroundOptions, open_playground

WIDE, WIDE_ROWS = 20, 20_000
FILES, GROUPS, ROWS, CHOSEN = 24, 20_000, 3, 48         # groups of a file, rows of a group, groups of a round
ROUNDS = 6
NEVER_MS = 3_600_000
pytestmark = pytest.mark.benchmark(timer=time.process_time)


@pytest.mark.parametrize("name", ["row", "cell"])
def test_update_of_one_column(benchmark: Any, name: str, tmp_path: Path) -> None:
    with stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=NEVER_MS) as db:
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {', '.join(f'c{n} BIGINT' for n in range(WIDE - 1))}) "
               f"WITH (row_format = '{name}')")
        rng = np.random.default_rng(7)
        columns = {f"c{n}": rng.integers(0, 1 << 50, WIDE_ROWS) for n in range(WIDE - 1)}
        db.table("t").insert(pa.table({"id": range(WIDE_ROWS), **columns}))
        db.flush()
        before = db._playground.storage.stats()
        turns = itertools.count(1)

        def update() -> None:
            db.sql(f"UPDATE t SET c7 = c7 + {next(turns)}")
            db.flush()

        benchmark.group = f"UPDATE of 1 of {WIDE} columns"
        benchmark.pedantic(update, rounds=ROUNDS, warmup_rounds=1)
        after = db._playground.storage.stats()
        values = WIDE_ROWS * (next(turns) - 1)
        written = (after.ingested_bytes - before.ingested_bytes) / values
        benchmark.extra_info.update(
            engine="hummock" if name == "row" else name, rows=WIDE_ROWS,
            settings=f"WITH (row_format = '{name}'): {written:.0f} bytes written for each updated value")


@pytest.mark.parametrize("name", ["blocked_bloom", "none"])
def test_next_minima(benchmark: Any, name: str) -> None:
    options = PlaygroundOptions(StreamOptions(barrier_interval_ms=NEVER_MS),
                                StorageOptions(filter_policy=name, block_cache_bytes=1 << 20), is_maintained=False)
    with tempfile.TemporaryDirectory() as directory, Session(open_playground(f"file://{directory}", options)) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW lows AS SELECT g, min(v) AS lo FROM t GROUP BY g")
        for number in range(FILES):
            ids = np.arange(number * GROUPS * ROWS, (number + 1) * GROUPS * ROWS)
            groups = number + FILES * (ids // ROWS % GROUPS)
            db.table("t").insert(pa.table({"id": ids, "g": groups, "v": ids % ROWS}))
            db.flush()
        sample = db._playground.metrics.registry.get_sample_value
        turns, reads = itertools.count(), []

        def counts() -> np.ndarray:
            """Reads of the object store so far, and their bytes."""
            return np.array([sample("hummock_object_store_seconds_count", {"operation": "get"}) or 0,
                             sample("hummock_object_store_bytes_total", {"direction": "read"}) or 0])

        def delete() -> None:
            """The rows are found by the id of their group's first row, before the clock starts."""
            first = next(turns) * CHOSEN // FILES
            chosen = [f"{(number * GROUPS + first + at) * ROWS}" for number in range(FILES)
                      for at in range(CHOSEN // FILES)]
            assert db.sql(f"DELETE FROM t WHERE id IN ({', '.join(chosen)})") == len(chosen)
            reads.append(-counts())

        def barrier() -> None:
            db.flush()
            reads[-1] += counts()

        benchmark.group = "next minima of groups"
        benchmark.pedantic(barrier, setup=delete, rounds=ROUNDS, warmup_rounds=1)
        calls, size = np.median(reads, axis=0)
        benchmark.extra_info.update(
            engine="hummock" if name == "blocked_bloom" else "no filters", rows=CHOSEN // FILES * FILES,
            settings=f"{FILES} files, {calls:.0f} reads of {size / 1e6:.1f} MB for {CHOSEN // FILES * FILES} groups")
