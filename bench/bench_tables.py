"""Tables: writes, point reads and scans of 1,000,000 rows on one core, beside what a user would take instead.

The table is (id BIGINT key, amount DOUBLE, name VARCHAR) over a store in memory; ids come in random order. It is
compared with a `dict` of tuples and with SQLite in memory. All are given Arrow columns, since that is what a stream or
a file holds; a dict answers with tuples, SQLite too, and both make Arrow columns of a whole scan. `cells` is our table
in the other row format, an entry per value.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import hummock
from hummock.epoch import EpochGenerator, EpochPair
from relational.catalog.objects import ColumnCatalog, RowFormat, TableCatalog, TableKind, value_columns
from relational.chunk import DataChunk, Op, StreamChunk
from relational.table.column_cache import ColumnCache
from relational.table.state_table import ROW_CACHE_BYTES, StateTable
from relational.table.storage_table import StorageTable
from relational.types import DataType, SortKey

ROWS, CHUNK_ROWS, PROBE_ROWS, PROBES = 1_000_000, 4_096, 1_000, 200
WIDE, WIDE_ROWS, HOT_ROWS = 20, 50_000, 20_000
ROUNDS, WARMUP_ROUNDS = 5, 3
SEED = 20130101
pytestmark = pytest.mark.benchmark(timer=time.process_time)
NAMES = ("id", "amount", "name")
TYPES = (DataType.BIGINT, DataType.DOUBLE, DataType.VARCHAR)
Chunks = Sequence[pa.RecordBatch]


def catalog_of(names: Sequence[str], types: Sequence[DataType], row_format: RowFormat) -> TableCatalog:
    """The first column is the key, and says the vnode."""
    columns = tuple(ColumnCatalog(name, i, kind) for i, (name, kind) in enumerate(zip(names, types, strict=True)))
    pk = (SortKey(0),)
    return TableCatalog(
        1, "accounts", TableKind.TABLE, columns, pk, (0,), (0,), value_columns(columns, pk), row_format=row_format
    )


def chunks_of_rows() -> Chunks:
    """Distinct random ids, amounts, names of 1 to 20 letters."""
    rng = np.random.default_rng(SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = pa.array([letters[: int(size)] for size in rng.integers(1, 21, CHUNK_ROWS)])
    names = pa.chunked_array([words] * (ROWS // CHUNK_ROWS + 1)).slice(0, ROWS)
    table = pa.table([pa.array(rng.permutation(ROWS) * 3), pa.array(rng.normal(size=ROWS)), names], names=list(NAMES))
    return table.combine_chunks().to_batches(max_chunksize=CHUNK_ROWS)


class Rows(ABC):
    """Somewhere to put rows by id."""

    name: ClassVar[str]
    settings: ClassVar[str]

    @abstractmethod
    def write(self, chunks: Chunks) -> None:
        """New rows, committed at the end."""

    @abstractmethod
    def get(self, ids: Sequence[pa.Array]) -> int:
        """How many of the ids are found, asked an array at a time, their rows read."""

    @abstractmethod
    def scan(self) -> pa.Table:
        """All rows, three columns."""

    def settle(self) -> None:  # noqa: B027  only the store has to come to rest
        """What is written is where it stays."""

    @abstractmethod
    def close(self) -> None: ...


class Hummock(Rows):
    name, settings = "hummock", "StateTable over memory://, blocks in the cache"
    row_format = RowFormat.ROW

    row_cache_bytes = column_cache_bytes = 0

    def __init__(self, names: Sequence[str] = NAMES, types: Sequence[DataType] = TYPES) -> None:
        self.catalog = catalog_of(names, types, self.row_format)
        self.columns = ColumnCache(self.column_cache_bytes)
        self.store = hummock.open("memory://")
        self.epochs = EpochGenerator()
        first = self.epochs.next()
        self.epoch = EpochPair(curr=self.epochs.next(), prev=first)
        self.table = StateTable(self.catalog, self.store, row_cache_bytes=self.row_cache_bytes)
        self.table.init_epoch(self.epoch)

    def write(self, chunks: Chunks) -> None:
        for chunk in chunks:
            self.table.write_chunk(StreamChunk.inserts(DataChunk(chunk.columns)))
        self.commit()

    def commit(self) -> None:
        self.epoch = EpochPair(curr=self.epochs.next(), prev=self.epoch.curr)
        self.table.commit(self.epoch)

    def settle(self) -> None:
        self.store.commit(self.epoch.prev)
        self.store.compact()

    def get(self, ids: Sequence[pa.Array]) -> int:
        return sum(int(self.table.get_rows(DataChunk([chunk]))[1].sum()) for chunk in ids)

    def scan(self) -> pa.Table:
        return StorageTable(self.catalog, self.store, cache=self.columns).to_arrow(self.epoch.prev)

    def close(self) -> None:
        self.store.close()


class Cells(Hummock):
    name, settings = "cells", "the same with an entry per value"
    row_format = RowFormat.CELL


class Cached(Hummock):
    name, settings = "caches", f"the same with {ROW_CACHE_BYTES >> 20} MiB of rows, the default, and 128 MiB of columns"
    row_cache_bytes, column_cache_bytes = ROW_CACHE_BYTES, 128 << 20


class Dict(Rows):
    name, settings = "dict", "id -> tuple"

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, float, str]] = {}

    def write(self, chunks: Chunks) -> None:
        for chunk in chunks:
            ids, amounts, names = (column.to_pylist() for column in chunk.columns)
            self.rows.update(zip(ids, zip(ids, amounts, names, strict=True), strict=True))

    def get(self, ids: Sequence[pa.Array]) -> int:
        found = [list(map(self.rows.get, chunk.to_pylist())) for chunk in ids]
        return sum(len(rows) - rows.count(None) for rows in found)

    def scan(self) -> pa.Table:
        return pa.table([pa.array(column) for column in zip(*self.rows.values(), strict=True)], names=list(NAMES))

    def close(self) -> None:
        self.rows.clear()


class Sqlite(Rows):
    name, settings = "sqlite", ":memory:, executemany, one SELECT an id"

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount REAL, name TEXT)")

    def write(self, chunks: Chunks) -> None:
        for chunk in chunks:
            rows = zip(*(column.to_pylist() for column in chunk.columns), strict=True)
            self.connection.executemany("INSERT INTO accounts VALUES (?, ?, ?)", rows)
        self.connection.commit()

    def get(self, ids: Sequence[pa.Array]) -> int:
        ask = self.connection.execute
        query = "SELECT * FROM accounts WHERE id = ?"
        found = [[ask(query, (id_,)).fetchone() for id_ in chunk.to_pylist()] for chunk in ids]
        return sum(len(rows) - rows.count(None) for rows in found)

    def scan(self) -> pa.Table:
        rows = self.connection.execute("SELECT * FROM accounts").fetchall()
        return pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=list(NAMES))

    def close(self) -> None:
        self.connection.close()


KINDS = {kind.name: kind for kind in (Hummock, Cached, Cells, Dict, Sqlite)}


@pytest.fixture(scope="module")
def chunks() -> Chunks:
    return chunks_of_rows()


@pytest.fixture(scope="module", params=KINDS)
def rows(request: pytest.FixtureRequest, chunks: Chunks) -> Iterator[Rows]:
    """Filled, and at rest."""
    filled = KINDS[request.param]()
    filled.write(chunks)
    filled.settle()
    yield filled
    filled.close()


def measure(benchmark: Any, kind: Rows | type[Rows], group: str, count: int, work: Callable[[], object],
            **settings: Any) -> None:
    benchmark.group = group
    benchmark.extra_info.update(engine=kind.name, rows=count, settings=kind.settings)
    benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=WARMUP_ROUNDS, **settings)


@pytest.mark.parametrize("name", KINDS)
def test_write_and_commit(benchmark: Any, name: str, chunks: Chunks) -> None:
    made: list[Rows] = []

    def fresh() -> None:
        while made:
            made.pop().close()
        made.append(KINDS[name]())

    measure(benchmark, KINDS[name], "write and commit", ROWS, lambda: made[-1].write(chunks), setup=fresh)
    made.pop().close()


def test_get_rows(benchmark: Any, rows: Rows, chunks: Chunks) -> None:
    """Ids that are there, in random order."""
    rng = np.random.default_rng(SEED)
    ids = [pa.array(rng.integers(0, ROWS, PROBE_ROWS) * 3) for _ in range(PROBES)]
    assert rows.get(ids) == PROBE_ROWS * PROBES
    measure(benchmark, rows, f"get_rows of {PROBE_ROWS:,}", PROBE_ROWS * PROBES, lambda: rows.get(ids))


def test_get_rows_of_few(benchmark: Any, rows: Rows) -> None:
    """Ids of 20,000 rows, again and again."""
    rng = np.random.default_rng(SEED)
    ids = [pa.array(rng.integers(0, HOT_ROWS, PROBE_ROWS) * 3) for _ in range(PROBES)]
    assert rows.get(ids) == PROBE_ROWS * PROBES
    measure(benchmark, rows, f"get_rows, {HOT_ROWS:,} hot", PROBE_ROWS * PROBES, lambda: rows.get(ids))


def test_scan_to_arrow(benchmark: Any, rows: Rows) -> None:
    assert rows.scan().num_rows == ROWS
    measure(benchmark, rows, "scan to Arrow", ROWS, rows.scan)


@pytest.mark.parametrize("kind", [Hummock, Cells])
def test_update_of_one_column_of_many(benchmark: Any, kind: type[Hummock]) -> None:
    """Rows of 20 BIGINT columns, all updated, and what the updates and the rows take in the store."""
    numbers = np.arange(WIDE_ROWS)
    old = [pa.array(numbers * 3 + (0 if column == 0 else column << 40)) for column in range(WIDE)]
    table = kind([f"c{column}" for column in range(WIDE)], [DataType.BIGINT] * WIDE)
    table.write(pa.table(old, names=table.catalog.schema.names).to_batches(max_chunksize=CHUNK_ROWS))
    table.settle()
    row_bytes = table.store.stats().data_bytes / WIDE_ROWS
    ops = np.tile(np.array([Op.UPDATE_DELETE, Op.UPDATE_INSERT], np.uint8), WIDE_ROWS)
    values = [[*old[:-1], pa.array(numbers * 7 + turn)] for turn in range(2)]
    halves = pa.array(np.stack([numbers, numbers + WIDE_ROWS], axis=1).ravel())
    turns = [
        StreamChunk([pa.concat_arrays([a, b]).take(halves) for a, b in zip(before, after, strict=True)], ops)
        for before, after in ((old, values[0]), (values[0], values[1]), (values[1], values[0]))
    ]
    rounds = iter([turns[0], *([turns[1], turns[2]] * ROUNDS)])

    def update() -> None:
        table.table.write_chunk(next(rounds))
        table.commit()

    measure(benchmark, kind, f"update of 1 of {WIDE} columns", WIDE_ROWS, update)
    ingested = table.store.stats().ingested_bytes
    update()
    update_bytes = (table.store.stats().ingested_bytes - ingested) / WIDE_ROWS
    benchmark.extra_info["settings"] = f"{kind.settings}; of {WIDE} BIGINT a row takes {row_bytes:.0f} bytes in the " \
        f"store, an update of one column {update_bytes:.0f}"
    table.close()
