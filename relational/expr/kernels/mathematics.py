"""Kernels of mathematics: functions of DOUBLEs over numpy, of integers bit by bit, of exact numbers per value.

A row outside of a function's domain, or whose result is beyond the largest DOUBLE, has no value, as in PostgreSQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from math import gcd, lcm

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.coercion import WIDE
from relational.expr.eval_context import EvalContext, Value, from_numbers, numbers, valid_rows
from relational.expr.kernels.arithmetic import DIVISION_BY_ZERO, OUT_OF_RANGE
from relational.expr.kernels.per_value import NoValue
from relational.expr.signature import Kernel
from relational.types.data_type import DataType

OUT_OF_DOMAIN = "input is out of range"
MAX_FACTORIAL = 33  # 38 digits
_BIG = 1 << 63
_MAX_EXPONENT = 308  # of a power of ten that is a DOUBLE
_MAX_EXACT = 22  # above it a power of ten is rounded as a DOUBLE
_MAX_FRACTIONAL = 2.0**52  # from it on a DOUBLE has no fraction
_ANY_DOUBLE = Context(prec=2 * _MAX_EXPONENT + 20)
Domain = Callable[..., np.ndarray]


def floating(
    function: Callable[..., np.ndarray],
    domain: Domain | None = None,
    reason: str = OUT_OF_DOMAIN,
    *,
    has_poles: bool = False,
) -> Kernel:
    """The kernel of a function of arrays of DOUBLEs, defined where `domain` is true. Its result is infinite for finite
    arguments only if it `has_poles`.
    """

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        columns = [evaluation.column(arg) for arg in args]
        values = [numbers(column, "<f8") for column in columns]
        valid = np.ones(evaluation.rows, np.bool_)
        for column in columns:
            valid &= valid_rows(column)
        with np.errstate(all="ignore"):
            if domain is not None:
                outside = valid & ~domain(*values) & ~np.isnan(values).any(axis=0)
                evaluation.fail(outside, reason)
                valid &= ~outside
            found = np.asarray(function(*values), np.float64)
        beyond = valid & np.isinf(found) & np.isfinite(values).all(axis=0) & (not has_poles)
        evaluation.fail(beyond, OUT_OF_RANGE)
        return from_numbers(found, result.arrow, valid & ~beyond)

    return kernel


def positive(x: np.ndarray) -> np.ndarray:
    return x > 0


def within_one(x: np.ndarray) -> np.ndarray:
    return np.abs(x) <= 1


def finite(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x)


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the power of y; 1 where x is 1 or y is 0."""
    return np.power(x, y)


def has_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether the power is a real number."""
    return ~((x == 0) & (y < 0)) & ~((x < 0) & np.isfinite(x) & np.isfinite(y) & (y != np.floor(y)))


def log_to_base(base: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.log(x) / np.log(base)


def has_log_to_base(base: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (base > 0) & (x > 0) & (base != 1)


def of_degrees(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of an angle in degrees, exact where its value is 0, ½ or 1. A pole has the sign of the quadrant that
    ends there, and at 0 of the first one, as in PostgreSQL."""

    def applied(x: np.ndarray) -> np.ndarray:
        angle = np.fmod(x, 360.0)
        found = function(np.radians(angle))
        rounded = np.round(found * 2) / 2
        is_nice = (np.fmod(x, 15.0) == 0) & (np.abs(found - rounded) < 1e-12)
        half = np.abs(angle) > 180.0
        upper = np.where(half, 360.0 - np.abs(angle), np.abs(angle))
        pole = np.where((angle < 0) ^ half ^ (upper > 90.0), -np.inf, np.inf)
        return np.where(np.abs(found) > 1e15, pole, np.where(is_nice, rounded + 0.0, found))

    return applied


def arcsine_in_degrees(x: np.ndarray) -> np.ndarray:
    """In steps from the angles of 0, ½ and 1, which are exact."""
    size = np.abs(x)
    near = np.arcsin(np.minimum(size, 0.5)) / np.arcsin(0.5) * 30.0
    far = 90.0 - np.arccos(size) / np.arccos(0.5) * 60.0
    return np.copysign(np.where(size <= 0.5, near, far), x)


def arccosine_in_degrees(x: np.ndarray) -> np.ndarray:
    """As `arcsine_in_degrees`."""
    near = 90.0 - np.arcsin(np.clip(x, -0.5, 0.5)) / np.arcsin(0.5) * 30.0
    size = np.arccos(np.abs(x)) / np.arccos(0.5) * 60.0
    return np.where(np.abs(x) <= 0.5, near, np.where(x > 0, size, 180.0 - size))


def in_degrees(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The angle of an inverse function in degrees, exact where it is a multiple of 15."""

    def applied(*args: np.ndarray) -> np.ndarray:
        found = np.degrees(function(*args))
        rounded = np.round(found / 15) * 15
        return np.where(np.abs(found - rounded) < 1e-12, rounded, found)

    return applied


def bitwise(function: Callable[..., np.ndarray]) -> Kernel:
    """The kernel of a function of integers of one type."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        columns = [evaluation.column(arg) for arg in args]
        valid = np.ones(evaluation.rows, np.bool_)
        for column in columns:
            valid &= valid_rows(column)
        dtype = result.arrow.to_pandas_dtype()
        return from_numbers(function(*(numbers(column, dtype) for column in columns)), result.arrow, valid)

    return kernel


def shifted(to_left: bool) -> Kernel:
    """The kernel of << and >>, by the lowest bits of an INT."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        column, count = (evaluation.column(arg) for arg in args)
        dtype = result.arrow.to_pandas_dtype()
        values = numbers(column, dtype).astype(np.int64)
        bits = numbers(count, "<i4").astype(np.int64) & (63 if np.dtype(dtype).itemsize == 8 else 31)
        moved = np.left_shift(values, bits) if to_left else np.right_shift(values, bits)
        return from_numbers(moved.astype(dtype), result.arrow, valid_rows(column) & valid_rows(count))

    return kernel


def sign(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """-1, 0 or 1 of a DOUBLE; NaN of NaN."""
    array = evaluation.column(args[0])
    return from_numbers(np.sign(numbers(array, "<f8")), result.arrow, valid_rows(array))


def exact_sign(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """-1, 0 or 1 of an exact number."""
    signs = pc.sign(evaluation.column(args[0])).cast(pa.int64())
    return signs.cast(pa.decimal128(19, 0)).cast(result.arrow)


def truncated(value: Decimal | int, digits: int) -> Decimal:
    """Without the digits after position `digits`, which is before the point where it is negative."""
    return _cut(Decimal(value), digits, ROUND_DOWN)


def rounded(value: Decimal, digits: int) -> Decimal:
    """Half away from zero, at position `digits`, which is before the point where it is negative."""
    return _cut(value, digits, ROUND_HALF_UP)


def rounded_double(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """round(DOUBLE, digits): half away from zero by the shortest decimal text, as a NUMERIC of it is rounded. Only
    numbers that are close to a half are read as that text.
    """
    column, places = (evaluation.column(arg) for arg in args)
    valid = valid_rows(column) & valid_rows(places)
    values = np.where(valid, numbers(column, "<f8"), 0.0)
    digits = np.clip(np.where(valid, numbers(places, "<i4"), 0), -_MAX_EXPONENT, _MAX_EXPONENT)
    unit = 10.0 ** np.abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(digits < 0, values / unit, values * unit)
        has_fraction = np.abs(scaled) < _MAX_FRACTIONAL
        whole = np.trunc(scaled + np.copysign(0.5, scaled))
        found = np.where(has_fraction, np.where(digits < 0, whole * unit, whole / unit), values)
        distance = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
        is_close = has_fraction & (distance <= 4 * np.spacing(np.abs(scaled) + 0.5))
    is_close |= has_fraction & (np.abs(digits) > _MAX_EXACT)
    for row in np.flatnonzero(is_close & valid):
        unit_of_row = Decimal(1).scaleb(-int(digits[row]))
        exact = Decimal(repr(float(values[row]))).quantize(unit_of_row, ROUND_HALF_UP, context=_ANY_DOUBLE)
        found[row] = float(exact)
    return from_numbers(found, result.arrow, valid)


def _cut(value: Decimal, digits: int, rounding: str) -> Decimal:
    if digits < -38:
        return Decimal(0)
    scale = min(digits, max(-int(value.as_tuple().exponent), 0))
    found = value.quantize(Decimal(1).scaleb(-scale), rounding=rounding, context=WIDE)
    return found.quantize(Decimal(1), context=WIDE) if scale < 0 else found


def quotient(left: Decimal | int, right: Decimal | int) -> Decimal:
    """The quotient without its fraction."""
    if right == 0:
        raise NoValue(DIVISION_BY_ZERO)
    return _fitting(WIDE.divide_int(Decimal(left), Decimal(right)))


def factorial(value: int) -> Decimal:
    if value < 0:
        raise NoValue("a factorial of a negative number")
    if value > MAX_FACTORIAL:
        raise NoValue(OUT_OF_RANGE)
    product = 1
    for factor in range(2, value + 1):
        product *= factor
    return Decimal(product)


def greatest_divisor(left: int, right: int) -> int:
    return _within_word(gcd(left, right))


def least_multiple(left: int, right: int) -> int:
    return _within_word(lcm(left, right))


def _within_word(value: int) -> int:
    if not -_BIG <= value < _BIG:
        raise NoValue(OUT_OF_RANGE)
    return value


def _fitting(value: Decimal) -> Decimal:
    if abs(value) >= Decimal(10) ** 38:
        raise NoValue(OUT_OF_RANGE)
    return value


def width_bucket(value: float, low: float, high: float, count: int) -> int:
    """The number of the bucket of `count` equal ones between two bounds; 0 below and count + 1 above."""
    if count <= 0:
        raise NoValue("the number of buckets is 1 at least")
    if low == high or any(each != each for each in (value, low, high)) or abs(low) + abs(high) == float("inf"):
        raise NoValue("the bounds of buckets are two finite numbers")
    if low > high:
        value, low, high = -value, -low, -high
    if value < low:
        return 0
    return count + 1 if value >= high else _bucket(value, low, high, count)


def _bucket(value: float, low: float, high: float, count: int) -> int:
    exact = (Decimal(value) - Decimal(low)) / (Decimal(high) - Decimal(low)) * count
    return min(int(exact), count - 1) + 1


def scale(value: Decimal | int) -> int:
    """The digits after the point."""
    return max(-int(Decimal(value).as_tuple().exponent), 0)


def least_scale(value: Decimal | int) -> int:
    """The digits after the point that the value needs."""
    return max(-int(Decimal(value).normalize(WIDE).as_tuple().exponent), 0)


def gamma(x: float) -> float:
    """NoValue at its poles and beyond the largest DOUBLE."""
    try:
        found = math.gamma(x)
    except (ValueError, OverflowError):
        raise NoValue(OUT_OF_RANGE) from None
    if found == 0 and x != 0:
        raise NoValue(OUT_OF_RANGE)
    return found


def log_gamma(x: float) -> float:
    """The logarithm of the absolute value of gamma. NoValue at its poles."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        raise NoValue(OUT_OF_RANGE) from None
