"""A session is given more than it can process, for HUMMOCK_OVERLOAD_SECONDS: writers and a source wait for it, its
memory stays within the limits of docs/architecture.md, section 8, and every row arrives.

    HUMMOCK_OVERLOAD_SECONDS=600 python -m pytest -s tests/reliability/test_overload.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import stream
from hummock.base.process import prepare_process
from tests.support.suites.process_memory import peak_growth

SECONDS = float(os.environ.get("HUMMOCK_OVERLOAD_SECONDS", "2.5"))
MIB = 1 << 20
BUDGETS = {
    "block_cache_bytes": 32 * MIB,
    "meta_cache_bytes": 16 * MIB,
    "shared_buffer_bytes": 64 * MIB,
    "upload_bytes": 64 * MIB,
    "memory_bytes": 96 * MIB,
    "state_cache_bytes": 24 * MIB,
    "state_write_bytes": 64 * MIB,
}
PARALLELISM, AGGREGATIONS, WRITERS, ROWS = 2, 2, 4, 20_000
STREAM_BYTES = 32 * MIB
ACTORS = PARALLELISM * AGGREGATIONS
STATE_TABLES = 1 + 2 * ACTORS       # of the table; of the groups and of the view of each actor
LIMITS = {
    "options": sum(BUDGETS.values()),
    "row caches": STATE_TABLES * 8 * MIB,
    "writes of the largest tables until they spill": STATE_TABLES * 16 * MIB,
    "statements that are not committed": 256 * MIB,
    "the stream": STREAM_BYTES,
    "free memory that is kept for reuse": 512 * MIB,
}
BUDGET = sum(LIMITS.values())
pytestmark = pytest.mark.timeout(300 + 3 * SECONDS)


def rows_from(first: int) -> pa.Table:
    ids = np.arange(first, first + ROWS)
    return pa.table({"id": ids, "k": ids * 2_654_435_761 % 1_000_003, "v": ids % 1_000})


class Load:
    """Writers of table `t`, and the rows of the stream `s`, as fast as they are taken until `stop`."""

    def __init__(self, db: stream.Session) -> None:
        self.db, self.is_stopped = db, threading.Event()
        self.sent = [0] * WRITERS
        self.streamed = 0
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(WRITERS)]

    def write(self, number: int) -> None:
        while not self.is_stopped.is_set():
            self.db.table("t").insert(rows_from((self.sent[number] * WRITERS + number) * ROWS))
            self.sent[number] += 1

    def batches(self) -> Iterator[pa.Table]:
        while not self.is_stopped.is_set():
            yield rows_from(self.streamed)
            self.streamed += ROWS


def main(url: str) -> None:
    """Overload a session; print what was sent, what arrived, and by how many bytes the process grew. As in our own
    programs its allocator gives freed memory back: else it keeps 250 MB after a minute and a half, and more later."""
    prepare_process()
    with stream.connect(url, create=True, parallelism=PARALLELISM, column_cache_bytes=0, **BUDGETS) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        load = Load(db)
        stream.arrow_source("s", load.batches(), buffer_bytes=STREAM_BYTES)
        db.sql("CREATE SOURCE s (id BIGINT, k BIGINT, v BIGINT) WITH (connector = 'arrow_stream', name = 's')")
        grown = peak_growth()
        for name in ("t", "s"):
            db.sql(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT k, count(*) AS n, sum(v) AS v FROM {name} GROUP BY k")
        for each in load.threads:
            each.start()
        time.sleep(SECONDS)
        load.is_stopped.set()
        for each in load.threads:
            each.join()
        deadline = time.monotonic() + 60 + SECONDS
        while total(db, "of_s") < load.streamed and time.monotonic() < deadline:
            time.sleep(0.1)
        db.flush()
        print(json.dumps({"grown": grown(), "written": sum(load.sent) * ROWS, "streamed": load.streamed,
                          "of_t": total(db, "of_t"), "of_s": total(db, "of_s"), "p99_ms": db.figures.p99_ms}))


def total(db: stream.Session, view: str) -> int:
    return int(db.sql(f"SELECT sum(n) AS n FROM {view}").rows()[0]["n"] or 0)


def test_memory_is_bounded_and_nothing_is_lost(tmp_path):
    command = [sys.executable, "-m", "tests.reliability.test_overload", f"file://{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{found}, budget {BUDGET}: {found['grown'] / BUDGET:.0%}")
    assert found["of_t"] == found["written"] > 0
    assert found["of_s"] == found["streamed"] > 0
    assert found["grown"] <= BUDGET


if __name__ == "__main__":
    main(sys.argv[1])
