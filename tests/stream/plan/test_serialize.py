"""Stored stream plans: each plan of cases/planner.txt is restored equal; damaged and newer ones are refused."""

import itertools
import json
from dataclasses import replace

import pytest

from hummock.errors import FormatTooNew
from relational.errors import CatalogError
from relational.sql import bind_sql
from relational.sql.statement import CreateSink
from stream.plan.planner import plan_query
from stream.plan.serialize import (
    FIRST_VERSION,
    FORMAT_VERSION,
    FUNCTIONS_VERSION,
    JOINS_VERSION,
    OVERFLOWS_VERSION,
    PARTIAL_VERSION,
    TOP_N_VERSION,
    WINDOWS_VERSION,
    stream_plan_from_text,
    stream_plan_to_text,
)
from stream.plan.stream_plan import PartialAggNode
from tests.stream.plan.test_planner_cases import CASES
from tests.support.suites.sql_cases import case_catalog

QUERIES = [(title, statement) for title, statement, _ in CASES if not statement.startswith("CREATE TABLE")]


def planned(statement, true_settings=("enable_two_phase_agg",)):
    (bound,) = bind_sql(statement, case_catalog(), is_set=true_settings.__contains__)
    ids = itertools.count(100)
    job = bound.sink if isinstance(bound, CreateSink) else bound.view
    plan = plan_query(job.with_id(50), bound.plan, lambda name: next(ids))
    tables = {table.id: table for table in (*plan.state_tables, plan.root.table)}
    tables |= {scan.table.id: scan.table for scan in plan.scans}
    tables |= {each.table.id: each.table for each in plan.sources}
    return plan, tables


@pytest.mark.parametrize(("title", "statement"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_stored_plan_is_the_plan(title, statement):
    plan, tables = planned(statement)
    assert stream_plan_from_text(stream_plan_to_text(plan), tables.__getitem__) == plan


def test_columns_are_stored_by_id():
    plan, tables = planned(QUERIES[0][1])
    text = stream_plan_to_text(plan)
    (scan,) = plan.scans
    moved = replace(scan.table, columns=scan.table.columns[::-1])
    (again,) = stream_plan_from_text(text, {**tables, moved.id: moved}.__getitem__).scans
    last = len(moved.columns) - 1
    assert again.columns == tuple(last - column for column in scan.columns)


def test_a_plan_over_a_dropped_column_is_refused():
    plan, tables = planned(QUERIES[0][1])
    (scan,) = plan.scans
    less = replace(scan.table, columns=tuple(
        each for at, each in enumerate(scan.table.columns) if at != scan.columns[0]))
    with pytest.raises(CatalogError, match="was dropped"):
        stream_plan_from_text(stream_plan_to_text(plan), {**tables, less.id: less}.__getitem__)


@pytest.mark.parametrize(("query", "version"), [
    ("SELECT region, count(id) AS n FROM orders GROUP BY region", FIRST_VERSION),
    ("SELECT region, max(DISTINCT id) AS n FROM orders GROUP BY region", OVERFLOWS_VERSION),
    ("SELECT region, count(DISTINCT id) AS n FROM orders GROUP BY region", FORMAT_VERSION),
    ("SELECT id, count(DISTINCT region) AS n FROM orders GROUP BY id", TOP_N_VERSION),
    ("SELECT region, bit_or(id) AS n FROM orders GROUP BY region", WINDOWS_VERSION),
    ("SELECT region, count(*) AS n FROM orders GROUP BY ROLLUP (region)", WINDOWS_VERSION),
    ("SELECT region, generate_series(1, id) AS n FROM orders", WINDOWS_VERSION),
    ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders", WINDOWS_VERSION),
    ("SELECT x.id FROM orders AS x JOIN orders AS y ON x.at = y.at", JOINS_VERSION),
    ("SELECT x.n FROM clicks AS x JOIN clicks AS y ON x.n = y.n AND x.at > y.at + INTERVAL '1 month'", JOINS_VERSION),
    ("SELECT x.n FROM clicks AS x JOIN clicks AS y ON x.at = y.at", FUNCTIONS_VERSION),
    ("SELECT x.n FROM clicks AS x JOIN clicks AS y ON x.n = y.n AND x.at > y.at", FUNCTIONS_VERSION)])
def test_a_plan_is_written_as_early_releases_read_it(query, version):
    plan, tables = planned(f"CREATE MATERIALIZED VIEW m AS {query}", ())
    text = stream_plan_to_text(plan)
    assert json.loads(text)["version"] == version
    assert stream_plan_from_text(text, tables.__getitem__) == plan


@pytest.mark.parametrize("true_settings", [(), ("enable_two_phase_agg",),
                                           ("enable_two_phase_agg", "force_two_phase_agg"), ("force_two_phase_agg",)])
@pytest.mark.parametrize(("calls", "adds_up"), [
    ("count(*), sum(id), max(id) FILTER (WHERE id > 3)", True), ("sum(id::double precision)", False),
    ("count(DISTINCT id)", False), ("array_agg(id)", False)])
def test_a_stored_plan_has_the_partial_aggregation_of_its_session(true_settings, calls, adds_up):
    query = f'SELECT msg, {calls} FROM (SELECT "Id" AS id, msg FROM log) GROUP BY msg'
    plan, tables = planned(f"CREATE MATERIALIZED VIEW m AS {query}", true_settings)
    text = stream_plan_to_text(plan)
    found = [node.is_forced for node in plan.root.walk() if isinstance(node, PartialAggNode)]
    is_planned = adds_up and "enable_two_phase_agg" in true_settings
    assert found == (["force_two_phase_agg" in true_settings] if is_planned else [])
    assert (json.loads(text)["version"] == PARTIAL_VERSION) == is_planned
    assert stream_plan_from_text(text, tables.__getitem__) == plan


def test_a_newer_format_is_refused():
    plan, tables = planned(QUERIES[0][1])
    record = json.loads(stream_plan_to_text(plan)) | {"version": FORMAT_VERSION + 1}
    with pytest.raises(FormatTooNew):
        stream_plan_from_text(json.dumps(record), tables.__getitem__)
