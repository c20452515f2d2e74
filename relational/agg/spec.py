"""The state requirements of an aggregate call: kind, types, and whether a retraction can remove its extreme.

A spec is an aggregate call without its filter and its text, independent of expressions. The types of the columns that
store the state of a call depend on the spec alone, so a planner can lay out the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.types import DataType

VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
KINDS = ("count", "sum", "avg", "min", "max", "bool_and", "bool_or", *VARIANCES)
MAX_PRECISION = 38
NARROW_PRECISION = 19
"""Up to this many digits, 2**63 arguments add up to less than 38 digits."""
SQUARED_PRECISION = 18
"""NUMERICs of up to this many digits fit 64 bits, and the sum of their squares 192."""


@dataclass(frozen=True, slots=True)
class AggSpec:
    """One call. `argument` is a column of the input chunk, None for count(*).

    `is_retractable` (MIN, MAX and DISTINCT): rows may be retracted, so an extreme can be lost and must then be looked
    up again, and rows with a value are counted; without it a retraction is an error. `keeps_values` (such an extreme,
    of values of one word): the state has the most extreme values, and an overflow table the others. `is_filtered`: it
    has a FILTER. `is_distinct`: each value of a group counts once.
    """

    kind: str
    argument: int | None
    input_type: DataType | None
    output_type: DataType
    is_retractable: bool = False
    keeps_values: bool = False
    is_filtered: bool = False
    is_distinct: bool = False

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
    def can_merge(self) -> bool:
        """Whether the states of parts of the rows add up to that of all. Not those of floats, whose sums begin anew
        when no row is left, nor those of extremes that a retraction can change, nor of values that several parts have.
        """
        is_float_sum = (self.kind in ("sum", "avg") or self.is_variance) and self.argument_type.is_float
        return not (self.is_retractable or self.is_distinct or is_float_sum)

    @property
    def is_bool(self) -> bool:
        """Whether it is BOOL_AND or BOOL_OR."""
        return self.kind in ("bool_and", "bool_or")

    @property
    def is_variance(self) -> bool:
        """Whether it is a variance or a standard deviation."""
        return self.kind in VARIANCES

    @property
    def is_min_max(self) -> bool:
        return self.kind in ("min", "max")

    @property
    def state_types(self) -> tuple[DataType, ...]:
        """The types of the adjacent columns that store this call's state in the value row of a group."""
        if self.kind == "count":
            return (DataType.BIGINT,)
        if self.is_bool:
            return (DataType.BIGINT, DataType.BIGINT)
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
