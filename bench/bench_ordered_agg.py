"""Aggregates over rows in an order: arrays, joined texts, percentiles and first values, beside DuckDB in the same run.

Queries: a million rows in ten thousand groups, once. Views: the same rows are there; an epoch inserts ten thousand and
retracts as many, which touches most groups, or a hundred; state is written at its barrier. DuckDB, which keeps no
views, computes the query again over a table in memory. The rates of views are of changes.

CPU seconds of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import hummock
from hummock.epoch import EpochGenerator, EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.batch import run_query
from relational.chunk import DataChunk, StreamChunk
from relational.expr import ErrorCounts
from relational.plan.logical import Aggregate, ColumnValues, LogicalPlan, Scan
from relational.sql import bind_sql
from relational.table.state_table import StateTable
from relational.types import Schema
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.hash_agg import HashAggExecutor
from stream.message import Barrier, Message
from stream.plan.planner import plan_query
from stream.worker.actor_builder import ordered_inputs
from tests.support.drivers.catalogs import table_catalog
from tests.support.suites.sql_cases import catalog_of

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED, ROWS, GROUPS, CHUNK = 20130101, 1_000_000, 10_000, 4_096
SCHEMA = Schema.of(id="bigint", g="bigint", v="bigint", d="double", s="varchar")
CALLS = {
    "array_agg": "array_agg(v ORDER BY id)",
    "array_agg by value": "array_agg(v ORDER BY v)",
    "string_agg": "string_agg(s, ',' ORDER BY id)",
    "percentile_cont": "percentile_cont(0.5) WITHIN GROUP (ORDER BY d)",
    "first_value": "first_value(s ORDER BY d)",
}


def rows(rng: np.random.Generator, first: int, count: int) -> pa.Table:
    values = rng.integers(0, 1 << 40, count)
    texts = pa.array(np.char.add("n", (values % 100_000).astype(str)))
    return pa.table({"id": np.arange(first, first + count), "g": rng.integers(0, GROUPS, count), "v": values,
                     "d": rng.random(count), "s": texts})


def plan_of(call: str, source: LogicalPlan) -> Aggregate:
    """The aggregation by g, over `source`."""
    catalog = catalog_of("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT, d DOUBLE PRECISION, s VARCHAR)")
    (statement,) = bind_sql(f"SELECT g, {call} AS r FROM t GROUP BY g", catalog)
    found = statement.plan.input
    assert isinstance(found, Aggregate)
    return Aggregate(source, found.group_by, found.calls, found.names)


@pytest.mark.parametrize("engine", ["hummock", "duckdb"])
@pytest.mark.parametrize("name", CALLS)
def test_queries(benchmark: Any, name: str, engine: str) -> None:
    table = rows(np.random.default_rng(SEED), 0, ROWS)
    benchmark.group = f"query, {name}"
    benchmark.extra_info |= {"engine": engine, "rows": ROWS}
    benchmark.pedantic(query(engine, CALLS[name], table), rounds=3, warmup_rounds=1)


def query(engine: str, call: str, table: pa.Table) -> Any:
    if engine == "hummock":
        source = ColumnValues(SCHEMA, tuple(column.combine_chunks() for column in table.columns))
        plan, store = plan_of(call, source), MemoryStateStore()
        return lambda: run_query(plan, store, EpochGenerator().next())
    duck = duckdb.connect()
    duck.execute("SET threads = 1")
    duck.register("rows_", table)
    duck.execute("CREATE TABLE t AS SELECT * FROM rows_")
    text = f"SELECT g, {call.replace('first_value', 'first')} AS r FROM t GROUP BY g"
    return lambda: duck.sql(text).to_arrow_table()


class _Fed(Executor):
    def __init__(self, messages: Iterator[Message]) -> None:
        self.info = ExecutorInfo(SCHEMA, (0,), "Fed")
        self._messages = messages

    def execute(self) -> Iterator[Message]:
        yield from self._messages


def chunks(table: pa.Table, op: int) -> Iterator[StreamChunk]:
    for batch in table.to_batches(CHUNK):
        yield StreamChunk(DataChunk.from_arrow(batch).columns, np.full(batch.num_rows, op, np.uint8))


@pytest.mark.parametrize("changed", [10_000, 100])
@pytest.mark.parametrize("engine", ["hummock", "duckdb"])
@pytest.mark.parametrize("name", CALLS)
def test_views(benchmark: Any, name: str, engine: str, changed: int) -> None:
    rng = np.random.default_rng(SEED)
    table = rows(rng, 0, ROWS)
    benchmark.group = f"view, {2 * changed} changes, {name}"
    benchmark.extra_info |= {"engine": engine, "rows": 2 * changed}
    if engine == "duckdb":
        benchmark.pedantic(query(engine, CALLS[name], table), rounds=3, warmup_rounds=1)
        return
    store = hummock.open("memory://", shared_buffer_bytes=1 << 30)
    generator = EpochGenerator(last=store.committed_epoch)
    epochs = [generator.next()]
    inserted = ROWS

    def barrier() -> Barrier:
        epochs.append(generator.next())
        return Barrier(EpochPair(epochs[-1], epochs[-2]), checkpoint=True)

    def messages() -> Iterator[Message]:
        nonlocal inserted
        yield barrier()
        yield from chunks(table, 0)
        yield barrier()
        for turn in range(1_000):
            yield from chunks(table.slice(turn * changed, changed), 1)
            yield from chunks(rows(rng, inserted, changed), 0)
            inserted += changed
            yield barrier()

    output = executor(CALLS[name], _Fed(messages()), store).execute()

    def epoch() -> None:
        for message in output:
            if isinstance(message, Barrier):
                store.seal_epoch(message.epoch.prev)
                return

    next(output)
    epoch()
    benchmark.pedantic(epoch, rounds=5, warmup_rounds=1)
    store.close()


def executor(call: str, input: Executor, store: Any) -> Executor:
    table = table_catalog("t", SCHEMA, (0,))
    plan = plan_of(call, Scan(table))
    ids = iter(range(10, 100))
    node = plan_query(table_catalog("mv", plan.schema, (0,), table_id=2), plan, lambda name: next(ids)).root.input
    return HashAggExecutor(
        ExecutorInfo(node.schema, node.stream_key, "HashAgg"), input, node.group_by, node.calls,
        StateTable(node.state_table, store), (), (), ordered_inputs(node, lambda each: StateTable(each, store)),
        ErrorCounts(), cache_bytes=1 << 30, flush_groups=1 << 30, chunk_rows=CHUNK,
    )  # fmt: skip
