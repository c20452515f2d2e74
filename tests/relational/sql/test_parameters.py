"""Marks of parameters in a text, and Python values that are more than one SQL value."""

from datetime import date
from decimal import Decimal

import pytest

from relational.batch import run_query
from relational.errors import BindError
from relational.expr.parameters import parameter
from relational.sql import bind_sql
from relational.sql.parameters import Parameters
from relational.types import DataType
from tests.support.drivers.batch_session import BatchSession
from tests.support.suites.sql_cases import case_catalog


def row_of(text, *given):
    """The only row of a query whose parameters are constants, and of one whose parameters are none."""
    session = BatchSession()
    session.sql("CREATE TABLE t (id INT PRIMARY KEY, l INT[], j JSONB)")
    session.sql("INSERT INTO t VALUES (7, '{1,2}', '{\"k\": [1]}')")
    found = []
    for is_by_value in (True, False):
        parameters = Parameters(given, is_by_value=is_by_value)
        (statement,) = bind_sql(text, session.catalog, parameters=parameters)
        parameters.finish()
        values = [parameter(None), *(parameter(each) for each in given)]
        rows = run_query(statement.plan, session.store, session.epoch, values=values)
        found.append(list(zip(*(column.to_pylist() for column in rows.columns), strict=True)))
    assert found[0] == found[1], text
    (row,) = found[0]
    return row


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("SELECT $1,$2", (1, 2), (1, 2)),
        ("SELECT $1::text||$2", (1, "b"), ("1b",)),
        ("SELECT $1+$2,$2-$1", (1, 3), (4, 2)),
        ("SELECT 5 IN ($1,$2)", (5, 6), (True,)),
        ("SELECT * FROM (VALUES ($1,$2)) AS v(a,b)", (1, "x"), (1, "x")),
        ("SELECT $1,$$a$1$$,$t$ it's $2 $t$", (1,), (1, "a$1", " it's $2 ")),
    ],
)
def test_a_number_after_a_dollar_sign_begins_no_quoted_text(text, given, expected):
    assert row_of(text, *given) == expected


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("SELECT count(*) FROM t WHERE id = ANY($1)", [1, 7], 1),
        ("SELECT count(*) FROM t WHERE id = ANY($1)", [], 0),
        ("SELECT count(*) FROM t WHERE id = ANY($1)", [None], 0),
        ("SELECT count(*) FROM t WHERE id <> ALL($1)", [8, 1 << 40], 1),
        ("SELECT count(*) FROM t WHERE l = $1", [1, 2], 1),
        ("SELECT count(*) FROM t WHERE j @> $1", {"k": [1]}, 1),
        ("SELECT array_length($1, 1)", ["a", None, "b"], 3),
        ("SELECT $1", [Decimal("1.50"), 2], [Decimal("1.50"), Decimal("2.00")]),
    ],
)
def test_a_list_is_an_array_and_a_dict_is_json(text, given, expected):
    assert row_of(text, given) == (expected,)


@pytest.mark.parametrize(("given", "expected"), [(None, [1, 2]), ("{3}", [1, 2, 3]), ([3], [1, 2, 3])])
def test_a_text_and_null_adopt_the_type_of_a_list(given, expected):
    assert row_of("SELECT ARRAY[1, 2] || $1", given) == (expected,)


def test_a_list_has_the_type_that_its_elements_have_in_common():
    assert parameter([1, None, 1 << 40]).data_type == DataType.list_of(DataType.BIGINT)
    assert parameter([date(2024, 1, 1)]).data_type == DataType.list_of(DataType.DATE)
    assert (parameter([]).value, parameter([None]).value) == ("{}", "{NULL}")
    assert parameter({"b": 1, "a": [None]}).data_type == DataType.JSONB


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, "x"], "a list of INT and VARCHAR is no SQL value"),
        ([[1], [2]], "a list of INT\\[\\] is no SQL value"),
        ({"a": object()}, "json.dumps"),
        ({"a": float("nan")}, "json.dumps"),
        ("\ud800", "a character that Unicode has not"),
        (["a", "\udfff"], "a character that Unicode has not"),
    ],
)
def test_a_value_that_is_none_of_sql_is_refused(value, message):
    with pytest.raises(BindError, match=message):
        parameter(value)
    with pytest.raises(BindError, match=r"^\$1: "):
        list(bind_sql("SELECT 1 WHERE 'x' = $1", case_catalog(), parameters=Parameters([value])))
