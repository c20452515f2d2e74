"""JOIN … USING and NATURAL JOIN: which columns the result has, in PostgreSQL's order, and what their names mean."""

import pytest

from relational.sql import bind_sql
from tests.support.suites.sql_cases import catalog_of

TABLES = """CREATE TABLE a (id INT PRIMARY KEY, k INT, x INT);
CREATE TABLE b (id INT PRIMARY KEY, k INT, y INT);
CREATE TABLE c (k BIGINT PRIMARY KEY, z INT)"""


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM a JOIN b USING (k)", ["k", "id", "x", "id", "y"]),
        ("SELECT * FROM a RIGHT JOIN b USING (k, id)", ["k", "id", "x", "y"]),
        ("SELECT * FROM a NATURAL JOIN b", ["id", "k", "x", "y"]),
        ("SELECT a.*, b.* FROM a NATURAL FULL JOIN b", ["id", "k", "x", "id", "k", "y"]),
        ("SELECT * FROM a JOIN b USING (k) LEFT JOIN c USING (k)", ["k", "id", "x", "id", "y", "z"]),
        ("SELECT * FROM c NATURAL JOIN (SELECT x FROM a) AS d", ["k", "z", "x"]),
        ("SELECT * FROM c LEFT JOIN (a JOIN b USING (id)) ON c.k = a.k", ["k", "z", "id", "k", "x", "k", "y"]),
    ],
)
def test_the_columns_of_the_result(query, names):
    (bound,) = bind_sql(query, catalog_of(TABLES))
    assert [bound.plan.schema.names[column] for column in bound.plan.visible] == names


def test_columns_of_two_types_are_compared_and_merged_in_the_wider_one():
    (bound,) = bind_sql("SELECT k FROM a JOIN c USING (k)", catalog_of(TABLES))
    assert str(bound.plan.schema.types[0]) == "BIGINT"
