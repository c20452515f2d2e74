"""Decimal kernels against Python's integers."""

import random

import pyarrow as pa
import pytest

from relational.expr.kernels import decimal_arithmetic, decimal_compare, decimal_rescale

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
    """The exact result at `scale`, or the fault."""
    if operation == MULTIPLY:
        return half_away(a * b, 10 ** (scale_a + scale_b - scale))
    if operation == DIVIDE:
        return None if b == 0 else half_away(a * 10 ** (scale - scale_a + scale_b), b)
    a, b = a * 10 ** (scale - scale_a), b * 10 ** (scale - scale_b)
    if operation == MODULO:
        return None if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1)
    return a + b if operation == ADD else a - b


def some_decimals(rng, count):
    digits = (rng.choice((0, 1, 3, 17, 19, 20, 37, 38)) for _ in range(count))
    return [rng.randint(-(10**digit) + 1, 10**digit - 1) for digit in digits]


@pytest.mark.parametrize("operation", [ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO])
@pytest.mark.parametrize(("scale_a", "scale_b", "scale"), [(0, 0, 0), (2, 10, 10), (10, 10, 10), (10, 0, 12)])
def test_each_row_is_exact_or_marked(operation, scale_a, scale_b, scale):
    if operation not in (MULTIPLY, DIVIDE):
        scale = max(scale_a, scale_b)
    elif operation == MULTIPLY:
        scale = min(scale, scale_a + scale_b)
    rng = random.Random(7)
    a, b = some_decimals(rng, 800), some_decimals(rng, 800)
    data, faults = decimal_arithmetic(
        operation, unscaled_array(a, scale_a), unscaled_array(b, scale_b), 800, scale_a, scale_b, 38, scale
    )
    for row, got in enumerate(unscaled(data)):
        want = expected(operation, a[row], b[row], scale_a, scale_b, scale)
        if want is None:
            assert faults[row] == 2
        elif faults[row]:
            limit = 10**38 - 1
            operands = max(abs(a[row]) * 10 ** (scale - scale_a), abs(b[row]) * 10 ** (scale - scale_b))
            assert abs(want) > limit or (operation in (ADD, SUBTRACT, MODULO) and operands > limit)
        else:
            assert got == want, (a[row], b[row])


def test_one_row_stands_for_all_and_offsets_are_honoured():
    a = unscaled_array([9, 100, 250, -350], 2).slice(1)
    data, faults = decimal_arithmetic(ADD, a, unscaled_array([1], 0), 3, 2, 0, 38, 2)
    assert unscaled(data) == [200, 350, -250]
    assert not faults.any()


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
