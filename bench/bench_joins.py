"""Joins, first rows and windows of Nexmark through SQL: Arrow IPC files, sources, the plan of a view, a digest sink;
state on local disk.

Every event is read once, from two files of each type, each a split, mapped into memory; HUMMOCK_NEXMARK_EVENTS of all
types together, one person and three auctions for 46 bids. Bids are written only for queries that read them. With
HUMMOCK_NEXMARK_NARROW=1 the files have only the columns that the query reads, so that it can run over many more events:
all columns of a billion events do not fit into the page cache of 24 GB of memory. "declared": auctions are an
append-only table with a primary key, so that bids wait only until their auction comes. A run begins with the first
CREATE and ends when the offsets of the ends of all files are committed, at the default barrier interval. Beside it:
DuckDB, once, over the same columns in memory; it keeps nothing. Printed with each: rows a second by wall, CPU ns a row,
the barrier latencies of the same run, and the memory of the process.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stream
from bench.nexmark import BATCH_ROWS, SEED, batch, write_file
from hummock.base.process import peak_memory_bytes
from tests.support.drivers.nexmark_queries import COLUMNS, QUERIES, for_duckdb

EVENTS = int(os.environ.get("HUMMOCK_NEXMARK_EVENTS", "8000000"))
IS_NARROW = os.environ.get("HUMMOCK_NEXMARK_NARROW") == "1"
PER_CYCLE = {"person": 1, "auction": 3, "bid": 46}
SPLITS, READ_BYTES = 2, 8 << 20
POLLED_SECONDS = 0.01
INPUTS = {"q3": ("person", "auction"), "q4": ("auction", "bid"), "q5": ("bid",), "q7": ("bid",),
          "q8": ("person", "auction"), "q9": ("auction", "bid"), "q16": ("bid",), "q18": ("bid",), "q19": ("bid",),
          "q20": ("auction", "bid"), "q101": ("auction", "bid")}
DECLARED = ("q4", "q9", "q20")
RUNS = [*((name, False) for name in INPUTS), *((name, True) for name in DECLARED)]


def rows_of(kind: str) -> int:
    return EVENTS // 50 * PER_CYCLE[kind]


def columns_of(kind: str, name: str) -> str:
    """The columns in the files of a type of events that a query reads, with their SQL types."""
    query = QUERIES[name] if IS_NARROW else None
    every = COLUMNS[kind].split(", ")
    return ", ".join(each for each in every if query is None or re.search(rf"\b{each.split()[0]}\b", query))


def batches(kind: str, names: list[str], first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Batches of equal stretches of time, whatever the type."""
    step = max(BATCH_ROWS * PER_CYCLE[kind] // PER_CYCLE["bid"], 256)
    for at in range(first, end, step):
        yield batch(kind, names, at, min(step, end - at), seed=SEED)


class Files:
    """A directory of files for each type and its columns, written when it is first asked for, and read once into the
    page cache."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folders: dict[tuple[str, str], Path] = {}

    def of(self, kind: str, name: str) -> Path:
        """The files of a type that a query reads."""
        columns = columns_of(kind, name)
        if (kind, columns) not in self._folders:
            self._folders[kind, columns] = folder = self._directory / f"{kind}{len(self._folders)}"
            self._write(folder, kind, [column.split()[0] for column in columns.split(", ")])
        return self._folders[kind, columns]

    @staticmethod
    def _write(folder: Path, kind: str, names: list[str]) -> None:
        folder.mkdir()
        rows = rows_of(kind)
        for number in range(SPLITS):
            path, ends = folder / f"{number}.arrow", (rows * number // SPLITS, rows * (number + 1) // SPLITS)
            write_file(path, batches(kind, names, *ends))
            with path.open("rb") as source:
                while source.read(READ_BYTES):
                    pass


@pytest.fixture(scope="module")
def files() -> Iterator[Files]:
    with tempfile.TemporaryDirectory() as directory:
        yield Files(Path(directory))


@pytest.mark.parametrize(("name", "is_declared"), RUNS,
                         ids=[f"{name} declared" if is_declared else name for name, is_declared in RUNS])
def test_sources_to_digest(benchmark: Any, name: str, is_declared: bool, files: Files, tmp_path: Path) -> None:
    rows = sum(map(rows_of, INPUTS[name]))
    figures: dict[str, float] = {}
    for kind in INPUTS[name]:
        files.of(kind, name)
    ends = ends_of([kind for kind in INPUTS[name] if not (is_declared and kind == "auction")], name, files)
    with stream.connect(f"file://{tmp_path}", create=True) as db:
        def run() -> None:
            began = time.process_time()
            for kind in INPUTS[name]:
                columns = columns_of(kind, name)
                connector = f"WITH (connector = 'arrow', path = '{files.of(kind, name)}')"
                if is_declared and kind == "auction":
                    db.sql(f"CREATE TABLE {kind} ({columns}, PRIMARY KEY (id)) APPEND ONLY {connector}")
                else:
                    db.sql(f"CREATE SOURCE {kind} ({columns}) {connector}")
            db.sql(f"CREATE SINK {name} AS {QUERIES[name]} WITH (connector = 'digest')")
            while dict(db.source_offsets(name)) != ends:
                epoch = db.committed_epoch
                while db.committed_epoch == epoch:
                    time.sleep(POLLED_SECONDS)
            figures["cpu"] = (time.process_time() - began) / rows * 1e9

        benchmark.group = name
        benchmark.extra_info.update(engine="hummock", rows=rows)
        benchmark.pedantic(run, rounds=1)
        latencies, state = db.figures, dict(db.sql(f"SELECT * FROM {name}").rows()[0])
    seconds = benchmark.stats["median"]
    memory = peak_memory_bytes() >> 20
    shown = f"{name} declared" if is_declared else name
    print(f"\n{shown}: {rows / seconds / 1e6:.2f} M rows/s in {seconds:.1f} s, {figures['cpu']:.0f} CPU ns a row, "
          f"barriers median {latencies.median_ms:.0f} p99 {latencies.p99_ms:.0f} ms, {memory} MB; {state}")


def ends_of(kinds: list[str], name: str, files: Files) -> dict[str, str]:
    """The offsets of a job of a query that has read all its files."""
    ends = {}
    for kind in kinds:
        prefix = f"{kind}/" if len(kinds) > 1 else ""
        for path in files.of(kind, name).iterdir():
            with pa.memory_map(str(path)) as source:
                ends[f"{prefix}{path.name}"] = f"{pa.ipc.open_file(source).num_record_batches}:0"
    return ends


@pytest.mark.parametrize("name", INPUTS)
def test_duckdb_once(benchmark: Any, name: str, files: Files) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection, rows = duckdb.connect(), sum(map(rows_of, INPUTS[name]))
    for kind in INPUTS[name]:
        paths = sorted(files.of(kind, name).iterdir())
        parts = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in paths]
        connection.register(kind, pa.concat_tables(parts))
    query = for_duckdb(QUERIES[name])
    benchmark.group = name
    benchmark.extra_info.update(engine="duckdb once", rows=rows)
    began = time.process_time()
    benchmark.pedantic(lambda: connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}"), rounds=1)
    print(f"\n{name}: DuckDB once, {(time.process_time() - began) / rows * 1e9:.0f} CPU ns a row")
    connection.close()
