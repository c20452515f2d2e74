"""Nexmark: each query as a view, created before the events, after some of them, or over a view, with restarts, and in
batch, beside DuckDB over the same events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import stream
from stream.connector.nexmark import TYPES
from tests.support.drivers.nexmark_queries import COLUMNS, QUERIES, SIDE_INPUT, SIDE_ROWS, for_duckdb
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.duck import assert_same_rows, oracle, rows_of

EPOCHS, CYCLES = amount(3, 4), 40
"""Each epoch has so many cycles of one person, three auctions and 46 bids."""
RATE = 20
"""Events a second: an epoch is more than a minute."""
LATE = ("q4", "q5", "q6", "q9", "q15", "q18", "q102")
"""Views that are created over rows."""
PER_CYCLE = {"person": 1, "auction": 3, "bid": 46}


def events(kind: str, epoch: int) -> pa.RecordBatch:
    names = [column.split()[0] for column in COLUMNS[kind].split(", ")]
    count = PER_CYCLE[kind] * CYCLES
    return pa.record_batch(TYPES[kind].compute(names, run_seed() % 1_000, RATE, epoch * count, 1, count), names=names)


@pytest.mark.timeout(600)
def test_all_queries_are_kept_as_views(tmp_path):
    keep(QUERIES, f"file://{tmp_path}/store", parallelism=2)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_queries_are_kept_by_epochs_on_spark(spark, tmp_path):
    names = (*(f"q{number}" for number in (*range(14), *range(15, 21))), "q102", "q105")
    chosen = {name: QUERIES[name] for name in names if name in QUERIES}
    keep(chosen, f"file://{tmp_path}/store", engine=spark, driver_rows=0, task_rows=1_000)


def keep(queries: dict[str, str], url: str, **options: Any) -> None:
    """Views of the queries over all epochs, by sessions with these options."""
    duck = oracle()

    def connected() -> stream.Session:
        return stream.connect(url, create=True, barrier_interval_ms=3_600_000, **options)

    db = connected()
    try:
        for kind, columns in COLUMNS.items():
            db.sql(f"CREATE TABLE {kind} ({columns}) APPEND ONLY")
            duck.execute(f"CREATE TABLE {kind} ({columns})")
        db.sql(f"CREATE TABLE side_input ({SIDE_INPUT})")
        db.sql(f"INSERT INTO side_input {SIDE_ROWS}")
        db.flush()
        duck.execute(f"CREATE TABLE side_input ({SIDE_INPUT})")
        duck.execute(f"INSERT INTO side_input {SIDE_ROWS}")
        for name, query in queries.items():
            if name not in LATE:
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.sql("CREATE MATERIALIZED VIEW busy AS SELECT total_bids, count(*) AS n FROM q17 GROUP BY total_bids")
        for epoch in range(EPOCHS):
            if epoch == 1:
                for name in queries.keys() & set(LATE):
                    db.sql(f"CREATE MATERIALIZED VIEW {name} AS {queries[name]}")
            if epoch == 2:
                db.close()
                db = connected()
            for kind in COLUMNS:
                batch = events(kind, epoch)
                db.table(kind).insert(batch)
                duck.register("batch_", batch)
                duck.execute(f"INSERT INTO {kind} SELECT * FROM batch_")
            db.flush()
            assert not db.failed_jobs, db.failed_jobs
            check(db, duck, queries, with_late=epoch >= 1, in_batch=epoch >= amount(EPOCHS - 1, 0))
    finally:
        db.close()


def check(db: stream.Session, duck: Any, queries: dict[str, str], *, with_late: bool, in_batch: bool) -> None:
    for name, query in queries.items():
        expected = rows_of(duck.sql(for_duckdb(query)).to_arrow_table())
        for text in (query, f"SELECT * FROM {name}"):
            if in_batch if text == query else with_late or name not in LATE:
                try:
                    assert_same_rows(rows_of(db.sql(text).to_arrow()), expected, ordered=False)
                except Exception as error:
                    raise AssertionError(f"{name}: {text}") from error
    busy = f"SELECT total_bids, count(*) AS n FROM ({for_duckdb(QUERIES['q17'])}) GROUP BY total_bids"
    assert_same_rows(rows_of(db.sql("SELECT * FROM busy").to_arrow()), rows_of(duck.sql(busy).to_arrow_table()),
                     ordered=False)
