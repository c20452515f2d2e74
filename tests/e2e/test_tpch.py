"""TPC-H: each query as a view, created before the data or after it, and in batch, beside DuckDB; with restarts, and
with orders that change and go."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

import stream
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.tpch import QUERIES, SCHEMAS, orders, static_tables
from tests.support.suites.duck import assert_same_rows, oracle, rows_of

SUPPLIERS, ORDERS, EPOCHS = 10, 300, amount(3, 5)
QUOTIENT_ERROR = 1e-4       # NUMERIC quotients have fewer digits than DuckDB's
LATE = (3, 5, 13, 17, 18, 21)
"""Views that are created over rows."""
CHANGES = (
    "UPDATE orders SET o_orderstatus = 'F', o_custkey = o_custkey + 1 WHERE o_orderkey % 7 = {0}",
    "UPDATE lineitem SET l_quantity = l_quantity + 5, l_receiptdate = l_commitdate + 1 WHERE l_orderkey % 11 = {0}",
    "DELETE FROM lineitem WHERE l_orderkey % 13 = {0} AND l_linenumber > 2",
    "DELETE FROM orders WHERE o_orderkey % 17 = {0}",
    "UPDATE supplier SET s_nationkey = {0}, s_comment = 'slow Customer Complaints' WHERE s_suppkey % 5 = {0}",
    "UPDATE nation SET n_name = 'ATLANTIS' WHERE n_nationkey = {0}",
    "DELETE FROM customer WHERE c_custkey % 19 = {0}",
)


class Both:
    """A session and DuckDB with the same rows."""

    def __init__(self, url: str, queries: dict[int, str], **options: Any) -> None:
        self._url, self._options, self._queries, self.duck = url, options, queries, oracle()
        self.db = self._connected()
        for name, columns in SCHEMAS.items():
            self.db.sql(f"CREATE TABLE {name} ({columns})")
            self.duck.execute(f"CREATE TABLE {name} ({columns})")

    def _connected(self) -> stream.Session:
        return stream.connect(self._url, create=True, barrier_interval_ms=3_600_000, **self._options)

    def restart(self) -> None:
        self.db.close()
        self.db = self._connected()

    def insert(self, tables: dict) -> None:
        for name, rows in tables.items():
            self.db.table(name).insert(rows)
            self.duck.register("rows_", rows)
            self.duck.execute(f"INSERT INTO {name} SELECT * FROM rows_")

    def change(self, text: str) -> None:
        self.db.sql(text)
        self.duck.execute(text)

    def create(self, number: int) -> None:
        self.db.sql(f"CREATE MATERIALIZED VIEW q{number} AS {QUERIES[number]}")

    def check(self, *, in_batch: bool) -> None:
        """The views, and the queries `in_batch`."""
        self.db.flush()
        assert not self.db.failed_jobs, self.db.failed_jobs
        for number, query in self._queries.items():
            expected = numbers(rows_of(self.duck.sql(query).to_arrow_table()))
            for text in (f"SELECT * FROM q{number}", query)[: 1 + in_batch]:
                try:
                    ours = numbers(rows_of(self.db.sql(text).to_arrow()))
                    assert_same_rows(ours, expected, ordered=False, absolute_error=QUOTIENT_ERROR)
                except AssertionError as error:
                    raise AssertionError(f"query {number}: {text}") from error


def numbers(rows: list[tuple]) -> list[tuple]:
    """Quotients, of which DuckDB has all digits, and numbers with the digits of both."""
    return [tuple(float(value) if isinstance(value, Decimal | float) else value for value in row) for row in rows]


@pytest.mark.timeout(600)
def test_all_queries_are_kept_as_views(tmp_path):
    keep(QUERIES, f"file://{tmp_path}/store", parallelism=2)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_queries_are_kept_by_epochs_on_spark(spark, tmp_path):
    chosen = {number: QUERIES[number] for number in (1, 3, 5, 13, 16, 18, 21)}
    keep(chosen, f"file://{tmp_path}/store", engine=spark, driver_rows=0, task_rows=1_000)


def keep(queries: dict[int, str], url: str, **options: Any) -> None:
    """Views of the queries over all epochs, by sessions with these options."""
    rng = random.Random(run_seed())
    both = Both(url, queries, **options)
    try:
        for number in queries.keys() - set(LATE):
            both.create(number)
        both.insert(static_tables(SUPPLIERS, run_seed()))
        both.insert(orders(1, ORDERS, SUPPLIERS, run_seed()))
        for number in queries.keys() & set(LATE):
            both.create(number)
        both.check(in_batch=amount(False, True))
        for epoch in range(1, EPOCHS):
            if epoch % 2:
                both.restart()
            both.insert(orders(1 + epoch * ORDERS, ORDERS, SUPPLIERS, run_seed()))
            for text in rng.sample(CHANGES, 3):
                both.change(text.format(rng.randrange(5)))
            both.check(in_batch=epoch >= amount(EPOCHS - 1, 0))
    finally:
        both.db.close()
