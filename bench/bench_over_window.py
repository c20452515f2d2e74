"""Window functions: of a query beside DuckDB, and of a view whose partitions get a row each at their ends.

A query: a million rows in a thousand partitions, in memory, on one core; ours is the order of the rows and the values,
DuckDB's the values of the same function with their sum. A view: 10,000 partitions, of which each gets one row in an
epoch, written to a store at its barrier; then ten times as many rows in each partition. The rows before the new ones
are in memory, or are read from the store, as after a restart.

CPU seconds.
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
from relational.chunk import DataChunk, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.eval import Evaluator
from relational.order.ordered_rows import OrderedRows
from relational.order.over_window import window_values
from relational.order.ranking import group_numbers, ranking
from relational.plan.logical import OverWindow, Project, nodes
from relational.plan.optimizer import LAST_RULES, VIEW_RULES, optimize
from relational.sql import bind_sql
from relational.table.state_table import StateTable
from relational.types import Schema
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.over_window import OverWindowExecutor
from stream.message import Barrier, Message
from stream.plan.planner import plan_query
from stream.plan.stream_plan import OverWindowNode
from stream.worker.actor_builder import windows_of
from tests.support.drivers.catalogs import table_catalog
from tests.support.suites.sql_cases import catalog_of

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED, ROWS, GROUPS = 7, 1_000_000, 1_000
PARTITIONS, EPOCHS = 10_000, 5
TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, x BIGINT, d DOUBLE PRECISION)"
SCHEMA = Schema.of(id="bigint", g="bigint", x="bigint", d="double precision")
BY_X = "PARTITION BY g ORDER BY x, id"
CALLS = {
    "lag": f"lag(x) OVER ({BY_X})",
    "rank": "rank() OVER (PARTITION BY g ORDER BY x)",
    "sum up to the row": f"sum(x) OVER ({BY_X})",
    "sum of 10 rows": f"sum(x) OVER ({BY_X} ROWS 10 PRECEDING)",
    "mean of 100 doubles": f"avg(d) OVER ({BY_X} ROWS 100 PRECEDING)",
    "maximum of 200 rows": f"max(x) OVER ({BY_X} ROWS BETWEEN 100 PRECEDING AND 100 FOLLOWING)",
    "count of a range": "count(*) OVER (PARTITION BY g ORDER BY x RANGE BETWEEN 1000 PRECEDING AND CURRENT ROW)",
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(SEED)
    columns = np.arange(ROWS), rng.integers(0, GROUPS, ROWS), rng.integers(0, 1_000_000, ROWS), rng.random(ROWS)
    return pa.table(list(columns), names=list(SCHEMA.names))


@pytest.mark.parametrize("call", CALLS)
def test_window_of_a_query(benchmark: Any, rows: pa.Table, call: str) -> None:
    (statement,) = bind_sql(f"SELECT id, {CALLS[call]} AS v FROM t", catalog_of(TABLE))
    (node,) = [each for each in nodes(statement.plan) if isinstance(each, OverWindow)]
    chunk = DataChunk.from_arrow(rows)
    below = node.input

    def values() -> int:
        read = chunk
        if isinstance(below, Project):
            read = DataChunk([Evaluator(each)(chunk, strict=True) for each in below.expressions])
        groups = group_numbers([read.columns[column] for column in node.groups], ROWS)
        ordered = OrderedRows.of(read, ranking(read, groups, node.keys, (0,)), node.keys)
        return len(window_values(node.calls, ordered, strict=True).values[0])

    assert benchmark.pedantic(values, rounds=3) == ROWS


@pytest.mark.parametrize("call", CALLS)
def test_window_in_duckdb(benchmark: Any, rows: pa.Table, call: str) -> None:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("rows_", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM rows_")
    query = f"SELECT count(*), sum(v) FROM (SELECT {CALLS[call]} AS v FROM t)"
    (found,) = benchmark.pedantic(lambda: connection.execute(query).fetchall(), rounds=3)
    assert found[0] == ROWS


# -- a view ----------------------------------------------------------------------------------------------

VIEWS = {
    "sum up to the row": "sum(x) OVER (PARTITION BY g ORDER BY id)",
    "mean of 10 rows": "avg(x) OVER (PARTITION BY g ORDER BY id ROWS 10 PRECEDING)",
}


class Scripted(Executor):
    """The barriers and chunks that `feed` has."""

    def __init__(self, feed: Iterator[Message]) -> None:
        self.info = ExecutorInfo(SCHEMA, (0,), "Scripted")
        self._feed = feed

    def execute(self) -> Iterator[Message]:
        return self._feed


def epoch_of(number: int, per_partition: int) -> StreamChunk:
    """So many rows behind those of each partition."""
    rng, count = np.random.default_rng(number), PARTITIONS * per_partition
    columns = [number * ROWS + np.arange(count), np.arange(count) % PARTITIONS, rng.integers(0, 1000, count),
               rng.random(count)]
    return StreamChunk([pa.array(each) for each in columns], np.zeros(count, np.uint8))


def executor_of(store: Any, items: str, feed: Iterator[Message]) -> OverWindowExecutor:
    (statement,) = bind_sql(f"SELECT *, {items} AS v FROM t", catalog_of(TABLE))
    query = optimize(statement.plan, VIEW_RULES, LAST_RULES)
    ids = iter(range(10, 20))
    root = plan_query(table_catalog("mv", query.schema, query.stream_key, table_id=2), query, lambda _: next(ids)).root
    node = next(each for each in root.walk() if isinstance(each, OverWindowNode))
    return OverWindowExecutor(
        ExecutorInfo(node.schema, node.stream_key, "OverWindow"),
        Scripted(feed),
        windows_of(node),
        StateTable(node.table, store),
        ErrorCounts(),
        is_append_only=False,
        cache_bytes=1 << 30,
        chunk_rows=65_536,
    )


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["in memory", "from the store"])
@pytest.mark.parametrize("per_partition", [20, 200])
@pytest.mark.parametrize("view", VIEWS)
def test_rows_at_the_ends_of_partitions(benchmark: Any, view: str, per_partition: int, is_in_memory: bool) -> None:
    with hummock.open("memory://") as store:
        epochs, loads = EpochGenerator(), per_partition // 20
        last = epochs.next()

        def barrier() -> Barrier:
            nonlocal last
            last, before = epochs.next(), last
            return Barrier(EpochPair(last, before), checkpoint=True)

        def feed(numbers: range, rows: int) -> Iterator[Message]:
            yield barrier()
            for number in numbers:
                yield epoch_of(number, rows)
                yield barrier()

        def consume(messages: Iterator[Message]) -> int:
            return sum(each.visible_rows for each in messages if isinstance(each, StreamChunk))

        def whole() -> Iterator[Message]:
            yield from feed(range(loads), per_partition // loads)
            yield from (message for number in range(10, 10 + EPOCHS) for message in (epoch_of(number, 1), barrier()))

        if is_in_memory:
            messages = executor_of(store, VIEWS[view], whole()).execute()
            barriers = 0
            while barriers <= loads:
                barriers += isinstance(next(messages), Barrier)
        else:
            consume(executor_of(store, VIEWS[view], feed(range(loads), per_partition // loads)).execute())
            messages = executor_of(store, VIEWS[view], feed(range(10, 10 + EPOCHS), 1)).execute()
        assert benchmark.pedantic(lambda: consume(messages), rounds=1) == PARTITIONS * EPOCHS
