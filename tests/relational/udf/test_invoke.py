"""What handlers are given and what they may answer with."""

import random

import numpy as np
import polars
import pyarrow as pa
import pytest

from relational.chunk import DataChunk
from relational.errors import InvalidValue
from relational.types import DataType, Field, Schema
from relational.udf.function import FunctionKind, UserFunction
from relational.udf.invoke import WrongAnswer, group_results, plain_type, scalar_results, table_results
from tests.relational.random_rows import ALL, random_value
from tests.support.drivers.seeds import run_seed

BIGINT, VARCHAR = DataType.BIGINT, DataType.VARCHAR
PAIR = DataType.struct([Field("n", BIGINT), Field("t", VARCHAR)])


def function(source, types, returns, kind=FunctionKind.SCALAR, **options):
    return UserFunction("f", tuple(Field("", each) for each in types), returns, source, "f", kind, **options)


def column(data_type, values):
    return DataChunk.from_rows(Schema([Field("c", data_type)]), [(value,) for value in values]).columns[0].array


def same_as(found, wanted):
    """Also where NaN is."""
    return found.type == wanted.type and repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize("data_type", ALL, ids=str)
@pytest.mark.parametrize("is_row_wise", [False, True])
def test_values_of_every_type_come_back(data_type, is_row_wise):
    rng = random.Random(run_seed())
    array = column(data_type, [*(random_value(rng, data_type) for _ in range(40)), None])
    if is_row_wise and data_type.fields:
        array = array.slice(0, 40)  # a row of a table function is not NULL
    same = function("def f(a): return a", [data_type], data_type, is_row_wise=is_row_wise)
    rows = len(array)
    answer = scalar_results(same, [array], rows)
    assert same_as(answer, array)
    listed = function("def f(a): return [a]" if is_row_wise else "def f(a): return list(range(len(a))), a",
                      [data_type], data_type, FunctionKind.TABLE, is_row_wise=is_row_wise)
    if not is_row_wise:
        listed = function("import numpy\ndef f(a): return numpy.arange(len(a)), a", [data_type], data_type,
                          FunctionKind.TABLE)
    owners, results = table_results(listed, [array], rows)
    assert owners.tolist() == list(range(rows)) and same_as(results, array)
    first = "def f(a): return a[0]" if is_row_wise else "def f(offsets, a): return a.take(offsets[:-1])"
    grouped = function(first, [data_type], data_type, FunctionKind.AGGREGATE, is_row_wise=is_row_wise)
    found = group_results(grouped, [array], np.array([0, 1, 39, rows]))
    assert same_as(found, array.take(pa.array([0, 1, 39])))


def test_a_handler_sees_no_types_of_this_package():
    jsonb = DataType.JSONB
    seen = function("import pyarrow as pa\ndef f(a): return pa.array([str(a.type)] * len(a))", [jsonb], VARCHAR)
    assert scalar_results(seen, [column(jsonb, ['{"a":1}'])], 1).to_pylist() == ["string"]
    nested = DataType.list_of(DataType.struct([Field("x", jsonb), Field("y", DataType.INT)]))
    assert str(plain_type(nested)) == "list<item: struct<x: string, y: int32>>"
    seen = function("import pyarrow as pa\ndef f(a): return pa.array([str(a.type)] * len(a))", [nested], VARCHAR)
    array = column(nested, [[{"x": "[]", "y": 1}]])
    assert scalar_results(seen, [array], 1).to_pylist() == ["list<item: struct<x: string, y: int32>>"]


@pytest.mark.parametrize("answer", [
    "pa.array([1, 2], pa.int32())",
    "pa.chunked_array([[1], [2]])",
    "np.array([1, 2])",
    "pa.array([1, 2]).dictionary_encode()",
    "pl.Series([1, 2])",
    "pa.array([1, 2], pa.decimal128(5, 0))",
])  # fmt: skip
def test_an_answer_may_be_any_arrow_array_of_the_values(answer):
    assert polars.__version__
    source = f"import numpy as np, polars as pl, pyarrow as pa\ndef f(a): return {answer}"
    found = scalar_results(function(source, [BIGINT], BIGINT), [pa.array([0, 0])], 2)
    assert found.equals(pa.array([1, 2]))


def test_nothing_but_nulls_has_any_type():
    source = "import pyarrow as pa\ndef f(a): return pa.nulls(len(a))"
    assert scalar_results(function(source, [BIGINT], PAIR), [pa.array([0])], 1).equals(pa.nulls(1, PAIR.arrow))


def test_a_value_that_the_type_cannot_represent_is_named():
    with pytest.raises(InvalidValue, match="row 1"):
        scalar_results(function("def f(a): return a", [BIGINT], DataType.INT), [pa.array([1, 1 << 40])], 2)
    with pytest.raises(WrongAnswer, match="bool is not BIGINT"):
        scalar_results(function("def f(a): return a.is_null()", [BIGINT], BIGINT), [pa.array([1])], 1)
    with pytest.raises(WrongAnswer, match=r"an Arrow array is expected, it answered with a builtins\.list of 1"):
        scalar_results(function("def f(a): return [1]", [BIGINT], BIGINT), [pa.array([1])], 1)
    with pytest.raises(WrongAnswer, match="it answered with 2 values for 3 rows"):
        scalar_results(function("def f(rows): import numpy; return numpy.arange(2)", [], BIGINT), [], 3)


def test_results_are_put_in_the_order_of_their_rows():
    source = "import pyarrow as pa\ndef f(a): return pa.array([2, 0, 2, 0]), {columns}"
    for columns in (
        '{"n": pa.array([1, 2, 3, 4]), "t": pa.array(list("abcd"))}',
        '{"t": pa.array(list("abcd")), "n": pa.array([1, 2, 3, 4])}',
        "(pa.array([1, 2, 3, 4]), pa.array(list('abcd')))",
        'pa.table({"n": [1, 2, 3, 4], "t": list("abcd")})',
        'pa.record_batch({"x": pa.array([1, 2, 3, 4]), "y": pa.array(list("abcd"))})',
    ):
        made = function(source.replace("{columns}", columns), [BIGINT], PAIR, FunctionKind.TABLE)
        owners, results = table_results(made, [pa.array([0, 0, 0])], 3)
        assert owners.tolist() == [0, 0, 2, 2], columns
        assert results.to_pylist() == [
            {"n": 2, "t": "b"}, {"n": 4, "t": "d"}, {"n": 1, "t": "a"}, {"n": 3, "t": "c"}], columns


@pytest.mark.parametrize(("answer", "reason"), [
    ("a", "answers with (rows, columns), not with a pyarrow.lib.Int64Array"),
    ("(a,)", "answers with (rows, columns), not with a builtins.tuple of 1"),
    ("(pa.array([2]), a)", "results of row 2, of 2 rows"),
    ("(pa.array([-1]), a)", "results of row -1, of 2 rows"),
    ("(pa.array([None], pa.int64()), a)", "numbers, without NULL"),
    ("(pa.array(['x']), a)", "numbers, without NULL, not string"),
    ("(pa.array([0]), (a,))", "1 columns, TABLE (n BIGINT, t VARCHAR) has 2"),
    ("(pa.array([0]), (a, a))", "column 'n' has 2 values for 1 results"),
])  # fmt: skip
def test_results_that_belong_to_no_row_are_refused(answer, reason):
    source = f"import pyarrow as pa\ndef f(a): return {answer}"
    with pytest.raises(WrongAnswer) as caught:
        table_results(function(source, [BIGINT], PAIR, FunctionKind.TABLE), [pa.array([0, 0])], 2)
    assert reason in str(caught.value)


def test_rows_of_a_row_wise_table_function_are_tuples():
    made = function("def f(a): return [(a, None)] * a", [BIGINT], PAIR, FunctionKind.TABLE, is_row_wise=True)
    owners, results = table_results(made, [pa.array([2, 0, 1])], 3)
    assert owners.tolist() == [0, 0, 2] and [each["n"] for each in results.to_pylist()] == [2, 2, 1]
    wrong = function("def f(a): return [a]", [BIGINT], PAIR, FunctionKind.TABLE, is_row_wise=True)
    with pytest.raises(WrongAnswer, match="a tuple of 2 values"):
        table_results(wrong, [pa.array([1])], 1)
    assert len(table_results(wrong, [pa.array([], pa.int64())], 0)[1]) == 0


@pytest.mark.parametrize(("returns", "rows", "expected"), [
    (BIGINT, "[(a,), a + 1, (None,)]", [1, 2, None]),
    (DataType.list_of(BIGINT), "[([a, 2],), [a], (a,)]", [[1, 2], [1], [1]]),
    (DataType.list_of(DataType.list_of(BIGINT)), "[([a],), [[a], [2]]]", [[[1]], [[1], [2]]]),
    (PAIR, "[({'n': a, 't': 'x'},), (a, 'x'), {'n': a, 't': 'x'}, ((a, 'x'),)]", [{"n": 1, "t": "x"}] * 4),
    (DataType.struct([Field("n", BIGINT)]), "[({'n': a},), (a,), {'n': a}]", [{"n": 1}] * 3),
], ids=str)
def test_rows_of_a_single_column_are_values_or_tuples_of_one(returns, rows, expected):
    for name in {"k", *(() if returns.fields else ("",))}:
        source = f"def f(a): return {rows}"
        made = function(source, [BIGINT], returns, FunctionKind.TABLE, is_row_wise=True, column=name)
        owners, results = table_results(made, [pa.array([1])], 1)
        assert results.to_pylist() == expected and owners.tolist() == [0] * len(expected)
