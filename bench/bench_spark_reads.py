"""Spark reads a table: `scan` and the data source beside Spark's own Parquet, a change feed beside a full diff.

    python -m bench.bench_spark_reads --directory DIR [--rows 4000000] [--rounds 3] [--flights] [--changes | --plans]

The rows are 8 columns of about 110 bytes: a BIGINT key, two numbers, a date, a time, two words, 64 letters that hardly
compress; with --flights a BIGINT key and 14 columns of the flights from New York in 2013, repeated for later years.
Parquet holds them uncompressed, in 8 files or one a year, the store in the form that a bulk load leaves. All of it goes
to Spark's `noop` sink. With --changes 1 % of the keys get other values, scattered and then the newest ones: what
changed is read as a feed, as a full outer join of two scans, and as one of two Parquet snapshots. With --plans nothing
is read: reads by the source are loaded and planned, beside those of a source that does nothing, which is what Spark
takes itself. DIR is made at the first run and used again. Rounds take turns. Seconds are by the wall; CPU is of the
driver, the JVM and all Python workers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import stream
from bench.datasets import SEED
from bench.tree_cpu import measured
from hummock.epoch import Epoch
from hummock.spark import spark_session
from relational.spark.pinned_table import PinnedTable
from relational.spark.scan import changes, scan
from relational.spark.source import register
from stream.examples.flights.connector import read_source

FILES = 8
COLUMNS = {"id": "bigint", "customer": "int", "total": "double", "day": "date", "at": "timestamp", "city": "varchar",
           "name": "varchar", "note": "varchar"}
CITIES = ["Amsterdam", "Bern", "Kyiv", "Lisbon", "Oslo", "Reykjavik", "Tbilisi", "Zagreb"]


YEAR = ("year", "month", "day", "dep_delay", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time",
        "distance", "hour", "time_hour")
SQL_TYPES = {"int64": "bigint", "int32": "int", "string": "varchar"}
PLAN_ROUNDS = 20


class Nothing(DataSource):
    """A source of eight partitions without rows."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return NothingReader()


class NothingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(8)]

    def read(self, partition: InputPartition) -> Any:
        return iter(())


def rows_of(ids: np.ndarray, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    count = len(ids)
    letters = rng.integers(97, 123, (count, 64), dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * 64)
    note = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(np.ascontiguousarray(letters)))
    customers = rng.integers(0, 100_000, count)
    columns = [
        pa.array(ids, pa.int64()), pa.array(customers, pa.int32()), pa.array(rng.normal(100, 20, count)),
        pa.array(rng.integers(15_000, 20_000, count), pa.int32()).cast(pa.date32()),
        pa.array(rng.integers(1_500_000_000_000_000, 1_700_000_000_000_000, count)).cast(pa.timestamp("us")),
        pa.array(CITIES).take(pa.array(rng.integers(0, len(CITIES), count))),
        pa.array(np.char.add("customer ", customers.astype(str))), note,
    ]  # fmt: skip
    return pa.table(columns, names=list(COLUMNS))


def write_parquet(directory: Path, table: pa.Table) -> None:
    directory.mkdir()
    size = -(-len(table) // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), directory / f"part-{number}.parquet", compression="none")


def make(directory: Path, rows: int, spark: Any) -> None:
    """The rows as Parquet and as a table; then two changes of 1 %, as Parquet whole; the epochs in `epochs.json`."""
    directory.mkdir()
    table = rows_of(np.arange(rows), SEED)
    write_parquet(directory / "parquet-0", table)
    epochs = []
    with stream.connect(f"file://{directory}/store", create=True) as session:
        made = session.create_table("rows", COLUMNS, primary_key="id", on_conflict="overwrite")
        session.bulk_load(spark.read.parquet(str(directory / "parquet-0")), "rows", partitions=4)
        epochs.append(session.flush())
        scattered = np.random.default_rng(SEED).permutation(rows)[:rows // 100]
        for number, ids in enumerate((np.sort(scattered), np.arange(rows - rows // 100, rows)), 1):
            changed = rows_of(ids, SEED + number)
            made.insert(changed)
            epochs.append(session.flush())
            kept = np.ones(rows, bool)
            kept[ids] = False
            table = pa.concat_tables([table.filter(pa.array(kept)), changed]).sort_by("id")
            write_parquet(directory / f"parquet-{number}", table)
    (directory / "epochs.json").write_text(json.dumps(epochs))


def make_flights(directory: Path, rows: int, spark: Any) -> None:
    """The flights of years, until there are `rows`, as Parquet and as a table."""
    (directory / "parquet-0").mkdir(parents=True)
    source, _ = read_source()
    source = source.select(YEAR)
    numbers = [field.name for field in source.schema if pa.types.is_integer(field.type)]
    types = pa.schema([pa.field(field.name, pa.int32() if field.name in numbers else
                                pa.timestamp("us", "UTC") if field.name == "time_hour" else field.type)
                       for field in source.schema])
    year = source.cast(types)
    for number in range(-(-rows // len(year))):
        shifted = year.set_column(0, "year", pc.add(year["year"], pa.scalar(number, pa.int32())))
        ids = pa.array(np.arange(number * len(year), (number + 1) * len(year)))
        table = shifted.add_column(0, "id", ids)
        pq.write_table(table, directory / "parquet-0" / f"year-{number}.parquet", compression="none")
    columns = {field.name: SQL_TYPES.get(str(field.type), "timestamptz") for field in table.schema}
    with stream.connect(f"file://{directory}/store", create=True) as session:
        session.create_table("rows", columns, primary_key="id")
        session.bulk_load(spark.read.parquet(str(directory / "parquet-0")), "rows", partitions=4)
        (directory / "epochs.json").write_text(json.dumps([session.flush()]))


def plans(spark: Any, frames: dict[str, Callable[[], Any]]) -> None:
    """Prints the milliseconds of loading and of planning a frame."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for number in range(2 * PLAN_ROUNDS):
        for name, load in frames.items():
            began = time.perf_counter()
            frame = load()
            loaded = time.perf_counter()
            frame._jdf.queryExecution().executedPlan().execute().getNumPartitions()
            spent = (loaded - began) * 1e3, (time.perf_counter() - loaded) * 1e3
            found[name] += [spent] if number >= PLAN_ROUNDS else []     # the first half is for warming up
    for name, spent in found.items():
        load, plan = (statistics.median(part) for part in zip(*spent, strict=True))
        print(f"{name:28} load {load:6.1f} ms, plan {plan:6.1f} ms, together {load + plan:6.1f} ms")


class Bench:
    def __init__(self, spark: Any, directory: Path):
        self.spark, self.directory, self.url = spark, directory, f"file://{directory}/store"
        self.epochs = [Epoch(epoch) for epoch in json.loads((directory / "epochs.json").read_text())]

    def parquet(self, number: int = 0) -> Any:
        return self.spark.read.parquet(str(self.directory / f"parquet-{number}"))

    def scan(self, number: int = 0) -> Any:
        return scan(self.spark, PinnedTable(self.url, "rows", epoch=self.epochs[number]))

    def source(self) -> Any:
        options = {"url": self.url, "table": "rows", "epoch": str(self.epochs[0])}
        return self.spark.read.format("hummock").options(**options).load()

    def feed(self, number: int) -> Any:
        table = PinnedTable(self.url, "rows", epoch=self.epochs[number])
        return changes(self.spark, table, since=self.epochs[number - 1])

    def diff(self, of: Callable[[int], Any], number: int) -> Any:
        before, after = of(number - 1).alias("a"), of(number).alias("b")
        same = " and ".join(f"a.{name} <=> b.{name}" for name in COLUMNS)
        joined = before.join(after, before["id"] == after["id"], "full_outer")
        return joined.filter(f"not ({same})")

    def works(self, with_changes: bool) -> dict[str, Callable[[], Any]]:
        if not with_changes:
            return {"parquet": self.parquet, "scan": self.scan, "source": self.source}
        works: dict[str, Callable[[], Any]] = {}
        for number, which in ((1, "scattered"), (2, "newest")):
            works[f"{which}: diff of parquet"] = lambda number=number: self.diff(self.parquet, number)
            works[f"{which}: diff of scans"] = lambda number=number: self.diff(self.scan, number)
            works[f"{which}: feed"] = lambda number=number: self.feed(number)
        return works


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flights", action="store_true")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--plans", action="store_true")
    given = parser.parse_args()
    spark = spark_session("local[2]", name="bench", settings={"spark.ui.enabled": "false"})
    try:
        register(spark)
        if not given.directory.exists():
            (make_flights if given.flights else make)(given.directory, given.rows, spark)
        if given.plans:
            spark.dataSource.register(Nothing)
            plans(spark, {"a source that does nothing": spark.read.format("nothing").load,
                          "source": Bench(spark, given.directory).source})
            return
        works = Bench(spark, given.directory).works(given.changes)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for number in range(given.rounds + 1):
            for name, work in works.items():
                seconds, cpu, _ = measured(lambda work=work: work().write.format("noop").mode("overwrite").save())
                found[name] += [(seconds, cpu)] if number else []       # the first round is for warming up
        best = {name: min(seconds for seconds, _ in spent) for name, spent in found.items()}
        for name, spent in found.items():
            seconds, cpu = (statistics.median(part) for part in zip(*spent, strict=True))
            peer = next(other for other in works if other.split(":")[0] == name.split(":")[0] or ":" not in other)
            print(f"{name:28} best {best[name]:7.2f} s, median {seconds:7.2f} s, CPU {cpu:7.2f} s, "
                  f"{best[peer] / best[name]:6.2f} of {peer}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
