"""Calls of user functions: bound to declared types, and evaluated over the rows that count.

A function sees the selected rows only [R6]: visible ones that reach the branch that it is in; a strict one those of
them without a NULL argument. In strict evaluation whatever it raises is a FunctionFailed. In a stream, where a later
retraction must find the same value in whatever chunk it is, a call that raises is repeated with ever fewer rows: those
that make it raise are NULL and counted [R55]. An answer of the wrong form is NULL and counted for all rows of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from relational.chunk.scatter import scattered
from relational.errors import FunctionFailed, InvalidValue
from relational.expr.eval_context import EvalContext, Value, valid_rows
from relational.expr.expression import Expression, walk
from relational.expr.kernel_call import PartTooLarge, computed
from relational.expr.kernels.nested import list_of
from relational.expr.kernels.series import MAX_ROWS
from relational.types.data_type import DataType
from relational.udf.function import FunctionKind, UserFunction
from relational.udf.invoke import WRONG_FORM, WrongAnswer, scalar_results, table_results
from relational.udf.source import RAISED, described

Evaluate = Callable[[EvalContext], Value]


@dataclass(frozen=True, slots=True)
class UserCall(Expression):
    """A user function over its arguments, which have its types. `data_type`: of a table function, a list of its rows.
    """

    function: UserFunction
    args: tuple[Expression, ...]
    data_type: DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.args

    @property
    def is_volatile(self) -> bool:
        return self.function.is_volatile

    def with_children(self, children: tuple[Expression, ...]) -> UserCall:
        return UserCall(self.function, children, self.data_type)

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"{self.function.name}({', '.join(arg.describe(names) for arg in self.args)})"


def prepared_user_call(call: UserCall, args: Sequence[Evaluate]) -> Evaluate:
    """The evaluation of a call, whose arguments are evaluated by `args`."""
    function = call.function

    def evaluate(evaluation: EvalContext) -> Value:
        values = [arg(evaluation) for arg in args]
        if call.is_volatile or not all(isinstance(each, pa.Scalar) for each in values):
            return _over_rows(function, evaluation, [evaluation.column(each) for each in values])
        return _over_rows(function, evaluation.single(), [pa.repeat(each, 1) for each in values])[0]

    return evaluate


def _over_rows(function: UserFunction, evaluation: EvalContext, columns: list[pa.Array]) -> pa.Array:
    """The results of the rows that count, NULL elsewhere."""
    wanted = evaluation.selection
    if function.is_strict and any(column.null_count for column in columns):
        valid = np.logical_and.reduce([valid_rows(column) for column in columns])
        wanted = valid if wanted is None else wanted & valid
    if wanted is None or wanted.all():
        return _results(function, evaluation, columns)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return pa.nulls(evaluation.rows, function.call_type.arrow)
    ops = None if evaluation.ops is None else evaluation.ops[rows]
    dense = EvalContext((), len(rows), strict=evaluation.strict, errors=evaluation.errors, ops=ops,
                        weight=evaluation.weight)
    taken = pa.array(rows)
    results = _results(function, dense, [column.take(taken) for column in columns])
    return scattered(results, rows, evaluation.rows)


def _results(function: UserFunction, evaluation: EvalContext, columns: list[pa.Array]) -> pa.Array:
    compute = partial(_computed, function)
    if not evaluation.strict:
        what = f"function {function.name}"
        return evaluation.column(computed(compute, evaluation, list(columns), function.call_type, what))
    try:
        return compute(evaluation, list(columns))
    except (MemoryError, PartTooLarge, FunctionFailed):
        raise
    except InvalidValue as error:
        raise FunctionFailed(function.name, f"it answered with no {function.returns}: {error}") from error
    except RAISED as error:
        raise FunctionFailed(function.name, described(error)) from error


def _computed(function: UserFunction, evaluation: EvalContext, columns: list[Value]) -> pa.Array:
    """The results of all rows of an evaluation. Raises what the handler raises, unless it is not strict and of one
    row."""
    try:
        if function.kind is FunctionKind.TABLE:
            return _lists(function, evaluation, columns)
        return scalar_results(function, columns, evaluation.rows)
    except (MemoryError, PartTooLarge):
        raise
    except WrongAnswer as error:
        if evaluation.strict:
            raise FunctionFailed(function.name, str(error)) from error
        reason = WRONG_FORM
    except RAISED as error:
        if evaluation.strict:
            raise
        if evaluation.rows > 1:
            raise _Failed from error
        reason = type(error).__name__
    evaluation.fail(np.ones(evaluation.rows, np.bool_), f"function {function.name}: {reason}")
    return pa.nulls(evaluation.rows, function.call_type.arrow)


class _Failed(Exception):
    """What a handler raised; an AssertionError of a user is no bug of this package."""


def _lists(function: UserFunction, evaluation: EvalContext, columns: list[Value]) -> pa.Array:
    """The results of a table function, a list for each row."""
    rows = evaluation.rows
    owners, results = table_results(function, columns, rows)
    if len(owners) > MAX_ROWS and rows > 1:
        raise PartTooLarge
    if len(owners) > MAX_ROWS:
        raise WrongAnswer(f"it answered with more than {MAX_ROWS} results for one row")
    ends = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=rows))))
    return list_of(function.call_type, ends, results, np.ones(rows, np.bool_))


def functions_of(expression: Expression) -> Iterator[UserFunction]:
    """The user functions that an expression calls."""
    return (node.function for node in walk(expression) if isinstance(node, UserCall))


def calls_user_function(expression: Expression) -> bool:
    """Whether an expression calls a user function."""
    return any(isinstance(node, UserCall) for node in walk(expression))
