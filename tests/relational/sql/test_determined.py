"""Columns that the groups of a SELECT determine: PostgreSQL's functional dependency on a primary key."""

import pytest

from relational.errors import BindError
from relational.plan.logical import Aggregate
from relational.plan.logical.node import nodes
from relational.sql import bind_sql
from tests.support.drivers.batch_session import BatchSession

TABLES = """CREATE TABLE o (id INT PRIMARY KEY, name VARCHAR, c INT);
CREATE TABLE l (oid INT, n INT, q INT, PRIMARY KEY (oid, n));
CREATE TABLE k (id INT, g INT);
INSERT INTO o VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30);
INSERT INTO l VALUES (1, 1, 5), (1, 2, 6), (2, 1, 7);"""


@pytest.fixture(scope="module")
def session():
    session = BatchSession()
    session.sql(TABLES)
    return session


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT o.id, o.name, sum(q) AS s FROM o JOIN l ON id = oid GROUP BY o.id", [(1, "a", 11), (2, "b", 7)]),
        ("SELECT o.*, count(n) AS s FROM o LEFT JOIN l ON id = oid GROUP BY o.id",
         [(1, "a", 10, 2), (2, "b", 20, 1), (3, None, 30, 0)]),
        ("SELECT id AS x, upper(name) AS u FROM o GROUP BY 1 HAVING c < 25", [(1, "A"), (2, "B")]),
        ("SELECT x.name, max(c) AS m FROM o AS x GROUP BY id ORDER BY c DESC LIMIT 1", [(None, 30)]),
        ("SELECT n, q + 1 AS r, count(*) AS s FROM l GROUP BY n, oid", [(1, 6, 1), (1, 8, 1), (2, 7, 1)]),
        ("SELECT name, n FROM l LEFT JOIN o ON id = oid + 2 GROUP BY id, n", [(None, 1), (None, 1), (None, 2)]),
    ],
)
def test_other_columns_of_a_table_that_is_grouped_by_its_key(session, query, expected):
    rows = [tuple(each.values()) for each in session.sql(query).to_pylist()]
    assert sorted(rows, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT oid, q FROM l GROUP BY oid",
        "SELECT id, g FROM k GROUP BY id",
        "SELECT l.q FROM o JOIN l ON id = oid GROUP BY o.id",
        "SELECT name FROM o JOIN l ON id = oid GROUP BY oid",
        "SELECT name FROM o GROUP BY id + 0",
        "SELECT name FROM o GROUP BY ROLLUP (id)",
        "SELECT name FROM (SELECT * FROM o) AS x GROUP BY id",
    ],
)
def test_columns_that_the_groups_do_not_determine(session, query):
    with pytest.raises(BindError, match="must stand in GROUP BY"):
        session.sql(query)


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("SELECT id, count(*) AS n FROM o GROUP BY id", 1),
        ("SELECT id, max(name) AS name FROM o GROUP BY id ORDER BY name", 1),
        ("SELECT id + c AS x, id, count(*) AS n FROM o GROUP BY id + c, id", 2),
        ("SELECT * EXCEPT (name) FROM o GROUP BY id", 2),
        ("SELECT name, name || 'x' AS y FROM o GROUP BY id, name", 2),
    ],
)
def test_only_columns_that_are_needed_become_groups(session, query, groups):
    (statement,) = bind_sql(query, session.catalog)
    (aggregate,) = (node for node in nodes(statement.plan) if isinstance(node, Aggregate))
    assert len(aggregate.group_by) == groups
