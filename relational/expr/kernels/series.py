"""Kernels of generate_series and range: the numbers or moments of each row from a first to a last one, as a list. A
series that `is_open` ends before its last one.

Numbers, and moments at a distance of days and times, are computed by columns. A distance with months is added again and
again, as in PostgreSQL: the day of a month that is too short stays the earlier one.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from relational.expr.coercion import WIDE
from relational.expr.eval_context import Attempt, EvalContext, Value, from_numbers, numbers, valid_rows
from relational.expr.kernel_call import PartTooLarge
from relational.expr.kernels import nested
from relational.expr.kernels.temporal import interval_parts, shift
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import DAYS_PER_MONTH, MICROSECONDS_PER_DAY

MAX_ROWS = 1 << 24
"""Of one series, and of all series that are computed at once [R61]."""
MAX_CALENDAR_ROWS = 1 << 17
"""Of a series whose distance has months: more than there are months."""
_ZERO_STEP = "the step of a series is 0"
_TOO_LONG = f"a series has more than {MAX_ROWS} rows"
_TOO_LONG_BY_MONTHS = f"a series by months has more than {MAX_CALENDAR_ROWS} rows"
_DTYPES = {TypeKind.INT: "<i4", TypeKind.BIGINT: "<i8"}


def integers(evaluation: EvalContext, args: list[Value], result: DataType, *, is_open: bool = False) -> Value:
    """(first, last [, step]) of integers."""
    assert result.element is not None
    columns = [evaluation.column(arg) for arg in args]
    valid = np.logical_and.reduce([valid_rows(column) for column in columns])
    dtype = _DTYPES[result.element.kind]
    parts = [np.where(valid, numbers(column, dtype), 0).astype(np.int64) for column in columns]
    ends, values, valid = _series(evaluation, parts, valid, is_open)
    return nested.list_of(result, ends, from_numbers(values.astype(dtype), result.element.arrow), valid)


def decimals(evaluation: EvalContext, args: list[Value], result: DataType, *, is_open: bool = False) -> Value:
    """The same of NUMERIC, all of one type: by columns where the digits fit into 64 bits."""
    assert result.element is not None and result.element.scale is not None
    columns = [evaluation.column(arg) for arg in args]
    valid = np.logical_and.reduce([valid_rows(column) for column in columns])
    unscaled = [np.where(valid[:, None], numbers(column, "<i8,<i8").view("<i8").reshape(-1, 2), 0)
                for column in columns]
    one = 10**result.element.scale
    is_short = all((each[:, 1] == each[:, 0] >> 63).all() for each in unscaled) and one < 1 << 63
    if not is_short:
        return _long_decimals(evaluation, columns, valid, result, is_open)
    parts = [each[:, 0] for each in unscaled]
    parts = parts if len(parts) == 3 else [*parts, np.full(len(valid), one)]
    ends, values, valid = _series(evaluation, parts, valid, is_open)
    wide = np.stack((values, values >> 63), axis=1).reshape(-1).view("V16")
    return nested.list_of(result, ends, from_numbers(wide, result.element.arrow), valid)


def moments(evaluation: EvalContext, args: list[Value], result: DataType, *, is_open: bool = False) -> Value:
    """(first, last, step) of timestamps, with an interval."""
    assert result.element is not None
    first, last, step = (evaluation.column(arg) for arg in args)
    valid = valid_rows(first) & valid_rows(last) & valid_rows(step)
    months, days, micros = (np.where(valid, part, 0) for part in interval_parts(step))
    length = days * MICROSECONDS_PER_DAY + micros
    by_months = valid & (months != 0)
    parts = [np.where(valid, numbers(each, "<i8"), 0) for each in (first, last)]
    ends, values, fixed = _series(evaluation, [*parts, length], valid & ~by_months, is_open)
    if not by_months.any():
        return nested.list_of(result, ends, from_numbers(values, result.element.arrow), fixed)
    is_rising = (months * DAYS_PER_MONTH + days) * MICROSECONDS_PER_DAY + micros
    found = _by_months(evaluation, parts, step, np.sign(is_rising), by_months, result.element, is_open)
    owners = np.concatenate([np.repeat(np.arange(len(valid)), np.diff(ends)), found[0]])
    order = np.argsort(owners, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=len(valid)))))
    together = np.concatenate([values, found[1]])[order]
    return nested.list_of(result, ends, from_numbers(together, result.element.arrow), fixed | found[2])


def _series(
    evaluation: EvalContext, parts: list[np.ndarray], valid: np.ndarray, is_open: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets of the series, their values, bool[rows] of rows with one) of int64 first, last and step (without it:
    1)."""
    first, last = parts[:2]
    step = parts[2] if len(parts) == 3 else np.ones_like(first)
    is_still = valid & (step == 0)
    evaluation.fail(is_still, _ZERO_STEP)
    valid = valid & ~is_still
    is_rising = step > 0
    is_empty = ~valid | np.where(first == last, is_open, is_rising != (first < last))
    low, high = (np.where(is_rising, *pair).astype(np.uint64) for pair in ((first, last), (last, first)))
    size = np.where(is_rising, step, np.negative(step)).astype(np.uint64)
    counts = np.where(is_empty, 0, (high - low - is_open) // np.where(size == 0, 1, size))  # one less than the numbers
    is_long = ~is_empty & (counts >= MAX_ROWS)
    evaluation.fail(is_long, _TOO_LONG)
    counts = np.where(is_empty | is_long, 0, counts + 1).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(counts)))
    if ends[-1] > MAX_ROWS and len(counts) > 1:
        raise PartTooLarge
    at = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    return ends, np.repeat(first, counts) + at * np.repeat(step, counts), valid & ~is_long


def _by_months(
    evaluation: EvalContext, parts: list[np.ndarray], step: pa.Array, sign: np.ndarray, valid: np.ndarray,
    data_type: DataType, is_open: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the row of each moment, the moments, bool[rows] of rows with a series) of the `valid` rows; the moments of a row
    in their order."""
    is_still = valid & (sign == 0)
    evaluation.fail(is_still, _ZERO_STEP)
    rows = np.flatnonzero(valid & ~is_still)
    owners, found = [], []
    current, total = parts[0][rows], 0
    for _ in range(MAX_CALENDAR_ROWS + 1):
        inside = (parts[1][rows] - current) * sign[rows] >= is_open
        rows, current = rows[inside], current[inside]
        if not len(rows):
            break
        owners.append(rows)
        found.append(current)
        total += len(rows)
        if total > MAX_ROWS:
            raise PartTooLarge
        moved = shift(Attempt(len(rows)), from_numbers(current, data_type.arrow), step.take(pa.array(rows)), 1,
                      data_type)
        is_known = valid_rows(moved)
        rows, current = rows[is_known], numbers(moved, "<i8")[is_known]
    is_long = np.zeros(len(valid), np.bool_)
    is_long[rows] = True
    evaluation.fail(is_long, _TOO_LONG_BY_MONTHS)
    whole = np.concatenate([np.zeros(0, np.int64), *owners]), np.concatenate([np.zeros(0, np.int64), *found])
    kept = ~is_long[whole[0]]
    return whole[0][kept], whole[1][kept], valid & ~is_still & ~is_long


def _long_decimals(
    evaluation: EvalContext, columns: list[pa.Array], valid: np.ndarray, result: DataType, is_open: bool
) -> Value:
    """One by one."""
    assert result.element is not None and result.element.scale is not None
    scale = result.element.scale
    failed: dict[str, list[int]] = {_ZERO_STEP: [], _TOO_LONG: []}
    found: list[range] = []
    for row, given in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        found.append(range(0))
        if not valid[row]:
            continue
        terms = given if len(given) == 3 else (*given, Decimal(1))
        first, last, step = (int(each.scaleb(scale, WIDE)) for each in terms)
        if step == 0:
            failed[_ZERO_STEP].append(row)
            continue
        whole = range(first, last if is_open else last + (1 if step > 0 else -1), step)
        if (whole.stop - first) // step > MAX_ROWS:
            failed[_TOO_LONG].append(row)
        else:
            found[-1] = whole
    for reason, rows in failed.items():
        evaluation.fail(np.isin(np.arange(len(valid)), rows), reason)
        valid = valid & ~np.isin(np.arange(len(valid)), rows)
    ends = np.concatenate(([0], np.cumsum([len(each) for each in found])))
    if ends[-1] > MAX_ROWS and len(found) > 1:
        raise PartTooLarge
    values = pa.array([Decimal((each < 0, tuple(map(int, str(abs(each)))), -scale)) for part in found for each in part],
                      result.element.arrow)
    return nested.list_of(result, ends, values, valid)
