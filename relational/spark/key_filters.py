"""Key filters of a read: a condition as ranges of user keys to read, and the remainder that the tasks evaluate.

Equality on the leading key columns and a range on the next one become a key range; equality on all distribution columns
selects one vnode. Other conditions are evaluated row by row, and so is a condition whose value is not of the column's
type.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hummock.base.key import KeyRange
from relational.catalog.objects import TableCatalog
from relational.table.key_ranges import key_ranges
from relational.table.row_serde import Row, RowSerde
from relational.types.data_type import TypeKind
from relational.types.key_set import RowRange

OPERATORS = ("=", "<", "<=", ">", ">=")
WHOLE = {TypeKind.SMALLINT: 15, TypeKind.INT: 31, TypeKind.BIGINT: 63}  # bits of a number, without its sign


@dataclass(frozen=True, slots=True)
class Condition:
    """`column` compared with a constant; a NULL in the column, or as the value, does not match."""

    column: str
    operator: str  # one of OPERATORS
    value: object

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"{self.operator!r} is none of {', '.join(OPERATORS)}")


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """`ranges`, ascending, contain every row that meets all conditions, and no row that fails one outside `rest`."""

    ranges: tuple[KeyRange, ...]
    rest: tuple[Condition, ...]


def key_filter(table: TableCatalog, conditions: Iterable[Condition]) -> KeyFilter:
    """Splits the conditions into key ranges and a remainder."""
    serde, given = RowSerde(table), tuple(conditions)
    indices = {column.name: index for index, column in enumerate(table.columns)}
    fitting = [each for each in given if each.column in indices and fits(table, indices[each.column], each.value)]
    equal = {indices[each.column]: each for each in fitting if each.operator == "="}
    used: list[Condition] = []
    prefix: list[object] = []
    for column in table.pk_indices:
        if column not in equal:
            break
        prefix.append(equal[column].value)
        used.append(equal[column])
    bounds = None
    if len(prefix) < len(table.pk_indices):
        column = table.pk_indices[len(prefix)]
        bounds = _bounds([each for each in fitting if indices[each.column] == column], used)
    distribution = table.distribution_key
    vnodes = None
    if distribution and all(column in equal for column in distribution):
        vnodes = _one_vnode(serde, tuple(equal[column].value for column in distribution))
    is_table = not prefix and bounds is None and vnodes is None
    ranges = [KeyRange.table(table.id)] if is_table else key_ranges(serde, tuple(prefix), bounds, vnodes)
    rest = tuple(each for each in given if not any(each is one for one in used))
    return KeyFilter(tuple(part for part in ranges if not part.is_empty), rest)


def fits(table: TableCatalog, column: int, value: object) -> bool:
    """Whether `value` is of the column's type, for which Spark and the key order agree."""
    kind = table.columns[column].data_type
    if isinstance(value, bool):
        return kind.kind is TypeKind.BOOLEAN
    if kind.kind in WHOLE:
        return isinstance(value, int) and -(1 << WHOLE[kind.kind]) <= value < 1 << WHOLE[kind.kind]
    if kind.kind is TypeKind.VARCHAR:
        return isinstance(value, str)
    if kind.kind is TypeKind.DATE:
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    if kind.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ):
        return isinstance(value, datetime.datetime) and (
            (value.tzinfo is not None) == (kind.kind is TypeKind.TIMESTAMPTZ))
    if kind.kind is TypeKind.NUMERIC and isinstance(value, decimal.Decimal) and value.is_finite():
        assert kind.precision is not None and kind.scale is not None
        _, digits, exponent = value.as_tuple()
        return isinstance(exponent, int) and -exponent <= kind.scale and (
            len(digits) + exponent <= kind.precision - kind.scale)
    return False


def _bounds(conditions: Sequence[Condition], used: list[Condition]) -> RowRange | None:
    """The first lower and the first upper bound, which are added to `used`."""
    lower = next((each for each in conditions if each.operator in (">", ">=")), None)
    upper = next((each for each in conditions if each.operator in ("<", "<=")), None)
    used += [each for each in (lower, upper) if each is not None]
    if lower is None and upper is None:
        return None
    return RowRange(
        None if lower is None else lower.value, None if upper is None else upper.value,
        lower is not None and lower.operator == ">=", upper is not None and upper.operator == "<=")


def _one_vnode(serde: RowSerde, distribution: Row) -> np.ndarray:
    vnodes = np.zeros(serde.catalog.vnode_count, np.uint8)
    vnodes[serde.vnode_of(distribution)] = 1
    return vnodes
