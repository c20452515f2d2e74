"""SQL text to rows: INSERT of a thousand rows of VALUES in one statement, beside DuckDB's in the same run, and the time
that long conditions take to be bound, and views upon views to be planned.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stream
from relational.batch import plan_query
from relational.batch.plan import BatchNode
from relational.catalog.manager import CatalogManager
from relational.sql import bind_sql
from relational.sql.statement import CreateView, Select
from tests.support.suites.sql_cases import case_catalog

ROWS, STATEMENTS, ROUNDS = 1_000, 20, 10
TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, region VARCHAR, amount NUMERIC(12, 2), x DOUBLE PRECISION)"


def inserts(first: int) -> Iterator[str]:
    """Statements of a thousand new rows each."""
    for number in itertools.count(first):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = ", ".join(f"({i}, 'EUROPE', {i % 100}.{i % 90 + 10}, {i % 7}.5)" for i in ids)
        yield f"INSERT INTO t VALUES {rows}"


def session() -> tuple[Callable[[str], Any], Callable[[], None]]:
    """How our session runs a statement, and how it ends."""
    db = stream.connect("memory://")
    return db.sql, db.close


def duckdb_memory() -> tuple[Callable[[str], Any], Callable[[], None]]:
    """How DuckDB in memory runs a statement, and how it ends."""
    connection = pytest.importorskip("duckdb").connect()
    return connection.execute, connection.close


@pytest.mark.parametrize(("name", "engine"), [("hummock", session), ("duckdb", duckdb_memory)])
def test_insert_values(benchmark: Any, name: str, engine: Callable[[], Any]) -> None:
    """Text in, rows there, by wall clock; the texts are made before the clock starts."""
    run, close = engine()
    run(TABLE)
    texts = inserts(0)

    def some() -> tuple[tuple[list[str]], dict]:
        return (list(itertools.islice(texts, STATEMENTS)),), {}

    def insert(statements: list[str]) -> None:
        for text in statements:
            run(text)

    benchmark.group = "insert 1,000 rows of VALUES"
    benchmark.extra_info.update(engine=name, rows=STATEMENTS * ROWS)
    benchmark.pedantic(insert, setup=some, rounds=ROUNDS, warmup_rounds=1)
    close()


LONG = {
    "4,000 ORs": " OR ".join(f"id = {number}" for number in range(4_000)),
    "IN of 10,000": f"id IN ({', '.join(map(str, range(10_000)))})",
    "500 ORs": " OR ".join(f"id = {number}" for number in range(500)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_condition(benchmark: Any, name: str) -> None:
    """From text to plan."""
    catalog: CatalogManager = case_catalog()
    text = f"SELECT * FROM orders WHERE {LONG[name]}"
    benchmark.group = f"bind {name}"
    benchmark.pedantic(lambda: list(bind_sql(text, catalog)), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("depth", [1, 10, 50])
def test_plan_views(benchmark: Any, depth: int) -> None:
    """From the text of a query over a chain of views to its batch plan; as an extra figure, its materialized view."""
    catalog, below = case_catalog(), "orders"
    for level in range(depth):
        text = f"SELECT id, region, amount + {level} AS amount FROM {below} WHERE id > {level}"
        (statement,) = bind_sql(f"CREATE VIEW v{level} AS {text}", catalog)
        assert isinstance(statement, CreateView)
        below = f"v{level}"
        catalog.create(statement.view)
    text = f"SELECT region, max(amount) AS most FROM {below} GROUP BY region"

    def planned() -> BatchNode:
        (statement,) = bind_sql(text, catalog)
        assert isinstance(statement, Select)
        return plan_query(statement.plan)

    benchmark.group = f"plan {depth} views"
    benchmark.pedantic(planned, rounds=20, warmup_rounds=2)
    begun = time.process_time()
    list(bind_sql(f"CREATE MATERIALIZED VIEW m AS {text}", catalog))
    benchmark.extra_info["materialized_view_cpu_ms"] = (time.process_time() - begun) * 1e3
