"""Every NUMERIC operation over extreme values: each row equals exact arithmetic, rounded once.

A row that does not fit is NULL in a stream and an EvaluationError in a strict evaluation.

The oracle is `fractions`. HUMMOCK_TEST_SEED repeats a run.
"""

from __future__ import annotations

import operator
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest

from relational.chunk import DataChunk
from relational.errors import EvaluationError
from relational.expr.bind import ExprBinder, Scope
from relational.expr.eval import evaluate
from relational.expr.expression import Call, Expression, InputRef
from relational.expr.unbound import UnboundCase, apply, col, lit
from relational.types import DataType, Field, Schema
from tests.relational.decimals import exact, rounded, unscaled

ROWS = 24
TYPES = [
    "smallint",
    "int",
    "bigint",
    "numeric",
    "numeric(1, 0)",
    "numeric(1, 1)",
    "numeric(5, 2)",
    "numeric(10, 2)",
    "numeric(19, 19)",
    "numeric(20, 0)",
    "numeric(20, 6)",
    "numeric(38, 0)",
    "numeric(38, 6)",
    "numeric(38, 20)",
    "numeric(38, 30)",
    "numeric(38, 37)",
    "numeric(38, 38)",
]
BITS = {DataType.SMALLINT: 15, DataType.INT: 31, DataType.BIGINT: 63}
X, Y = col("x"), col("y")


class Undefined(Exception):
    """The oracle has no value; a stream uses `instead`."""

    def __init__(self, instead=None):
        super().__init__()
        self.instead = instead


def limits(data_type: DataType) -> tuple[int, int]:
    """The smallest and the largest unscaled value."""
    if data_type.is_integer:
        return -(1 << BITS[data_type]), (1 << BITS[data_type]) - 1
    return 1 - 10**data_type.precision, 10**data_type.precision - 1


def fitted(amount: Fraction, data_type: DataType) -> int | Decimal:
    """The amount as a value of the type, rounded half away from zero."""
    value = rounded(amount * 10 ** (data_type.scale or 0))
    low, high = limits(data_type)
    if not low <= value <= high:
        raise Undefined
    return value if data_type.is_integer else exact(value, data_type.scale)


def random_values(rng, data_type):
    low, high = limits(data_type)
    one = 1 if data_type.is_integer else min(10**data_type.scale, high)

    def value():
        digits = rng.randrange(1, len(str(high)) + 1)
        return rng.choice([low, high, low + 1, 0, 1, -1, one, -one, rng.randrange(-(10**digits), 10**digits), None])

    found = (value() for _ in range(ROWS))
    found = (each if each is None else max(low, min(high, each)) for each in found)
    return [each if each is None or data_type.is_integer else exact(each, data_type.scale) for each in found]


def truncated(x, y):
    """The remainder of a truncating division."""
    return abs(x) % abs(y) * (-1 if x < 0 else 1)


def divided(x, y, data_type):
    if y == 0:
        raise Undefined
    quotient = x / y
    return Fraction(int(quotient)) if data_type.is_integer else quotient


def remainder(x, y, data_type):
    if y == 0:
        raise Undefined
    return truncated(x, y)


BINARY = {
    "add": lambda x, y, _: x + y,
    "subtract": lambda x, y, _: x - y,
    "multiply": lambda x, y, _: x * y,
    "divide": divided,
    "modulo": remainder,
}
COMPARED = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
UNARY = {
    "negate": lambda x: -x,
    "abs": abs,
    "floor": lambda x: Fraction(floor(x)),
    "ceil": lambda x: Fraction(ceil(x)),
    "round": lambda x: x,
}


def chosen_of(values, choose, data_type, *, reads_all):
    """The choice of a function that ignores NULLs; in a stream an argument that does not fit is NULL."""
    found, is_failed = [], False
    for value in values:
        if found and not reads_all:
            break
        try:
            found += [] if value is None else [fitted(Fraction(value), data_type)]
        except Undefined:
            is_failed = True
    result = choose(found) if found else None
    if is_failed:
        raise Undefined(result)
    return result


def bound(term, x, y):
    return ExprBinder(Scope(Schema((Field("x", x), Field("y", y))))).bind(term)


def check(expression: Expression, chunk: DataChunk, compute) -> int:
    """Checks a lenient evaluation, a slice, and a strict one of each row. Returns the number of rows that failed."""
    expected, failed = [], []
    for row in chunk.rows():
        try:
            expected.append(compute(*row))
            failed.append(False)
        except Undefined as error:
            expected.append(error.instead)
            failed.append(True)
    assert evaluate(expression, chunk).array.to_pylist() == expected
    assert evaluate(expression, chunk.slice(5, 9)).array.to_pylist() == expected[5:14]
    for row, (value, is_failed) in enumerate(zip(expected, failed, strict=True)):
        if is_failed:
            with pytest.raises(EvaluationError):
                evaluate(expression, chunk.slice(row, 1), strict=True)
        else:
            assert evaluate(expression, chunk.slice(row, 1), strict=True).array.to_pylist() == [value]
    visibility = np.array([not each for each in failed], np.uint8)
    seen = evaluate(expression, chunk.with_visibility(visibility), strict=True).array.to_pylist()
    assert [each for each, keep in zip(seen, visibility, strict=True) if keep] == [
        each for each, is_failed in zip(expected, failed, strict=True) if not is_failed
    ]
    return sum(failed)


def chunk_of(rng, x, y):
    columns = random_values(rng, x), random_values(rng, y)
    return DataChunk.from_rows(Schema((Field("x", x), Field("y", y))), zip(*columns, strict=True))


def pairs(rng, count):
    return [(DataType.parse(rng.choice(TYPES)), DataType.parse(rng.choice(TYPES))) for _ in range(count)]


@pytest.mark.parametrize("function", BINARY)
def test_binary_operations(function, rng):
    failures = 0
    for x, y in pairs(rng, 30):
        expression = bound(apply(function, X, Y), x, y)

        def compute(a, b, data_type=expression.data_type):
            return None if a is None or b is None else fitted(
                BINARY[function](Fraction(a), Fraction(b), data_type), data_type
            )

        failures += check(expression, chunk_of(rng, x, y), compute)
    assert failures


@pytest.mark.parametrize("function", COMPARED)
def test_comparisons_are_exact_across_scales(function, rng):
    for x, y in pairs(rng, 20):
        chunk = chunk_of(rng, x, y)
        failures = check(
            bound(apply(function, X, Y), x, y),
            chunk,
            lambda a, b: None if a is None or b is None else COMPARED[function](Fraction(a), Fraction(b)),
        )
        assert failures == 0


@pytest.mark.parametrize("function", UNARY)
def test_functions_of_one(function, rng):
    for x, y in pairs(rng, 20):
        expression = bound(apply(function, X), x, y)

        def compute(a, b, data_type=expression.data_type):
            return None if a is None else fitted(UNARY[function](Fraction(a)), data_type)

        check(expression, chunk_of(rng, x, y), compute)


def test_rounding_to_digits(rng):
    for x, y in pairs(rng, 30):
        if x.is_integer:
            continue
        expression = bound(apply("round", X, rng.choice((0, 1, 2, 6, 20, 38))), x, y)
        check(expression, chunk_of(rng, x, y), lambda a, b, to=expression.data_type: a and fitted(Fraction(a), to))


def test_conversions_between_exact_types(rng):
    failures = 0
    for x, y in pairs(rng, 60):
        expression = bound(X.cast(y), x, y)
        failures += check(
            expression, chunk_of(rng, x, y), lambda a, b, to=y: None if a is None else fitted(Fraction(a), to)
        )
    assert failures


def test_choices_take_the_common_type_of_their_branches_on_their_rows_only(rng):
    for x, y in pairs(rng, 30):
        chosen = bound(UnboundCase(((apply("less", X, 0), X),), Y), x, y)

        def case(a, b, data_type=chosen.data_type):
            found = a if a is not None and a < 0 else b
            return None if found is None else fitted(Fraction(found), data_type)

        check(chosen, chunk_of(rng, x, y), case)


@pytest.mark.parametrize("function", ["greatest", "least", "coalesce"])
def test_functions_that_leave_nulls_out(function, rng):
    choose = {"greatest": max, "least": min, "coalesce": lambda values: values[0]}[function]
    for x, y in pairs(rng, 30):
        expression = bound(apply(function, X, Y), x, y)

        def compute(a, b, data_type=expression.data_type):
            return chosen_of((a, b), choose, data_type, reads_all=function != "coalesce")

        check(expression, chunk_of(rng, x, y), compute)


@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide", "modulo"])
def test_the_types_of_a_stored_plan_win(function, rng):
    """The kernel returns the precision and scale of the plan."""
    for x, y in pairs(rng, 30):
        scale = rng.randrange(39)
        wanted = DataType.numeric(rng.randrange(max(scale, 1), 39), scale)
        expression = Call(function, (InputRef(0, DataType.NUMERIC if x.is_integer else x), InputRef(1, y)), wanted)
        first = expression.args[0].data_type

        def compute(a, b, data_type=wanted):
            return None if a is None or b is None else fitted(
                BINARY[function](Fraction(a), Fraction(b), data_type), data_type
            )

        check(expression, chunk_of(rng, first, y), compute)


def test_a_sum_of_mixed_scales_is_no_failure_of_the_kernel():
    """NUMERIC(38, 10) + NUMERIC(38, 30) has up to 60 digits, which the kernel used to reject."""
    x, z = DataType.numeric(38, 10), DataType.numeric(38, 30)
    expression = bound(X + Y, x, z)
    assert expression.data_type == DataType.NUMERIC
    rows = [(Decimal("1.5"), Decimal("2.25")), (exact(10**38 - 1, 10), Decimal("0.5")), (Decimal(0), exact(1, 30))]
    chunk = DataChunk.from_rows(Schema((Field("x", x), Field("y", z))), rows)
    assert evaluate(expression, chunk).array.to_pylist() == [Decimal("3.75"), None, Decimal(0)]


def test_constants_count_by_their_own_digits(rng):
    for x in map(DataType.parse, ("numeric(5, 2)", "numeric(38, 20)", "numeric(12, 0)", "numeric")):
        for text in ("7", "0.125", "1000000", "3.30"):
            value = Decimal(text)
            for function in ("add", "multiply", "divide", "modulo"):
                expression = bound(apply(function, X, lit(value if "." in text else int(text))), x, x)

                def compute(a, b, data_type=expression.data_type, function=function, value=value):
                    return None if a is None else fitted(
                        BINARY[function](Fraction(a), Fraction(value), data_type), data_type
                    )

                check(expression, chunk_of(rng, x, x), compute)


def test_unscaled_values_are_read_back():
    assert unscaled(exact(10**38 - 1, 38), DataType.numeric(38, 38)) == 10**38 - 1
