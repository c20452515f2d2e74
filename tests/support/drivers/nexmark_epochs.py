"""Views over bids, over a table that statements change, and over one another, kept by epochs on Spark; and their
answers by DuckDB over the same rows.

    python -m tests.support.drivers.nexmark_epochs "local-cluster[2,1,1024]" DIRECTORY SEED EPOCHS
"""

from __future__ import annotations

import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import stream
from hummock.spark.session import spark_session

CHECKED = 5
VIEWS = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction = 7 OR auction = 20 OR auction = 200",
    "q12": "SELECT bidder, date_trunc('minute', date_time) AS start, count(*) AS bids FROM bid"
           " GROUP BY bidder, date_trunc('minute', date_time)",
    "q15": "SELECT date_trunc('hour', date_time) AS hour, count(*) AS total, count(DISTINCT bidder) AS bidders,"
           " count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rich, count(DISTINCT auction) AS auctions,"
           " count(DISTINCT auction) FILTER (WHERE price < 10000) AS cheap FROM bid"
           " GROUP BY date_trunc('hour', date_time)",
    "q16": "SELECT (auction % 10)::VARCHAR AS channel, date_trunc('hour', date_time) AS hour, count(*) AS total,"
           " count(DISTINCT bidder) AS bidders, count(DISTINCT auction) FILTER (WHERE price < 10000) AS cheap FROM bid"
           " GROUP BY (auction % 10)::VARCHAR, date_trunc('hour', date_time)",
    "q17": "SELECT auction, date_trunc('hour', date_time) AS hour, count(*) AS total,"
           " count(*) FILTER (WHERE price < 10000) AS rank1,"
           " count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2, min(price) AS low,"
           " max(price) AS high, sum(price) AS whole FROM bid GROUP BY auction, date_trunc('hour', date_time)",
    "everything": "SELECT count(*) AS n, sum(price) AS whole FROM bid",
    "busy": "SELECT total, count(*) AS auctions FROM q17 GROUP BY total",
    "by_seller": "SELECT seller, count(*) AS n, count(DISTINCT reserve) AS reserves, sum(reserve) AS whole,"
                 " min(reserve) AS low, max(id) AS last"
                 " FROM auction GROUP BY seller",
    "late": "SELECT bidder, start, bids FROM q12 WHERE bids > 2",
}  # fmt: skip
"""By name. "late" begins in the middle of the stream, with the rows that are there."""
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"


def bids(rng: np.random.Generator, rows: int) -> pa.Table:
    at = np.datetime64("2026-01-01", "us") + rng.integers(0, 3_600_000_000, rows)
    return pa.table({"auction": rng.integers(0, 300, rows), "bidder": rng.integers(0, 200, rows),
                     "price": (10.0 ** rng.uniform(2, 7, rows)).astype(np.int64), "date_time": pa.array(at)})


def rows_of(table: Any) -> list[tuple]:
    """Comparable rows, sorted."""
    plain = [tuple(Decimal(value).normalize() if isinstance(value, (int, float, Decimal)) else value for value in row)
             for row in table]
    return sorted(plain, key=repr)


def compare(db: stream.Session, read: pa.Table, name: str) -> None:
    """View `name` against DuckDB, over the bids that were `read`, and the table and views that it names."""
    oracle = duckdb.connect()
    oracle.register("bid", read)
    for upstream in ("auction", "q12", "q17"):
        oracle.register(upstream, db.sql(f"SELECT * FROM {upstream}").to_arrow())
    expected = oracle.sql(VIEWS[name]).fetchall()
    found = db.sql(f"SELECT * FROM {name}").to_arrow()
    assert rows_of(zip(*(column.to_pylist() for column in found.columns), strict=True)) == rows_of(expected), name


def change(db: stream.Session, rng: random.Random, known: set[int]) -> None:
    """A statement to the table of auctions; `known`: its ids."""
    if known and rng.random() < 0.4:
        seller = rng.randrange(12)
        kind = rng.choice(["UPDATE auction SET reserve = reserve + 5", "DELETE FROM auction"])
        db.sql(f"{kind} WHERE seller = {seller} AND id % 2 = 0")
        return
    first = 10_000 * len(known)
    known.add(first)
    rows = rng.randint(1, 400)
    db.table("auction").insert([(first + n, rng.randrange(12), rng.randrange(1_000)) for n in range(rows)])


def run(spark: Any, directory: Path, seed: int, epochs: int) -> None:
    """So many epochs; all views against DuckDB at each CHECKED-th one. No epoch runs in the process of the driver."""
    rng, numbers, feed, sent = random.Random(seed), np.random.default_rng(seed), directory / "feed", []
    feed.mkdir(parents=True)
    options = {"driver_rows": 0, "task_rows": 1_000, "barrier_interval_ms": 3_600_000, "split_discovery_ms": 1}
    delivered: list[dict] = []
    with (
        stream.arrow_sink("out", lambda epoch, changes: delivered.extend(changes.read_all().to_pylist())),
        stream.connect(f"file://{directory}/store", create=True, engine=spark, inbox_poll_ms=0, **options) as db,
    ):
        db.sql(f"CREATE SOURCE bid ({BIDS}) WITH (connector = 'arrow', path = '{feed}')")
        db.sql("CREATE TABLE auction (id BIGINT PRIMARY KEY, seller BIGINT, reserve BIGINT)")
        for name, query in VIEWS.items():
            if name != "late":
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.sql("CREATE SINK delivery AS SELECT auction, price FROM q2 WITH (connector = 'arrow', name = 'out')")
        known: set[int] = set()
        for epoch in range(1, epochs + 1):
            for _ in range(rng.randint(0, 3)):
                table = bids(numbers, rng.choice([1, 50, 3_000, 20_000]))
                with pa.OSFile(str(directory / "part"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table, max_chunksize=1_000)
                (directory / "part").rename(feed / f"{len(sent):05}.arrow")
                sent.append(table)
            for _ in range(rng.randint(0, 2)):
                change(db, rng, known)
            if epoch == CHECKED:
                db.sql(f"CREATE MATERIALIZED VIEW late AS {VIEWS['late']}")
            read_all(db, sent)
            if epoch % CHECKED == 0:
                for name in VIEWS:
                    compare(db, pa.concat_tables(sent), name)
                print(f"epoch {epoch}: {sum(map(len, sent))} bids", flush=True)
        engines, read = set(db.epochs().column("engine").to_pylist()), pa.concat_tables(sent)
        expected = duckdb.connect().from_arrow(read).query("bid", VIEWS["q2"]).fetchall()
    assert engines == {"spark"}, engines
    assert rows_of((each["auction"], each["price"]) for each in delivered) == rows_of(expected)


def read_all(db: stream.Session, sent: list[pa.Table]) -> None:
    """Until each view of the source, which reads it by itself, has read all bids."""
    wanted, readers = sum(map(len, sent)), [name for name, query in VIEWS.items() if " FROM bid" in query]
    for _ in range(50):
        db.flush()
        (row,) = db.sql("SELECT n FROM everything").rows()
        offsets = db.source_offsets("everything")
        if row["n"] == wanted and all(db.source_offsets(name) == offsets for name in readers):
            return
    raise AssertionError(f"{row['n']} of {wanted} bids are read")


if __name__ == "__main__":
    session = spark_session(sys.argv[1], settings={"spark.ui.enabled": "false"}, carries_rows=False)
    run(session, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    print("all views are equal")
    session.stop()
