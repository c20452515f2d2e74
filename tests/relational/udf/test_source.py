"""The texts of functions: loaded once, and taken from Python functions."""

import collections.abc as abc
import math

import pyarrow.compute as pc
import pytest

from relational.errors import BindError
from relational.types import DataType, Field
from relational.udf.function import MOST_SOURCE_CHARACTERS, FunctionKind, UserFunction
from relational.udf.source import check, defines, handler_arguments, loaded, source_of


def function(source, arguments=1, kind=FunctionKind.SCALAR, handler="f", **options):
    fields = tuple(Field("", DataType.BIGINT) for _ in range(arguments))
    return UserFunction("f", fields, DataType.BIGINT, source, handler, kind, **options)


def test_a_text_runs_once():
    source = "import itertools\ncount = itertools.count()\nfirst = next(count)\ndef f(a): return first, next(count)"
    made = function(source)
    assert loaded(made)(0) == (0, 1) and loaded(made)(0) == (0, 2)


@pytest.mark.parametrize(("source", "reason"), [
    ("def f(:", "no Python: invalid syntax"),
    ("x\0", "no Python"),
    ("raise OSError('x')", "failed: OSError: x"),
    ("f = 3", "no handler 'f': it defines no function"),
    ("def g(a): pass\ndef h(a): pass", "it defines g, h"),
    ("def f(): pass", "called with 1 argument: too many positional arguments"),
    ("def f(a, b): pass", "missing a required argument: 'b'"),
    ("#" * (MOST_SOURCE_CHARACTERS + 1), "more than 1048576 characters"),
])  # fmt: skip
def test_a_text_that_cannot_be_called_is_refused(source, reason):
    with pytest.raises(BindError) as caught:
        check(function(source))
    assert reason in str(caught.value) and "'f'" in str(caught.value)


@pytest.mark.parametrize(("source", "retracts", "reason"), [
    ("def accumulate(s, g, a): pass", False, "no handler 'finish': it defines accumulate"),
    ("def accumulate(s, g): pass\ndef finish(s): pass", False, "accumulate of function 'f' is called with 3 arguments"),
    ("def accumulate(s, g, a): pass\ndef finish(): pass", False, "finish of function 'f' is called with 1 argument"),
    ("def accumulate(s, g, a): pass\ndef finish(s): pass", True, "no handler 'retract'"),
    ("accumulate = finish = 3", False, "no handler 'accumulate': it defines no function"),
])  # fmt: skip
def test_an_aggregate_with_a_state_has_several_functions(source, retracts, reason):
    with pytest.raises(BindError) as caught:
        check(function(source, kind=FunctionKind.AGGREGATE, state=DataType.BIGINT, retracts=retracts))
    assert reason in str(caught.value) and "WITH" not in str(caught.value)


def test_what_a_text_defines_is_known_without_running_it():
    text = "raise OSError\ndef retract(): pass\nother = retract\nclass third: pass"
    assert [defines(text, name) for name in ("retract", "other", "third", "OSError")] == [True, True, False, False]
    assert not defines("def retract(:", "retract") and not defines("\0", "retract")


@pytest.mark.parametrize("source", ["def f(*a): pass", "f = len", "class f:\n    def __init__(self, a): pass",
                                    "def f(a, b=1): pass", "f = min"])
def test_any_callable_is_a_handler(source):
    check(function(source))


def test_how_many_arguments_a_handler_is_called_with():
    counts = [handler_arguments(function("", arguments, kind, is_row_wise=is_row_wise), "f")
              for kind in (FunctionKind.SCALAR, FunctionKind.TABLE, FunctionKind.AGGREGATE)
              for arguments, is_row_wise in ((0, False), (0, True), (2, False), (2, True))]
    assert counts == [1, 0, 2, 2, 1, 0, 2, 2, 1, 0, 3, 2]


def outer(a: abc.Sequence, factor: int = 2):
    """With a text of its own."""

    def inner(b):
        return [math.floor(each) for each in b]

    return pc.multiply(inner(a), factor)


def test_the_text_of_a_function_imports_the_modules_that_it_uses():
    text, name = source_of(outer)
    assert name == "outer"
    lines = text.splitlines()
    assert lines[0] == "from __future__ import annotations"
    assert sorted(lines[1:3]) == ["import math as math", "import pyarrow.compute as pc"]
    assert loaded(function(text, handler="outer"))([3, 4]).to_pylist() == [6, 8]


def test_decorators_are_no_part_of_the_text():
    def same(made):
        return made

    @same
    @same
    def decorated(a):
        # a comment stays
        return a

    text, _ = source_of(decorated)
    assert "@same" not in text and "# a comment stays" in text


def test_a_class_or_a_coroutine_is_no_function():
    async def later(a):
        return a

    for made in (int, later, exec, outer.__call__):
        with pytest.raises(BindError):
            source_of(made)
    namespace = {}
    exec("def made(a): return a", namespace)
    with pytest.raises(BindError, match="is not in a file: pass its text"):
        source_of(namespace["made"])
