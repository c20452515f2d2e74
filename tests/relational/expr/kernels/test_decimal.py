"""Decimal kernels against Python's integers."""

import random

import pyarrow as pa
import pytest

from relational.expr.kernels.decimal import decimal_arithmetic, decimal_compare, decimal_rescale

ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO = range(5)


def unscaled_array(values: list[int], scale: int) -> pa.Array:
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(values), [None, pa.py_buffer(data)])


def unscaled(data) -> list[int]:
    raw = data.tobytes()
    return [int.from_bytes(raw[at : at + 16], "little", signed=True) for at in range(0, len(raw), 16)]


def half_away(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(abs(numerator), abs(denominator))
    quotient += 2 * remainder >= abs(denominator)
    return -quotient if (numerator < 0) != (denominator < 0) else quotient


def expected(operation, a, b, scale_a, scale_b, scale):
    """The exact result, rounded once at `scale`; None for a division by zero."""
    common = max(scale_a, scale_b)
    if operation in (DIVIDE, MODULO) and b == 0:
        return None
    if operation == DIVIDE:
        return half_away(a * 10 ** (scale + scale_b), b * 10**scale_a)
    if operation == MULTIPLY:
        exact, at = a * b, scale_a + scale_b
    else:
        a, b, at = a * 10 ** (common - scale_a), b * 10 ** (common - scale_b), common
        remainder = 0 if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1)
        exact = {ADD: a + b, SUBTRACT: a - b, MODULO: remainder}[operation]
    return half_away(exact * 10**scale, 10**at)


def some_decimals(rng, count):
    digits = (rng.choice((0, 1, 3, 17, 19, 20, 37, 38)) for _ in range(count))
    return [rng.randint(-(10**digit) + 1, 10**digit - 1) for digit in digits]


@pytest.mark.parametrize("operation", [ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO])
def test_each_row_is_exact_or_out_of_range(operation, rng):
    """Any scales of operands and result, any precision of the result."""
    for _ in range(120):
        scale_a, scale_b, scale = (rng.choice((0, 1, 2, 10, 19, 20, 30, 37, 38)) for _ in range(3))
        precision = rng.choice((38, 38, 38, max(scale, 1), rng.randint(max(scale, 1), 38)))
        a, b = some_decimals(rng, 60), some_decimals(rng, 60)
        data, faults = decimal_arithmetic(
            operation, unscaled_array(a, scale_a), unscaled_array(b, scale_b), 60, scale_a, scale_b, precision, scale
        )
        for row, got in enumerate(unscaled(data)):
            want = expected(operation, a[row], b[row], scale_a, scale_b, scale)
            fault = 2 if want is None else int(abs(want) >= 10**precision)
            assert faults[row] == fault, (a[row], b[row], scale_a, scale_b, scale)
            assert fault or got == want, (a[row], b[row], scale_a, scale_b, scale)


@pytest.mark.parametrize("operation", [ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO])
def test_halves_round_away_from_zero_wherever_they_are_cut(operation):
    """1 to 38 digits are cut off."""
    for cut in range(1, 39):
        for a in (5 * 10 ** (cut - 1), 5 * 10 ** (cut - 1) - 1, 15 * 10 ** (cut - 1)):
            if a >= 10**38:
                continue
            b, scale_b = (7 * 10 ** (cut - 1), cut) if operation == MODULO else (10 ** (38 - cut), 38 - cut)
            scale_b = scale_b if operation in (MULTIPLY, DIVIDE, MODULO) else cut
            data, faults = decimal_arithmetic(
                operation, unscaled_array([a, -a], cut), unscaled_array([b, b], scale_b), 2, cut, scale_b, 38, 0
            )
            want = [expected(operation, sign * a, b, cut, scale_b, 0) for sign in (1, -1)]
            assert not faults.any() and unscaled(data) == want, (a, b)


def test_one_row_is_a_constant_and_offsets_are_honoured():
    a = unscaled_array([9, 100, 250, -350], 2).slice(1)
    data, faults = decimal_arithmetic(ADD, a, unscaled_array([1], 0), 3, 2, 0, 38, 2)
    assert unscaled(data) == [200, 350, -250]
    assert not faults.any()


def test_rescale_to_any_type(rng):
    for _ in range(200):
        source, scale = rng.randint(0, 38), rng.randint(0, 38)
        precision = rng.randint(max(scale, 1), 38)
        values = some_decimals(rng, 30)
        data, faults = decimal_rescale(unscaled_array(values, source), source, precision, scale)
        for value, got, fault in zip(values, unscaled(data), faults, strict=True):
            want = half_away(value * 10**scale, 10**source)
            assert fault == (abs(want) >= 10**precision) and (fault or got == want)


def test_rescale_rounds_half_away_from_zero():
    data, faults = decimal_rescale(unscaled_array([25, -25, 24, 10**37], 1), 1, 10, 0)
    assert unscaled(data)[:3] == [3, -3, 2]
    assert list(faults) == [0, 0, 0, 1]


def test_comparison_is_by_value_across_scales():
    rng = random.Random(11)
    a, b = some_decimals(rng, 500), some_decimals(rng, 500)
    b[:50] = [value * 10**8 for value in a[:50]] if max(map(abs, a[:50])) < 10**30 else b[:50]
    signs = decimal_compare(unscaled_array(a, 2), unscaled_array(b, 10), 500, 2, 10)
    assert list(signs) == [(x * 10**8 > y) - (x * 10**8 < y) for x, y in zip(a, b, strict=True)]
