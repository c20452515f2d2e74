"""Aggregates against the answers of PostgreSQL in tests/cases/aggregates.txt, over the rows of `ROWS`.

Run with HUMMOCK_REWRITE=1 to record the answers of the installed PostgreSQL, then review the diff.
"""

import os

import pytest

from relational.errors import RelationalError
from relational.expr.bind import AGGREGATE_ALIASES, AGGREGATES
from tests.relational.expr.test_functions import ERROR, cases, record, same, shown
from tests.support.drivers.batch_session import BatchSession
from tests.support.servers.postgres_server import running_server
from tests.support.suites.sql_cases import CASES

PATH = CASES / "aggregates.txt"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, i INT, l BIGINT, d DOUBLE PRECISION, n NUMERIC(10, 2), s TEXT, " \
        "b BOOLEAN, j JSONB, at DATE)"
ROWS = [
    "1, 5, 12, 0.5, 1.10, 'b', TRUE, '{\"a\": 1}', '2024-01-01'",
    "2, NULL, 10, 1.5, 2.50, 'a', FALSE, NULL, '2023-05-05'",
    "3, 3, NULL, NULL, -7.25, NULL, NULL, '[1, null]', NULL",
    "4, 5, 6, -2.0, NULL, 'qé', TRUE, '\"x\"', '2024-01-01'",
    "5, 7, 4, 1.5, 2.50, 'a', TRUE, 'null', '2025-12-31'",
    "6, -1, 14, 8.25, 0.00, 'B', TRUE, '2.5', '2024-02-29'",
]


def statements():
    yield TABLE
    for row in ROWS:
        yield f"INSERT INTO t VALUES ({row})"


@pytest.fixture(scope="module")
def session():
    session = BatchSession()
    for statement in statements():
        session.sql(statement)
    return session


def query_of(expression):
    """The text of `SELECT expression FROM t …`, whose rows are joined by |."""
    item, _, rest = expression.partition(" FROM ")
    return f"SELECT ({item})::text AS value FROM {rest or 't'}"


@pytest.mark.parametrize(("expression", "theirs", "ours"), list(cases(PATH)))
def test_an_answer_is_that_of_postgresql(expression, theirs, ours, session):
    try:
        found = "|".join(shown(value) for value in session.sql(query_of(expression))["value"].to_pylist())
    except RelationalError:
        found = ERROR
    assert found == ours if ours is not None else same(found, theirs), f"{found!r}, not {theirs!r}"


def test_every_aggregate_is_in_a_case():
    text = PATH.read_text().lower()
    assert not [name for name in (*AGGREGATES, *AGGREGATE_ALIASES) if f"{name}(" not in text]


@pytest.mark.skipif("HUMMOCK_REWRITE" not in os.environ, reason="only to record the answers of PostgreSQL")
def test_rewrite_the_answers():
    psycopg = pytest.importorskip("psycopg")

    def answer_of(expression):
        try:
            return "|".join(shown(value) for (value,) in connection.execute(query_of(expression)).fetchall())
        except psycopg.Error:
            return ERROR

    with running_server() as url, psycopg.connect(url, autocommit=True) as connection:
        for statement in statements():
            connection.execute(statement)
        record(PATH, answer_of)
