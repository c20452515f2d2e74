"""Expressions that never decrease while a column increases, so that a watermark of the column gives one of theirs.

A lower bound of the column's later values is mapped to a lower bound of the expression's by evaluating the expression
on it. Months are not added: 30 January 12:00 and 31 January 10:00, a month later, are in the other order.
"""

from __future__ import annotations

from relational.expr.expression import Call, Cast, Expression, InputRef, Literal
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval

INTEGERS = frozenset((TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT))
MOMENTS = frozenset((TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ, TypeKind.DATE))
ORDERED = INTEGERS | MOMENTS
"""Types that a column with a watermark can have."""


def monotone_column(expression: Expression) -> int | None:
    """The only column of a non-decreasing expression of a type of ORDERED; None for any other expression."""
    if expression.data_type.kind not in ORDERED:
        return None
    if isinstance(expression, InputRef):
        return expression.index
    if isinstance(expression, Cast):
        return _cast_column(expression.operand, expression.data_type)
    if isinstance(expression, Call):
        return _call_column(expression)
    return None


def _cast_column(operand: Expression, target: DataType) -> int | None:
    """Between integers, and between moments, casts keep the order."""
    is_kept = any(operand.data_type.kind in kinds and target.kind in kinds for kinds in (INTEGERS, MOMENTS))
    return monotone_column(operand) if is_kept else None


def _call_column(call: Call) -> int | None:
    if call.function.startswith("date_trunc_") and len(call.args) == 1:
        return monotone_column(call.args[0])
    if call.function == "date_bin" and isinstance(call.args[0], Literal) and isinstance(call.args[2], Literal):
        return monotone_column(call.args[1])
    if len(call.args) != 2:
        return None
    first, second = call.args
    if call.function == "add" and _is_fixed_length(first):
        return monotone_column(second)
    if call.function in ("add", "subtract") and _is_fixed_length(second):
        return monotone_column(first)
    if call.function == "multiply" and _is_at_least(first, 0):
        return monotone_column(second)
    if call.function == "multiply" and _is_at_least(second, 0):
        return monotone_column(first)
    if call.function == "divide" and _is_at_least(second, 1):
        return monotone_column(first)
    return None


def _is_fixed_length(term: Expression) -> bool:
    """Whether it is a constant that moves all values by the same distance."""
    if not isinstance(term, Literal) or term.value is None:
        return False
    return term.data_type.kind in INTEGERS or (isinstance(term.value, Interval) and not term.value.months)


def _is_at_least(term: Expression, least: int) -> bool:
    if not isinstance(term, Literal) or term.data_type.kind not in INTEGERS:
        return False
    return term.value is not None and bool(term.value >= least)
