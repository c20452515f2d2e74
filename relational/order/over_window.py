"""The values of window functions over ordered rows, column at a time.

What a call needs of the rows before the first ones that are there can be given, as its state in the row before: then
the first row of a partition is one whose states are known, and the values of the rows behind it are those that they
have in the whole partition. A call has a state if its frame begins with the partition and ends before or at a distance
from the row, see `WindowCall.is_running`; the state of a row is that of the rows up to it.

    row_number, dense_rank      the number
    rank                        row_number, rank
    first_value, nth_value      row_number, value (NULL before row n)
    min, max                    the extreme
    other aggregates            the columns of AggSpec.state_types, then those of its wide_types
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.agg import AggSpec
from relational.agg.frames import FrameStates
from relational.agg.groups import kernel_of
from relational.chunk import Column, DataChunk, mask_of
from relational.encoding import KeyEncoder
from relational.expr.aggregates import AggKind
from relational.expr.window_functions import Frame, WindowCall, WindowKind
from relational.order.frame_search import extreme_rows
from relational.order.ordered_rows import OrderedRows
from relational.types import DESCENDING, DataType, OrderType


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows whose states are given. `at` int32[n], ascending: their positions, each the first of its partition.
    `states`: by the number of a call its state columns, a row for each of them."""

    at: np.ndarray
    states: Mapping[int, Sequence[Column]]


@dataclass(frozen=True, slots=True)
class WindowValues:
    """Of each row, in their order: `values`, by call; `states`, by the number of a call that has one its columns.
    `failures`: by reason the number of values that are NULL because they do not fit their type."""

    values: list[Column] = field(default_factory=list)
    states: dict[int, list[Column]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)


def window_values(
    calls: Sequence[WindowCall], rows: OrderedRows, known: KnownRows | None = None, *, strict: bool = False
) -> WindowValues:
    """The value of each call for each row. `known` None: no states are needed, and none are returned. `strict`: an
    aggregate that does not fit its type is an EvaluationError, else NULL."""
    found = WindowValues()
    for number, call in enumerate(calls):
        if known is None or not call.is_running:
            found.values.append(_value(call, rows, found.failures, strict))
        else:
            given = known.states.get(number, ())
            value, found.states[number] = _running(call, rows, known.at, given, found.failures)
            found.values.append(value)
    return found


def _value(call: WindowCall, rows: OrderedRows, failures: Counter[str], strict: bool) -> Column:
    if isinstance(call.kind, AggKind):
        assert call.frame is not None
        return _aggregate(call, call.kind, call.frame, rows, failures, strict)
    if call.kind.is_number:
        return Column(pa.array(_number(call, rows), call.data_type.arrow))
    return _of_other_row(call, rows)


def _number(call: WindowCall, rows: OrderedRows) -> np.ndarray:
    """The value of a function without an argument."""
    at, count = np.arange(len(rows.begin)), rows.end - rows.begin
    kind = call.kind
    if kind is WindowKind.ROW_NUMBER:
        return at - rows.begin + 1
    if kind is WindowKind.RANK:
        return rows.peer_begin - rows.begin + 1
    if kind is WindowKind.DENSE_RANK:
        return rows.dense_rank
    if kind is WindowKind.PERCENT_RANK:
        return (rows.peer_begin - rows.begin) / np.maximum(count - 1, 1)
    if kind is WindowKind.CUME_DIST:
        return (rows.peer_end - rows.begin) / count
    size, longer = np.divmod(count, call.number)
    number, split = at - rows.begin, longer * (size + 1)
    return np.where(number < split, number // (size + 1), longer + (number - split) // np.maximum(size, 1)) + 1


def _of_other_row(call: WindowCall, rows: OrderedRows) -> Column:
    """The value of the argument in another row of the partition, or of the frame."""
    assert call.argument is not None
    at = np.arange(len(rows.begin))
    if call.kind in (WindowKind.LAG, WindowKind.LEAD):
        found = at + min(max(call.shift, -len(at)), len(at))
        is_there = (found >= rows.begin) & (found < rows.end)
    else:
        assert call.frame is not None
        start, end = rows.bounds_of(call.frame)
        found = end - 1 if call.kind is WindowKind.LAST_VALUE else start + min(call.number - 1, len(at))
        is_there = (found < end) & (found >= start)
    argument = rows.rows.columns[call.argument]
    if call.default is None:
        return _taken([argument], np.where(is_there, found, -1))
    return _taken([argument, rows.rows.columns[call.default]], np.where(is_there, found, len(at) + at))


def _taken(columns: Sequence[Column], at: np.ndarray) -> Column:
    """The values at positions of the columns, one after the other; NULL at a negative one."""
    return DataChunk.concat([DataChunk([column]) for column in columns]).take(at).columns[0]


def _aggregate(
    call: WindowCall, kind: AggKind, frame: Frame, rows: OrderedRows, failures: Counter[str], strict: bool
) -> Column:
    argument, mask = _counted(call, rows)
    start, end = rows.bounds_of(frame)
    if kind in (AggKind.MIN, AggKind.MAX):
        assert argument is not None
        return _taken([argument], extreme_rows(_ranks(argument, mask, kind), start, end))
    states = _frame_states(call, argument, mask, len(start), strict)
    try:
        if not frame.begins_with_partition:
            return states.between(rows.begins, start, end)
        states.accumulate(rows.begins)
        return states.running(np.where(end > start, end, -1))
    finally:
        failures[states.overflow_reason] += states.overflows
        states.release()


def _counted(call: WindowCall, rows: OrderedRows) -> tuple[Column | None, np.ndarray | None]:
    """The argument of an aggregate, and uint8[rows], 1 for the rows that its FILTER keeps, None: all."""
    argument = None if call.argument is None else rows.rows.columns[call.argument]
    return argument, None if call.filter is None else mask_of(rows.rows.columns[call.filter])


def _spec(call: WindowCall, input_type: DataType | None) -> AggSpec:
    return AggSpec(str(call.kind), call.argument, input_type, call.data_type, is_filtered=call.filter is not None)


def _frame_states(
    call: WindowCall, argument: Column | None, mask: np.ndarray | None, rows: int, strict: bool
) -> FrameStates:
    spec = _spec(call, None if argument is None else argument.data_type)
    return FrameStates(kernel_of(spec, strict), rows, argument, mask)


def _ranks(argument: Column, mask: np.ndarray | None, kind: AggKind) -> np.ndarray:
    """int64[rows]: integers in the order of the values, the extreme first, equal for equal values; -1 for NULL and for
    rows that do not count."""
    order = DESCENDING if kind is AggKind.MAX else OrderType()
    encoded = KeyEncoder([argument.data_type], [order]).encode([argument]).to_arrow()
    distinct = encoded.dictionary_encode()
    by_code = pc.rank(distinct.dictionary, tiebreaker="first").to_numpy().astype(np.int64)
    ranks = by_code[distinct.indices.to_numpy()] if len(by_code) else np.empty(0, np.int64)
    counts = argument.array.is_valid().to_numpy(zero_copy_only=False)
    if mask is not None:
        counts = counts & (mask != 0)
    return np.where(counts, ranks, -1)


# -- with states ---------------------------------------------------------------------------------------


def _running(
    call: WindowCall, rows: OrderedRows, known: np.ndarray, given: Sequence[Column], failures: Counter[str]
) -> tuple[Column, list[Column]]:
    """The value of each row, and its state; rows at `known` have the states `given`."""
    if isinstance(call.kind, WindowKind):
        if call.argument is None:
            return _running_number(call.kind, rows, known, given)
        return _running_value(call, rows, known, given)
    if call.kind in (AggKind.MIN, AggKind.MAX):
        return _running_extreme(call, call.kind, rows, known, given)
    assert call.frame is not None
    argument, mask = _counted(call, rows)
    start, end = rows.bounds_of(call.frame)
    states = _frame_states(call, argument, mask, len(start), False)
    try:
        states.accumulate(rows.begins, known, given)
        return states.running(np.where(end > start, end, -1)), states.state_columns()
    finally:
        failures[states.overflow_reason] += states.overflows
        states.release()


def _row_numbers(rows: OrderedRows, known: np.ndarray, numbers: Column | None) -> np.ndarray:
    """int64[rows]: the number of each row in its whole partition."""
    before = np.zeros(len(rows.begin), np.int64)
    if numbers is not None:
        before[known] = numbers.array.to_numpy() - 1
    return np.arange(len(before)) - rows.begin + 1 + before[rows.begin]


def _running_number(
    kind: WindowKind, rows: OrderedRows, known: np.ndarray, given: Sequence[Column]
) -> tuple[Column, list[Column]]:
    if kind is WindowKind.DENSE_RANK:
        before = np.zeros(len(rows.begin), np.int64)
        if given:
            before[known] = given[0].array.to_numpy() - 1
        value = Column(pa.array(rows.dense_rank + before[rows.begin]))
        return value, [value]
    numbers = _row_numbers(rows, known, given[0] if given else None)
    value = Column(pa.array(numbers))
    if kind is WindowKind.ROW_NUMBER:
        return value, [value]
    of_first = numbers.copy()
    if given:
        of_first[known] = given[1].array.to_numpy()
    rank = Column(pa.array(of_first[rows.peer_begin]))
    return rank, [value, rank]


def _running_value(
    call: WindowCall, rows: OrderedRows, known: np.ndarray, given: Sequence[Column]
) -> tuple[Column, list[Column]]:
    """Row n of the partition, for the rows whose frame has it."""
    assert call.argument is not None and call.frame is not None
    numbers = _row_numbers(rows, known, given[0] if given else None)
    count = len(numbers)
    columns = [rows.rows.columns[call.argument], *given[1:]]
    found = rows.begin + call.number - numbers[rows.begin]  # of row n, among these rows
    is_before = found < rows.begin
    at_known = np.zeros(count, np.int64)
    at_known[known] = np.arange(len(known))
    found = np.where(is_before, count + at_known[rows.begin], found)
    _, end = rows.bounds_of(call.frame)
    is_there = (is_before | (found < end)) & (end > rows.begin)
    value = _taken(columns, np.where(is_there, found, -1))
    is_known = is_before | (found <= np.arange(count))
    return value, [Column(pa.array(numbers)), _taken(columns, np.where(is_known, found, -1))]


def _running_extreme(
    call: WindowCall, kind: AggKind, rows: OrderedRows, known: np.ndarray, given: Sequence[Column]
) -> tuple[Column, list[Column]]:
    """A known row has the extreme of the rows up to it in the place of its argument."""
    assert call.argument is not None and call.frame is not None
    argument, mask = _counted(call, rows)
    assert argument is not None
    at = np.arange(len(rows.begin))
    if given:
        from_known = at.copy()
        from_known[known] = len(at) + np.arange(len(known))
        argument = _taken([argument, given[0]], from_known)
        if mask is not None:
            mask = mask.copy()
            mask[known] = 1
    ranks = _ranks(argument, mask, kind)
    start, end = rows.bounds_of(call.frame)
    value = _taken([argument], extreme_rows(ranks, start, end))
    return value, [_taken([argument], extreme_rows(ranks, rows.begin, at + 1))]
