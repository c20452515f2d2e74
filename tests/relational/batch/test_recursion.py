"""WITH RECURSIVE: its limits, rows that are equal, recursions within each other and in views, against plain Python."""

import random

import pytest

from relational.batch import RecursionLimits, run_query
from relational.errors import QueryTooLarge
from relational.sql import bind_sql
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import oracle, rows_of

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"


def rows(session, query, limits=None):
    (statement,) = bind_sql(query, session.catalog)
    more = {} if limits is None else {"limits": limits}
    return rows_of(run_query(statement.plan, session.store, session.epoch, **more))


@pytest.mark.parametrize(("limits", "option"), [
    (RecursionLimits(rounds=50), "recursion_rounds"), (RecursionLimits(rows=70), "recursion_rows")])
def test_a_recursion_without_end_ends_at_a_limit(limits, option):
    with pytest.raises(QueryTooLarge, match=f"beyond the limit of .0, which {option} sets") as caught:
        rows(BatchSession(), ENDLESS, limits)
    assert (caught.value.option, caught.value.limit) == (option, getattr(limits, option.removeprefix("recursion_")))


def test_a_recursion_of_as_many_rounds_and_rows_as_its_limits_is_complete():
    query = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT n FROM r"
    assert rows(BatchSession(), query, RecursionLimits(10, 10)) == [(n,) for n in range(1, 11)]


def test_rows_that_are_equal_in_sql_come_once():
    query = """WITH RECURSIVE r(x, s) AS (SELECT * FROM (VALUES (CAST(0 AS DOUBLE), 'a'), (-CAST(0 AS DOUBLE), 'a'),
               (NULL, NULL), (CAST('NaN' AS DOUBLE), NULL)) AS v(x, s) UNION SELECT x * 2, s FROM r) SELECT * FROM r"""
    assert len(rows(BatchSession(), query)) == 3


def test_a_recursion_within_another_one():
    query = """WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL
        SELECT r.n + q.m FROM r JOIN
            (WITH RECURSIVE q(m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM q WHERE m < 2) SELECT m FROM q) AS q
        ON r.n < 4) SELECT n FROM r"""
    todo, found = [1], []
    while todo:
        found += todo
        todo = [n + m for n in todo if n < 4 for m in (1, 2)]
    assert sorted(rows(BatchSession(), query)) == sorted((n,) for n in found)


@pytest.mark.parametrize("union", ["UNION", "UNION ALL"])
def test_what_can_be_reached_in_a_random_graph(union):
    rng = random.Random(f"{run_seed()} {union}")
    edges = [(a, b) for a, b in ((rng.randrange(12), rng.randrange(12)) for _ in range(20))
             if union == "UNION" or a < b]
    session, duck = BatchSession(), oracle()
    for runs in (session.sql, duck.execute):
        runs("CREATE TABLE edge (a INT, b INT)")
        runs(f"INSERT INTO edge VALUES {', '.join(map(str, edges))}")
    query = f"""WITH RECURSIVE r(a, b) AS (
        SELECT a, b FROM edge {union} SELECT r.a, edge.b FROM r JOIN edge ON r.b = edge.a) SELECT a, b FROM r"""
    assert sorted(rows(session, query)) == sorted(rows_of(duck.sql(query).to_arrow_table()))
