"""What history costs: a scan of 10,000 rows after 600 commits that changed every one, beside the scan after the first.

Under the default options, and under ten minutes of history; beside it what `compact()` costs a store at rest,
which waits for nobody's next look.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hummock
import stream

ROWS, COMMITS = 10_000, 600
REST_SECONDS = 1.0  # of no commits, in which what is left of level 0 is merged
HISTORY_MS = {"default": None, "ten minutes": 600_000}
pytestmark = pytest.mark.benchmark(timer=time.perf_counter)


@pytest.fixture(params=HISTORY_MS)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[stream.Session]:
    history = HISTORY_MS[request.param]
    options = {} if history is None else {"history_ms": history}
    with stream.connect(f"file://{tmp_path}/store", create=True, column_cache_bytes=0, **options) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w DOUBLE) ON CONFLICT OVERWRITE")
        yield session


@pytest.mark.parametrize("commits", [1, COMMITS])
def test_scan_of_rows_that_change(benchmark: Any, session: stream.Session, commits: int) -> None:
    table, ids = session.table("t"), pa.array(range(ROWS))
    for number in range(commits):
        table.insert(pa.table({"id": ids, "v": pa.array([number] * ROWS), "w": pa.array([number / 2] * ROWS)}))
        session.flush()
    time.sleep(REST_SECONDS)
    benchmark.group = "scan 10,000 rows"
    benchmark.extra_info.update(rows=ROWS, commits=commits)
    assert benchmark(table.to_arrow).num_rows == ROWS


def test_compact_at_rest(benchmark: Any, tmp_path: Path) -> None:
    with hummock.open(f"file://{tmp_path}/store", role="writer") as store:
        rows = [(hummock.user_key(1, 0, b"%06d" % number), b"v") for number in range(ROWS)]
        epoch = hummock.EpochGenerator(last=store.committed_epoch).next()
        store.ingest_batch(hummock.WriteBatch(rows), epoch)
        store.commit(epoch)
        assert store.wait_compacted(timeout=60)
        benchmark.group = "compact() at rest"
        assert benchmark.pedantic(lambda: store.compact(timeout=60), rounds=8, warmup_rounds=1)
