"""The state requirements of an aggregate call: kind, types, and whether a retraction can remove its extreme.

A spec is an aggregate call without its filter and its text, independent of expressions. The types of the columns that
store the state of a call depend on the spec alone, so a planner can lay out the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.types import DataType, Field
from relational.udf.function import UserFunction

VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
BITWISE = ("bit_and", "bit_or", "bit_xor")
OF_PAIRS = (
    "covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
    "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
)  # fmt: skip
SKETCH = "approx_count_distinct"
COLLECTING = (
    "string_agg", "array_agg", "jsonb_agg", "jsonb_object_agg", "first_value", "last_value", "arg_min", "arg_max",
    "mode", "percentile_cont", "percentile_disc", "user aggregate",
)  # fmt: skip
"""Calls whose results are computed from rows that are kept elsewhere."""
USER_STATE = "user state"
KINDS = (
    "count", "sum", "avg", "min", "max", "bool_and", "bool_or", *VARIANCES, *BITWISE, *OF_PAIRS, SKETCH, *COLLECTING,
    USER_STATE,
)  # fmt: skip
PAIR = DataType.struct((Field("y", DataType.DOUBLE), Field("x", DataType.DOUBLE)))
"""The argument of calls over pairs."""
MAX_PRECISION = 38
NARROW_PRECISION = 19
"""Up to this many digits, 2**63 arguments add up to less than 38 digits."""
SQUARED_PRECISION = 18
"""NUMERICs of up to this many digits fit 64 bits, and the sum of their squares 192."""


@dataclass(frozen=True, slots=True)
class AggSpec:
    """One call. `argument` is a column of the input chunk, None for count(*); of pairs its first one, and `second` the
    other; of a call that collects, the sizes of the rows that are kept for it, see `kept_rows`.

    `is_retractable` (MIN, MAX, BIT_AND, BIT_OR and DISTINCT): rows may be retracted, so an extreme can be lost and must
    then be looked up again, and rows with a value, or with a bit, are counted; without it a retraction is an error.
    `function`: the user aggregate whose states a call has; `arguments`: its columns, of which `argument` is the first.
    `keeps_values` (such an extreme, of values of one word): the state has the most extreme values, an overflow table
    the others. `is_filtered`: it has a FILTER. `is_distinct`: each value of a group counts once.
    """

    kind: str
    argument: int | None
    input_type: DataType | None
    output_type: DataType
    is_retractable: bool = False
    keeps_values: bool = False
    is_filtered: bool = False
    is_distinct: bool = False
    second: int | None = None
    function: UserFunction | None = None
    arguments: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no aggregate {self.kind!r}, there are {', '.join(KINDS)}")
        if (self.argument is None) != (self.input_type is None):
            raise ValueError(f"{self.kind}: argument {self.argument} of type {self.input_type}")
        if self.argument is None and (self.kind != "count" or self.is_distinct):
            raise ValueError(f"{self.kind} needs an argument")
        if self.kind in ("sum", "avg") and not self.argument_type.is_numeric:
            raise ValueError(f"{self.kind} of {self.input_type}")
        has_variance = self.argument is None or (
            self.argument_type.is_numeric and (self.argument_type.precision or 0) <= SQUARED_PRECISION)
        if self.is_variance and not has_variance:
            raise ValueError(f"{self.kind} of {self.input_type}")
        if self.is_bool and self.input_type != DataType.BOOLEAN:
            raise ValueError(f"{self.kind} of {self.input_type}")
        if self.is_bitwise and not self.argument_type.is_integer:
            raise ValueError(f"{self.kind} of {self.input_type}")
        if (self.second is not None) != self.is_of_pairs or (self.is_of_pairs and self.input_type != PAIR):
            raise ValueError(f"{self.kind} of {self.input_type} and column {self.second}")
        if (self.kind == USER_STATE) != (self.function is not None):
            raise ValueError(f"{self.kind} of {self.function}")
        if (self.is_collected or self.kind == USER_STATE) and self.input_type != DataType.BIGINT:
            raise ValueError(f"{self.kind}: rows, or their sizes, are BIGINT, not {self.input_type}")

    @classmethod
    def of_user(
        cls, function: UserFunction | None, arguments: tuple[int, ...], output_type: DataType, *, is_filtered: bool
    ) -> AggSpec:
        """The call of a user aggregate that has states."""
        return cls(USER_STATE, arguments[0], DataType.BIGINT, output_type, is_filtered=is_filtered, function=function,
                   arguments=arguments)

    @property
    def argument_type(self) -> DataType:
        """`input_type` of a call that has an argument."""
        assert self.input_type is not None
        return self.input_type

    @property
    def counts_rows(self) -> bool:
        """Whether the result is the number of rows of the group."""
        return self.kind == "count" and self.argument is None and not self.is_filtered

    @property
    def is_bool(self) -> bool:
        """Whether it is BOOL_AND or BOOL_OR."""
        return self.kind in ("bool_and", "bool_or")

    @property
    def is_variance(self) -> bool:
        """Whether it is a variance or a standard deviation."""
        return self.kind in VARIANCES

    @property
    def is_bitwise(self) -> bool:
        """Whether it combines bits."""
        return self.kind in BITWISE

    @property
    def counts_bits(self) -> bool:
        """Whether its state counts the arguments with each bit."""
        return self.is_retractable and self.is_bitwise and self.kind != "bit_xor"

    @property
    def is_of_pairs(self) -> bool:
        """Whether it is of pairs of numbers."""
        return self.kind in OF_PAIRS

    @property
    def is_collected(self) -> bool:
        """Whether its result is computed from rows that are kept elsewhere."""
        return self.kind in COLLECTING

    @property
    def is_min_max(self) -> bool:
        return self.kind in ("min", "max")

    @property
    def state_types(self) -> tuple[DataType, ...]:
        """The types of the adjacent columns that store this call's state in the value row of a group."""
        if self.kind == "count":
            return (DataType.BIGINT,)
        if self.is_bool or self.is_collected:
            return (DataType.BIGINT, DataType.BIGINT)
        if self.is_bitwise:
            return (DataType.BYTEA if self.counts_bits else DataType.BIGINT, DataType.BIGINT)
        if self.is_of_pairs:
            return (*([DataType.DOUBLE] * 10), DataType.BIGINT, DataType.BIGINT)
        if self.kind == SKETCH:
            return (DataType.BYTEA,)
        if self.kind == USER_STATE:
            return (DataType.BYTEA, DataType.BIGINT)
        if self.is_min_max:
            return (DataType.BYTEA if self.keeps_values else self.argument_type, DataType.BIGINT)
        if self.is_variance:
            if self.argument_type.is_float:
                return (*([DataType.DOUBLE] * 4), DataType.BIGINT, DataType.BIGINT)
            whole = DataType.numeric(MAX_PRECISION, 0)
            return (DataType.BIGINT, whole, whole, DataType.BIGINT)
        if self.argument_type.is_float:
            return (DataType.DOUBLE, DataType.DOUBLE, *([DataType.BIGINT] * 4))
        return (DataType.numeric(MAX_PRECISION, self.argument_type.scale or 0), DataType.BIGINT)

    @property
    def wide_types(self) -> tuple[DataType, ...]:
        """The types of the columns after the states of all calls: BIGINT, the multiple of 10**38 in the sum, if the
        first column's 38 digits may be too few; NULL counts as 0.
        """
        if self.kind not in ("sum", "avg") or (self.argument_type.precision or 0) <= NARROW_PRECISION:
            return ()
        return (DataType.BIGINT,)


def adds_up(kind: str, input_type: DataType | None) -> bool:
    """Whether states of such calls over parts of the rows add up to that of all, where no values are kept beside them,
    as for extremes that a retraction can change and for DISTINCT. Not those of floats, whose sums begin anew when no
    row is left, nor those of pairs, nor where rows are kept, nor those of user aggregates."""
    is_sum = kind in ("sum", "avg", *VARIANCES)
    is_float_sum = is_sum and input_type is not None and input_type.is_float
    return not (is_float_sum or kind in OF_PAIRS or kind in COLLECTING or kind == USER_STATE)
