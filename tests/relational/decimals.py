"""NUMERIC as integers: the oracle for arithmetic beyond the range of any type."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from relational.types import DataType


def exact(value: int, scale: int) -> Decimal:
    """value / 10**scale, with any number of digits."""
    return Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))


def unscaled(value: int | Decimal, data_type: DataType) -> int:
    """The unscaled integer of a value at the scale of its type."""
    amount = Fraction(value) * Fraction(10) ** (data_type.scale or 0)
    assert amount.denominator == 1, (value, data_type)
    return amount.numerator


def rounded(amount: Fraction) -> int:
    """Rounded half away from zero."""
    whole, rest = divmod(abs(amount.numerator), amount.denominator)
    whole += 2 * rest >= amount.denominator
    return -whole if amount < 0 else whole
