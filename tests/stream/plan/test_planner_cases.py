"""Stream plans of SQL statements: cases/planner.txt.

A case is `== title`, a CREATE statement over the tables of binder_schema.sql, `->`, and the text of its plan.
Run with HUMMOCK_REWRITE=1 to rewrite the plans, then review the diff.
"""

import itertools
import os
from pathlib import Path

import pytest

from relational.sql import bind_sql
from relational.sql.statement import CreateSink, CreateTable
from stream.plan.planner import plan_query, plan_table
from tests.support.suites.sql_cases import case_catalog, read_titled_cases, write_titled_cases

PATH = Path(__file__).parents[2] / "cases" / "planner.txt"
CASES = read_titled_cases(PATH)


def explained(statement):
    """The stream plan's text; internal tables are numbered from 100, the job itself is table 50."""
    (bound,) = bind_sql(statement, case_catalog())
    ids = itertools.count(100)
    if isinstance(bound, CreateTable):
        return plan_table(bound.table.with_id(50), lambda name: next(ids)).explain()
    job = bound.sink if isinstance(bound, CreateSink) else bound.view
    return plan_query(job.with_id(50), bound.plan, lambda name: next(ids)).explain()


@pytest.mark.parametrize(("title", "statement", "expected"), CASES, ids=[title for title, *_ in CASES])
def test_plan(title, statement, expected):
    if "HUMMOCK_REWRITE" in os.environ:
        pytest.skip("HUMMOCK_REWRITE is set")
    assert explained(statement) == expected


@pytest.mark.skipif("HUMMOCK_REWRITE" not in os.environ, reason="only to rewrite the cases")
def test_rewrite():
    write_titled_cases(PATH, [(title, statement, explained(statement)) for title, statement, _ in CASES])
