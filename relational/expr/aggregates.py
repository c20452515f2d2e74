"""Aggregate calls of a GROUP BY: the function, its result type, and the state that it needs.

The count, sum and average of a group, and whether a condition holds for all or any of its rows, follow from running
values, with retractions too. A minimum or maximum follows from a running value only while nothing is retracted;
otherwise the group's values are kept with their numbers of rows, or, where values do not fit a word, the group's inputs
in order (materialized input).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relational.expr.expression import Expression
from relational.types.data_type import DataType

MAX_PRECISION = 38
AVERAGE_SCALE = 10
SQUARED_PRECISION = 18
"""Variances of NUMERICs of more digits are those of doubles."""


class AggKind(StrEnum):
    """The functions; COUNT without an argument is count(*)."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"

    @property
    def ignores_duplicates(self) -> bool:
        """Whether the result for distinct values is that for all."""
        return self in (AggKind.MIN, AggKind.MAX, AggKind.BOOL_AND, AggKind.BOOL_OR)

    @property
    def is_variance(self) -> bool:
        """Whether it is a variance or a standard deviation."""
        return self in (AggKind.VAR_POP, AggKind.VAR_SAMP, AggKind.STDDEV_POP, AggKind.STDDEV_SAMP)


@dataclass(frozen=True, slots=True)
class AggCall:
    """One aggregate over the input column `argument` (None: count(*)), of rows for which `filter` is true.

    NULL arguments are ignored. `distinct` counts each value of a group once. `data_type` is the result type.
    """

    kind: AggKind
    argument: int | None
    filter: Expression | None
    distinct: bool
    data_type: DataType

    @property
    def needs_distinct_values(self) -> bool:
        """Whether the state must know which values a group has."""
        return self.distinct and not self.kind.ignores_duplicates

    def is_retractable(self, is_append_only: bool) -> bool:
        """Whether it is an extreme that a retraction can remove."""
        return self.kind in (AggKind.MIN, AggKind.MAX) and not is_append_only

    def keeps_inputs(self, is_append_only: bool) -> bool:
        """Whether the state must keep the group's rows in order: for such an extreme of values that are no words."""
        return self.is_retractable(is_append_only) and not self.data_type.is_word

    def describe(self, names: tuple[str, ...] | list[str]) -> str:
        """SQL-like text over the names of the input columns."""
        argument = "*" if self.argument is None else names[self.argument]
        text = f"{self.kind.value}({'DISTINCT ' if self.distinct else ''}{argument})"
        return text if self.filter is None else f"{text} FILTER (WHERE {self.filter.describe(names)})"


def aggregate_type(kind: AggKind, argument: DataType | None) -> DataType | None:
    """The result type of `kind` over `argument` (None: count(*)); None if the function is not defined for it."""
    if kind is AggKind.COUNT:
        return DataType.BIGINT
    if argument is None:
        return None
    if kind in (AggKind.BOOL_AND, AggKind.BOOL_OR):
        return DataType.BOOLEAN if argument == DataType.BOOLEAN else None
    if kind in (AggKind.MIN, AggKind.MAX):
        return argument
    if not argument.is_numeric:
        return None
    if kind.is_variance or argument in (DataType.REAL, DataType.DOUBLE):
        return DataType.DOUBLE
    scale = argument.scale or 0
    if kind is AggKind.AVG:
        return DataType.numeric(MAX_PRECISION, max(scale, AVERAGE_SCALE))
    if argument in (DataType.SMALLINT, DataType.INT):
        return DataType.BIGINT
    return DataType.numeric(MAX_PRECISION, scale)
