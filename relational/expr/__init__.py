"""Scalar expressions: built unbound, bound to columns and types, evaluated over chunks."""

from relational.expr.aggregates import AggCall, AggKind
from relational.expr.eval import evaluate
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import InputRef, Literal
from relational.expr.unbound import col, lit

__all__ = [
    "AggCall",
    "AggKind",
    "ErrorCounts",
    "InputRef",
    "Literal",
    "col",
    "evaluate",
    "lit",
]
