"""Queries against the answers of PostgreSQL in tests/cases/postgres_queries.txt, as batch queries and as views over
tables whose rows come, change and go, with a restart between.

A line is a query and its rows; `batch` before it: no view can have it. Run with HUMMOCK_REWRITE=1 to record the answers
of the installed PostgreSQL, then review the diff.
"""

from __future__ import annotations

import json
import os
import random
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal

import pytest

import stream
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed
from tests.support.servers.postgres_server import running_server
from tests.support.suites.sql_cases import CASES

PATH = CASES / "postgres_queries.txt"
ARROW, BATCH = " --> ", "batch: "
TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT, a INT[], s VARCHAR, j JSONB)",
    "CREATE TABLE u (id INT PRIMARY KEY, k INT, y INT)",
    "CREATE TABLE d (x INT, s VARCHAR)",
    "CREATE TABLE e (x BIGINT, s VARCHAR)",
)
CHANGES = (
    """INSERT INTO t VALUES (1, 1, 2, ARRAY[1, 2, 3], 'a,b', '{"x": [1, "q", null], "y": 2}'),
       (2, 1, 0, NULL, NULL, NULL), (3, 2, 3, ARRAY[5], '', '{"x": []}'),
       (4, NULL, 1, ARRAY[2, NULL, 2], 'c', '[{"a": 1, "b": "z"}, {"a": 7}]')""",
    "INSERT INTO u VALUES (1, 1, 10), (2, 1, 20), (3, 2, 5), (4, NULL, 7), (5, 9, 1), (6, 2, 5)",
    "INSERT INTO d VALUES (1, 'a'), (1, 'a'), (1, 'a'), (2, 'b'), (NULL, 'a'), (NULL, 'a'), (3, NULL)",
    "INSERT INTO e VALUES (1, 'a'), (2, 'b'), (2, 'b'), (NULL, 'a'), (4, 'c')",
    "UPDATE t SET n = n + 1, a = ARRAY[1, 9] WHERE id = 1",
    "UPDATE u SET k = 2 WHERE id = 2",
    "DELETE FROM d WHERE x = 2",
    "INSERT INTO d VALUES (2, 'b'), (2, 'b'), (2, 'b'), (3, NULL), (4, 'c')",
    "DELETE FROM e WHERE x = 1",
    "INSERT INTO e VALUES (1, 'a'), (1, 'a'), (3, NULL)",
    "DELETE FROM t WHERE id = 3",
    "INSERT INTO t VALUES (5, 2, 4, '{}', 'x,,y', '{}'), (3, 2, 2, ARRAY[6, 5], 'p,q', '{\"x\": [4]}')",
    "DELETE FROM u WHERE id = 5",
    "UPDATE u SET y = y + 1 WHERE y < 8",
)
RESTART = 6
"""The number of changes before it; other actors then own the vnodes."""
CHECKED = (3, 9, len(CHANGES) - 1)
"""After these changes each view is read, and compared with its query."""
VIEWS = int(os.environ.get("HUMMOCK_POSTGRES_VIEWS", amount(24, 40)))
VIEWS_OF_TASKS = 9
"""So many queries, drawn by the seed of the run, are kept as views; all of them are batch queries."""
SWITCHES = {5: {"parallelism": 2}, 9: {"slots": 2}}
"""After so many changes another engine goes on: the graph without slots, tasks with them."""


def cases() -> list[tuple[str, bool, str]]:
    """(query, whether it can be a view, rows as JSON) of each line."""
    found = []
    for line in PATH.read_text().split("\n"):
        if line and not line.startswith("#"):
            query, _, rows = line.partition(ARROW)
            found.append((query.removeprefix(BATCH), not query.startswith(BATCH), rows))
    return found


QUERIES = cases()


def drawn(count: int) -> list[str]:
    """Queries that can be views."""
    views = [query for query, is_view, _ in QUERIES if is_view]
    return random.Random(run_seed()).sample(views, min(count, len(views)))


def plain(value: object) -> object:
    """A value as JSON has it, alike for numbers of all types."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else f"{value.normalize():f}"
    return value.isoformat() if isinstance(value, datetime) else value


def shown(rows: list[tuple]) -> str:
    texts = (json.dumps([plain(value) for value in row], ensure_ascii=False) for row in rows)
    return f"[{', '.join(sorted(texts))}]"


def answer(db: stream.Session, query: str) -> str:
    table = db.sql(query).to_arrow()
    return shown(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """By query the rows of its view and of the batch query after some changes."""
    url = f"file://{tmp_path_factory.mktemp('queries')}/store"
    found: dict[str, list[tuple[str | None, str]]] = {query: [] for query, _, _ in QUERIES}

    def opened(parallelism: int) -> stream.Session:
        return stream.connect(url, create=True, barrier_interval_ms=3_600_000, parallelism=parallelism, chunk_rows=5)

    db = opened(3)
    for table in TABLES:
        db.sql(table)
    views = {query: f"SELECT * FROM v{number}" for number, query in enumerate(drawn(VIEWS))}
    for number, query in enumerate(views):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    for number, change in enumerate(CHANGES):
        if number == RESTART:
            db.close()
            db = opened(2)
        db.sql(change)
        db.flush()
        assert not db.failed_jobs, db.failed_jobs
        for query, rows in found.items() if number in CHECKED else ():
            if query in views or number == len(CHANGES) - 1:
                rows.append((answer(db, views[query]) if query in views else None, answer(db, query)))
    db.close()
    return found


@pytest.mark.parametrize(("query", "expected"), [(query, rows) for query, _, rows in QUERIES])
def test_rows_are_those_of_postgresql(query, expected, kept):
    if "HUMMOCK_REWRITE" in os.environ:
        pytest.skip("HUMMOCK_REWRITE is set")
    for number, (of_view, of_query) in enumerate(kept[query]):
        assert of_view is None or of_view == of_query, f"after change {CHECKED[number]}"
    of_view, of_query = kept[query][-1]
    assert of_query == expected
    assert of_view == (expected if query in drawn(VIEWS) else None)


def test_views_are_the_same_where_epochs_run_as_tasks():
    """Some of them, kept by one engine after the other."""
    if "HUMMOCK_REWRITE" in os.environ:
        pytest.skip("HUMMOCK_REWRITE is set")
    chosen = drawn(VIEWS_OF_TASKS)
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(slots=3, chunk_rows=5)
        for table in TABLES:
            db.sql(table)
        for number, query in enumerate(chosen):
            db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        for number, change in enumerate(CHANGES):
            if number in SWITCHES:
                db.close()
                db = store.open(chunk_rows=5, **SWITCHES[number])
            db.sql(change)
            if number % 3 == 1:
                db.flush()
        db.flush()
        assert not db.failed_jobs and store.counts["tasks"] > 2 * VIEWS_OF_TASKS
        expected = {query: rows for query, _, rows in QUERIES}
        for number, query in enumerate(chosen):
            assert answer(db, f"SELECT * FROM v{number}") == expected[query], query


@pytest.mark.skipif("HUMMOCK_REWRITE" not in os.environ, reason="only to record the answers of PostgreSQL")
def test_rewrite_the_answers():
    psycopg = pytest.importorskip("psycopg")
    with running_server() as url, psycopg.connect(url, autocommit=True) as connection:
        for statement in (*TABLES, *CHANGES):
            connection.execute(statement)
        lines = [line for line in PATH.read_text().split("\n") if line.startswith("#")]
        for query, is_view, _ in QUERIES:
            rows = shown(connection.execute(query).fetchall())
            lines.append(f"{'' if is_view else BATCH}{query}{ARROW}{rows}")
    PATH.write_text("\n".join(lines) + "\n")
