"""Properties of nodes: what is known of their rows, computed once when they are constructed."""

import pytest

from relational.plan.logical import Filter, LogicalPlan, Scan, nodes
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.sql import bind_sql
from tests.support.suites.sql_cases import case_catalog

CATALOG = case_catalog()


def plan_of(text) -> LogicalPlan:
    (statement,) = bind_sql(text, CATALOG)
    return statement.plan


CASES = [
    # query, unique keys, constants, order
    ("SELECT * FROM orders", [{0}], set(), []),
    ("SELECT region, id FROM orders", [{1}], set(), []),
    ("SELECT region FROM orders", [], set(), []),
    ("SELECT a, b, c FROM pairs", [{0, 1}], set(), []),
    ("SELECT a, c FROM pairs", [], set(), []),
    ("SELECT a, c FROM pairs WHERE b = 2", [{0}], set(), []),
    ("SELECT a, b, c FROM pairs WHERE b = 2 AND a IS NULL", [set()], {0, 1}, []),
    ("SELECT region, 7 AS seven FROM orders WHERE region IS NOT DISTINCT FROM 'x'", [], {0, 1}, []),
    ("SELECT region FROM orders WHERE region = upper(region) OR id = 1", [], set(), []),
    ("SELECT region, count(*) FROM orders GROUP BY region", [{0}], set(), []),
    ("SELECT count(*), region FROM orders WHERE region = 'a' GROUP BY region", [set()], {1}, []),
    ("SELECT count(*) FROM orders", [set()], set(), []),
    ("SELECT id, region FROM orders ORDER BY region DESC, id", [{0}], set(), [1, 0]),
    ("SELECT x.region FROM (SELECT id, region FROM orders ORDER BY region, id) AS x", [], set(), [0]),
    ("SELECT x.id FROM (SELECT id, region FROM orders ORDER BY region, id) AS x", [{0}], set(), []),
    ("SELECT id FROM orders LIMIT 1", [set()], set(), []),
    ("SELECT id FROM orders LIMIT 2", [{0}], set(), []),
    ("SELECT 1 AS x, 'y' AS y", [set()], {0, 1}, []),
    ("VALUES (1), (2)", [], set(), []),
    ("SELECT id FROM orders UNION ALL SELECT id FROM orders", [], set(), []),
    ("SELECT id FROM orders UNION SELECT id FROM orders", [{0}], set(), []),
    ("SELECT p.w, o.id FROM plain p JOIN orders o ON p.v = o.id", [], set(), []),
    ("SELECT a.id, b.id, b.amount FROM orders a JOIN orders b ON a.amount = b.amount", [{0, 1}], set(), []),
    ("SELECT a.id, b.id FROM orders a JOIN orders b ON a.id = b.id", [{0}, {1}], set(), []),
    ("SELECT a.id, b.id FROM orders a LEFT JOIN orders b ON a.id = b.id", [{0}], set(), []),
    ("SELECT a.v, b.id FROM plain a JOIN fed b ON a.v = b.id", [], set(), []),
    ("SELECT a.id, b.v FROM orders a LEFT JOIN plain b ON a.id = b.v", [], set(), []),
]


@pytest.mark.parametrize(("text", "unique", "constants", "order"), CASES, ids=[text for text, *_ in CASES])
def test_what_is_known_of_the_rows(text, unique, constants, order):
    known = plan_of(text).properties
    shown = set(plan_of(text).visible)
    assert [set(key) for key in known.unique_keys if key <= shown] == unique
    assert known.constants & shown == constants
    assert [key.column for key in known.order] == order


def test_a_join_by_key_adds_no_pairs_of_keys():
    """Each of them contains a key that is known: of 24 tables there would be millions."""
    joins = " ".join(f"JOIN orders t{at} ON t{at - 1}.id = t{at}.id" for at in range(1, 24))
    columns = ", ".join(f"t{at}.id" for at in range(24))
    keys = plan_of(f"SELECT {columns} FROM orders t0 {joins}").properties.unique_keys
    assert set(keys) == {frozenset({at}) for at in range(24)}


@pytest.mark.parametrize(
    ("text", "is_append_only"),
    [
        ("SELECT msg FROM log WHERE msg <> ''", True),
        ("SELECT msg FROM log UNION ALL SELECT upper(msg) FROM log", True),
        ("SELECT msg FROM log UNION ALL SELECT region FROM orders", False),
        ("SELECT msg FROM log UNION SELECT msg FROM log", True),
        ("SELECT DISTINCT region FROM orders", False),
        ("SELECT msg, count(*) FROM log GROUP BY msg", False),
        ("SELECT count(*) FROM log", False),
        ("WITH a AS (SELECT msg FROM log) SELECT * FROM a UNION ALL SELECT * FROM a", True),
    ],
)
def test_append_only_is_what_has_append_only_inputs(text, is_append_only):
    assert optimize(plan_of(text), VIEW_RULES).is_append_only is is_append_only


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("SELECT page, at FROM clicks WHERE n > 1", ["at"]),
        ("SELECT page, n FROM clicks", []),
        ("SELECT date_trunc('day', at) AS d, at::date AS e, extract(day FROM at) AS f FROM clicks", ["d", "e"]),
        ("SELECT page, at, count(*) AS n FROM clicks GROUP BY page, at", ["at"]),
        ("SELECT page, max(at) AS at FROM clicks GROUP BY page", []),
        ("SELECT at::date AS d FROM clicks UNION ALL SELECT day FROM gauges", ["d"]),
        ("SELECT at FROM clicks UNION ALL SELECT at FROM orders", []),
        ("WITH c AS (SELECT at, n FROM clicks) SELECT at FROM c UNION ALL SELECT at + INTERVAL '1 day' FROM c", ["at"]),
        ("SELECT DISTINCT day FROM gauges", ["day"]),
        ("SELECT at FROM orders", []),
    ],
)
def test_watermarks_follow_their_columns_through_what_never_decreases(text, marked):
    for plan in (plan_of(text), optimize(plan_of(text), VIEW_RULES)):
        shown = plan.watermarks & frozenset(plan.visible)
        assert [plan.schema.names[column] for column in sorted(shown)] == marked


def test_properties_are_computed_once(monkeypatch):
    plan, calls = plan_of("SELECT region, max(amount) FROM orders WHERE id > 1 GROUP BY region"), []
    for kind in {type(node) for node in nodes(plan)}:
        monkeypatch.setattr(kind, "_derived", calls.append)
    for node in nodes(plan):
        assert node.schema is node.schema and node.properties is node.properties
        assert node.hidden == frozenset() and node.stream_key != () and not node.is_append_only
    assert not calls


def test_a_filter_shares_the_properties_of_its_input():
    scan = Scan(CATALOG.resolve("orders"))
    predicate = plan_of("SELECT id FROM orders WHERE amount > 1").input.predicate
    assert Filter(scan, predicate).properties is scan.properties
