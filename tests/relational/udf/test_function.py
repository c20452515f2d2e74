"""Functions as values: their records, and how they are found in stored plans."""

import json

import pytest

from relational.types import DataType, Field
from relational.udf.function import RECORD, FunctionKind, UserFunction, Volatility, stored_functions

BIGINT, VARCHAR = DataType.BIGINT, DataType.VARCHAR
FUNCTIONS = [
    UserFunction("f", (), BIGINT, "def f(rows): ...", "f"),
    UserFunction("g", (Field("a", BIGINT), Field("", DataType.parse("numeric(9, 2)[]"))), VARCHAR, "é\n'$$", "main",
                 FunctionKind.AGGREGATE, Volatility.IMMUTABLE, True, True, id=7, version=3),
    UserFunction("h", (Field("a", BIGINT),), DataType.struct([Field("x", BIGINT), Field("y z", VARCHAR)]), "", "h",
                 FunctionKind.TABLE, Volatility.STABLE, id=8, version=1),
    UserFunction("i", (), VARCHAR, "", "i", FunctionKind.TABLE, column="x"),
    UserFunction("j", (), VARCHAR, "", "j", FunctionKind.TABLE),
    UserFunction("k", (Field("a", BIGINT),), BIGINT, "", "k", FunctionKind.AGGREGATE, state=DataType.list_of(BIGINT),
                 retracts=True),
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.name)
def test_a_record_restores_an_equal_function(function):
    assert UserFunction.from_json(json.loads(json.dumps(function.to_json()))) == function


def test_what_is_shown_of_a_function():
    assert [each.signature for each in FUNCTIONS] == [
        "()", "(a BIGINT, NUMERIC(9, 2)[])", "(a BIGINT)", "()", "()", "(a BIGINT)"]
    assert [each.result for each in FUNCTIONS] == [
        "BIGINT", "VARCHAR", "TABLE (x BIGINT, y z VARCHAR)", "TABLE (x VARCHAR)", "SETOF VARCHAR", "BIGINT"]
    assert [str(each.call_type) for each in FUNCTIONS[2:4]] == ['STRUCT<x BIGINT, "y z" VARCHAR>[]', "VARCHAR[]"]
    assert [each.is_volatile for each in FUNCTIONS[:3]] == [True, False, False]


def test_functions_are_found_wherever_they_are_in_a_plan():
    inner = {"node": "x", RECORD: FUNCTIONS[1].to_json(), "args": [[{"a": {RECORD: FUNCTIONS[2].to_json()}}]]}
    assert stored_functions({"root": [inner, {"deep": [inner]}]}) == {7: "g", 8: "h"}
    assert stored_functions({"root": [1, "user_function", None]}) == {}


@pytest.mark.parametrize("record", [None, 3, [], {}, {"id": "7"}, {"name": ["x"]}])
def test_a_record_that_is_none_is_a_function_too(record):
    """A plan cannot hide a function behind one that cannot be read."""
    assert list(stored_functions([{RECORD: record, "args": [{RECORD: FUNCTIONS[1].to_json()}]}])) == [-1, 7]
