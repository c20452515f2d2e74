"""The workload of processes that are killed while they send batches and single rows through the inbox, and serve it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

import stream
from relational.inbox.records import Outcome
from tests.reliability.fork_server import Note
from tests.simulation.inbox_world import rows_of, stored

BATCHES, ROWS, LIFE_IDS = 12, 40, 1_000


def ids_of(number: int) -> range:
    return range(number * ROWS, number * ROWS + ROWS - number % 3)


def work(directory: str, note: Note, first: int = 0, life: int = 0) -> dict[str, Any]:
    """Sends the batches from `first` on, as a query does that repeats the one whose answer it did not record, each
    followed by a row for a table without a key. A note follows each answer."""
    url = f"file://{directory}/store"
    with stream.connect(url, create=True, inbox_poll_ms=2, barrier_interval_ms=20) as db:
        db.sql("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE TABLE IF NOT EXISTS log (id BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS "
               "SELECT COUNT(*) AS n, SUM(id) AS ids, SUM(v) AS vs FROM t")
        repeated = 0
        with stream.Inbox(url, timeout_ms=60_000) as inbox:
            for number in range(first, BATCHES):
                answer = inbox.ingest("t", rows_of(ids_of(number)), writer="w", checkpoint="c", batch_id=number)
                repeated += answer.outcome is Outcome.REPEATED
                note(f"batch {number}")
                row = life * LIFE_IDS + number
                inbox.insert("log", pa.table({"id": [row]}))
                note(f"log {row}")
        logged = Counter(db.sql("SELECT id FROM log").to_arrow()["id"].to_pylist())
        return {"rows": stored(db), "logged": sorted(logged.elements()), "repeated": repeated}
