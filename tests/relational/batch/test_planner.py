"""Batch plans of SQL queries: cases/batch_plans.txt.

A case is `== title`, a query over the tables of binder_schema.sql, `->`, and the text of its plan.
Run with HUMMOCK_REWRITE=1 to rewrite the plans, then review the diff.
"""

import os

import pytest

from relational.batch import plan_query
from relational.batch.plan import BatchNode
from relational.batch.planner import _PLANNERS
from relational.batch.run import _RUNNERS
from relational.plan.logical import EmitOnWindowClose, LogicalPlan
from relational.sql import bind_sql
from tests.support.suites.node_kinds import kinds
from tests.support.suites.sql_cases import CASES as FOLDER
from tests.support.suites.sql_cases import case_catalog, read_titled_cases, write_titled_cases

PATH = FOLDER / "batch_plans.txt"
CASES = read_titled_cases(PATH)


def explained(statement):
    (bound,) = bind_sql(statement, case_catalog())
    return plan_query(bound.plan).explain()


@pytest.mark.parametrize(("title", "statement", "expected"), CASES, ids=[title for title, *_ in CASES])
def test_plan(title, statement, expected):
    if "HUMMOCK_REWRITE" in os.environ:
        pytest.skip("HUMMOCK_REWRITE is set")
    assert explained(statement) == expected


@pytest.mark.skipif("HUMMOCK_REWRITE" not in os.environ, reason="only to rewrite the cases")
def test_rewrite():
    write_titled_cases(PATH, [(title, statement, explained(statement)) for title, statement, _ in CASES])


def test_every_kind_of_node_is_planned_and_run():
    of_views = {EmitOnWindowClose}
    assert {kind.__name__ for kind in _PLANNERS} == {kind.__name__ for kind in kinds(LogicalPlan) - of_views}
    assert {kind.__name__ for kind in _RUNNERS} == {kind.__name__ for kind in kinds(BatchNode)}
