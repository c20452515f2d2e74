"""Nexmark through SQL: Arrow IPC files, a source, the plan of a view, a digest sink; state on local disk.

Every row is read once, from HUMMOCK_NEXMARK_FILES files of HUMMOCK_NEXMARK_ROWS bids, each a split, mapped into memory.
A run of the default size takes a few seconds. With HUMMOCK_NEXMARK_LINKS = n each file is there under n names, and is
read n times, which is as good as more files for queries without state. A run begins with CREATE SINK and ends when the
offsets of the ends of all files are committed, at the default barrier interval. Beside it: DuckDB, once, over the
columns of the first file in memory; it keeps nothing. Printed with each: CPU ns per row, and the barrier latencies of
the same run. The same queries into a materialized view, whose rows are written to its table.

q12 counts by event time: windows of 10 s are the seconds of the epoch divided by 10. q15 and q16 take the day itself
instead of its text.

The readers of the connectors alone, over one file of HUMMOCK_READER_ROWS bids, in pairs with pyarrow's own reader of
the same file, each on one thread: CPU ns per row of the thread, median of the rounds. Chunks are not validated, since
pyarrow does not do it either; `validated` is measured by itself. `append_to_log` is what the actor of a sink that
delivers to the outside does with a row.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import stream
from bench.nexmark import BATCH_ROWS, SEED, batch, write_bids
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from relational.types import Schema
from stream.connector.arrow_streams import arrow_source
from stream.connector.base import open_connector, validated
from stream.connector.nexmark import BID_COLUMNS
from stream.connector.sink import LogLimits
from stream.connector.sink_log import LogWriter, SinkProgress
from stream.plan.state_tables import sink_log_tables
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import barrier

ROWS = int(os.environ.get("HUMMOCK_NEXMARK_ROWS", "4000000"))
FILES = int(os.environ.get("HUMMOCK_NEXMARK_FILES", "10"))
LINKS = int(os.environ.get("HUMMOCK_NEXMARK_LINKS", "1"))
COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, date_time TIMESTAMP"
READ = ["auction", "bidder", "price", "channel", "date_time"]
RANKS = ["", "WHERE price < 10000", "WHERE price >= 10000 AND price < 1000000", "WHERE price >= 1000000"]
RANKED = ", ".join(
    f"count({what}){f' FILTER ({rank})' if rank else ''} AS {name}{number}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for number, rank in enumerate(RANKS)
)
"""The counts of q15 and q16."""
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 2019"
          " OR auction = 2087",
    "q12": "SELECT bidder, count(*) AS bids, window_start FROM (SELECT bidder,"
           " (EXTRACT(EPOCH FROM date_time) / 10)::BIGINT AS window_start FROM bid) b GROUP BY bidder, window_start",
    "q15": f"SELECT day, {RANKED} FROM (SELECT *, date_time::DATE AS day FROM bid) b GROUP BY day",
    "q16": f"SELECT channel, day, max(date_trunc('minute', date_time)) AS minute, {RANKED}"
           " FROM (SELECT *, date_time::DATE AS day FROM bid) b GROUP BY channel, day",
    "q17": "SELECT auction, day, count(*) AS total, count(*) FILTER (WHERE price < 10000) AS rank1,"
           " count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,"
           " count(*) FILTER (WHERE price >= 1000000) AS rank3, min(price) AS low, max(price) AS high,"
           " avg(price) AS mean, sum(price) AS whole FROM (SELECT auction, price, date_time::DATE AS day FROM bid) b"
           " GROUP BY auction, day",
}


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """The bids in files of ROWS, of the columns that the queries name, read once into the page cache."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(FILES):
            path = Path(directory) / f"{number:04}.arrow"
            write_bids(path, number * ROWS, ROWS, READ)
            path.read_bytes()
            for link in range(1, LINKS):
                os.link(path, Path(directory) / f"{number:04}-{link:03}.arrow")
        yield Path(directory)


@pytest.mark.parametrize("name", QUERIES)
def test_source_to_digest(benchmark: Any, name: str, files: Path, tmp_path: Path) -> None:
    create = f"CREATE SINK {name} AS {QUERIES[name]} WITH (connector = 'digest')"
    state = read_source(benchmark, name, name, create, f"SELECT * FROM {name}", files, tmp_path)
    print(state)


@pytest.mark.parametrize("name", QUERIES)
def test_source_to_view(benchmark: Any, name: str, files: Path, tmp_path: Path) -> None:
    create = f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}"
    rows = read_source(benchmark, name, f"{name} into a view", create, f"SELECT count(*) AS n FROM {name}", files,
                       tmp_path)
    print(f"{rows['n']} rows")


def read_source(
    benchmark: Any, name: str, group: str, create: str, state: str, files: Path, directory: Path
) -> dict[str, Any]:
    """Runs `create`, which creates the job `name`, to the ends of all files; the row that `state` selects then."""
    rows, end = ROWS * FILES * LINKS, f"{-(-ROWS // BATCH_ROWS)}:0"
    with stream.connect(f"file://{directory}", create=True) as db:
        db.sql(f"CREATE SOURCE bid ({COLUMNS}) WITH (connector = 'arrow', path = '{files}')")
        figures: dict[str, float] = {}

        def run() -> None:
            began = time.process_time()
            db.sql(create)
            while set(db.source_offsets(name).values()) != {end}:
                time.sleep(0.01)
            figures["cpu"] = (time.process_time() - began) / rows * 1e9

        benchmark.group = group
        benchmark.extra_info.update(engine="hummock", rows=rows)
        benchmark.pedantic(run, rounds=1)
        latencies = db.figures
        (found,) = db.sql(state).rows()
    rate = rows / benchmark.stats["median"] / 1e6
    print(f"\n{group}: {rate:.2f} M rows/s in {rows / rate / 1e6:.1f} s, {figures['cpu']:.0f} CPU ns a row, barriers "
          f"median {latencies.median_ms:.0f} p99 {latencies.p99_ms:.0f} ms, ", end="")
    return dict(found)


@pytest.mark.parametrize("name", QUERIES)
def test_duckdb_once(benchmark: Any, name: str, files: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with pa.memory_map(str(files / "0000.arrow")) as source:
        bid = pa.ipc.open_file(source).read_all()
        connection = duckdb.connect()
        connection.register("bid", bid)
        query = QUERIES[name]
        benchmark.group = name
        benchmark.extra_info.update(engine="duckdb once", rows=ROWS)
        began = time.process_time()
        benchmark.pedantic(lambda: connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}"), rounds=1)
        cpu = (time.process_time() - began) / ROWS * 1e9
        connection.close()
    print(f"\n{name}: DuckDB once, {cpu:.0f} CPU ns a row")


READER_ROWS = int(os.environ.get("HUMMOCK_READER_ROWS", "500000"))
READER_COLUMNS = ["auction", "bidder", "price", "date_time", "channel"]
ROUNDS, CHUNK_ROWS = 7, 65_536
SCHEMA = Schema.of(**{name: str(BID_COLUMNS[name][0]).lower() for name in READER_COLUMNS})


def bids_table() -> pa.Table:
    parts = [batch("bid", READER_COLUMNS, at, min(BATCH_ROWS, READER_ROWS - at), seed=SEED)
             for at in range(0, READER_ROWS, BATCH_ROWS)]
    return pa.Table.from_batches(parts)


def json_lines(table: pa.Table, form: str = "%s") -> bytes:
    times = table["date_time"].cast(pa.string()).to_pylist()
    rows = zip(*(table[name].to_pylist() for name in ("auction", "bidder", "price", "channel")), times, strict=True)
    return "".join(
        form % f'{{"auction":{a},"bidder":{b},"price":{p},"channel":"{c}","date_time":"{t}"}}' + "\n"
        for a, b, p, c, t in rows
    ).encode()


def write_format(name: str, directory: Path, table: pa.Table) -> None:
    """The rows as one file of a format."""
    if name == "arrow":
        write_bids(directory / "bids.arrow", 0, READER_ROWS, READER_COLUMNS)
    elif name == "parquet":
        pq.write_table(table, directory / "bids.parquet", row_group_size=1 << 18)
    elif name.startswith("csv"):
        style = "needed" if name == "csv" else "all_valid"
        options = pyarrow.csv.WriteOptions(quoting_style=style, quoting_header=style)
        pyarrow.csv.write_csv(table, str(directory / "bids.csv"), options)
    else:
        form = "%s" if name == "ndjson" else '{"before":null,"after":%s,"op":"c"}'
        (directory / "bids.ndjson").write_bytes(json_lines(table, form))


def read_by_pyarrow(name: str, directory: Path) -> int:
    """Rows of the file, read as pyarrow alone reads it, in the types of the source."""
    if name == "arrow":
        with pa.memory_map(str(directory / "bids.arrow")) as source:
            file = pa.ipc.open_file(source)
            return sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))
    if name == "parquet":
        parts = pq.ParquetFile(directory / "bids.parquet", page_checksum_verification=True)
        return sum(part.num_rows for part in parts.iter_batches(CHUNK_ROWS, use_threads=False))
    if name.startswith("csv"):
        convert = pyarrow.csv.ConvertOptions(column_types={field.name: field.data_type.arrow for field in SCHEMA},
                                             strings_can_be_null=True, quoted_strings_can_be_null=False)
        read = pyarrow.csv.ReadOptions(use_threads=False)
        return sum(part.num_rows for part in pyarrow.csv.open_csv(str(directory / "bids.csv"), read,
                                                                  convert_options=convert))
    row = SCHEMA.arrow
    whole = row if name == "ndjson" else pa.schema([(side, pa.struct(list(row))) for side in ("before", "after")]
                                                   + [("op", pa.string())])
    parse = pyarrow.json.ParseOptions(explicit_schema=whole, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(use_threads=False)
    return int(pyarrow.json.read_json(str(directory / "bids.ndjson"), read, parse).num_rows)


def drained(reader: Any) -> int:
    rows = 0
    while not reader.is_finished:
        chunk = reader.next_chunk(CHUNK_ROWS)
        rows += 0 if chunk is None else chunk.capacity
    reader.close()
    return rows


def cpu_ns(work: Any, rows: int) -> float:
    began = time.thread_time()
    assert work() == rows
    return (time.thread_time() - began) / rows * 1e9


def paired(ours: Any, theirs: Any, rows: int) -> tuple[float, float]:
    """Median CPU ns per row of each, in alternating rounds after one that is not counted."""
    rounds = [(cpu_ns(ours, rows), cpu_ns(theirs, rows)) for _ in range(ROUNDS + 1)][1:]
    mine, other = (sorted(figures)[ROUNDS // 2] for figures in zip(*rounds, strict=True))
    return mine, other


@pytest.mark.parametrize("name", ["arrow", "parquet", "csv", "csv quoted", "ndjson", "debezium"])
def test_reader_of_files(name: str, tmp_path: Path) -> None:
    write_format(name, tmp_path, bids_table())
    kind = {"csv quoted": "csv", "debezium": "ndjson"}.get(name, name)
    options = {"path": str(tmp_path), **({"format": "debezium"} if name == "debezium" else {})}

    def ours() -> int:
        connector = open_connector(kind, options, SCHEMA)
        (split,) = connector.enumerator().list_splits()
        return drained(connector.open_split(split, range(len(SCHEMA))))

    mine, other = paired(ours, lambda: read_by_pyarrow(name, tmp_path), READER_ROWS)
    print(f"\n{name}: {mine:.1f} CPU ns a row, pyarrow alone {other:.1f}, {mine / other:.2f}x")


@pytest.mark.parametrize(("name", "options", "columns"), [
    ("nexmark", {}, READ), ("nexmark", {}, list(BID_COLUMNS)),
    ("datagen", {"fields.auction.kind": "sequence"}, READER_COLUMNS),
])
def test_reader_that_computes(name: str, options: dict[str, str], columns: list[str]) -> None:
    schema = Schema.of(**{column: str(BID_COLUMNS[column][0]).lower() for column in columns})
    limit = {"events": str(READER_ROWS // 46 * 50)} if name == "nexmark" else {"rows": str(READER_ROWS // 46 * 46)}
    connector = open_connector(name, {**options, **limit}, schema)
    rows = READER_ROWS // 46 * 46
    figures = [cpu_ns(lambda: drained(connector.open_split("0", range(len(schema)))), rows) for _ in range(ROUNDS)]
    print(f"\n{name} ({', '.join(columns)}): {sorted(figures)[ROUNDS // 2]:.1f} CPU ns a row")


def test_reader_of_a_stream_and_validation() -> None:
    parts = bids_table().to_batches()
    figures = []
    for _ in range(ROUNDS):
        with arrow_source("bench", list(parts), buffer_bytes=1 << 40):
            reader = open_connector("arrow_stream", {"name": "bench"}, SCHEMA).open_split("all", range(len(SCHEMA)))
            time.sleep(0.05)
            figures.append(cpu_ns(lambda reader=reader: drained(reader), READER_ROWS))
    chunks = [StreamChunk.from_arrow(part) for part in parts]

    def check() -> int:
        return sum(validated(chunk, SCHEMA).capacity for chunk in chunks)

    checked = sorted(cpu_ns(check, READER_ROWS) for _ in range(ROUNDS))[ROUNDS // 2]
    print(f"\narrow_stream: {sorted(figures)[ROUNDS // 2]:.2f} CPU ns a row; validated: {checked:.1f}")


def test_append_to_log() -> None:
    chunks = [StreamChunk.from_arrow(part) for part in bids_table().to_batches()]
    tables = sink_log_tables(lambda name: 8 + name.endswith("batches"), table_catalog("s", SCHEMA, [0]))
    figures = []
    for _ in range(ROUNDS):
        store = MemoryStateStore()
        log, batches = (StateTable(table, store) for table in tables)
        writer = LogWriter("s", SCHEMA, log, batches, LogLimits(), SinkProgress())
        writer.begin(barrier(1).epoch)

        def append(writer: LogWriter = writer) -> int:
            for chunk in chunks:
                writer.write(chunk)
            writer.end_epoch(barrier(2).epoch, is_checkpoint=True)
            return READER_ROWS

        figures.append(cpu_ns(append, READER_ROWS))
    print(f"\nappend_to_log: {sorted(figures)[ROUNDS // 2]:.1f} CPU ns a row")
