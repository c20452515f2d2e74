"""Results of user aggregates: many groups in one call, and groups without a result."""

import random

import numpy as np
import pyarrow as pa
import pytest

from relational.agg.collected import CollectedCall, collected
from relational.agg.user_aggregate import aggregated
from relational.chunk import DataChunk
from relational.errors import FunctionFailed
from relational.types import DataType, Field, Schema
from relational.udf.function import FunctionKind, UserFunction, Volatility
from tests.support.drivers.seeds import run_seed

BIGINT = DataType.BIGINT
SUMS = """
import numpy as np, pyarrow as pa
calls = []
def f(offsets, v):
    calls.append(len(offsets) - 1)
    v, offsets = np.asarray(v), np.asarray(offsets)
    if (v == 13).any():
        raise ValueError
    return pa.array(np.add.reduceat(v, offsets[:-1]))
"""


def function(source):
    return UserFunction("f", (Field("v", BIGINT),), BIGINT, source, "f", FunctionKind.AGGREGATE, Volatility.IMMUTABLE)


def groups(rng, count):
    sizes = [rng.choice([0, 1, 2, 5]) for _ in range(count)]
    values = [[rng.choice([1, 2, 3, 13]) for _ in range(size)] for size in sizes]
    return values, pa.array([each for group in values for each in group], pa.int64()), np.cumsum([0, *sizes])


@pytest.mark.parametrize("count", [0, 1, 40])
def test_groups_that_fail_are_found_and_others_have_their_result(count):
    values, column, starts = groups(random.Random(run_seed()), count)
    found, failures = aggregated(function(SUMS), [column], starts, strict=False)
    assert found.to_pylist() == [None if not group or 13 in group else sum(group) for group in values]
    failed = [13 in group for group in values]
    wanted = {"function f: ValueError": failed} if any(failed) else {}
    assert {reason: rows.tolist() for reason, rows in failures.items()} == wanted


def test_one_call_computes_all_groups():
    once = function(SUMS.replace("return pa.array(", "return pa.array(len(calls) + 0 * "))
    found, failures = aggregated(once, [pa.array([1, 2, 3, 4])], np.array([0, 2, 2, 4]), strict=True)
    assert found.to_pylist() == [1, None, 1] and not failures
    nothing, _ = aggregated(once, [pa.array([], pa.int64())], np.array([0, 0]), strict=True)
    assert nothing.to_pylist() == [None]


def test_rows_before_the_first_group_are_not_seen():
    found, _ = aggregated(function(SUMS), [pa.array([13, 1, 2, 13])], np.array([1, 2, 3]), strict=True)
    assert found.to_pylist() == [1, 2]


def test_strict_results_are_errors_of_the_function():
    with pytest.raises(FunctionFailed, match="function 'f': ValueError"):
        aggregated(function(SUMS), [pa.array([13])], np.array([0, 1]), strict=True)
    short = function("def f(offsets, v): return v.slice(0, 0)")
    with pytest.raises(FunctionFailed, match="0 values for 1 groups"):
        aggregated(short, [pa.array([1])], np.array([0, 1]), strict=True)
    found, failures = aggregated(short, [pa.array([1, 2])], np.array([0, 0, 1, 2]), strict=False)
    assert found.to_pylist() == [None] * 3
    assert {reason: rows.tolist() for reason, rows in failures.items()} == {
        "function f: the answer is not of the declared form": [False, True, True]}


def test_distinct_rows_are_seen_once():
    rows = DataChunk.from_rows(Schema([Field("v", BIGINT)]), [(each,) for each in (1, 1, 2, 5, 5, 5)])
    call = CollectedCall("user aggregate", (0,), BIGINT, True, function=function(SUMS))
    assert collected(call, rows, np.array([0, 3, 6])).column.array.to_pylist() == [3, 5]
    assert call.too_large == "too many rows for f"
    assert call.is_too_large(np.array([1, 1 << 25]), np.array([1, 1])).tolist() == [False, True]
