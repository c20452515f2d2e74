"""JoinIndex on one core: a million rows (id, BIGINT key, v) go in, ten million rows ask for their matches.

`build` and `probe` are ours alone: changes into the index; rows to matches to two columns of the matching rows, in
chunks. Keys are distinct, or skewed: 100,000 of them, of which the first has a twelfth of the rows. `join` is both,
beside what engines do once with the whole tables in memory, for keys 0 to 999,999, which DuckDB takes as positions of
an array, and for as many of any 64 bits. Rows: those that went in plus those that asked.

A round finds its memory warm, as the one before left it; the first build of the process is reported as "first".
CPU seconds. Run with POLARS_MAX_THREADS=1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import StreamChunk
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.types import DataType

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED = 20130101
BUILT, ASKED = 1_000_000, 10_000_000
BIGINT = DataType.BIGINT


def tables(built: int = BUILT, asked: int = ASKED) -> tuple[pa.Table, pa.Table]:
    """(id, k, v) with distinct k in any order, and (k) that all have a match."""
    rng = np.random.default_rng(SEED)
    rows = {"id": np.arange(built), "k": rng.permutation(built), "v": rng.integers(-1000, 1000, built)}
    return pa.table(rows), pa.table({"k": rng.integers(0, built, asked)})


def scattered(built: pa.Table, asked: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same tables with a random number for each k."""
    numbers = np.random.default_rng(SEED + 1).integers(-(2**63), 2**63 - 1, len(built))
    return (built.set_column(1, "k", pa.array(numbers[built["k"].to_numpy()])),
            asked.set_column(0, "k", pa.array(numbers[asked["k"].to_numpy()])))


def skewed(built: int = BUILT, keys: int = 100_000) -> pa.Table:
    """(id, k, v), the keys by Zipf's law with exponent 1."""
    rng = np.random.default_rng(SEED)
    shares = 1 / np.arange(1, keys + 1)
    k = rng.permutation(keys)[rng.choice(keys, built, p=shares / shares.sum())]
    return pa.table({"id": np.arange(built), "k": k, "v": rng.integers(-1000, 1000, built)})


def chunks(table: pa.Table, chunk_rows: int) -> list[StreamChunk]:
    batches = table.to_batches(max_chunksize=chunk_rows)
    return [StreamChunk(batch.columns, np.zeros(batch.num_rows, np.uint8)) for batch in batches]


def build(rows: list[StreamChunk], stream_key: tuple[int, ...] = (0,)) -> JoinIndex:
    index = JoinIndex([BIGINT] * 3, [1], stream_key)
    for chunk in rows:
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)
    return index


def probe(index: JoinIndex, rows: list[StreamChunk]) -> int:
    matches = 0
    for chunk in rows:
        ids = index.locate([chunk.columns[0]], is_adding=False).ids
        for probe_rows, row_ids in JoinProbe(index, ids):
            index.gather(row_ids, (0, 2))
            matches += len(probe_rows)
    return matches


def duckdb_join(built: pa.Table, asked: pa.Table) -> Callable[[], Any]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in (("b", built), ("a", asked)):
        connection.register(f"{name}_arrow", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    return lambda: connection.execute("SELECT count(*), sum(id), sum(v) FROM a JOIN b USING (k)").fetchall()


def polars_join(built: pa.Table, asked: pa.Table) -> Callable[[], Any]:
    pl = pytest.importorskip("polars")
    left, right = pl.from_arrow(asked), pl.from_arrow(built)
    return lambda: left.join(right, on="k").height


@pytest.mark.parametrize("chunk_rows", [4_096, 65_536])
@pytest.mark.parametrize("keys", ["distinct", "skewed"])
@pytest.mark.parametrize("engine", ["hummock", "append-only"])
def test_build(benchmark: Any, chunk_rows: int, keys: str, engine: str) -> None:
    rows = chunks(tables(asked=1)[0] if keys == "distinct" else skewed(), chunk_rows)
    stream_key = (0,) if engine == "hummock" else ()
    began = time.process_time()
    build(rows, stream_key)
    first = f"chunks of {chunk_rows}, first {BUILT / (time.process_time() - began) / 1e6:.1f} M rows/s"
    benchmark.group = f"join index: build, {keys} keys"
    benchmark.extra_info |= {"engine": f"{engine} {chunk_rows}", "rows": BUILT, "settings": first}
    benchmark.pedantic(build, (rows, stream_key), rounds=9, warmup_rounds=3)


@pytest.mark.parametrize("chunk_rows", [4_096, 65_536])
def test_probe(benchmark: Any, chunk_rows: int) -> None:
    built, asked = tables()
    index, rows = build(chunks(built, 65_536)), chunks(asked, chunk_rows)
    benchmark.group = f"join index: probe, chunks of {chunk_rows}"
    benchmark.extra_info |= {"engine": "hummock", "rows": ASKED}
    assert benchmark.pedantic(probe, (index, rows), rounds=3, warmup_rounds=1) == ASKED


@pytest.mark.parametrize("keys", ["dense", "scattered"])
@pytest.mark.parametrize("engine", ["hummock", "duckdb", "polars"])
def test_join(benchmark: Any, engine: str, keys: str) -> None:
    built, asked = tables() if keys == "dense" else scattered(*tables())
    rows = chunks(built, 65_536), chunks(asked, 65_536)
    run: dict[str, Callable[[], Callable[[], Any]]] = {
        "hummock": lambda: lambda: probe(build(rows[0]), rows[1]),
        "duckdb": lambda: duckdb_join(built, asked),
        "polars": lambda: polars_join(built, asked),
    }
    benchmark.group = f"join of 1e6 and 1e7 rows, {keys} keys"
    benchmark.extra_info |= {"engine": engine, "rows": BUILT + ASKED}
    benchmark.pedantic(run[engine](), rounds=3, warmup_rounds=1)
