"""Joins of batch queries against the interpreter: every kind, keys of every form, many batches of pairs."""

import itertools
import random

import pytest

from relational.batch import run_query
from relational.batch.planner import plan_query
from relational.batch.run import table_of
from relational.catalog.names import ObjectName
from relational.plan.logical import Scan
from relational.sql import bind_sql
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.plan_interpreter import interpret, visible
from tests.support.drivers.query_chunks import query_chunks
from tests.support.drivers.seeds import amount, run_seed
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


@pytest.fixture(scope="module")
def expected(session):
    """Text of a query, and its plan -> the rows that the interpreter computes."""
    tables, known = {}, {}
    for name in ("l", "r", "none"):
        table = session.catalog.resolve(ObjectName.parse(name))
        chunks = query_chunks(Scan(table), session.store, session.epoch)
        tables[table.id] = [row for chunk in chunks for row in chunk.rows()]

    def rows(text, plan):
        if text not in known:
            known[text] = visible(plan, interpret(plan, tables))
        return known[text]

    return rows


@pytest.fixture(scope="module")
def check(session, expected):
    def rows(text):
        (statement,) = bind_sql(text, session.catalog)
        found = rows_of(run_query(statement.plan, session.store, session.epoch))
        assert_same_rows(found, expected(text, statement.plan), ordered=False)
        return found

    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_join_has_the_pairs_and_the_rows_without_a_partner(kind, condition, check, monkeypatch):
    monkeypatch.setattr("relational.batch.hash_join.BATCH_ROWS", 7)
    check(f"SELECT * FROM l {kind} r ON {CONDITIONS[condition]}")
    check(f"SELECT count(*), min(r.id) FROM l {kind} r ON {CONDITIONS[condition]}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_side_may_be_empty(kind, check):
    for text in (f"SELECT * FROM l {kind} none ON l.k = none.k", f"SELECT * FROM none {kind} r ON none.k = r.k"):
        assert len(check(text)) in (0, 40)


def test_three_relations_and_a_comma(check):
    check("SELECT a.id, b.id, c.id FROM l AS a JOIN r AS b ON a.k = b.k LEFT JOIN l AS c ON b.t = c.t, none")
    found = check("SELECT a.id, c.k FROM l AS a, l AS b RIGHT JOIN none AS c ON b.k = c.k")
    assert found == []
    assert len(check("SELECT 1 FROM l, r")) == 1_600


def test_values_of_types_without_a_common_one_are_compared_pair_by_pair(check, session):
    """Sums have 38 digits before the point; with two behind it no type has all values of both."""
    check("SELECT r.id, x.s FROM r JOIN (SELECT t, sum(CAST(k AS BIGINT)) AS s FROM l GROUP BY t) AS x "
                   "ON r.n < 2 AND r.n = x.s - x.s + 1")
    (statement,) = bind_sql("SELECT 1 FROM r JOIN (SELECT sum(CAST(k AS BIGINT)) AS s FROM l) AS x ON r.n = x.s",
                            session.catalog)
    assert "HashJoin inner on key_0 = key_0 AND (n = s)" in plan_query(statement.plan).explain()


PARTNERS = {
    "columns": "l.k = r.k",
    "a condition": "l.k = r.k AND l.id < r.id",
    "a key": "l.k = r.id",
    "a key and a condition": "l.k = r.id AND l.n <> r.n",
    "NULL equals NULL": "l.t IS NOT DISTINCT FROM r.t",
}
LEFT = ("l", "(SELECT * FROM l WHERE id < 7)", "(SELECT * FROM l WHERE id < 0)")
RIGHT = ("r", "(SELECT id, k, t, n FROM r WHERE id % 3 <> 1)", "(SELECT * FROM r WHERE id < 4)")


@pytest.mark.parametrize("limits", [(1, 0), (10, 0), (10, 100), (10, 3), (1 << 20, 1 << 20)], ids=str)
@pytest.mark.parametrize("condition", PARTNERS)
def test_whichever_input_is_kept_or_looked_up(condition, limits, check, monkeypatch):
    """Few rows are read in turns, so that either input is the smaller one, or few enough to look up partners."""
    monkeypatch.setattr("relational.batch.hash_join.ROUND_ROWS", limits[0])
    monkeypatch.setattr("relational.batch.hash_join.LOOKUP_ROWS", limits[1])
    monkeypatch.setattr("relational.batch.hash_join.BATCH_ROWS", 5)
    on = PARTNERS[condition]
    for left, right in list(itertools.product(LEFT, RIGHT))[:: amount(2, 1)]:
        for kind in KINDS:
            check(f"SELECT * FROM {left} AS l {kind} {right} AS r ON {on}")
        for word in ("EXISTS", "NOT EXISTS"):
            check(f"SELECT l.* FROM {left} AS l WHERE {word} (SELECT 1 FROM {right} AS r WHERE {on})")


def test_a_join_by_the_key_of_a_table_may_look_it_up(session):
    def explained(text):
        (statement,) = bind_sql(text, session.catalog)
        return plan_query(statement.plan).explain()

    assert "HashJoin inner on k = id, or by key" in explained("SELECT l.id FROM l JOIN r ON l.k = r.id")
    assert "or by key" not in explained("SELECT l.id FROM l JOIN r ON l.k = r.k")
    assert "or by key" not in explained("SELECT l.id FROM l RIGHT JOIN r ON l.k = r.id")
    assert "or by key" not in explained("SELECT l.id FROM l JOIN (SELECT id FROM r LIMIT 3) AS r ON l.k = r.id")


def test_many_rows_of_one_key_are_paired_in_parts(check, monkeypatch):
    monkeypatch.setattr("relational.batch.hash_join.BATCH_ROWS", 3)
    assert len(check("SELECT l.id, r.id FROM l JOIN r ON l.id - l.id = r.id - r.id")) == 1_600


def test_joins_in_any_order_have_the_same_rows(session):
    """Whatever sizes the tables are thought to have."""
    rng = random.Random(f"{run_seed()} order")
    names = ("l", "r", "none")
    for number in range(amount(25, 60)):
        count = rng.randrange(2, 6)
        items = [(rng.choice(names[: 2 + (rng.random() < 0.1)]), f"x{at}") for at in range(count)]
        terms = []
        for at in range(1, count):
            for _ in range(rng.choice((1, 1, 2))):
                one, other = rng.randrange(at), at
                column = rng.choice(("k", "k", "id"))
                terms.append(f"x{one}.{rng.choice(('k', 'id'))} = x{other}.{column}")
        terms += rng.sample(["x0.id < 20", "x1.k <> 3", "x0.k < x1.id"], rng.randrange(3))
        text = f"SELECT {', '.join(f'{alias}.id AS of_{alias}' for _, alias in items)} FROM " + ", ".join(
            f"{name} AS {alias}" for name, alias in items) + " WHERE " + " AND ".join(terms)
        if rng.random() < 0.3:
            text += " AND x0.k IN (SELECT k FROM r WHERE id > 9)"
        (statement,) = bind_sql(text, session.catalog)
        sizes = {name: rng.choice((1.0, 50.0, 1e6)) for name in names}
        plan = plan_query(statement.plan, rows=lambda table, sizes=sizes: sizes[table.name])
        found = rows_of(table_of(plan, statement.plan.visible, session.store, session.epoch))
        assert plan.schema.names == statement.plan.schema.names, text
        expected = rows_of(run_query(statement.plan, session.store, session.epoch))
        try:
            assert_same_rows(found, expected, ordered=False)
        except AssertionError as error:
            raise AssertionError(f"seed {run_seed()}, query {number}, {sizes}: {text}") from error


def test_the_smallest_input_comes_first(session):
    (statement,) = bind_sql("SELECT a.id FROM l AS a, r AS b, none AS c WHERE a.k = b.k AND b.k = c.k AND c.id = 5",
                            session.catalog)
    sizes = {"l": 1e6, "r": 1e5, "none": 1e3}
    text = plan_query(statement.plan, rows=lambda table: sizes[table.name]).explain()
    assert text.index("none") < text.index("Scan r") < text.index("Scan l"), text
    assert "key_0 = key_0" not in text, "equal columns link all inputs that have them"


@pytest.mark.parametrize("items", ["a.id AS x, b.id AS y", "b.id AS y, a.id AS x", "a.id AS k, b.k AS id, a.k AS x"])
def test_items_keep_their_names_whatever_the_order_of_the_inputs(items, session):
    (statement,) = bind_sql(f"SELECT {items} FROM l AS a JOIN r AS b ON a.k = b.k", session.catalog)
    for sizes in ({"l": 1.0, "r": 1e6}, {"l": 1e6, "r": 1.0}):
        plan = plan_query(statement.plan, rows=lambda table, sizes=sizes: sizes[table.name])
        assert list(plan.schema.names) == [item.split()[-1] for item in items.split(", ")]
