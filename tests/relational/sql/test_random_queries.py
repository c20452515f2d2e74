"""Random queries with aliases, derived tables, WITH and UNION: DuckDB is the oracle; their views have keys.

HUMMOCK_RANDOM_QUERIES is the number of queries of each test; a failure shows seed and text.
"""

import itertools
import os
import random
from collections.abc import Sequence

import duckdb
import pytest

from relational.batch import run_query
from relational.catalog.names import ObjectName
from relational.plan.logical import Join, Scan, Share, Union, nodes, only
from relational.plan.optimizer import PLAIN_VIEW_RULES, VIEW_RULES, optimize
from relational.plan.serialize import plan_from_text, plan_to_text
from relational.sql import bind_sql
from relational.types.ordering import SortKey
from tests.support.drivers.batch_session import BatchSession
from tests.support.drivers.plan_interpreter import TooManyPairs, interpret, visible
from tests.support.drivers.query_chunks import query_chunks
from tests.support.drivers.random_queries import TABLES, QueryMaker, rows
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import assert_same_rows, oracle, rows_of

QUERIES = int(os.environ.get("HUMMOCK_RANDOM_QUERIES", "16"))
ROWS = 14
pytestmark = pytest.mark.timeout(300 + QUERIES)


@pytest.fixture(scope="module")
def session():
    session, rng = BatchSession(), random.Random(run_seed())
    for name, (statement, _, _) in TABLES.items():
        session.sql(statement)
        session.table(name).insert(rows(rng, name, ROWS))
    return session


class Duck:
    """DuckDB over the rows of a session."""

    def __init__(self, session):
        self._session, self.failures = session, 0
        self._begin()

    def _begin(self):
        self._connection = oracle()
        for name in TABLES:
            self._connection.register("rows_", self._session.sql(f"SELECT * FROM {name}"))
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_")

    def rows(self, text):
        """The rows of a query; None after an internal error of DuckDB, which ends its database."""
        try:
            return rows_of(self._connection.sql(text).to_arrow_table())
        except duckdb.InternalException:
            self.failures += 1
            self._begin()
            return None


def bound(text, session):
    (statement,) = bind_sql(text, session.catalog)
    return statement.plan


def test_a_query_agrees_with_duckdb(session):
    duck = Duck(session)
    maker, counted, large = QueryMaker(run_seed(), has_joins=True), {Union: 0, Share: 0, Join: 0}, 0
    tables = {
        session.catalog.resolve(ObjectName.parse(name)).id: interpreted(session, name) for name in TABLES
    }
    for number in range(QUERIES):
        text = maker.query()
        try:
            plan = bound(text, session)
            interpreted_rows = visible(plan, interpret(plan, tables))
            ours = rows_of(run_query(plan, session.store, session.epoch))
            theirs = duck.rows(text)
            is_ordered = " ORDER BY " in text.rpartition(")")[2]
            if theirs is not None:
                assert_same_rows(ours, theirs, ordered=is_ordered)
            if not is_ordered:
                assert_same_rows(ours, interpreted_rows, ordered=False)
            for node in nodes(optimize(plan)):
                check_properties(node, session)
            stored = plan_from_text(plan_to_text(optimize(plan, PLAIN_VIEW_RULES)), session.catalog.get)
            assert_same_rows(rows_of(run_query(stored, session.store, session.epoch)), ours, ordered=is_ordered)
        except TooManyPairs:
            large += 1  # some have so many rows that no engine ends in minutes
        except Exception as error:
            raise AssertionError(f"seed {run_seed()}, query {number}: {text}") from error
        for kind in counted:
            counted[kind] += any(isinstance(node, kind) for node in nodes(plan))
    assert min(counted.values()) > QUERIES // 10, counted
    assert large <= QUERIES // 2
    assert duck.failures <= QUERIES // 20


def interpreted(session, name):
    """The rows of a table for the interpreter, with hidden columns."""
    scan = Scan(session.catalog.resolve(ObjectName.parse(name)))
    return [row for chunk in query_chunks(scan, session.store, session.epoch) for row in chunk.rows()]


def test_the_rows_of_a_view_have_distinct_keys(session):
    maker = QueryMaker(f"{run_seed()} views", is_view=True)
    for number in range(QUERIES):
        text = maker.query()
        try:
            plan = bound(text, session)
            view = optimize(plan, VIEW_RULES)
            assert plan_from_text(plan_to_text(view), session.catalog.get).explain() == view.explain()
            assert view.visible == tuple(range(len(plan.visible))) and view.stream_key is not None
            assert_same_rows(
                rows_of(run_query(only(view, view.visible), session.store, session.epoch)),
                rows_of(run_query(plan, session.store, session.epoch)),
                ordered=False,
            )
            for node in nodes(view):
                check_properties(node, session)
        except Exception as error:
            raise AssertionError(f"seed {run_seed()}, query {number}: {text}") from error


def check_properties(node, session) -> None:
    """What a plan says of its rows is so."""
    known = node.properties
    found = [row for chunk in query_chunks(node, session.store, session.epoch) for row in chunk.rows()]
    for key in (*known.unique_keys, *([] if known.stream_key is None else [known.stream_key])):
        assert len({tuple(repr(row[column]) for column in key) for row in found}) == len(found), (key, node.explain())
    for column in known.constants:
        assert len({repr(row[column]) for row in found}) <= 1, (column, node.explain())
    for above, below in itertools.pairwise(found):
        assert not any(is_misplaced(above, below, known.order, at) for at in range(len(known.order))), node.explain()


def is_misplaced(above: tuple, below: tuple, order: Sequence[SortKey], at: int) -> bool:
    """Whether two rows, equal in the sort keys before number `at`, are in the wrong order by that key."""
    if any(above[key.column] != below[key.column] for key in order[:at]):
        return False
    (first, second), kind = (row[order[at].column] for row in (above, below)), order[at].order
    if first is None or second is None:
        return (second is None) == kind.nulls_first and first is not second
    return first < second if kind.descending else first > second
