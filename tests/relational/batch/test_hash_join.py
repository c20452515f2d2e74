"""Joins of batch queries against the interpreter: every kind, keys of every form, many batches of pairs."""

import random

import pytest

from relational.batch import query_chunks, run_query
from relational.batch.planner import plan_query
from relational.catalog.names import ObjectName
from relational.plan.logical import Scan
from relational.sql import bind_sql
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.plan_interpreter import interpret, visible
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import assert_same_rows, rows_of

KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
CONDITIONS = {
    "a column": "l.k = r.k",
    "two columns": "l.k = r.k AND l.t = r.t",
    "NULL equals NULL": "l.t IS NOT DISTINCT FROM r.t",
    "an expression": "l.k + 1 = r.k * 2",
    "another type": "l.k = r.n",
    "a column and a condition": "l.k = r.k AND l.id < r.id",
    "no equality": "l.k < r.k AND l.t <> r.t",
    "one side": "l.k = r.k AND l.id > 5 AND r.id > 5",
    "nothing": "l.id < 0",
    "a constant": "true",
}


@pytest.fixture(scope="module")
def session():
    session, rng = BatchSession(), random.Random(run_seed())
    texts, numbers = (None, "a", "longer than eight"), (None, 1, 3)
    for name in ("l", "r"):
        session.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, k INT, t VARCHAR, n NUMERIC(8, 2))")
        session.table(name).insert(
            (number, rng.choice((None, *range(6))), rng.choice(texts), rng.choice(numbers))
            for number in range(40)
        )
    session.sql("CREATE TABLE none (id INT PRIMARY KEY, k INT)")
    return session


def check(session, text):
    (statement,) = bind_sql(text, session.catalog)
    tables = {}
    for name in ("l", "r", "none"):
        table = session.catalog.resolve(ObjectName.parse(name))
        chunks = query_chunks(Scan(table), session.store, session.epoch)
        tables[table.id] = [row for chunk in chunks for row in chunk.rows()]
    found = rows_of(run_query(statement.plan, session.store, session.epoch))
    assert_same_rows(found, visible(statement.plan, interpret(statement.plan, tables)), ordered=False)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_join_has_the_pairs_and_the_rows_without_a_partner(kind, condition, session, monkeypatch):
    monkeypatch.setattr("relational.batch.hash_join.BATCH_ROWS", 7)
    check(session, f"SELECT * FROM l {kind} r ON {CONDITIONS[condition]}")
    check(session, f"SELECT count(*), min(r.id) FROM l {kind} r ON {CONDITIONS[condition]}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_side_may_be_empty(kind, session):
    for text in (f"SELECT * FROM l {kind} none ON l.k = none.k", f"SELECT * FROM none {kind} r ON none.k = r.k"):
        assert len(check(session, text)) in (0, 40)


def test_three_relations_and_a_comma(session):
    check(session, "SELECT a.id, b.id, c.id FROM l AS a JOIN r AS b ON a.k = b.k LEFT JOIN l AS c ON b.t = c.t, none")
    found = check(session, "SELECT a.id, c.k FROM l AS a, l AS b RIGHT JOIN none AS c ON b.k = c.k")
    assert found == []
    assert len(check(session, "SELECT 1 FROM l, r")) == 1_600


def test_values_of_types_without_a_common_one_are_compared_pair_by_pair(session):
    """Sums have 38 digits before the point; with two behind it no type has all values of both."""
    check(session, "SELECT r.id, x.s FROM r JOIN (SELECT t, sum(CAST(k AS BIGINT)) AS s FROM l GROUP BY t) AS x "
                   "ON r.n < 2 AND r.n = x.s - x.s + 1")
    (statement,) = bind_sql("SELECT 1 FROM r JOIN (SELECT sum(CAST(k AS BIGINT)) AS s FROM l) AS x ON r.n = x.s",
                            session.catalog)
    assert "HashJoin inner on key_0 = key_0 AND (n = s)" in plan_query(statement.plan).explain()
