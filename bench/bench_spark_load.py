"""Bulk load beside Spark's own sort-and-write-Parquet of the same rows, and beside the same rows as statements.

    python -m bench.bench_spark_load [--rows 2000000] [--rounds 3] [--text] [--stream-rows 200000]

The rows are read from uncompressed Parquet files: a BIGINT key in random order, eight more columns' worth of bytes in
one that does not compress, or with --text in one that does. Spark sorts by the key, which is the best case for it (by
24 bytes of key it takes twice as long), and compresses as we do, with lz4. Both end with durable files; ours are in a
committed version besides. Rounds take turns. Seconds are by the wall; CPU is of the driver, the JVM and all Python
workers together.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import stream
from bench.datasets import SEED, values
from bench.tree_cpu import measured
from hummock.base.key import KeyRange
from hummock.spark import spark_session

INPUT_FILES = 8
CREATE = {"id": "bigint", "payload": "bytea"}


def make_input(directory: Path, rows: int, is_text: bool) -> None:
    """Rows in random order of their keys, as Parquet files."""
    rng = np.random.default_rng(SEED)
    ids = rng.permutation(rows)
    for number, part in enumerate(np.array_split(ids, INPUT_FILES)):
        if is_text:
            words = pa.array(np.char.add("carrier ", (part % 977).astype(str)))
            payload = pc.binary_repeat(words, 9).cast(pa.binary())
        else:
            payload = values(len(part), rng)
        table = pa.table({"id": pa.array(part, pa.int64()), "payload": payload})
        pq.write_table(table, directory / f"part-{number}.parquet", compression="none", use_dictionary=False)


class Bench:
    def __init__(self, spark: Any, directory: Path, partitions: int):
        self.spark, self.directory, self.partitions = spark, directory, partitions
        self.round = 0

    def frame(self) -> Any:
        return self.spark.read.parquet(str(self.directory / "input"))

    def parquet(self) -> int:
        """Bytes that Spark's own job leaves."""
        target = self.directory / f"parquet-{self.round}"
        (self.frame().repartitionByRange(self.partitions, "id").sortWithinPartitions("id")
         .write.option("compression", "lz4_raw").parquet(str(target)))
        size = sum(file.stat().st_size for file in target.glob("*.parquet"))
        shutil.rmtree(target)
        return size

    def load(self) -> Any:
        target = self.directory / f"store-{self.round}"
        with stream.connect(f"file://{target}", create=True) as session:
            session.create_table("t", CREATE, primary_key="id")
            report = session.bulk_load(self.frame(), "t", partitions=self.partitions)
            debt = session._playground.manager.compaction_debt()
        assert report.level > 0 and debt == 0, report
        shutil.rmtree(target)
        return report

    def statements(self, rows: int) -> tuple[float, float]:
        """(seconds, CPU seconds) of inserts by 50,000 with a flush after each, and of the compaction to one level."""
        target = self.directory / "stream"
        table = pa.concat_tables(pq.read_table(file) for file in sorted((self.directory / "input").iterdir()))
        with stream.connect(f"file://{target}", create=True, barrier_interval_ms=1_000) as session:
            made = session.create_table("t", CREATE, primary_key="id")

            def run() -> None:
                for batch in table.slice(0, rows).to_batches(max_chunksize=50_000):
                    made.insert(batch)
                    session.flush()
                session._playground.manager.compact_range(KeyRange())
                while session._playground.manager.compaction_debt():
                    time.sleep(0.05)

            spent = measured(run)
        shutil.rmtree(target)
        return spent[:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--stream-rows", type=int, default=0)
    parser.add_argument("--text", action="store_true")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-spark-load-"))
    spark = spark_session("local[2]", name="bench", settings={"spark.ui.enabled": "false"})
    try:
        (directory / "input").mkdir()
        make_input(directory / "input", given.rows, given.text)
        bench = Bench(spark, directory, given.partitions)
        found: dict[str, list[tuple[float, float]]] = {"parquet": [], "bulk load": []}
        for bench.round in range(given.rounds + 1):
            seconds, cpu, size = measured(bench.parquet)
            found["parquet"].append((seconds, cpu))
            seconds, cpu, report = measured(bench.load)
            found["bulk load"].append((seconds, cpu))
            if bench.round == 0:
                print(f"parquet {size:,} bytes; {report!r}")
        for name, spent in found.items():
            shown = ", ".join(f"{seconds:.2f} s ({cpu:.1f} CPU)" for seconds, cpu in spent[1:])
            print(f"{name:10} {given.rows / statistics.median(s for s, _ in spent[1:]):12,.0f} rows/s: {shown}")
        best = {name: min(seconds for seconds, _ in spent[1:]) for name, spent in found.items()}
        middle = {name: statistics.median(seconds for seconds, _ in spent[1:]) for name, spent in found.items()}
        print(f"bulk load is {middle['parquet'] / middle['bulk load']:.2f}x of Spark's Parquet by the median, "
              f"{best['parquet'] / best['bulk load']:.2f}x by the best")
        print(f"{report!r}")
        if given.stream_rows:
            seconds, cpu = bench.statements(given.stream_rows)
            per_row = statistics.median(cpu for _, cpu in found["bulk load"][1:]) / given.rows
            print(f"as statements {given.stream_rows / seconds:,.0f} rows/s, {cpu / given.stream_rows / per_row:.1f}x "
                  "the CPU seconds a row")
    finally:
        spark.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
