"""Evaluates an expression over a chunk, column at a time.

What does not depend on the rows (kernels, constants) is looked up once per expression, in a tree of closures; an
Evaluator keeps it for many chunks.

A branch (of CASE, AND, OR, COALESCE) counts only the rows that reach it; hidden rows never count [R6]. In a stream a
row without a value is NULL and counted; in strict evaluation (DML, batch queries) it is an EvaluationError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import Column, DataChunk, StreamChunk, mask_of
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
from relational.expr.functions import is_total, kernel_of
from relational.expr.kernel_call import Compute, computed
from relational.expr.kernels.casting import cast
from relational.expr.user_call import UserCall, prepared_user_call
from relational.types.data_type import DataType

_Evaluate: TypeAlias = Callable[[EvalContext], Value]


class Evaluator:
    """`expression`, prepared for any number of chunks."""

    __slots__ = ("_data_type", "_evaluate", "_index")

    def __init__(self, expression: Expression) -> None:
        self._index = expression.index if isinstance(expression, InputRef) else None
        self._data_type = expression.data_type
        self._evaluate = _prepared(expression)

    def __call__(self, chunk: DataChunk, *, strict: bool = False, errors: ErrorCounts | None = None) -> Column:
        """As `evaluate`."""
        return self.over(chunk, context_of(chunk, strict=strict, errors=errors))

    def over(self, chunk: DataChunk, evaluation: EvalContext) -> Column:
        """The value over a chunk, whose context several expressions share."""
        if self._index is not None and self._index < len(chunk.columns):
            return chunk.columns[self._index]
        if evaluation.rows == 0:
            return Column(pa.nulls(0, self._data_type.arrow))
        return Column(evaluation.column(self._evaluate(evaluation)))

    def value(self, evaluation: EvalContext) -> Value:
        """The same as Arrow's array, or as one scalar if no row decides it."""
        return self._evaluate(evaluation)


def context_of(
    chunk: DataChunk,
    *,
    strict: bool = False,
    errors: ErrorCounts | None = None,
    constants: Sequence[pa.Scalar | None] = (),
) -> EvalContext:
    """For one or more expressions over a chunk. `constants`: columns after those of the chunk, of one value each;
    None for one that is not needed."""
    visibility = chunk.visibility
    selection = None if visibility is None else np.asarray(visibility).view(np.bool_)
    arrays = [*(column.array for column in chunk.columns), *constants]
    ops = chunk.ops if errors is not None and isinstance(chunk, StreamChunk) else None
    return EvalContext(arrays, chunk.capacity, selection, strict=strict, errors=errors, ops=ops)


def masks_of(
    filters: Sequence[Evaluator | None], chunk: DataChunk, *, strict: bool = False, errors: ErrorCounts | None = None
) -> list[np.ndarray | None]:
    """For each filter uint8[capacity], 1 where it is true; None for None."""
    if not any(filters):
        return [None] * len(filters)
    context = context_of(chunk, strict=strict, errors=errors)
    return [None if each is None else mask_of(each.over(chunk, context)) for each in filters]


def evaluate(
    expression: Expression, chunk: DataChunk, *, strict: bool = False, errors: ErrorCounts | None = None
) -> Column:
    """The expression's value for every row of the chunk, hidden rows included (theirs are unspecified).

    A visible row without a value is an EvaluationError if `strict`, else NULL and counted in `errors`: by 1, or by -1
    for a retraction in a stream.
    """
    return Evaluator(expression)(chunk, strict=strict, errors=errors)


def evaluate_array(expression: Expression, evaluation: EvalContext) -> pa.Array:
    """As `evaluate`, over bare arrays."""
    if evaluation.rows == 0:
        return pa.nulls(0, expression.data_type.arrow)
    return evaluation.column(_prepared(expression)(evaluation))


def evaluate_constant(expression: Expression) -> object:
    """The Python value of an expression without inputs; EvaluationError if there is none."""
    return python_value(evaluate_array(expression, EvalContext((), 1, strict=True))[0])


def constant_value(expression: Expression) -> object:
    """As `evaluate_constant`, at once for a literal."""
    return expression.value if isinstance(expression, Literal) else evaluate_constant(expression)


def _prepared(expression: Expression) -> _Evaluate:
    if isinstance(expression, InputRef):
        index = expression.index
        return lambda evaluation: evaluation.columns[index]
    if isinstance(expression, Literal):
        constant = scalar(expression.value, expression.data_type)
        return lambda evaluation: constant
    if isinstance(expression, Cast):
        return _cast(expression)
    if isinstance(expression, Case):
        return _case(expression)
    if isinstance(expression, UserCall):
        return prepared_user_call(expression, [_prepared(arg) for arg in expression.args])
    assert isinstance(expression, Call), expression
    if expression.function in _BY_BRANCHES:
        return _BY_BRANCHES[expression.function](expression)
    args = [_prepared(arg) for arg in expression.args]
    kernel = kernel_of(expression.function, tuple(arg.data_type for arg in expression.args))
    result, function = expression.data_type, expression.function

    def compute(attempt: EvalContext, values: list[Value]) -> Value:
        return kernel(attempt, values, result)

    return lambda evaluation: _computed(compute, evaluation, [arg(evaluation) for arg in args], result, function)


def _cast(expression: Cast) -> _Evaluate:
    operand = _prepared(expression.operand)
    source, target = expression.operand.data_type, expression.data_type
    what = f"CAST to {target}"

    def compute(attempt: EvalContext, values: list[Value]) -> Value:
        return cast(attempt, values[0], source, target)

    return lambda evaluation: _computed(compute, evaluation, [operand(evaluation)], target, what)


def _computed(compute: Compute, evaluation: EvalContext, args: list[Value], data_type: DataType, what: str) -> Value:
    """The result of a kernel; a constant if all arguments are."""
    if not args or not all(isinstance(arg, pa.Scalar) for arg in args):
        return computed(compute, evaluation, args, data_type, what)
    first = pa.repeat(args[0], 1)
    result = computed(compute, evaluation.single(), [first, *args[1:]], data_type, what)
    return result if isinstance(result, pa.Scalar) else result[0]


def _boolean(term: _Evaluate, evaluation: EvalContext) -> pa.Array:
    """A BOOLEAN column; all NULL, without evaluation, if no row counts."""
    if evaluation.selects_nothing:
        return pa.nulls(evaluation.rows, pa.bool_())
    return evaluation.column(term(evaluation))


def _conjunction(expression: Call) -> _Evaluate:
    """Kleene AND; a term is evaluated on rows where no earlier term was false."""
    first, *terms = [(_prepared(arg), is_total(arg)) for arg in expression.args]

    def evaluate_terms(evaluation: EvalContext) -> Value:
        result = _boolean(first[0], evaluation)
        for term, is_safe in terms:
            reached = evaluation if is_safe else evaluation.narrowed(booleans(result) | ~valid_rows(result))
            result = pc.and_kleene(result, _boolean(term, reached))
        return result

    return evaluate_terms


def _disjunction(expression: Call) -> _Evaluate:
    """Kleene OR; a term is evaluated on rows where no earlier term was true."""
    first, *terms = [(_prepared(arg), is_total(arg)) for arg in expression.args]

    def evaluate_terms(evaluation: EvalContext) -> Value:
        result = _boolean(first[0], evaluation)
        for term, is_safe in terms:
            reached = evaluation if is_safe else evaluation.narrowed(~booleans(result))
            result = pc.or_kleene(result, _boolean(term, reached))
        return result

    return evaluate_terms


def _coalesce(expression: Call) -> _Evaluate:
    """The first non-NULL value; an argument is evaluated on rows where all earlier ones were NULL."""
    first, *args = map(_prepared, expression.args)

    def evaluate_args(evaluation: EvalContext) -> Value:
        result = evaluation.column(first(evaluation))
        for arg in args:
            rest = evaluation.narrowed(~valid_rows(result))
            if rest.selects_nothing:
                break
            result = choose(valid_rows(result), result, arg(rest))
        return result

    return evaluate_args


def _case(expression: Case) -> _Evaluate:
    """Branches in order; each condition and result is evaluated on the rows that reach it, if any does."""
    branches = [(_prepared(condition), _prepared(result)) for condition, result in expression.branches]
    otherwise = _prepared(expression.otherwise)

    def evaluate_branches(evaluation: EvalContext) -> Value:
        remaining = np.ones(evaluation.rows, np.bool_)
        rest = evaluation
        taken: list[tuple[np.ndarray, Value]] = []
        for condition, result in branches:
            rows = booleans(_boolean(condition, rest)) & remaining
            if rows.any():
                taken.append((rows, result(evaluation.narrowed(rows))))
                remaining &= ~rows
                rest = evaluation.narrowed(remaining)
                if rest.selects_nothing:
                    break
        value = taken.pop()[1] if taken and rest.selects_nothing else otherwise(rest)
        for rows, chosen in taken:
            value = choose(rows, chosen, evaluation.column(value))
        return value

    return evaluate_branches


_BY_BRANCHES = {"and": _conjunction, "or": _disjunction, "coalesce": _coalesce}
