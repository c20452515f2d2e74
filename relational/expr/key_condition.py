"""Conditions on the leading columns of a key: the part of a predicate by which rows are found instead of read.

Of each key column in turn: it equals one constant or one of several (=, IN, IS NULL, IS NOT DISTINCT FROM, an OR of
these); the first that does not may be within bounds (<, <=, >, >=, BETWEEN), and ends the condition. The constants may
contain parameters, so a condition is resolved to values when it is executed. A constant that the column cannot
represent equals none of its values [R60]; as a bound it becomes the nearest value that the column has.

A column that is converted to the constant's type is seen through where the conversion keeps values apart and in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import ROUND_FLOOR, Decimal
from itertools import product
from typing import Any

import numpy as np

from relational.expr.coercion import WIDE, digits, is_exact
from relational.expr.eval import constant_value
from relational.expr.expression import Call, Cast, Expression, InputRef, Literal, is_constant
from relational.expr.parameters import with_values
from relational.types.data_type import DataType, TypeKind
from relational.types.key_set import KeySet, RowRange

MOST_KEYS = 16_384
"""Whole keys that are looked up for one condition."""
MOST_RANGES = 4_096
"""Ranges of keys, one for each vnode, that are read for one condition because of its constants."""
_SIGNS = {"equal": "=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_FUNCTIONS = {sign: function for function, sign in _SIGNS.items()}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGER_BITS = {TypeKind.SMALLINT: 15, TypeKind.INT: 31, TypeKind.BIGINT: 63}
_FLOAT_DIGITS = {TypeKind.SMALLINT: (TypeKind.REAL, TypeKind.DOUBLE), TypeKind.INT: (TypeKind.DOUBLE,),
                 TypeKind.REAL: (TypeKind.DOUBLE,)}
"""Floating types that represent every value of a narrower type."""
_UNORDERED = (TypeKind.JSONB, TypeKind.STRUCT, TypeKind.LIST)
"""Types that are compared with constants for equality only."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A key column compared with a constant: `sign` is =, <, <=, > or >=. `is_null_safe`: NULL equals NULL."""

    sign: str
    value: Expression
    is_null_safe: bool = False


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """`equal`: of each leading key column the comparisons one of which is true; `bounds`: those of the next one, all of
    which are. `types`: of all these columns."""

    equal: tuple[tuple[Comparison, ...], ...]
    bounds: tuple[Comparison, ...]
    types: tuple[DataType, ...]

    @property
    def width(self) -> int:
        """The number of key columns that equal constants."""
        return len(self.equal)

    def resolve(self, given: Sequence[Literal] = ()) -> KeySet:
        """The set of rows, with the values `given` of the parameters by number; EvaluationError for a constant without
        a value."""
        values = [
            [found for each in alternatives for found in equal_values(each, data_type, given)]
            for alternatives, data_type in zip(self.equal, self.types, strict=False)
        ]
        prefixes = tuple(product(*values))
        if not self.bounds or not prefixes:
            return KeySet(prefixes)
        bounds = _range_of(self.bounds, self.types[-1], given)
        return KeySet(()) if bounds is None else KeySet(prefixes, bounds)

    def describe(self, names: Sequence[str]) -> str:
        """The condition as text; `names` are those of the key columns."""
        texts = []
        for name, each_type, alternatives in zip(names, self.types, self.equal, strict=False):
            shown = [each.value.describe() for each in alternatives]
            if alternatives == (Comparison("=", Literal(None, each_type), True),):
                texts.append(f"{name} IS NULL")
            else:
                texts.append(f"{name} = {shown[0]}" if len(shown) == 1 else f"{name} IN ({_shortened(shown)})")
        texts += [f"{names[self.width]} {each.sign} {each.value.describe()}" for each in self.bounds]
        return ", ".join(texts)


def key_condition(
    terms: Sequence[Expression], columns: Sequence[int | None], types: Sequence[DataType], most: Callable[[int], int]
) -> tuple[KeyCondition | None, tuple[Expression, ...]]:
    """The condition that `terms`, all of which are true, have on a key, None if they have none; and the terms that it
    does not imply.

    `columns`: the position in the input of each key column, None where the input lacks it. `most(width)`: how many
    combinations of constants of the first `width` columns may be tried."""
    known = [(term, _comparisons(term)) for term in terms]
    equal: list[tuple[Comparison, ...]] = []
    bounds: list[Comparison] = []
    used: list[Expression] = []
    combinations = 1
    for column, data_type in zip(columns, types, strict=True):
        of_column = [(term, found) for term, (index, found) in known if index == column is not None]
        points = [(term, found) for term, found in of_column if all(each.sign == "=" for each in found)]
        points.sort(key=lambda each: len(each[1]))
        if points and combinations * len(points[0][1]) <= most(len(equal) + 1):
            term, alternatives = points[0]
            combinations *= len(alternatives)
            equal.append(alternatives)
            used.append(term)
            continue
        ranges = [(term, found) for term, found in of_column if found and found[0].sign != "="]
        if data_type.kind not in _UNORDERED:
            bounds += [found[0] for _, found in ranges]
            used += [term for term, _ in ranges]
        break
    rest = tuple(term for term in terms if not any(term is each for each in used))
    if not used:
        return None, rest
    width = len(equal) + bool(bounds)
    return KeyCondition(tuple(equal), tuple(bounds), tuple(types[:width])), rest


def narrowed(term: Expression) -> Expression:
    """A term of a filter as a comparison in the type of its column, where that is converted to the wider type of a
    literal: true for the same rows, but FALSE may stand for NULL."""
    column, comparisons = _comparisons(term)
    if column is None or len(comparisons) != 1 or not isinstance(term, Call) or len(term.args) != 2:
        return term
    (each,) = comparisons
    side = next((arg for arg in term.args if not isinstance(arg, Literal)), None)
    if not isinstance(side, Cast) or not isinstance(each.value, Literal) or each.value.value is None:
        return term
    while isinstance(side, Cast):
        side = side.operand
    found, is_exact_value = _floor(each.value.value, side.data_type)
    if is_exact_value:
        return Call(_FUNCTIONS[each.sign], (side, Literal(found, side.data_type)), DataType.BOOLEAN)
    if each.sign == "=":
        return Literal(False, DataType.BOOLEAN)
    if found is None:
        return Literal(False, DataType.BOOLEAN) if each.sign[0] == "<" else Call(
            "is_not_null", (side,), DataType.BOOLEAN)
    sign = "<=" if each.sign[0] == "<" else ">"
    return Call(_FUNCTIONS[sign], (side, Literal(found, side.data_type)), DataType.BOOLEAN)


def most_combinations(width: int, key: Sequence[int], distribution: Sequence[int], vnodes: int) -> int:
    """How many combinations of constants of the first `width` columns of the key of a stored table are tried."""
    if width == len(key):
        return MOST_KEYS
    return MOST_RANGES if set(distribution) <= set(key[:width]) else max(MOST_RANGES // vnodes, 1)


def _comparisons(term: Expression) -> tuple[int | None, tuple[Comparison, ...]]:
    """The input column that a term compares with constants, and its comparisons, one of which is true; (None, ()) for
    any other term."""
    if not isinstance(term, Call):
        return None, ()
    if term.function == "or":
        return _either(term.args)
    if term.function == "is_null":
        column = _column_of(term.args[0])
        return column, (Comparison("=", Literal(None, term.args[0].data_type), True),)
    if term.function in ("in", "in_list"):
        return _members(term)
    if term.function not in _SIGNS and term.function != "is_not_distinct":
        return None, ()
    sign, is_null_safe = _SIGNS.get(term.function, "="), term.function == "is_not_distinct"
    one, other = term.args
    if _column_of(one) is not None and is_constant(other):
        return _column_of(one), (Comparison(sign, other, is_null_safe),)
    if _column_of(other) is not None and is_constant(one):
        return _column_of(other), (Comparison(_MIRRORED.get(sign, sign), one, is_null_safe),)
    return None, ()


def _either(args: Sequence[Expression]) -> tuple[int | None, tuple[Comparison, ...]]:
    """An OR of equalities of one column."""
    found: list[Comparison] = []
    columns = set()
    for arg in args:
        column, comparisons = _comparisons(arg)
        if column is None or any(each.sign != "=" for each in comparisons):
            return None, ()
        columns.add(column)
        found += comparisons
    return (columns.pop(), tuple(found)) if len(columns) == 1 else (None, ())


def _members(term: Call) -> tuple[int | None, tuple[Comparison, ...]]:
    """The members of an IN; NULL equals nothing."""
    needle, *members = term.args
    column = _column_of(needle)
    if term.function == "in_list":
        (listed,) = members
        assert isinstance(listed, Literal), term
        members = [Literal(member, needle.data_type) for member in listed.value]
    if column is None or not all(map(is_constant, members)):
        return None, ()
    return column, tuple(Comparison("=", member) for member in members)


def _column_of(side: Expression) -> int | None:
    """The input column that a side of a comparison is, possibly converted to a type that keeps its values apart and in
    order."""
    while isinstance(side, Cast) and _keeps_order(side.operand.data_type, side.data_type):
        side = side.operand
    return side.index if isinstance(side, InputRef) else None


def _keeps_order(source: DataType, target: DataType) -> bool:
    if source.kind is TypeKind.DATE:
        return target.kind is TypeKind.TIMESTAMP
    if is_exact(source) and is_exact(target):
        whole, scale = (19, 0) if source.kind is TypeKind.BIGINT else digits(source)
        return digits(target)[0] >= whole and digits(target)[1] >= scale
    return target.kind in _FLOAT_DIGITS.get(source.kind, ())


def _shortened(shown: Sequence[str], most: int = 4) -> str:
    listed = ", ".join(shown[:most])
    return listed if len(shown) <= most else f"{listed}, … {len(shown)} values"


# -- values ------------------------------------------------------------------------------------------------


def equal_values(each: Comparison, data_type: DataType, given: Sequence[Literal] = ()) -> tuple[Any, ...]:
    """The value of the column that a comparison is true for; () for none. `given`: the values of its parameters."""
    value = _value_of(each, given)
    if value is None:
        return (None,) if each.is_null_safe else ()
    found, is_exact_value = _floor(value, data_type)
    return (found,) if is_exact_value else ()


def _value_of(each: Comparison, given: Sequence[Literal]) -> Any:
    return constant_value(with_values(each.value, given) if given else each.value)


def _range_of(bounds: Sequence[Comparison], data_type: DataType, given: Sequence[Literal]) -> RowRange | None:
    """The values that all comparisons are true for; None for none."""
    lower = upper = None
    has_lower = has_upper = True
    for each in bounds:
        value = _value_of(each, given)
        if value is None:
            return None
        found, is_exact_value = _floor(value, data_type)
        is_lower = each.sign[0] == ">"
        includes = each.sign in (">=", "<=") if is_exact_value else not is_lower
        if found is None:  # below all values of the type
            if not is_lower:
                return None
            continue
        if is_lower and (lower is None or _is_less(lower, found) or not (includes or _is_less(found, lower))):
            lower, has_lower = found, includes
        if not is_lower and (upper is None or _is_less(found, upper) or not (includes or _is_less(upper, found))):
            upper, has_upper = found, includes
    return RowRange(lower, upper, has_lower, has_upper)


def _is_less(one: Any, other: Any) -> bool:
    """In SQL's order: NaN is above all numbers, an interval is as long as its normal form."""
    if isinstance(one, float) and math.isnan(one):
        return False
    if isinstance(other, float) and math.isnan(other):
        return True
    return bool(one < other)


def _floor(value: Any, data_type: DataType) -> tuple[Any, bool]:
    """The greatest value of the type that is not above a constant, and whether it equals the constant; None if all
    values of the type are above it."""
    if data_type.is_integer:
        return _floor_integer(value, 1 << _INTEGER_BITS[data_type.kind])
    if data_type.kind is TypeKind.NUMERIC:
        return _floor_numeric(Decimal(value), data_type)
    if data_type.kind is TypeKind.REAL:
        return _floor_real(float(value))
    if data_type.kind is TypeKind.DATE and isinstance(value, datetime):
        return value.date(), value.time() == time(0)
    if data_type.kind is TypeKind.DATE:
        assert isinstance(value, date)
    return float(value) if data_type.kind is TypeKind.DOUBLE else value, True


def _floor_integer(value: Any, limit: int) -> tuple[int | None, bool]:
    if isinstance(value, float) and not math.isfinite(value):
        return (None, False) if value < 0 else (limit - 1, False)
    whole = math.floor(value)
    if whole < -limit:
        return None, False
    return (limit - 1, False) if whole >= limit else (whole, whole == value)


def _floor_numeric(value: Decimal, data_type: DataType) -> tuple[Decimal | None, bool]:
    whole, scale = digits(data_type)
    step = Decimal(1).scaleb(-scale)
    most = WIDE.subtract(Decimal(1).scaleb(whole), step)
    found = value.quantize(step, rounding=ROUND_FLOOR, context=WIDE)
    if found < most.copy_negate():
        return None, False
    return (most, False) if found > most else (found, found == value)


def _floor_real(value: float) -> tuple[float | None, bool]:
    with np.errstate(over="ignore"):
        found = np.float32(value)
    if float(found) > value:
        found = np.nextafter(found, np.float32(-np.inf))
    return float(found), math.isnan(value) or float(found) == value


