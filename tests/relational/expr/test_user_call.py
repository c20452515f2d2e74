"""Calls of user functions over chunks: the rows that a call sees, and what becomes of rows without a value."""

import random

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import FunctionFailed
from relational.expr.bind import user_call
from relational.expr.eval import Evaluator, evaluate
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Call, Case, InputRef, Literal
from relational.expr.kernels import series
from relational.expr.set_rows import SetRows
from relational.expr.user_call import calls_user_function, functions_of
from relational.plan.serialize import expression_from_json, expression_to_json
from relational.types import DataType, Field, Schema
from relational.udf.function import FunctionKind, UserFunction, Volatility
from tests.support.drivers.seeds import run_seed

BIGINT = DataType.BIGINT
SCHEMA = Schema([Field("a", BIGINT)])
A = InputRef(0, BIGINT)
SIZES = "import pyarrow as pa\ndef f(*a): return pa.array([len(a[0]) if hasattr(a[0], 'type') else a[0]] * "
COUNTED = f"{SIZES}(len(a[0]) if hasattr(a[0], 'type') else a[0]))"
EVEN = """
def f(a):
    if any(each is not None and each % 2 for each in a.to_pylist()):
        raise ValueError
    return a
"""


def function(source, takes=1, kind=FunctionKind.SCALAR, volatility=Volatility.IMMUTABLE, **options):
    return UserFunction("f", tuple(Field("", BIGINT) for _ in range(takes)), BIGINT, source, "f", kind, volatility,
                        **options)


def chunk(values, visible=None, ops=None):
    rows = DataChunk.from_rows(SCHEMA, [(value,) for value in values])
    mask = None if visible is None else np.array(visible, np.uint8)
    return DataChunk(rows.columns, mask) if ops is None else StreamChunk(rows.columns, np.array(ops, np.uint8), mask)


def values(expression, *args, **options):
    return evaluate(expression, *args, **options).array.to_pylist()


def test_a_call_sees_the_rows_that_count():
    seen = user_call(function(COUNTED), [A])
    assert values(seen, chunk([1, None, 3])) == [3, 3, 3]
    assert values(seen, chunk([1, 2, 3], [1, 0, 1])) == [2, None, 2]
    assert values(seen, chunk([1, 2, 3], [0, 0, 0])) == [None] * 3
    strict = user_call(function(COUNTED, is_strict=True), [A])
    assert values(strict, chunk([1, None, 3, 4], [1, 1, 1, 0])) == [2, None, 2, None]
    branch = Case(((Call("is_null", (A,), DataType.BOOLEAN), Literal(0, BIGINT)),), seen, BIGINT)
    assert values(branch, chunk([1, None, 3, 4], [1, 1, 1, 0]))[:3] == [2, 0, 2]


def test_constants_are_computed_once_unless_each_row_may_have_another_value():
    for volatility, size in ((Volatility.IMMUTABLE, 1), (Volatility.STABLE, 1), (Volatility.VOLATILE, 3)):
        constant = user_call(function(COUNTED, volatility=volatility), [Literal(5, BIGINT)])
        assert values(constant, chunk([1, 2, 3])) == [size] * 3
        nothing = user_call(function(COUNTED, 0, volatility=volatility), [])
        assert values(nothing, chunk([1, 2, 3])) == [size] * 3
    strict = user_call(function("def f(a): raise ValueError", is_strict=True), [Literal(None, BIGINT)])
    assert values(strict, chunk([1, 2]), strict=True) == [None, None]


def test_rows_that_fail_do_not_depend_on_their_chunk():
    rng = random.Random(run_seed())
    data = [rng.choice([None, *range(9)]) for _ in range(200)]
    call = Evaluator(user_call(function(EVEN), [A]))
    wanted = [None if each is None or each % 2 else each for each in data]
    for size in (1, 7, 200):
        errors, found = ErrorCounts(), []
        for first in range(0, len(data), size):
            found += call(chunk(data[first : first + size]), errors=errors).array.to_pylist()
        assert found == wanted
        assert errors.rows == {"function f: ValueError": sum(each is not None and each % 2 for each in data)}


def test_a_retraction_takes_the_count_back():
    call, errors = user_call(function(EVEN), [A]), ErrorCounts()
    ops = [Op.INSERT, Op.INSERT, Op.DELETE, Op.DELETE]
    assert values(call, chunk([1, 3, 3, 2], ops=ops), errors=errors) == [None, None, None, 2]
    assert errors.rows == {"function f: ValueError": 1}
    assert values(call, chunk([1, 3, 5, 2], [0, 0, 1, 1], [Op.INSERT] * 4), errors=errors)[2:] == [None, 2]
    assert errors.rows == {"function f: ValueError": 2}


def test_strict_evaluation_raises_at_once_and_calls_once():
    calls = function("calls = []\ndef f(a):\n    calls.append(len(a))\n    raise ValueError(calls)")
    with pytest.raises(FunctionFailed, match=r"function 'f': ValueError: \[3\]"):
        values(user_call(calls, [A]), chunk([1, 2, 3]), strict=True)
    memory = function("def f(a): raise MemoryError")
    for strict in (True, False):
        with pytest.raises(MemoryError):
            values(user_call(memory, [A]), chunk([1, 2, 3]), strict=strict)


def test_rows_of_a_table_function(monkeypatch):
    repeated = function("import numpy as np\ndef f(a):\n    rows = np.repeat(np.arange(len(a)), np.asarray(a))\n"
                        "    return rows, rows * 10", kind=FunctionKind.TABLE, is_strict=True)
    call = user_call(repeated, [A])
    assert call.data_type == DataType.list_of(BIGINT)
    assert values(call, chunk([2, None, 0, 1])) == [[0, 0], None, [], [20]]
    assert values(call, chunk([2, 5, 1], [1, 0, 1])) == [[0, 0], None, [10]]
    monkeypatch.setattr("relational.expr.user_call.MAX_ROWS", 5)
    rows = [row for part in SetRows((0,), [call])(chunk([3, 2, 2, 5]), 100, strict=True) for row in part.rows()]
    assert [(a, number) for a, _, number in rows] == [
        (a, number + 1) for a in (3, 2, 2, 5) for number in range(a)]
    with pytest.raises(FunctionFailed, match="more than 5 results for one row"):
        list(SetRows((0,), [call])(chunk([3, 6]), 100, strict=True))
    errors = ErrorCounts()
    rows = [row for part in SetRows((0,), [call])(chunk([6, 1]), 100, errors=errors) for row in part.rows()]
    assert rows == [(1, 0, 1)] and sum(errors.rows.values()) == 1
    assert series.MAX_ROWS > 5


def test_a_stored_call_is_the_same_call():
    call = Call("add", (user_call(function(EVEN, id=3, version=2), [A]), A), BIGINT)
    assert expression_from_json(expression_to_json(call)) == call
    assert [each.version for each in functions_of(call)] == [2]
    assert calls_user_function(call) and not calls_user_function(A)
    assert call.describe(["x"]) == "(f(x) + x)"
    assert call.with_children((A, A)).args == (A, A)
    assert call.args[0].with_children((Literal(1, BIGINT),)).describe() == "f(1)"


def test_arguments_become_the_declared_types():
    call = user_call(function(EVEN), [Literal("7", DataType.VARCHAR)])
    assert call.args == (Literal(7, BIGINT),)
    assert values(user_call(function("def f(a): return a"), [InputRef(0, DataType.INT)]), DataChunk.from_rows(
        Schema([Field("a", DataType.INT)]), [(3,)])) == [3]
    assert pa.types.is_int64(evaluate(call, chunk([1])).array.type)
