"""Plans as text: texts of each format stay readable; a shared input is written once."""

import json

import pytest

from hummock.errors import FormatTooNew
from relational.plan.logical import ColumnValues, EmitOnWindowClose, ExternalScan, LogicalPlan, Share, Union, nodes
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.plan.rules.rank_to_top_n import rank_to_top_n
from relational.plan.serialize import plan_from_text, plan_to_text, plan_with_table_ids
from relational.sql import bind_sql
from tests.support.suites.node_kinds import kinds
from tests.support.suites.sql_cases import case_catalog

FIRST = (
    '{"root": {"calls": [{"argument": 1, "distinct": false, "filter": {"args": [{"index": 0, "node": "column", "type": '
    '"BIGINT"}, {"node": "literal", "type": "BIGINT", "value": 3}], "function": "greater", "node": "call", "type": '
    '"BOOLEAN"}, "kind": "sum", "type": "NUMERIC(38, 10)"}], "group_by": [2], "input": {"columns": [0, 2, 1], "node": '
    '"scan", "table": 1}, "names": ["total"], "node": "aggregate"}, "version": 1}'
)
"""Written by a release that knew format 1 alone."""
SECOND = (
    '{"root": {"branches": [{"concealed": [1], "expressions": [{"index": 0, "node": "column", "type": "VARCHAR"}, '
    '{"node": "literal", "type": "INT", "value": 0}], "input": {"node": "share", "place": 0}, "names": ["region", '
    '"_branch"], "node": "project"}, {"concealed": [1], "expressions": [{"index": 0, "node": "column", "type": '
    '"VARCHAR"}, {"node": "literal", "type": "INT", "value": 1}], "input": {"node": "share", "place": 0}, "names": '
    '["region", "_branch"], "node": "project"}], "key": [1, 0], "node": "union"}, "shared": [{"calls": [], "group_by": '
    '[0], "input": {"columns": [1], "node": "scan", "table": 1}, "names": [], "node": "aggregate"}], "version": 2}'
)


FOURTH = (
    '{"root": {"groups": [2], "input": {"columns": [0, 2, 1], "node": "scan", "table": 1}, "keys": [[0, true, true]], '
    '"kinds": ["rank", "row_number"], "names": ["rank", "n"], "node": "rank"}, "shared": [], "version": 4}'
)
"""Written by a release whose only window functions were numbers."""


@pytest.fixture(scope="module")
def catalog():
    return case_catalog()


def plan_of(text, catalog, rules=VIEW_RULES) -> LogicalPlan:
    (statement,) = bind_sql(text, catalog)
    return optimize(statement.plan, rules)


def test_a_text_of_the_first_format_is_read_and_written_as_it_was(catalog):
    plan = plan_from_text(FIRST, catalog.get)
    assert plan.explain() == (
        "Aggregate [region] sum(amount) FILTER (WHERE (id > 3))\n  Scan orders (id, amount, region)"
    )
    assert plan_to_text(plan) == FIRST


def test_a_text_of_the_second_format_is_read_and_written_as_it_was(catalog):
    plan = plan_from_text(SECOND, catalog.get)
    assert plan.explain() == "\n".join(
        [
            "Union key [_branch, region]",
            "  Project region, 0 AS _branch (hidden)",
            "    Share 0",
            "      Aggregate [region]",
            "        Scan orders (region)",
            "  Project region, 1 AS _branch (hidden)",
            "    Share 0 (above)",
        ]
    )
    first, second = (branch.inputs[0] for branch in plan.inputs)
    assert first is second
    assert plan_to_text(plan) == SECOND


def test_numbers_of_the_fourth_format_are_window_functions(catalog):
    plan = plan_from_text(FOURTH, catalog.get)
    numbers = "OverWindow rank, row_number AS n of [region] by [id DESC NULLS FIRST]"
    assert plan.explain() == f"{numbers}\n  Scan orders (id, amount, region)"
    assert json.loads(plan_to_text(plan))["version"] == 5
    assert plan_from_text(plan_to_text(plan), catalog.get) == plan


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("SELECT region, max(amount) FROM orders WHERE id > 1 GROUP BY region", 1),
        ("WITH a AS (SELECT id FROM orders) SELECT id FROM a", 1),
        ("SELECT id FROM orders UNION ALL SELECT a FROM pairs", 2),
        ("SELECT id FROM orders JOIN pairs ON id = a", 3),
        ("SELECT id FROM orders WHERE id IN (SELECT a FROM pairs)", 4),
        ("SELECT id, generate_series(1, id) FROM orders", 5),
        ("WITH a AS (SELECT region FROM orders) SELECT region FROM a UNION SELECT upper(region) FROM a", 2),
    ],
)
def test_only_plans_with_new_nodes_have_the_new_format(text, version, catalog):
    plan = plan_of(text, catalog)
    written = plan_to_text(plan)
    assert json.loads(written)["version"] == version
    assert plan_from_text(written, catalog.get) == plan


def test_a_shared_input_is_written_once(catalog):
    text = "WITH a0 AS (SELECT v, w FROM plain)" + "".join(
        f", a{level} AS (SELECT v, w FROM a{level - 1} UNION ALL SELECT v, w FROM a{level - 1})"
        for level in range(1, 41)
    )
    plan = plan_of(f"{text} SELECT count(*) FROM a40", catalog)
    written = plan_to_text(plan)
    assert len(json.loads(written)["shared"]) == len(plan.properties.shares) == 40
    again = plan_from_text(written, catalog.get)
    assert again.explain() == plan.explain() and plan_to_text(again) == written
    assert len([node for node in nodes(again) if isinstance(node, Share)]) == 40


def test_other_tables_are_put_into_shared_inputs_too(catalog):
    plan = plan_of("WITH a AS (SELECT region FROM orders) SELECT region FROM a UNION SELECT w FROM plain", catalog)
    orders, plain = (catalog.resolve(name).id for name in ("orders", "plain"))
    text = plan_with_table_ids(plan_to_text(plan), {orders: 77, plain: 78})
    asked = []
    plan_from_text(text, lambda number: asked.append(number) or catalog.resolve("orders" if number == 77 else "plain"))
    assert sorted(asked) == [77, 78]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 0}, ValueError, "format 0 of the plan of a view"),
        ({"version": 7}, FormatTooNew, "format 7, this one reads up to 6"),
        ({"root": {"node": "teleport", "input": {"node": "scan", "table": 1, "columns": [0]}}}, ValueError, "teleport"),
        ({"root": {"node": "share", "place": 1}}, ValueError, "no shared input 1"),
        ({"root": {"node": "share", "place": -1}}, ValueError, "no shared input -1"),
        ({"shared": [{"node": "share", "place": 0}]}, ValueError, "no shared input 0"),
    ],
)
def test_a_plan_that_is_not_understood_is_refused(change, error, message, catalog):
    with pytest.raises(error, match=message):
        plan_from_text(json.dumps(json.loads(SECOND) | change), catalog.get)


UNWRITTEN = {ColumnValues, ExternalScan}
"""Kinds of nodes that no view has."""
EXAMPLES = (
    "SELECT region, count(*) FROM orders WHERE id > 1 GROUP BY region ORDER BY 2 LIMIT 3",
    "WITH a AS (VALUES (1), (2)) SELECT * FROM a UNION ALL SELECT * FROM a",
    "SELECT region FROM orders LEFT JOIN pairs ON id = a, plain",
    "SELECT region FROM orders WHERE id IN (SELECT a FROM pairs)",
    "SELECT rank() OVER (PARTITION BY region ORDER BY id DESC) FROM orders",
    "SELECT sum(id) FILTER (WHERE id > 2) OVER (ORDER BY id GROUPS 1 PRECEDING), lag(region, 2, 'x') OVER (ORDER BY"
    " id), ntile(3) OVER (), max(at) OVER (ORDER BY at RANGE BETWEEN '1 hour' PRECEDING AND '1 day' FOLLOWING)"
    " FROM orders",
    "SELECT region, string_agg(DISTINCT region, ',' ORDER BY region DESC), corr(id, amount) FROM orders GROUP BY "
    "CUBE (region, id)",
    "SELECT percentile_cont(ARRAY[0.5, NULL]) WITHIN GROUP (ORDER BY id) FILTER (WHERE id > 1) FROM orders",
    "SELECT * FROM (SELECT rank() OVER (ORDER BY id DESC) AS n FROM orders) WHERE n BETWEEN 2 AND 4",
    "WITH RECURSIVE r(n) AS (SELECT a FROM pairs UNION SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r",
    "SELECT id, g FROM orders LEFT JOIN generate_series(1, id) AS g ON TRUE",
)


def test_every_kind_of_node_is_written_or_refused_by_name(catalog):
    seen = set()
    for text in EXAMPLES:
        plan = plan_of(text, catalog, ())
        assert plan_from_text(plan_to_text(plan), catalog.get) == plan
        seen |= {type(node) for node in nodes(plan)}
        for changed in (rank_to_top_n(plan), EmitOnWindowClose(plan, 0)):
            assert plan_from_text(plan_to_text(changed), catalog.get) == changed
            seen |= {type(node) for node in nodes(changed)}
    assert {kind.__name__ for kind in kinds(LogicalPlan) - UNWRITTEN} == {kind.__name__ for kind in seen}
    assert Union in seen and Share in seen
    (insert,) = bind_sql("INSERT INTO plain VALUES (1, 'a')", catalog)
    with pytest.raises(ValueError, match="ColumnValues is not part of a view's plan"):
        plan_to_text(insert.query)
