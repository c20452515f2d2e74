"""The workload of processes that are killed while a source goes into Parquet files."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import stream
from tests.reliability.fork_server import Note

ROWS, SPLITS, LEAST_PRICE = 6_000, 2, 300
SOON_SECONDS = 60.0


def work(directory: str, note: Note) -> int:
    """Reads the source to its end and delivers all of it; the number of rows that the sink counted."""
    options = {"barrier_interval_ms": 5, "chunk_rows": 256}
    with stream.connect(f"file://{directory}/store", create=True, **options) as db:
        db.sql("CREATE SOURCE IF NOT EXISTS g (id BIGINT, price INT) WITH (connector = 'datagen', "
               f"rows = {ROWS}, splits = {SPLITS}, fields.id.kind = 'sequence', rate_limit = 60000)")
        db.sql(f"CREATE SINK IF NOT EXISTS s AS SELECT id FROM g WHERE price >= {LEAST_PRICE} "
               f"WITH (connector = 'parquet', path = '{directory}/out')")
        deadline = time.monotonic() + SOON_SECONDS
        while set(db.source_offsets("s").values()) != {str(ROWS // SPLITS)} or db.sql("SHOW SINKS")["rows"][0].as_py():
            assert time.monotonic() < deadline, db.sql("SHOW SINKS").to_pylist()
            time.sleep(0.005)
        return int(db.sql("SELECT inserted FROM s").rows()[0]["inserted"])


def delivered(directory: Path) -> Counter[int]:
    """How often each id was delivered."""
    return Counter(row["id"] for file in sorted((directory / "out").glob("*.parquet"))
                   for row in pq.read_table(file).to_pylist())
