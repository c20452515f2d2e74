"""Evaluates an expression over a chunk, column at a time.

A branch (of CASE, AND, OR, COALESCE) counts only the rows that reach it; hidden rows never count [R6]. In a stream a
row without a value is NULL and counted; in strict evaluation (DML, batch queries) it is an EvaluationError.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import Column, DataChunk, StreamChunk
from relational.expr.eval_context import (
    ErrorCounts,
    EvalContext,
    Value,
    booleans,
    choose,
    python_value,
    scalar,
    valid_rows,
)
from relational.expr.expression import Call, Case, Cast, Expression, InputRef, Literal
from relational.expr.functions import kernel_of
from relational.expr.kernel_call import Compute, computed
from relational.expr.kernels.casting import cast
from relational.types.data_type import DataType


def evaluate(
    expression: Expression, chunk: DataChunk, *, strict: bool = False, errors: ErrorCounts | None = None
) -> Column:
    """The expression's value for every row of the chunk, hidden rows included (theirs are unspecified).

    A visible row without a value is an EvaluationError if `strict`, else NULL and counted in `errors`: by 1, or by -1
    for a retraction in a stream.
    """
    if isinstance(expression, InputRef):
        return chunk.columns[expression.index]
    visibility = chunk.visibility
    selection = None if visibility is None else np.asarray(visibility).view(np.bool_)
    arrays = [column.array for column in chunk.columns]
    weights = None
    if errors is not None and isinstance(chunk, StreamChunk):
        weights = 1 - 2 * (chunk.ops & 1).view(np.int8)
    evaluation = EvalContext(arrays, chunk.capacity, selection, strict=strict, errors=errors, weights=weights)
    return Column(evaluate_array(expression, evaluation))


def evaluate_array(expression: Expression, evaluation: EvalContext) -> pa.Array:
    """As `evaluate`, over bare arrays."""
    if evaluation.rows == 0:
        return pa.nulls(0, expression.data_type.arrow)
    return evaluation.column(_value(expression, evaluation))


def evaluate_constant(expression: Expression) -> object:
    """The Python value of an expression without inputs; EvaluationError if there is none."""
    return python_value(evaluate_array(expression, EvalContext((), 1, strict=True))[0])


def _value(expression: Expression, evaluation: EvalContext) -> Value:
    if isinstance(expression, InputRef):
        return evaluation.columns[expression.index]
    if isinstance(expression, Literal):
        return scalar(expression.value, expression.data_type)
    if isinstance(expression, Cast):
        return _cast(expression, evaluation)
    if isinstance(expression, Case):
        return _case(expression, evaluation)
    assert isinstance(expression, Call), expression
    if expression.function in _BY_BRANCHES:
        return _BY_BRANCHES[expression.function](expression, evaluation)
    args = [_value(arg, evaluation) for arg in expression.args]
    kernel = kernel_of(expression.function, tuple(arg.data_type for arg in expression.args))
    result = expression.data_type

    def compute(attempt: EvalContext, values: list[Value]) -> Value:
        return kernel(attempt, values, result)

    return _computed(compute, evaluation, args, result, expression.function)


def _cast(expression: Cast, evaluation: EvalContext) -> Value:
    value = _value(expression.operand, evaluation)
    source, target = expression.operand.data_type, expression.data_type

    def compute(attempt: EvalContext, values: list[Value]) -> Value:
        return cast(attempt, values[0], source, target)

    return _computed(compute, evaluation, [value], target, f"CAST to {target}")


def _computed(compute: Compute, evaluation: EvalContext, args: list[Value], data_type: DataType, what: str) -> Value:
    """The result of a kernel; a constant if all arguments are."""
    if not all(isinstance(arg, pa.Scalar) for arg in args):
        return computed(compute, evaluation, args, data_type, what)
    first = pa.repeat(args[0], 1)
    result = computed(compute, evaluation.single(), [first, *args[1:]], data_type, what)
    return result if isinstance(result, pa.Scalar) else result[0]


def _boolean(expression: Expression, evaluation: EvalContext) -> pa.Array:
    """A BOOLEAN column; all NULL, without evaluation, if no row counts."""
    if evaluation.selects_nothing:
        return pa.nulls(evaluation.rows, pa.bool_())
    return evaluation.column(_value(expression, evaluation))


def _conjunction(expression: Call, evaluation: EvalContext) -> Value:
    """Kleene AND; a term is evaluated on rows where no earlier term was false."""
    result = _boolean(expression.args[0], evaluation)
    for term in expression.args[1:]:
        undecided = booleans(result) | ~valid_rows(result)
        result = pc.and_kleene(result, _boolean(term, evaluation.narrowed(undecided)))
    return result


def _disjunction(expression: Call, evaluation: EvalContext) -> Value:
    """Kleene OR; a term is evaluated on rows where no earlier term was true."""
    result = _boolean(expression.args[0], evaluation)
    for term in expression.args[1:]:
        result = pc.or_kleene(result, _boolean(term, evaluation.narrowed(~booleans(result))))
    return result


def _coalesce(expression: Call, evaluation: EvalContext) -> Value:
    """The first non-NULL value; an argument is evaluated on rows where all earlier ones were NULL."""
    result = evaluation.column(_value(expression.args[0], evaluation))
    for arg in expression.args[1:]:
        rest = evaluation.narrowed(~valid_rows(result))
        if rest.selects_nothing:
            break
        result = choose(valid_rows(result), result, _value(arg, rest))
    return result


def _case(expression: Case, evaluation: EvalContext) -> Value:
    """Branches in order; each condition and result is evaluated on the rows that reach it."""
    remaining = np.ones(evaluation.rows, np.bool_)
    taken: list[tuple[np.ndarray, Value]] = []
    for condition, result in expression.branches:
        rows = booleans(_boolean(condition, evaluation.narrowed(remaining))) & remaining
        if rows.any():
            taken.append((rows, _value(result, evaluation.narrowed(rows))))
            remaining &= ~rows
    value = _value(expression.otherwise, evaluation.narrowed(remaining))
    for rows, result in taken:
        value = choose(rows, result, evaluation.column(value))
    return value


_BY_BRANCHES = {"and": _conjunction, "or": _disjunction, "coalesce": _coalesce}
