"""Aggregate calls of a GROUP BY: the function, its result type, and the state that it needs.

The count, sum and average of a group, and whether a condition holds for all or any of its rows, follow from running
values, with retractions too. A minimum or maximum follows from a running value only while nothing is retracted;
otherwise the group's values are kept with their numbers of rows, or, where values do not fit a word, the group's inputs
in order (materialized input). Arrays, joined texts, percentiles and first values are computed from rows that are kept
in their order, whatever comes: these calls *collect*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from relational.expr.expression import Expression, Literal
from relational.types.data_type import DataType, TypeKind
from relational.types.ordering import ASCENDING, OrderType, SortKey
from relational.udf.function import UserFunction

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
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    COVAR_POP = "covar_pop"
    COVAR_SAMP = "covar_samp"
    CORR = "corr"
    REGR_AVGX = "regr_avgx"
    REGR_AVGY = "regr_avgy"
    REGR_COUNT = "regr_count"
    REGR_INTERCEPT = "regr_intercept"
    REGR_R2 = "regr_r2"
    REGR_SLOPE = "regr_slope"
    REGR_SXX = "regr_sxx"
    REGR_SXY = "regr_sxy"
    REGR_SYY = "regr_syy"
    STRING_AGG = "string_agg"
    ARRAY_AGG = "array_agg"
    JSONB_AGG = "jsonb_agg"
    JSONB_OBJECT_AGG = "jsonb_object_agg"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    ARG_MIN = "arg_min"
    ARG_MAX = "arg_max"
    MODE = "mode"
    PERCENTILE_CONT = "percentile_cont"
    PERCENTILE_DISC = "percentile_disc"
    USER = "user aggregate"
    USER_STATE = "user state"

    @property
    def ignores_duplicates(self) -> bool:
        """Whether the result for distinct values is that for all."""
        return self in _IGNORING_DUPLICATES

    @property
    def is_variance(self) -> bool:
        """Whether it is a variance or a standard deviation."""
        return self in (AggKind.VAR_POP, AggKind.VAR_SAMP, AggKind.STDDEV_POP, AggKind.STDDEV_SAMP)

    @property
    def is_bitwise(self) -> bool:
        """Whether it combines the bits of whole numbers."""
        return self in (AggKind.BIT_AND, AggKind.BIT_OR, AggKind.BIT_XOR)

    @property
    def is_of_pairs(self) -> bool:
        """Whether it is of pairs (y, x) of numbers, both taken as DOUBLE."""
        return self in _OF_PAIRS

    @property
    def is_ordered_set(self) -> bool:
        """Whether its argument is that of WITHIN GROUP (ORDER BY …)."""
        return self in (AggKind.MODE, AggKind.PERCENTILE_CONT, AggKind.PERCENTILE_DISC)

    @property
    def takes_first(self) -> bool:
        """Whether it is a value of the row that is first in an order."""
        return self in (AggKind.FIRST_VALUE, AggKind.LAST_VALUE, AggKind.ARG_MIN, AggKind.ARG_MAX)

    @property
    def gathers(self) -> bool:
        """Whether its result has all rows of a group."""
        return self in (AggKind.STRING_AGG, AggKind.ARRAY_AGG, AggKind.JSONB_AGG, AggKind.JSONB_OBJECT_AGG)

    @property
    def collects(self) -> bool:
        """Whether it is computed from rows that are kept in an order."""
        return self.takes_first or self.gathers or self.is_ordered_set or self is AggKind.USER

    @property
    def counts(self) -> bool:
        """Whether it is 0, and not NULL, for no rows."""
        return self in (AggKind.COUNT, AggKind.REGR_COUNT, AggKind.APPROX_COUNT_DISTINCT)

    @property
    def argument_count(self) -> int:
        """The number of arguments in parentheses."""
        if self is AggKind.MODE:
            return 0
        return 2 if self.is_of_pairs or self in _OF_TWO else 1


_OF_PAIRS = frozenset((
    AggKind.COVAR_POP, AggKind.COVAR_SAMP, AggKind.CORR, AggKind.REGR_AVGX, AggKind.REGR_AVGY, AggKind.REGR_COUNT,
    AggKind.REGR_INTERCEPT, AggKind.REGR_R2, AggKind.REGR_SLOPE, AggKind.REGR_SXX, AggKind.REGR_SXY, AggKind.REGR_SYY,
))  # fmt: skip
_OF_TWO = frozenset((AggKind.STRING_AGG, AggKind.JSONB_OBJECT_AGG, AggKind.ARG_MIN, AggKind.ARG_MAX))
_IGNORING_DUPLICATES = frozenset((
    AggKind.MIN, AggKind.MAX, AggKind.BOOL_AND, AggKind.BOOL_OR, AggKind.BIT_AND, AggKind.BIT_OR,
    AggKind.APPROX_COUNT_DISTINCT, AggKind.FIRST_VALUE, AggKind.LAST_VALUE, AggKind.ARG_MIN, AggKind.ARG_MAX,
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptOrder:
    """Which rows a call keeps, and in which order: those that pass `filter` and have no NULL in the columns `required`,
    by `keys` and then by the stream key, from its end if `ties_descend`; with `takes_first` the first one alone counts.
    Calls of the same order share their rows."""

    keys: tuple[SortKey, ...]
    ties_descend: bool
    required: tuple[int, ...]
    filter: Expression | None
    takes_first: bool


@dataclass(frozen=True, slots=True)
class AggCall:
    """One aggregate over the input column `argument` (None: count(*)), of rows for which `filter` is true.

    NULL arguments are ignored, except by array_agg, jsonb_agg, first_value and last_value. `distinct` counts each value
    of a group once. `data_type` is the result type. `more`: the columns of further arguments. `order`: of the rows, for
    calls that collect. `constants`: the separator of a string_agg, the fractions of a percentile. `function`: of a user
    aggregate, which ignores NULL arguments if it is strict.
    """

    kind: AggKind
    argument: int | None
    filter: Expression | None
    distinct: bool
    data_type: DataType
    more: tuple[int, ...] = ()
    order: tuple[SortKey, ...] = ()
    constants: tuple[Literal, ...] = ()
    function: UserFunction | None = None

    @property
    def name(self) -> str:
        """As SQL calls it."""
        return self.kind.value if self.function is None else self.function.name

    @property
    def arguments(self) -> tuple[int, ...]:
        """The columns of all arguments."""
        return self.more if self.argument is None else (self.argument, *self.more)

    @property
    def columns(self) -> tuple[int, ...]:
        """The input columns that it needs, apart from those of its filter; some may come twice."""
        return (*self.arguments, *(key.column for key in self.order))

    def with_state(self, is_append_only: bool) -> AggCall:
        """The same call by the states of its function, if it has states, and all rows can change them: in any order,
        each as often as it comes, and also deleted ones, unless there are none."""
        function = self.function
        if function is None or function.state is None or self.distinct or self.order:
            return self
        return replace(self, kind=AggKind.USER_STATE) if function.retracts or is_append_only else self

    @property
    def needs_distinct_values(self) -> bool:
        """Whether the state must know which values a group has."""
        return self.distinct and not self.kind.ignores_duplicates and not self.kind.collects

    @property
    def kept_order(self) -> KeptOrder:
        """The rows of a call that collects."""
        kind, keys = self.kind, self.order
        if kind is AggKind.LAST_VALUE:
            keys = tuple(SortKey(key.column, _reversed(key.order)) for key in keys)
        required: tuple[int, ...] = ()
        if kind in (AggKind.ARG_MIN, AggKind.ARG_MAX):
            required = self.arguments
        elif self.function is not None:
            required = self.arguments if self.function.is_strict else ()
        elif kind is AggKind.STRING_AGG or kind.is_ordered_set:
            required = self.arguments[:1]
        return KeptOrder(keys, kind is AggKind.LAST_VALUE, required, self.filter, kind.takes_first)

    def over(
        self, columns: Sequence[int]
    ) -> tuple[str, tuple[int, ...], DataType, bool, tuple[object, ...], UserFunction | None]:
        """Of a call that collects, over rows with the input columns `columns`: its kind, the positions of its arguments
        among these, its type, whether it is distinct, its constants and its user function."""
        arguments = tuple(map(columns.index, self.arguments))
        constants = tuple(each.value for each in self.constants)
        return self.kind.value, arguments, self.data_type, self.distinct, constants, self.function

    def is_retractable(self, is_append_only: bool) -> bool:
        """Whether it is an extreme that a retraction can remove."""
        return self.kind in (AggKind.MIN, AggKind.MAX) and not is_append_only

    def keeps_inputs(self, is_append_only: bool) -> bool:
        """Whether the state must keep the group's rows in order: for such an extreme of values that are no words, and
        for calls that collect."""
        return self.kind.collects or (self.is_retractable(is_append_only) and not self.data_type.is_word)

    def describe(self, names: tuple[str, ...] | list[str]) -> str:
        """SQL-like text over the names of the input columns."""
        arguments = [names[column] for column in self.arguments] or ["*"]
        constants = [each.describe() for each in self.constants]
        keys = self.order[1:] if self.kind in (AggKind.ARG_MIN, AggKind.ARG_MAX) else self.order  # the first: implied
        order = ", ".join(f"{names[key.column]} {key.order}" for key in keys)
        distinct = "DISTINCT " if self.distinct else ""
        if self.kind.is_ordered_set:
            text = f"{self.kind.value}({', '.join(constants)}) WITHIN GROUP (ORDER BY {order})"
        else:
            by = f" ORDER BY {order}" if order else ""
            text = f"{self.name}({distinct}{', '.join((*arguments, *constants))}{by})"
        return text if self.filter is None else f"{text} FILTER (WHERE {self.filter.describe(names)})"


def _reversed(order: OrderType) -> OrderType:
    return OrderType(not order.descending, not order.nulls_first)


def order_of_extreme(kind: AggKind) -> OrderType:
    """The order in which the row of an arg_min or arg_max is the first."""
    return ASCENDING if kind is AggKind.ARG_MIN else OrderType(descending=True)


def aggregate_type(kind: AggKind, argument: DataType | None) -> DataType | None:
    """The result type of `kind` over `argument` (None: count(*)), the first of several, and of one percentile; None if
    the function is not defined for it."""
    if kind is AggKind.COUNT:
        return DataType.BIGINT
    if argument is None:
        return None
    if kind in (AggKind.BOOL_AND, AggKind.BOOL_OR):
        return DataType.BOOLEAN if argument == DataType.BOOLEAN else None
    if kind in (AggKind.MIN, AggKind.MAX):
        return argument
    if kind.collects:
        return _collected_type(kind, argument)
    if kind is AggKind.APPROX_COUNT_DISTINCT:
        return DataType.BIGINT
    if kind.is_bitwise:
        return argument if argument.is_integer else None
    if not argument.is_numeric:
        return None
    if kind.is_of_pairs:
        return DataType.BIGINT if kind is AggKind.REGR_COUNT else DataType.DOUBLE
    if kind.is_variance or argument in (DataType.REAL, DataType.DOUBLE):
        return DataType.DOUBLE
    scale = argument.scale or 0
    if kind is AggKind.AVG:
        return DataType.numeric(MAX_PRECISION, max(scale, AVERAGE_SCALE))
    if argument in (DataType.SMALLINT, DataType.INT):
        return DataType.BIGINT
    return DataType.numeric(MAX_PRECISION, scale)


def _collected_type(kind: AggKind, argument: DataType) -> DataType | None:
    if kind is AggKind.STRING_AGG:
        return argument if argument.kind in (TypeKind.VARCHAR, TypeKind.BYTEA) else None
    if kind is AggKind.ARRAY_AGG:
        return DataType.list_of(argument)
    if kind in (AggKind.JSONB_AGG, AggKind.JSONB_OBJECT_AGG):
        return DataType.JSONB
    if kind is AggKind.PERCENTILE_CONT:
        return DataType.DOUBLE if argument.is_numeric else None
    return argument


def kept_orders(calls: Sequence[AggCall]) -> dict[KeptOrder, tuple[int, ...]]:
    """The orders of the calls that collect, each with the numbers of its calls."""
    found: dict[KeptOrder, tuple[int, ...]] = {}
    for number, call in enumerate(calls):
        if call.kind.collects:
            found[call.kept_order] = (*found.get(call.kept_order, ()), number)
    return found
