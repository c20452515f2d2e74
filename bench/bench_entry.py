"""Rows from outside: INSERT of 100,000 rows of Arrow, and what of it is their import.

`hummock` inserts an Arrow table. `imported rows` inserts the same rows as a chunk that was imported before, so the
ratio is what validation and conversion cost. The other engines are the same text column in other layouts, and JSON.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream
from stream.session.rows import chunk_of_rows
from stream.session.session import Session

ROWS, ROUNDS, WARMUP_ROUNDS = 100_000, 15, 2
SEED = 20130101
COLUMNS = "id BIGINT PRIMARY KEY, name VARCHAR, price DOUBLE, quantity INT, day DATE, moment TIMESTAMP, note {}"
pytestmark = pytest.mark.benchmark(timer=time.process_time)


def rows_from(first: int, note: pa.Array) -> pa.Table:
    """ROWS rows of seven columns whose ids begin with `first`."""
    rng = np.random.default_rng(SEED + first)
    return pa.table({
        "id": np.arange(first, first + ROWS),
        "name": pa.array([f"naïve {number % 997}" for number in range(ROWS)]),
        "price": rng.random(ROWS) * 100,
        "quantity": rng.integers(0, 100, ROWS).astype(np.int32),
        "day": pa.array(np.arange(ROWS) % 20_000, pa.int32()).cast(pa.date32()),
        "moment": pa.array(rng.integers(0, 2**50, ROWS)).cast(pa.timestamp("us")),
        "note": note,
    })


@pytest.fixture
def session(tmp_path: Any) -> Iterator[Session]:
    with stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=3_600_000) as opened:
        yield opened


def measure(benchmark: Any, engine: str, prepare: Callable[[int], Any], insert: Callable[[Any], Any]) -> None:
    firsts = itertools.count(0, ROWS)
    benchmark.group = f"INSERT of {ROWS:,} rows"
    benchmark.extra_info.update(engine=engine, rows=ROWS)
    benchmark.pedantic(insert, setup=lambda: ((prepare(next(firsts)),), {}), rounds=ROUNDS, warmup_rounds=WARMUP_ROUNDS)


def texts() -> pa.Array:
    return pa.array([None if number % 3 else "x" * (number % 40) for number in range(ROWS)])


LAYOUTS: dict[str, Callable[[], pa.Array]] = {
    "hummock": texts,
    "large text": lambda: texts().cast(pa.large_utf8()),
    "views": lambda: texts().cast(pa.string_view()),
    "a dictionary": lambda: texts().dictionary_encode(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_insert_of_arrow(benchmark: Any, session: Session, layout: str) -> None:
    note = LAYOUTS[layout]()
    session.sql(f"CREATE TABLE t ({COLUMNS.format('VARCHAR')})")
    measure(benchmark, layout, lambda first: rows_from(first, note), session.table("t").insert)


def test_insert_of_json(benchmark: Any, session: Session) -> None:
    note = pa.array([f'{{"k": {number}, "b": [true, "{number % 7}"]}}' for number in range(ROWS)])
    session.sql(f"CREATE TABLE t ({COLUMNS.format('JSONB')})")
    measure(benchmark, "JSON", lambda first: rows_from(first, note), session.table("t").insert)


def test_insert_of_imported_rows(benchmark: Any, session: Session) -> None:
    note = texts()
    session.sql(f"CREATE TABLE t ({COLUMNS.format('VARCHAR')})")
    handle = session.table("t")
    measure(benchmark, "imported rows", lambda first: chunk_of_rows(handle.table, rows_from(first, note)),
            lambda chunk: handle.runner.insert_rows(handle.table, chunk))
