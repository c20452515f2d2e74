"""Drafts of views and sinks over unions, queries of WITH and sources."""

import pytest

from relational.catalog.objects import TableKind
from relational.plan.logical import Scan, nodes
from relational.plan.serialize import plan_from_text
from relational.plan.view import sink_of, view_of
from relational.sql import bind_sql
from relational.sql.statement import CreateSource
from tests.support.suites.sql_cases import case_catalog

CATALOG = case_catalog()
SOURCE = "CREATE SOURCE bid (auction BIGINT, price INT, channel VARCHAR) WITH (connector = 'arrow', path = '/bids')"


@pytest.fixture(scope="module")
def catalog():
    (source,) = bind_sql(SOURCE, CATALOG)
    assert isinstance(source, CreateSource)
    CATALOG.create(source.source)
    return CATALOG


def query_of(text, catalog):
    (statement,) = bind_sql(text, catalog)
    return statement.plan


def test_the_key_of_a_view_over_a_union_has_the_branch(catalog):
    query = query_of("SELECT region AS name, amount FROM orders UNION ALL SELECT w, v FROM plain", catalog)
    view, plan = view_of("both_names", query, "")
    assert [(column.name, column.is_hidden) for column in view.columns] == [
        ("name", False), ("amount", False), ("_branch", True), ("_id", True),
    ]
    assert view.pk_indices == view.stream_key == view.distribution_key == (2, 3) and not view.is_append_only
    assert view.dependencies == tuple(sorted(catalog.resolve(name).id for name in ("orders", "plain")))
    assert plan_from_text(view.plan, catalog.get) == plan
    assert plan.explain() == "\n".join(
        [
            "Union key [_branch, _id]",
            "  Project region AS name, amount, 0 AS _branch (hidden), id AS _id (hidden)",
            "    Scan orders (id, region, amount)",
            "  Project w AS name, CAST(v AS NUMERIC(38, 10)) AS amount, 1 AS _branch (hidden), _row_id AS _id (hidden)",
            "    Scan plain (v, w, _row_id)",
        ]
    )


def test_a_query_of_with_is_shared_in_a_view(catalog):
    text = """WITH n AS (SELECT region, max(amount) AS m FROM orders WHERE id > 1 GROUP BY region)
        SELECT region, m FROM n WHERE m > 5 UNION ALL SELECT upper(region), -m FROM n"""
    view, plan = view_of("twice", query_of(text, catalog), "")
    assert plan_from_text(view.plan, catalog.get) == plan
    assert plan.explain() == "\n".join(
        [
            "Union key [_branch, _region]",
            "  Project region, m, 0 AS _branch (hidden), region AS _region (hidden)",
            "    Filter (m > 5)",
            "      Share 0",
            "        Project region, max(amount) AS m",
            "          Aggregate [region] max(amount)",
            "            Filter (id > 1)",
            "              Scan orders (id, region, amount)",
            "  Project upper(region) AS region, negate(m) AS m, 1 AS _branch (hidden), region AS _region (hidden)",
            "    Share 0 (above)",
        ]
    )


def test_a_source_that_a_view_reads_twice_is_read_once(catalog):
    text = "SELECT auction AS n FROM bid WHERE price > 5 UNION ALL SELECT price FROM bid WHERE channel = 'x'"
    view, plan = view_of("both_sides", query_of(text, catalog), "")
    (scan,) = (node for node in nodes(plan) if isinstance(node, Scan))
    assert scan.table.kind is TableKind.SOURCE and scan.schema.names == ("auction", "price", "channel", "_row_id")
    assert view.is_append_only and [view.columns[at].name for at in view.stream_key] == ["_branch", "_row_id"]
    names = [catalog.resolve("bid").columns[column].name for _, column in view.reads]
    assert names == ["auction", "price", "channel", "_row_id"]


def test_a_sink_of_a_union_needs_no_key(catalog):
    text = "SELECT auction AS n FROM bid UNION ALL SELECT id FROM orders UNION ALL SELECT price FROM bid"
    sink, plan = sink_of("out", query_of(text, catalog), {"connector": "digest"}, "")
    assert plan.stream_key is None and plan.schema.names == ("n",) and not plan.hidden
    assert len([node for node in nodes(plan) if isinstance(node, Scan)]) == 2
    assert plan_from_text(sink.plan, catalog.get) == plan


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SINK k AS WITH a AS (SELECT id FROM orders) SELECT id FROM a WITH (connector = 'digest')",
        "CREATE SINK k WITH (connector = 'digest') AS WITH a AS (SELECT id FROM orders) SELECT id FROM a",
        "CREATE VIEW k AS WITH a AS (SELECT id FROM orders) SELECT id FROM a UNION SELECT v FROM plain",
    ],
)
def test_options_and_queries_of_with_are_told_apart(text, catalog):
    (statement,) = bind_sql(text, catalog)
    created = getattr(statement, "sink", None) or statement.view
    assert plan_from_text(created.plan, catalog.get).schema.names == ("id",)
