"""The values of window functions over ordered rows, column at a time.

What a call needs of the rows before the first ones that are there can be given, as its state in the row before: then
the first row of a partition is one whose state is known, and the values of the rows behind it are those that they have
in the whole partition. A call has such a state if its frame begins with the partition, see `is_running`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.agg import AggSpec
from relational.agg.frames import FrameStates
from relational.agg.groups import kernel_of
from relational.chunk import Column, DataChunk, mask_of
from relational.encoding import KeyEncoder
from relational.expr.aggregates import AggKind
from relational.expr.window_functions import BoundKind, Frame, WindowCall, WindowKind
from relational.order.frame_search import extreme_rows
from relational.order.ordered_rows import OrderedRows
from relational.types import DESCENDING, OrderType


def window_values(calls: Sequence[WindowCall], rows: OrderedRows, *, strict: bool = False) -> list[Column]:
    """The value of each call for each row, in their order. `strict`: an aggregate that does not fit its type is an
    EvaluationError, else NULL."""
    return [_value(call, rows, strict) for call in calls]


def _value(call: WindowCall, rows: OrderedRows, strict: bool) -> Column:
    if isinstance(call.kind, AggKind):
        assert call.frame is not None
        return _aggregate(call, call.kind, call.frame, rows, strict)
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
    argument = DataChunk([rows.rows.columns[call.argument]])
    if call.default is None:
        return argument.take(np.where(is_there, found, -1)).columns[0]
    both = DataChunk.concat([argument, DataChunk([rows.rows.columns[call.default]])])
    return both.take(np.where(is_there, found, len(at) + at)).columns[0]


def _aggregate(call: WindowCall, kind: AggKind, frame: Frame, rows: OrderedRows, strict: bool) -> Column:
    argument = None if call.argument is None else rows.rows.columns[call.argument]
    mask = None if call.filter is None else mask_of(rows.rows.columns[call.filter])
    start, end = rows.bounds_of(frame)
    if kind in (AggKind.MIN, AggKind.MAX):
        assert argument is not None
        found = extreme_rows(_ranks(argument, mask, kind), start, end)
        return DataChunk([argument]).take(found).columns[0]
    states = _states(call, argument, mask, len(start), strict)
    try:
        if not is_running(frame):
            return states.between(rows.begins, start, end)
        states.accumulate(rows.begins)
        return states.running(np.where(end > start, end, -1))
    finally:
        states.release()


def is_running(frame: Frame) -> bool:
    """Whether the frame of each row begins with the partition, and does not depend on where that ends."""
    return frame.start.kind is BoundKind.UNBOUNDED_PRECEDING and frame.end.kind is not BoundKind.UNBOUNDED_FOLLOWING


def _states(
    call: WindowCall, argument: Column | None, mask: np.ndarray | None, rows: int, strict: bool
) -> FrameStates:
    input_type = None if argument is None else argument.data_type
    spec = AggSpec(str(call.kind), call.argument, input_type, call.data_type, is_filtered=mask is not None)
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
