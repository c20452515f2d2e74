"""The write path of tables: CPU ns per row by stage, from a chunk to durable files on local disk.

    python -m bench.bench_state_writes [narrow | wide | groups] ...
        [--rows N] [--epoch-rows N] [--chunk-rows N] [--rounds N]

`narrow` and `wide` are rows of a table without a key that is declared append-only: three BIGINT columns, and ten
columns of which two are VARCHAR. `groups` are the states that an aggregation writes at its flush: of a million groups,
count and sum, a quarter changes in each epoch. An epoch has a quarter of a million rows.

The thread that writes is the actor; another one commits each epoch to the store while the actor writes the next one.
`actor` and `behind` are the CPU time of the actor's thread and that of all others. Stages of the actor: `row ids`;
`write` (write_chunk, write_slice); `commit` (what was written is sorted or merged); `ingest` into the shared buffer.
`keys` and `values` are the part of `write` that encodes, measured apart. `bytes`: of a row in its file. There is no
compaction.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hummock
from hummock.epoch import SPILL_BITS, EpochGenerator, EpochPair
from relational.agg.groups import AggGroups
from relational.agg.spec import AggSpec
from relational.catalog.objects import TableCatalog
from relational.chunk import Column, RowIdGenerator, StreamChunk
from relational.table.row_serde import RowSerde
from relational.table.state_table import StateTable
from relational.types import DataType, Field, Schema, VnodeRule
from tests.support.drivers.catalogs import table_catalog

SEED = 20130101
ROWS, EPOCH_ROWS, CHUNK_ROWS, ROUNDS = 4_194_304, 262_144, 16_384, 3
GROUPS = 1_000_000
IN_FLIGHT = 4           # epochs that wait for their commit
NARROW = Schema.of(k="bigint", v="bigint", ts="bigint")
WIDE = Schema.of(a="bigint", b="bigint", c="bigint", d="bigint", price="double", channel="varchar", url="varchar",
                 at="timestamp", e="bigint", f="int")
BIGINT = DataType.BIGINT
Epochs = list[list[StreamChunk]]


class Clock:
    """CPU seconds of this thread by stage, without those of the stages within it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within: list[float] = [0.0]  # seconds of the stages within each open one

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.thread_time()
        self._within.append(0.0)
        yield
        spent = time.thread_time() - began
        self.seconds[name] += spent - self._within.pop()
        self._within[-1] += spent


class TimedStore:
    """A store that counts the time of `ingest_batch` as the stage `ingest`."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def ingest_batch(self, *args: Any, **options: Any) -> int:
        with self._clock.stage("ingest"):
            return self._store.ingest_batch(*args, **options)


def texts(rng: np.random.Generator, rows: int, shortest: int, longest: int) -> pa.Array:
    lengths = rng.integers(shortest, longest + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def column_of(kind: DataType, rng: np.random.Generator, rows: int, name: str) -> pa.Array:
    if kind == DataType.VARCHAR:
        return texts(rng, rows, 4, 12) if name == "channel" else texts(rng, rows, 20, 40)
    if kind == DataType.DOUBLE:
        return pa.array(rng.random(rows) * 1000)
    return pa.array(rng.integers(0, 1_000_000, rows)).cast(kind.arrow)


def keyless(schema: Schema) -> TableCatalog:
    """The catalog of a table with a generated key, declared append-only."""
    columns = Schema((*schema.fields, Field("_row_id", BIGINT)))
    return table_catalog("events", columns, (len(schema),), is_append_only=True, row_id_index=len(schema),
                         vnode_rule=VnodeRule.ROW_ID)


def rows_of(schema: Schema, rows: int, epoch_rows: int, chunk_rows: int) -> Epochs:
    """Inserts without their row ids."""
    rng = np.random.default_rng(SEED)
    epochs = []
    for _ in range(0, rows, epoch_rows):
        columns = [column_of(field.data_type, rng, epoch_rows, field.name) for field in schema]
        starts = range(0, epoch_rows, chunk_rows)
        epochs.append([
            StreamChunk([column.slice(first, chunk_rows) for column in columns],
                        np.zeros(min(chunk_rows, epoch_rows - first), np.uint8))
            for first in starts
        ])
    return epochs


def group_catalog(groups: AggGroups) -> TableCatalog:
    names = [f"c{position}" for position in range(len(groups.state_types))]
    schema = Schema(tuple(map(Field, names, groups.state_types)))
    return table_catalog("groups", schema, (0,))


def groups_of(rows: int, epoch_rows: int) -> tuple[TableCatalog, Epochs]:
    """The states that an aggregation of a million groups flushes in epochs of `epoch_rows` changed groups."""
    calls = [AggSpec("count", None, None, BIGINT), AggSpec("sum", 1, BIGINT, DataType.numeric(38, 0))]
    groups = AggGroups([0], [BIGINT], calls)
    rng = np.random.default_rng(SEED)
    epochs = []
    for _ in range(0, rows, epoch_rows):
        keys = rng.choice(GROUPS, epoch_rows, replace=False) * 7919
        chunk = StreamChunk([pa.array(keys), pa.array(rng.integers(-1000, 1000, epoch_rows))],
                            np.zeros(epoch_rows, np.uint8))
        groups.apply(chunk, groups.locate(chunk).ids)
        epochs.append([change.state for change in groups.flush() if change.state is not None])
    return group_catalog(groups), epochs


def measured(catalog: TableCatalog, epochs: Epochs, folder: Path) -> dict[str, float]:
    """CPU ns per row, by stage."""
    clock, rows = Clock(), sum(chunk.capacity for chunks in epochs for chunk in chunks)
    generator = None if catalog.row_id_index is None else RowIdGenerator(range(catalog.vnode_count))
    numbers = EpochGenerator()
    serde = RowSerde(catalog)
    with (
        hummock.open(f"file://{folder}", role="writer", compaction=False) as store,
        ThreadPoolExecutor(1, "checkpoint") as checkpoint,
    ):
        table = StateTable(catalog, TimedStore(store, clock))  # type: ignore[arg-type]
        write = getattr(table, "write_slice", table.write_chunk) if generator is None else table.write_chunk
        first, current = numbers.next(), numbers.next()
        table.init_epoch(EpochPair(curr=current, prev=first))
        process, actor, waiting = time.process_time(), time.thread_time(), []
        for chunks in epochs:
            if generator is not None:
                generator.open_epoch(current >> SPILL_BITS)
            for chunk in chunks:
                if generator is not None:
                    with clock.stage("row ids"):
                        chunk = with_ids(chunk, generator)
                with clock.stage("write"):
                    write(chunk)
            following = numbers.next()
            with clock.stage("commit"):
                table.commit(EpochPair(curr=following, prev=current))
            waiting.append(checkpoint.submit(store.commit, current))
            if len(waiting) > IN_FLIGHT:
                waiting.pop(0).result()
            current = following
        actor = time.thread_time() - actor
        for commit in waiting:
            commit.result()
        process = time.process_time() - process
        bytes_stored = store.stats().data_bytes
    generator = None if generator is None else RowIdGenerator(range(catalog.vnode_count))
    for chunk in (chunk for chunks in epochs[:4] for chunk in chunks):
        chunk = chunk if generator is None else with_ids(chunk, generator)
        with clock.stage("keys"):
            serde.keys_of(chunk)
        with clock.stage("values"):
            serde.values_of(chunk)
    for name in ("keys", "values"):
        clock.seconds[name] *= len(epochs) / len(epochs[:4])
    figures = {name: seconds / rows * 1e9 for name, seconds in clock.seconds.items()}
    figures |= {"actor": actor / rows * 1e9, "behind": (process - actor) / rows * 1e9, "all": process / rows * 1e9}
    return figures | {"bytes": bytes_stored / rows}


def with_ids(chunk: StreamChunk, generator: RowIdGenerator) -> StreamChunk:
    return chunk.with_columns([*chunk.columns, Column(pa.array(generator.next_ids(chunk.capacity)))])


def case_of(name: str, rows: int, epoch_rows: int, chunk_rows: int) -> tuple[TableCatalog, Epochs]:
    if name == "groups":
        return groups_of(rows, epoch_rows)
    schema = NARROW if name == "narrow" else WIDE
    return keyless(schema), rows_of(schema, rows, epoch_rows, chunk_rows)


CASES = ("narrow", "wide", "groups")
STAGES = ("row ids", "write", "keys", "values", "commit", "ingest", "actor", "behind", "all", "bytes")


@pytest.mark.parametrize("name", CASES)
def test_state_writes(benchmark: Any, name: str, tmp_path: Path) -> None:
    catalog, epochs = case_of(name, ROWS, EPOCH_ROWS, CHUNK_ROWS)
    rounds: list[dict[str, float]] = []

    def run() -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            rounds.append(measured(catalog, epochs, Path(folder)))

    benchmark.group = f"state writes, {name}"
    benchmark.extra_info.update(engine="hummock", rows=ROWS)
    benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    print(f"\n{line_of(name, rounds[1:])}")


def line_of(name: str, rounds: Sequence[dict[str, float]]) -> str:
    """The median of each stage."""
    shown = ", ".join(f"{stage} {statistics.median(figures.get(stage, 0) for figures in rounds):.0f}"
                      for stage in STAGES if stage in rounds[0])
    return f"{name}: {shown}"


def main(arguments: Sequence[str] | None = None, show: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description="CPU ns per row of the write path of tables, by stage.")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--epoch-rows", type=int, default=EPOCH_ROWS)
    parser.add_argument("--chunk-rows", type=int, default=CHUNK_ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args(arguments)
    for name in chosen.cases:
        catalog, epochs = case_of(name, chosen.rows, chosen.epoch_rows, chosen.chunk_rows)
        rounds = []
        for _ in range(chosen.rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(measured(catalog, epochs, Path(folder)))
        show(line_of(name, rounds[1:]))


if __name__ == "__main__":
    main()
