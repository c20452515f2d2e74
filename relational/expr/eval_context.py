"""One evaluation over one chunk: its columns, the rows that count, and the handling of rows without a value.

Kernels compute all rows, hidden ones too, and report rows without a value through `fail`. Only selected rows count:
visible rows and, inside a branch of CASE, AND, OR or COALESCE, rows that reach the branch. So a division by zero behind
a guard is no error. A failed row is NULL in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.data_chunk import DataChunk
from relational.errors import EvaluationError
from relational.types.data_type import DataType, Field
from relational.types.interval import Interval
from relational.types.schema import Schema

Value: TypeAlias = pa.Array | pa.Scalar

MAX_REASONS = 64
OTHER_REASONS = "other reasons"


class ErrorCounts:
    """Rows of a stream that currently have no value, by reason: an inserted row adds one, a deleted row subtracts one.

    At most MAX_REASONS reasons are distinguished; rows of all later ones are counted as OTHER_REASONS. A reason never
    contains a value of a row. One thread adds; `rows` may be read from any.
    """

    __slots__ = ("__weakref__", "_changed", "_rows")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._changed: dict[str, int] = {}

    @property
    def rows(self) -> dict[str, int]:
        """The counts of all reasons so far, including those that are 0 again."""
        return self._rows.copy()

    def restore(self, rows: Mapping[str, int]) -> None:
        """Continues from the counts `rows`, which count as already taken. REQUIRES that nothing was added yet."""
        self._rows = dict(rows)

    def add(self, reason: str, rows: int) -> None:
        """`rows` more rows (fewer where negative) have no value because of `reason`."""
        if not rows:
            return
        if reason not in self._rows and len(self._rows) >= MAX_REASONS:
            reason = OTHER_REASONS
        self._rows[reason] = self._rows.get(reason, 0) + rows
        self._changed[reason] = self._changed.get(reason, 0) + rows

    def take(self) -> dict[str, int]:
        """The net changes since the last take, without those that are 0."""
        if not self._changed:
            return {}
        taken, self._changed = self._changed, {}
        return {reason: rows for reason, rows in taken.items() if rows}


class EvalContext:
    """`columns`: Arrow arrays of `rows` rows, or constants, each the value of all rows; `selection`: bool[rows], None
    for all rows; `ops`: uint8[rows], the ops of rows that are changes: a retraction has the weight -1 in the error
    counts, any other row 1. `weight`: the weight of a row without ops.
    """

    __slots__ = ("columns", "errors", "ops", "rows", "selection", "strict", "weight")

    def __init__(
        self,
        columns: Sequence[Value],
        rows: int,
        selection: np.ndarray | None = None,
        *,
        strict: bool,
        errors: ErrorCounts | None = None,
        ops: np.ndarray | None = None,
        weight: int = 1,
    ):
        self.columns, self.rows, self.selection = columns, rows, selection
        self.strict, self.errors, self.ops, self.weight = strict, errors, ops, weight

    def narrowed(self, rows: np.ndarray) -> EvalContext:
        """The same evaluation, restricted to the selected rows that are also in `rows` (bool[rows])."""
        selection = rows if self.selection is None else rows & self.selection
        return EvalContext(
            self.columns, self.rows, selection, strict=self.strict, errors=self.errors, ops=self.ops,
            weight=self.weight,
        )

    def single(self) -> EvalContext:
        """An evaluation of one row without columns, for constants; its weight is that of all selected rows."""
        counts = self.selection is None or bool(self.selection.any())
        weight = self._weight_of(self.selection)
        return EvalContext((), 1, np.array([counts]), strict=self.strict, errors=self.errors, weight=weight)

    @property
    def selects_nothing(self) -> bool:
        return self.rows == 0 or (self.selection is not None and not self.selection.any())

    def fail(self, rows: np.ndarray, reason: str) -> None:
        """Marks `rows` (bool[rows]) as having no value. Strict: EvaluationError at the first selected one; else counts
        them.
        """
        counted = rows if self.selection is None else rows & self.selection
        if not counted.any():
            return
        if self.strict:
            raise EvaluationError(reason, row=int(counted.argmax()))
        if self.errors is not None:
            self.errors.add(reason, self._weight_of(counted))

    def _weight_of(self, rows: np.ndarray | None) -> int:
        """The total weight of `rows` (bool[rows], None for all)."""
        count = self.rows if rows is None else int(np.count_nonzero(rows))
        if self.ops is None:
            return self.weight * count
        return count - 2 * int(np.count_nonzero((self.ops if rows is None else self.ops[rows]) & 1))

    def reject(self, value: pa.Array, rows: np.ndarray, reason: str) -> pa.Array:
        """`value` with `rows` failed and set to NULL."""
        if not rows.any():
            return value
        self.fail(rows & valid_rows(value), reason)
        return null_where(value, rows)

    def column(self, value: Value) -> pa.Array:
        """A value as an array of one entry per row."""
        return pa.repeat(value, self.rows) if isinstance(value, pa.Scalar) else value


class Attempt(EvalContext):
    """An evaluation of `rows` rows that only records failures, as `failures`: (bool[rows], reason) in order. The caller
    reports them, or discards them if the attempt raised.
    """

    __slots__ = ("failures",)

    def __init__(self, rows: int):
        super().__init__((), rows, strict=False)
        self.failures: list[tuple[np.ndarray, str]] = []

    def fail(self, rows: np.ndarray, reason: str) -> None:
        if rows.any():
            self.failures.append((rows, reason))


def valid_rows(array: pa.Array) -> np.ndarray:
    """bool[rows]: true for non-NULL entries."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return booleans(array.is_valid())


def booleans(array: pa.Array) -> np.ndarray:
    """bool[rows] of a BOOLEAN array; NULL counts as false."""
    if array.null_count:
        array = pc.fill_null(array, False)
    return array.to_numpy(zero_copy_only=False)


def null_where(array: pa.Array, rows: np.ndarray) -> pa.Array:
    """`array` with NULL at `rows` (bool[rows])."""
    if isinstance(array.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(array.type, null_where(array.storage, rows))
    if pa.types.is_nested(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=rows))
    return pc.if_else(pa.array(rows), pa.scalar(None, array.type), array)


def choose(rows: np.ndarray, chosen: Value, other: Value) -> pa.Array:
    """`chosen` at `rows` (bool[rows]), `other` elsewhere; both of the same type."""
    arrow = chosen.type
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow, choose(rows, _storage(chosen), _storage(other)))
    if not pa.types.is_nested(arrow):
        return pc.if_else(pa.array(rows), chosen, other)
    at = np.arange(len(rows))
    first, second = (pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value for value in (chosen, other))
    from_first = np.zeros_like(at) if isinstance(chosen, pa.Scalar) else at
    from_second = np.zeros_like(at) if isinstance(other, pa.Scalar) else at
    order = np.where(rows, from_first, from_second + len(first))
    return pa.concat_arrays([first, second]).take(pa.array(order))


def _storage(value: Value) -> Value:
    """The storage array or scalar of an extension type's values."""
    return value.value if isinstance(value, pa.Scalar) else value.storage


def numbers(array: pa.Array, dtype: np.dtype | str) -> np.ndarray:
    """The values of a fixed-width array as `dtype`, without a copy; entries of NULL rows are arbitrary."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * width)


def from_numbers(values: np.ndarray, arrow: pa.DataType, valid: np.ndarray | None = None) -> pa.Array:
    """An array of a fixed-width Arrow type over `values`; NULL where `valid` (bool[rows]) is false."""
    values = np.ascontiguousarray(values)
    validity = None if valid is None else bitmap(valid)
    return pa.Array.from_buffers(arrow, len(values), [validity, pa.py_buffer(values)])


def bitmap(valid: np.ndarray) -> pa.Buffer | None:
    """Arrow's validity bitmap of `valid` (bool[rows]); None if all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def scalar(value: object, data_type: DataType) -> pa.Scalar:
    """The Arrow scalar of a Python value of `data_type`."""
    if value is None:
        return pa.nulls(1, data_type.arrow)[0]
    if data_type.is_nested:
        return DataChunk.from_rows(Schema([Field("value", data_type)]), [(value,)]).columns[0].array[0]
    return pa.scalar(value.to_arrow() if isinstance(value, Interval) else value, data_type.arrow)


def python_value(value: pa.Scalar) -> object:
    """The Python representation of an Arrow scalar in rows of this package."""
    plain = value.as_py()
    if isinstance(plain, datetime) and plain.tzinfo is not None:
        return plain.astimezone(UTC)
    return Interval.from_arrow(plain) if isinstance(plain, pa.MonthDayNano) else plain
