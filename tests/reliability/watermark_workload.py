"""The workload of processes that are killed while windows of a source with a watermark are computed."""

from __future__ import annotations

import time
from typing import Any

import stream
from tests.reliability.fork_server import Note

ROWS, SPLITS, DELAY, WRAP = 3_000, 2, 50, 1_000
WINDOWS = "SELECT k, at / 100 AS win, count(*) AS n, sum(v) AS s, max(v) AS most FROM kept GROUP BY k, at / 100"
SOON_SECONDS = 60.0


def connected(directory: str, **options: Any) -> stream.Session:
    return stream.connect(f"file://{directory}/store", create=True, **{
        "barrier_interval_ms": 5, "chunk_rows": 128, "parallelism": 2, **options})


def work(directory: str, note: Note) -> tuple[int, int]:
    """Reads the source to its end: rows that were kept, late rows. `at` begins again at 0 after WRAP."""
    with connected(directory) as db:
        db.sql("CREATE TABLE IF NOT EXISTS kept (at BIGINT, k INT, v INT, "
               f"WATERMARK FOR at AS at - {DELAY}) APPEND ONLY WITH (connector = 'datagen', "
               f"rows = {ROWS}, splits = {SPLITS}, fields.at.kind = 'sequence', fields.at.end = {WRAP}, "
               "fields.k.max = 2, rate_limit = 4000)")
        db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS w AS {WINDOWS}")
        db.wait_created("w")
        deadline = time.monotonic() + SOON_SECONDS
        while sum(found := counts(db)) != ROWS:
            assert time.monotonic() < deadline, found
            time.sleep(0.005)
        db.flush()
        check(db)
        return found


def look(directory: str, note: Note) -> tuple[int, int]:
    """The counts of a store that was left behind; the view is checked before anything else is read."""
    with connected(directory, sources_paused=True) as db:
        if "w" not in db.names():
            return 0, 0
        db.wait_created("w")
        check(db)
        return counts(db)


def counts(db: stream.Session) -> tuple[int, int]:
    """Rows of the table, and late ones, as of one epoch."""
    epoch = db.committed_epoch
    with db.at(epoch) as snapshot:
        kept = snapshot.sql("SELECT count(*) AS n FROM kept").to_arrow().to_pylist()[0]["n"]
    late = sum(row["rows"] for row in db.errors().to_pylist() if row["job"] == "kept")
    return (kept, late) if db.committed_epoch == epoch else (0, 0)


def check(db: stream.Session) -> None:
    """The view equals its query over the rows that were not late."""
    with db.at() as snapshot:
        found, expected = (sorted(map(tuple, (row.values() for row in snapshot.sql(query).to_arrow().to_pylist())))
                           for query in ("SELECT * FROM w", WINDOWS))
    assert found == expected, (found, expected)
