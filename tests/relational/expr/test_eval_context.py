"""Rows without a value are counted by reason; deletes subtract."""

import numpy as np
import pytest

from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import EvaluationError
from relational.expr import ErrorCounts, col, evaluate, lit
from relational.expr.bind import ExprBinder, Scope
from relational.expr.eval_context import MAX_REASONS, OTHER_REASONS
from relational.types import Schema

SCHEMA = Schema.of(a="int", b="int")
ROWS = [(Op.INSERT, (1, 0)), (Op.DELETE, (2, 0)), (Op.UPDATE_DELETE, (3, 0)), (Op.UPDATE_INSERT, (3, 1))]


def bound(term):
    return ExprBinder(Scope(SCHEMA)).bind(term)


def quotient():
    return bound(col("a") / col("b"))


def test_a_take_gives_the_net_changes_since_the_last_one():
    counts = ErrorCounts()
    counts.restore({"overflow": 5})
    counts.add("overflow", 2)
    counts.add("overflow", -2)
    counts.add("division by zero", 3)
    assert counts.take() == {"division by zero": 3} and counts.take() == {}
    counts.add("overflow", -5)
    assert counts.take() == {"overflow": -5}
    assert counts.rows == {"overflow": 0, "division by zero": 3}


def test_reasons_are_bounded_and_a_known_one_stays_known():
    counts = ErrorCounts()
    for number in range(MAX_REASONS + 10):
        counts.add(f"reason {number}", 1)
    for number in range(MAX_REASONS + 10):
        counts.add(f"reason {number}", -1)
    assert len(counts.rows) == MAX_REASONS + 1 and OTHER_REASONS in counts.rows
    assert set(counts.rows.values()) == {0} and counts.take() == {}


def test_a_row_that_goes_is_subtracted():
    counts = ErrorCounts()
    evaluate(quotient(), StreamChunk.from_rows(SCHEMA, ROWS), errors=counts)
    assert counts.rows == {"division by zero": 1 - 1 - 1}
    undone = [(Op(op ^ 1), row) for op, row in reversed(ROWS)]
    evaluate(quotient(), StreamChunk.from_rows(SCHEMA, undone), errors=counts)
    assert counts.rows == {"division by zero": 0}


def test_hidden_rows_are_not_counted():
    counts = ErrorCounts()
    chunk = StreamChunk.from_rows(SCHEMA, ROWS[:2]).with_visibility(np.array([1, 0], np.uint8))
    evaluate(quotient(), chunk, errors=counts)
    assert counts.take() == {"division by zero": 1}


def test_what_is_constant_fails_for_each_row_whatever_the_chunk():
    constant = bound(lit(1) / lit(0))
    counts = ErrorCounts()
    evaluate(constant, StreamChunk.from_rows(SCHEMA, ROWS[:1] * 3 + ROWS[1:2]), errors=counts)
    assert counts.take() == {"division by zero": 2}
    with pytest.raises(EvaluationError):
        evaluate(constant, DataChunk.from_rows(SCHEMA, [(1, 1)]), strict=True)
