"""Aggregation end to end: changes in, changed groups out, state written at every barrier, on one core.

A million groups, count and sum; a quarter of the changes retract an earlier row; a barrier each million
changes. It is compared with an engine without state: pyarrow's group_by over the rows that are
left, once. And the update step alone: `AggGroups` takes in an epoch of changes, nothing is flushed or stored; `limit
in C` (limits.py) is one table with int64 sums that does not know which groups it changed. The same
for the DISTINCT calls of Nexmark q15 (one group) and q16 (groups by channel), from nothing.

CPU seconds. Run with POLARS_MAX_THREADS=1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hummock
from bench import limits
from bench.nexmark import batch
from hummock.epoch import EpochGenerator, EpochPair
from relational.agg import AggGroups, AggSpec
from relational.chunk import DataChunk, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.aggregates import AggCall, AggKind
from relational.memory_budget import MemoryBudget
from relational.plan.logical import Aggregate, Scan
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.hash_agg import HashAggExecutor
from stream.message import Barrier, Message
from stream.plan.planner import plan_query
from tests.support.drivers.catalogs import table_catalog

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED = 20130101
GROUPS, CHANGES, EPOCH_CHANGES, ONCE_ROWS = 1_000_000, 4_000_000, 1_000_000, 10_000_000
BIGINT = DataType.BIGINT
SCHEMA = Schema.of(id="bigint", k="bigint", v="bigint")


def changes(chunk_rows: int) -> tuple[list[StreamChunk], pa.Table]:
    """Chunks whose last quarter retracts the last inserts of the chunk before; and the rows that are left."""
    rng = np.random.default_rng(SEED)
    chunks, left = [], []
    before = [np.empty(0, np.int64)] * len(SCHEMA)
    for first in range(0, CHANGES, chunk_rows):
        taken = [column[-(chunk_rows // 4) :] for column in before]
        left.append([column[: len(column) - len(taken[0])] for column in before])
        rows = chunk_rows - len(taken[0])
        fresh = [
            np.arange(first, first + rows),
            rng.integers(0, GROUPS, rows),
            rng.integers(-1000, 1000, rows),
        ]
        columns = [np.concatenate(pair) for pair in zip(fresh, taken, strict=True)]
        ops = np.repeat(np.array([0, 1], np.uint8), [rows, len(taken[0])])
        chunks.append(StreamChunk([pa.array(column) for column in columns], ops))
        before = fresh
    arrays = [np.concatenate(column) for column in zip(*left, before, strict=True)]
    return chunks, pa.table(arrays, names=list(SCHEMA.names))


class Scripted(Executor):
    """A barrier, then the chunks with a barrier each EPOCH_CHANGES changes."""

    def __init__(self, chunks: list[StreamChunk], epochs: EpochGenerator) -> None:
        self.info = ExecutorInfo(SCHEMA, (0,), "Scripted")
        self._chunks = chunks
        self._epochs = epochs

    def execute(self) -> Iterator[Message]:
        prev = self._epochs.next()
        rows = EPOCH_CHANGES
        for chunk in self._chunks:
            if rows >= EPOCH_CHANGES:
                yield Barrier(EpochPair(curr := self._epochs.next(), prev), checkpoint=True)
                prev, rows = curr, 0
            yield chunk
            rows += chunk.capacity
        yield Barrier(EpochPair(self._epochs.next(), prev), checkpoint=True)


def hash_agg(source: Executor, store: Any) -> HashAggExecutor:
    calls = (
        AggCall(AggKind.COUNT, None, None, False, DataType.BIGINT),
        AggCall(AggKind.SUM, 2, None, False, DataType.numeric(38, 0)),
    )
    query = Aggregate(Scan(table_catalog("t", SCHEMA, (0,))), (1,), calls, ("rows", "total"))
    view = table_catalog("mv", query.schema, (0,), table_id=2)
    node: Any = plan_query(view, query, lambda name: 3).root.input
    return HashAggExecutor(
        ExecutorInfo(node.schema, node.stream_key, node.identity),
        source,
        node.group_by,
        node.calls,
        StateTable(node.state_table, store),
        (),
        (),
        (),
        ErrorCounts(),
        memory=MemoryBudget(1 << 30),
        flush_groups=GROUPS,
        chunk_rows=4096,
    )


def consume(chunks: list[StreamChunk]) -> int:
    """Rows that came out; the state of each epoch is in the store's shared buffer when its barrier leaves."""
    with hummock.open("memory://", shared_buffer_bytes=1 << 30) as store:
        source = Scripted(chunks, EpochGenerator(last=store.committed_epoch))
        return sum(
            each.capacity for each in hash_agg(source, store).execute() if isinstance(each, StreamChunk)
        )


def regroup(rows: pa.Table) -> int:
    return rows.group_by("k", use_threads=False).aggregate([([], "count_all"), ("v", "sum")]).num_rows


@pytest.mark.parametrize("chunk_rows", [4_096, 65_536])
@pytest.mark.parametrize("engine", ["hummock", "pyarrow once"])
def test_hash_agg(benchmark: Any, chunk_rows: int, engine: str) -> None:
    chunks, rows = changes(chunk_rows)
    run: Callable[[], int] = (lambda: consume(chunks)) if engine == "hummock" else (lambda: regroup(rows))
    benchmark.group = f"1e6 groups, chunks of {chunk_rows}"
    benchmark.extra_info |= {"engine": engine, "rows": sum(chunk.capacity for chunk in chunks)}
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)


def grown_groups() -> AggGroups:
    """A million live groups, none dirty."""
    calls = [AggSpec("count", None, None, BIGINT), AggSpec("sum", 1, BIGINT, DataType.numeric(38, 0))]
    groups = AggGroups([0], [BIGINT], calls)
    rng = np.random.default_rng(SEED)
    for keys in np.array_split(rng.permutation(GROUPS), GROUPS // 65_536):
        chunk = StreamChunk([pa.array(keys), pa.array(keys)], np.zeros(len(keys), np.uint8))
        groups.apply(chunk, groups.locate(chunk).ids)
    list(groups.flush())
    return groups


def update(groups: AggGroups, chunks: list[StreamChunk]) -> None:
    for chunk in chunks:
        groups.apply(chunk, groups.locate(chunk).ids)


def duckdb_once(rows: pa.Table) -> Callable[[], Any]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("rows", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    query = "SELECT sum(c), sum(s) FROM (SELECT k, count(*) AS c, sum(v) AS s FROM t GROUP BY k)"
    return lambda: connection.execute(query).fetchall()


def polars_once(rows: pa.Table) -> Callable[[], Any]:
    pl = pytest.importorskip("polars")
    frame = pl.from_arrow(rows)
    return lambda: frame.group_by("k").agg(pl.len(), pl.col("v").sum())


@pytest.mark.parametrize("chunk_rows", [4_096, 65_536])
def test_update_step(benchmark: Any, chunk_rows: int) -> None:
    """An epoch of a million changes on a million live groups: rows to groups, groups to their new states."""
    groups, chunks = grown_groups(), [chunk.project((1, 2)) for chunk in changes(chunk_rows)[0]]
    size = EPOCH_CHANGES // chunk_rows
    epochs = cycle([chunks[first : first + size] for first in range(0, len(chunks) - size + 1, size)])

    def setup() -> tuple[tuple[AggGroups, list[StreamChunk]], dict[str, Any]]:
        list(groups.flush())
        return (groups, next(epochs)), {}

    benchmark.group = "update step, 1e6 live groups"
    rows = size * chunk_rows
    benchmark.extra_info |= {"engine": f"hummock {chunk_rows}" if chunk_rows > 4_096 else "hummock", "rows": rows}
    benchmark.pedantic(update, setup=setup, rounds=20, warmup_rounds=4)


def test_update_step_limit(benchmark: Any) -> None:
    chunks, left = changes(4_096)
    columns = [(*(np.asarray(column.array) for column in chunk.project((1, 2)).columns), np.asarray(chunk.ops))
               for chunk in chunks]

    def update_all(groups: limits.Aggregation, parts: list[tuple[np.ndarray, ...]]) -> None:
        for k, v, ops in parts:
            groups.apply(k, v, ops)

    update_all(table := limits.Aggregation(GROUPS), columns)
    found = table.groups()
    expected = left.group_by("k").aggregate([("v", "count"), ("v", "sum")]).sort_by("k")
    assert np.array_equal(found[found[:, 1] > 0], np.column_stack([expected[i].to_numpy() for i in range(3)]))
    grown, every = limits.Aggregation(GROUPS), np.random.default_rng(SEED).permutation(GROUPS)
    grown.apply(every, every, np.zeros(GROUPS, np.uint8))
    size = EPOCH_CHANGES // 4_096
    epochs = cycle([columns[first : first + size] for first in range(0, len(columns) - size + 1, size)])
    benchmark.group = "update step, 1e6 live groups"
    benchmark.extra_info |= {"engine": limits.Limit.name, "rows": size * 4_096,
                             "settings": f"{limits.Limit.settings}; the live groups, the changes of hummock's"}
    benchmark.pedantic(update_all, setup=lambda: ((grown, next(epochs)), {}), rounds=20, warmup_rounds=4)


def bids() -> list[tuple[DataChunk, list[np.ndarray | None]]]:
    """(channel, day, auction, bidder) in chunks, each with the rows of the three ranks of prices."""
    chunks = []
    for first in range(0, CHANGES, 65_536):
        rows = batch("bid", ["auction", "bidder", "price", "channel", "date_time"], first, 65_536, seed=SEED)
        price = rows["price"].to_numpy()
        ranks = [price < 10_000, (price >= 10_000) & (price < 1_000_000), price >= 1_000_000]
        day = rows["date_time"].cast(pa.date32())
        columns = [rows["channel"].cast(pa.string()), day, rows["auction"], rows["bidder"]]
        chunks.append((DataChunk(columns), [None, *(rank.view(np.uint8) for rank in ranks)]))
    return chunks


@pytest.mark.parametrize("name", ["q15", "q16"])
def test_distinct_step(benchmark: Any, name: str) -> None:
    """Twelve counts: of rows, bidders and auctions, all and by rank."""
    chunks, ranks = bids(), range(4)
    calls = [AggSpec("count", None, None, BIGINT, is_filtered=rank > 0) for rank in ranks]
    calls += [AggSpec("count", column, BIGINT, BIGINT, is_filtered=rank > 0, is_distinct=True)
              for column in (3, 2) for rank in ranks]
    keys = ([0, 1], [DataType.VARCHAR, DataType.DATE]) if name == "q16" else ([1], [DataType.DATE])

    def run() -> list[int]:
        groups = AggGroups(*keys, calls)
        for chunk, masks in chunks:
            groups.apply(chunk, groups.locate(chunk).ids, masks * 3)
        return [values.entries for values in groups.distinct]

    benchmark.group = "DISTINCT, update step"
    rows = sum(chunk.capacity for chunk, _ in chunks)
    benchmark.extra_info |= {"engine": name, "rows": rows}
    entries = benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    print(f"\n{name}: {benchmark.stats['median'] / rows * 1e9:.0f} CPU ns a row, values {entries}")


@pytest.mark.parametrize("engine", ["duckdb once", "polars once", "pyarrow once"])
def test_update_step_peers(benchmark: Any, engine: str) -> None:
    """The same rows without retractions, grouped once from nothing."""
    rng = np.random.default_rng(SEED)
    rows = pa.table({"k": rng.integers(0, GROUPS, ONCE_ROWS), "v": rng.integers(-1000, 1000, ONCE_ROWS)})
    run: dict[str, Callable[[pa.Table], Callable[[], Any]]] = {
        "duckdb once": duckdb_once,
        "polars once": polars_once,
        "pyarrow once": lambda rows: lambda: regroup(rows),
    }
    benchmark.group = "update step, 1e6 live groups"
    benchmark.extra_info |= {"engine": engine, "rows": ONCE_ROWS, "settings": "one thread, from nothing"}
    benchmark.pedantic(run[engine](rows), rounds=3, warmup_rounds=1)
