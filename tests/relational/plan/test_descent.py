"""Rewrites of plans with shared inputs: each is visited once, however often it is read."""

import time

import pytest

from relational.errors import BindError
from relational.plan.descent import transformed, with_shares_from
from relational.plan.logical import Project, Share, nodes
from relational.plan.optimizer import RULES, SINK_RULES, VIEW_RULES, optimize
from relational.sql import bind_sql
from tests.support.suites.sql_cases import case_catalog

CATALOG = case_catalog()
LEVELS = 40
DOUBLED = "WITH a0 AS (SELECT v, w FROM plain)" + "".join(
    f", a{level} AS (SELECT v, w FROM a{level - 1} WHERE v > {level} UNION ALL SELECT v, w FROM a{level - 1})"
    for level in range(1, LEVELS + 1)
)
"""A query that reads its table 2 ** LEVELS times."""


def plan_of(text):
    (statement,) = bind_sql(text, CATALOG)
    return statement.plan


@pytest.mark.parametrize("rules", [RULES, VIEW_RULES, SINK_RULES], ids=["query", "view", "sink"])
def test_a_query_that_doubles_again_and_again_is_planned_at_once(rules):
    begun = time.thread_time()
    plan = optimize(plan_of(f"{DOUBLED} SELECT max(w) FROM a{LEVELS}"), rules)
    text = plan.explain()
    assert time.thread_time() - begun < 5
    assert len([node for node in nodes(plan) if isinstance(node, Share)]) >= LEVELS - 1
    assert text.count("(above)") >= LEVELS - 1 and len(text) < 300_000


def test_too_many_levels_are_refused():
    deep = "WITH a0 AS (SELECT v FROM plain)" + "".join(
        f", a{level} AS (SELECT v FROM a{level - 1})" for level in range(1, 400)
    )
    with pytest.raises(BindError, match="nested deeper than"):
        optimize(plan_of(f"{deep} SELECT * FROM a399"))


def test_readers_of_a_share_read_one_object():
    plan = optimize(plan_of("WITH n AS (SELECT region AS r, count(*) AS n FROM orders GROUP BY region) "
                            "SELECT n FROM n WHERE r = 'a' UNION ALL SELECT n + 1 FROM n WHERE r = 'a'"))
    readers = {id(child) for node in nodes(plan) for child in node.inputs if isinstance(child, Share)}
    assert len(readers) == 1


def test_transformed_visits_a_shared_input_once():
    seen = []
    plan = plan_of(f"{DOUBLED} SELECT max(w) FROM a{LEVELS}")
    assert transformed(plan, lambda node: seen.append(node) or node) is plan
    assert len(seen) == len(list(nodes(plan)))


def test_a_view_that_is_read_beside_shared_queries_keeps_its_own():
    view = optimize(plan_of("WITH n AS (SELECT count(*) AS n FROM orders) SELECT n FROM n UNION ALL SELECT -n FROM n"))
    moved = with_shares_from(view, 5)
    assert view.properties.shares == {0} and moved.properties.shares == {5}
    assert moved.explain() == view.explain().replace("Share 0", "Share 5")
    assert with_shares_from(view, 0) is view
    assert with_shares_from(plan := plan_of("SELECT id FROM orders"), 3) is plan and isinstance(plan, Project)
