"""Rows of the registry: mathematics."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from relational.expr.coercion import is_exact
from relational.expr.kernels import arithmetic, mathematics
from relational.expr.kernels.mathematics import (
    finite,
    floating,
    has_log_to_base,
    has_power,
    in_degrees,
    of_degrees,
    positive,
    within_one,
)
from relational.expr.kernels.per_value import per_value
from relational.expr.registry.operators import same_number
from relational.expr.signature import Kernel, Overload, Types, row
from relational.types.data_type import DataType, TypeKind

_LOGARITHM = "a logarithm of a number that is not positive"
_POWER = "a power that is no real number"


def _to_digits(kernel: Kernel, carries: bool) -> Overload:
    """Of an exact number and a number of digits: its type, with a digit more if it `carries`."""

    def fits(types: Types) -> tuple[Types, DataType] | None:
        if len(types) != 2 or not is_exact(types[0]) or types[1] not in (DataType.INT, DataType.SMALLINT):
            return None
        number = types[0]
        if number.kind is TypeKind.NUMERIC and number.precision is not None and number.scale is not None:
            number = DataType.numeric(min(number.precision + carries, 38), number.scale)
        else:
            number = DataType.numeric(19 + carries, 0)
        return (number, DataType.INT), number

    return Overload(fits, kernel)


def _double(kernel: Kernel, count: int = 1) -> tuple[Overload, ...]:
    return (row(", ".join(["double"] * count) + " -> double", kernel),)


def _cotangent(x: np.ndarray) -> np.ndarray:
    return 1 / np.tan(x)


def _hyperbolic_cotangent(x: np.ndarray) -> np.ndarray:
    return 1 / np.tanh(x)


ROWS: dict[str, tuple[Overload, ...]] = {
    "abs": (same_number(arithmetic.absolute),),
    "acos": _double(floating(np.arccos, within_one)),
    "acosd": _double(floating(mathematics.arccosine_in_degrees, within_one)),
    "acosh": _double(floating(np.arccosh, lambda x: x >= 1)),
    "asin": _double(floating(np.arcsin, within_one)),
    "asind": _double(floating(mathematics.arcsine_in_degrees, within_one)),
    "asinh": _double(floating(np.arcsinh)),
    "atan": _double(floating(np.arctan)),
    "atan2": _double(floating(np.arctan2), 2),
    "atan2d": _double(floating(in_degrees(np.arctan2)), 2),
    "atand": _double(floating(in_degrees(np.arctan))),
    "atanh": _double(floating(np.arctanh, within_one, has_poles=True)),
    "cbrt": _double(floating(np.cbrt)),
    "ceil": (same_number(arithmetic.ceil, drop_scale=True, keep_whole=True),),
    "cos": _double(floating(np.cos, finite)),
    "cosd": _double(floating(of_degrees(np.cos), finite)),
    "cosh": _double(floating(np.cosh)),
    "cot": _double(floating(_cotangent, finite, has_poles=True)),
    "coth": _double(floating(_hyperbolic_cotangent, has_poles=True)),
    "cotd": _double(floating(of_degrees(_cotangent), finite, has_poles=True)),
    "degrees": _double(floating(np.degrees)),
    "div": (row("exact, exact -> numeric(38, 0)", per_value(mathematics.quotient)),),
    "erf": _double(per_value(math.erf)),
    "erfc": _double(per_value(math.erfc)),
    "exp": _double(floating(np.exp)),
    "factorial": (row("bigint -> numeric(38, 0)", per_value(mathematics.factorial)),),
    "floor": (same_number(arithmetic.floor, drop_scale=True, keep_whole=True),),
    "gamma": _double(per_value(mathematics.gamma)),
    "gcd": (row("bigint, bigint -> bigint", per_value(mathematics.greatest_divisor)),),
    "lcm": (row("bigint, bigint -> bigint", per_value(mathematics.least_multiple)),),
    "lgamma": _double(per_value(mathematics.log_gamma)),
    "ln": _double(floating(np.log, positive, _LOGARITHM)),
    "log": (
        *_double(floating(np.log10, positive, _LOGARITHM)),
        *_double(floating(mathematics.log_to_base, has_log_to_base, _LOGARITHM), 2),
    ),
    "min_scale": (row("exact -> int", per_value(mathematics.least_scale)),),
    "pi": (row("-> double", lambda evaluation, args, result: pa.scalar(np.pi)),),
    "power": _double(floating(mathematics.power, has_power, _POWER), 2),
    "radians": _double(floating(np.radians)),
    "round": (same_number(arithmetic.round_half_away, drop_scale=True),),
    "round_to": (
        _to_digits(per_value(mathematics.rounded), True),
        row("double, int -> double", mathematics.rounded_double),
    ),
    "scale": (row("exact -> int", per_value(mathematics.scale)),),
    "sign": (
        row("exact -> numeric(1, 0)", mathematics.exact_sign),
        *_double(mathematics.sign),
    ),
    "sin": _double(floating(np.sin, finite)),
    "sind": _double(floating(of_degrees(np.sin), finite)),
    "sinh": _double(floating(np.sinh)),
    "sqrt": _double(arithmetic.square_root),
    "tan": _double(floating(np.tan, finite)),
    "tand": _double(floating(of_degrees(np.tan), finite, has_poles=True)),
    "tanh": _double(floating(np.tanh)),
    "trim_scale": (row("exact -> first", per_value(lambda value: value)),),
    "trunc": (
        _to_digits(per_value(mathematics.truncated), False),
        same_number(arithmetic.truncated, drop_scale=True, keep_whole=True),
    ),
    "width_bucket": (row("double, double, double, int -> int", per_value(mathematics.width_bucket)),),
}
"""Functions of one family by their names, with an overload for each signature."""
