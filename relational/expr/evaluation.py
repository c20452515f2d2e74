"""One evaluation over one chunk: its columns, which of its rows count, and what happens to a row that
has no value.

Kernels compute all rows, hidden ones too, and report the rows that have no value through `fail`. Only
selected rows count: those visible and, inside a branch of CASE, AND, OR or COALESCE, those that take
the branch. So a division by zero behind a guard is no error. A failed row is NULL in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.errors import EvaluationError
from relational.types.data_type import DataType
from relational.types.interval import Interval

Value: TypeAlias = pa.Array | pa.Scalar

MAX_REASONS = 64
OTHER_REASONS = "other reasons"


class ErrorCounts:
    """Rows of a stream that have no value now, by reason: a row that arrives adds one and, when it
    goes, subtracts one.

    At most MAX_REASONS reasons are told apart, the rows of all later ones are counted as OTHER_REASONS. A reason never
    holds a value of a row. One thread adds; `rows` may be read from any.
    """

    __slots__ = ("__weakref__", "_changed", "_rows")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._changed: dict[str, int] = {}

    @property
    def rows(self) -> dict[str, int]:
        """The counts of all reasons met so far, those that are 0 again included."""
        return self._rows.copy()

    def restore(self, rows: Mapping[str, int]) -> None:
        """Continue from the counts `rows`, which count as taken. REQUIRES that nothing was added yet."""
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


class Evaluation:
    """`columns`: Arrow arrays of `rows` rows; `selection`: bool[rows], None for all rows; `weights`: int8 or
    int64[rows], what each row counts for among the errors (-1 for one that goes), None: 1.
    """

    __slots__ = ("columns", "errors", "rows", "selection", "strict", "weights")

    def __init__(
        self,
        columns: Sequence[pa.Array],
        rows: int,
        selection: np.ndarray | None = None,
        *,
        strict: bool,
        errors: ErrorCounts | None = None,
        weights: np.ndarray | None = None,
    ):
        self.columns, self.rows, self.selection = columns, rows, selection
        self.strict, self.errors, self.weights = strict, errors, weights

    def narrowed(self, rows: np.ndarray) -> Evaluation:
        """The same evaluation where only those of `rows` (bool[rows]) count that counted before."""
        selection = rows if self.selection is None else rows & self.selection
        return Evaluation(
            self.columns, self.rows, selection, strict=self.strict, errors=self.errors, weights=self.weights
        )

    def single(self) -> Evaluation:
        """An evaluation of one row without columns, for what is constant; it counts for all rows that count here."""
        counts = self.selection is None or bool(self.selection.any())
        weight = np.array([self._weight(self.selection)])
        return Evaluation((), 1, np.array([counts]), strict=self.strict, errors=self.errors, weights=weight)

    @property
    def selects_nothing(self) -> bool:
        return self.rows == 0 or (self.selection is not None and not self.selection.any())

    def fail(self, rows: np.ndarray, reason: str) -> None:
        """`rows` (bool[rows]) have no value. Strict: EvaluationError with the first that counts; else
        counted.
        """
        counted = rows if self.selection is None else rows & self.selection
        if not counted.any():
            return
        if self.strict:
            raise EvaluationError(reason, row=int(counted.argmax()))
        if self.errors is not None:
            self.errors.add(reason, self._weight(counted))

    def _weight(self, rows: np.ndarray | None) -> int:
        """What `rows` (bool[rows], None for all) count for together."""
        if self.weights is None:
            return self.rows if rows is None else int(np.count_nonzero(rows))
        return int(self.weights.sum() if rows is None else self.weights[rows].sum())

    def reject(self, value: pa.Array, rows: np.ndarray, reason: str) -> pa.Array:
        """`value` with `rows` failed: NULL there."""
        if not rows.any():
            return value
        self.fail(rows & valid_rows(value), reason)
        return null_where(value, rows)

    def column(self, value: Value) -> pa.Array:
        """A value as an array of one entry per row."""
        return pa.repeat(value, self.rows) if isinstance(value, pa.Scalar) else value


def valid_rows(array: pa.Array) -> np.ndarray:
    """bool[rows]: which entries are not NULL."""
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
    return pc.if_else(pa.array(rows), pa.scalar(None, array.type), array)


def numbers(array: pa.Array, dtype: np.dtype | str) -> np.ndarray:
    """The values of a fixed-width array as `dtype`, without a copy; entries of NULL rows are arbitrary."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * width)


def from_numbers(values: np.ndarray, arrow: pa.DataType, valid: np.ndarray | None = None) -> pa.Array:
    """An array of a fixed-width Arrow type over `values`; NULL where `valid` (bool[rows]) is false."""
    values = np.ascontiguousarray(values)
    validity = None
    if valid is not None and not valid.all():
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [validity, pa.py_buffer(values)])


def scalar(value: object, data_type: DataType) -> pa.Scalar:
    """The Arrow scalar of a Python value of `data_type`."""
    return pa.scalar(value.to_arrow() if isinstance(value, Interval) else value, data_type.arrow)


def python_value(value: pa.Scalar) -> object:
    """The Python value that a row of this package holds for an Arrow scalar."""
    plain = value.as_py()
    if isinstance(plain, datetime) and plain.tzinfo is not None:
        return plain.astimezone(UTC)
    return Interval.from_arrow(plain) if isinstance(plain, pa.MonthDayNano) else plain
