"""Nexmark q15 and q16, by day, over bids that are only appended and over bids that change, against DuckDB."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import stream
from stream.plan import planner
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.duck import answer, assert_same_rows, rows_of

RANKS = ["", "WHERE price < 10000", "WHERE price >= 10000 AND price < 1000000", "WHERE price >= 1000000"]
RANKED = ", ".join(
    f"count({what}){f' FILTER ({rank})' if rank else ''} AS {name}{number}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for number, rank in enumerate(RANKS)
)
SPENT = "sum(DISTINCT price) AS spent, avg(DISTINCT price) FILTER (WHERE bidder % 2 = 0) AS mean"
VIEWS = {
    "q15": f"SELECT date_time::DATE AS day, {RANKED} FROM bid GROUP BY date_time::DATE",
    "q16": f"SELECT channel, date_time::DATE AS day, max(date_trunc('minute', date_time)) AS minute, {RANKED} FROM bid"
           " GROUP BY channel, date_time::DATE",
    "prices": f"SELECT auction, {SPENT}, count(DISTINCT channel) AS channels FROM bid GROUP BY auction",
    "whole": f"SELECT {SPENT}, count(DISTINCT auction) AS auctions FROM bid",
}  # fmt: skip
COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, date_time TIMESTAMP"
CACHES = [1, pytest.param(200_000, marks=pytest.mark.slow), 1 << 28]


def bids(rng: np.random.Generator, rows: int) -> pa.Table:
    at = np.datetime64("2026-01-01", "us") + rng.integers(0, 3 * 86_400_000_000, rows)
    channels = np.array(["apple", "google", "facebook", "baidu", None], object)[rng.integers(0, 5, rows)]
    return pa.table({"auction": rng.integers(0, 300, rows), "bidder": rng.integers(0, 1_000, rows),
                     "price": (10.0 ** rng.uniform(2, 7, rows)).astype(np.int64),
                     "channel": pa.array(channels, pa.string()), "date_time": pa.array(at)})


def create(db: stream.Session) -> None:
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def read_to_the_end(db: stream.Session, name: str, end: str) -> None:
    """Until each view, which reads the source by itself, has committed the end of a file."""
    for _ in range(1_000):
        db.flush()
        if all(dict(db.source_offsets(view)).get(name) == end for view in VIEWS):
            return
    raise AssertionError(f"{name} was not read to its end")


def compare(db: stream.Session, table: pa.Table) -> None:
    for name, query in VIEWS.items():
        expected = rows_of(answer(query, {"bid": table}))
        assert_same_rows(rows_of(db.sql(f"SELECT * FROM {name}").to_arrow()), expected, ordered=False)


@pytest.mark.parametrize("cache_bytes", CACHES)
def test_appended_bids(tmp_path, cache_bytes):
    """With a restart, after which values are read again."""
    rng, sent, feed = np.random.default_rng(run_seed()), [], tmp_path / "feed"
    feed.mkdir()
    options = {"barrier_interval_ms": 3_600_000, "split_discovery_ms": 1, "state_cache_bytes": cache_bytes}
    for turn in range(3):
        with stream.connect(f"file://{tmp_path}/store", create=True, **options) as db:
            if turn == 0:
                db.sql(f"CREATE SOURCE bid ({COLUMNS}) WITH (connector = 'arrow', path = '{feed}')")
                create(db)
            for _ in range(amount(2, 3)):
                rows, name = int(rng.integers(1, 4_000)), f"{len(sent):05}.arrow"
                sent.append(bids(rng, rows))
                with pa.OSFile(str(tmp_path / "part"), "wb") as file, pa.ipc.new_file(file, sent[-1].schema) as writer:
                    writer.write_table(sent[-1], max_chunksize=1_000)
                (tmp_path / "part").rename(feed / name)
                read_to_the_end(db, name, f"{-(-rows // 1_000)}:0")
                compare(db, pa.concat_tables(sent))


@pytest.mark.parametrize("cache_bytes", CACHES)
def test_bids_that_change(tmp_path, cache_bytes):
    """Statements withdraw and change bids; some values leave their groups, others come back. The views have two actors,
    then one, then three."""
    numbers, rng = np.random.default_rng(run_seed()), random.Random(run_seed())
    options = {"barrier_interval_ms": 3_600_000, "state_cache_bytes": cache_bytes, "parallelism": 2}
    made = 0
    for turn in range(3):
        with stream.connect(f"file://{tmp_path}/store", create=True, **options) as db:
            if turn == 0:
                db.sql(f"CREATE TABLE bid (id BIGINT PRIMARY KEY, {COLUMNS})")
                create(db)
            else:
                db.sql("; ".join(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {2 * turn - 1}" for name in VIEWS))
            for _ in range(amount(2, 4)):
                table = bids(numbers, 1_000)
                db.table("bid").insert(table.add_column(0, "id", pa.array(range(made, made + 1_000))))
                made += 1_000
                first = rng.randrange(300)
                db.sql(f"DELETE FROM bid WHERE auction >= {first} AND auction < {first + 60}")
                db.sql(f"UPDATE bid SET bidder = bidder / 2, price = {rng.choice([5_000, 50_000, 5_000_000])}"
                       f" WHERE bidder % 7 = {rng.randrange(7)}")
                db.flush()
                compare(db, db.sql("SELECT * FROM bid").to_arrow())


def test_views_of_earlier_releases_keep_the_columns_of_groups_in_their_tables(tmp_path, monkeypatch):
    numbers, url = np.random.default_rng(run_seed()), f"file://{tmp_path}"
    sent = bids(numbers, 3_000)
    sent = sent.add_column(0, "id", pa.array(range(3_000)))
    with monkeypatch.context() as patch, stream.connect(url, create=True) as db:
        patch.setattr(planner, "hash_key_for", lambda types: None)
        db.sql(f"CREATE TABLE bid (id BIGINT PRIMARY KEY, {COLUMNS})")
        create(db)
        db.table("bid").insert(sent.slice(0, 1_000))
    with stream.connect(url) as db:
        db.table("bid").insert(sent.slice(1_000))
        db.sql("DELETE FROM bid WHERE auction < 100; FLUSH")
        compare(db, db.sql("SELECT * FROM bid").to_arrow())
