"""The results of calls that collect, computed for many groups at once from their rows in order.

The rows of a group are adjacent, in the order of its calls. Everything is columns: lists are offsets over a column,
texts are joined by one kernel, percentiles and firsts are positions to take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.agg.user_aggregate import aggregated
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.json import canonical_json
from relational.chunk.json_members import json_strings
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import DataType, TypeKind
from relational.udf.function import UserFunction

MOST_ROWS, MOST_BYTES = 1 << 20, 32 << 20
"""Of one result that has all rows of a group [R61]."""
MOST_SORTED_ROWS, MOST_SORTED_BYTES = 1 << 24, 256 << 20
"""Of a group whose rows a view reads to find one of them [R61]."""
GATHERING = ("string_agg", "array_agg", "jsonb_agg", "jsonb_object_agg")
FIRSTS = ("first_value", "last_value", "arg_min", "arg_max")
NULL_KEY = "a key of jsonb_object_agg is NULL"
ZERO_IN_KEY = "invalid text for JSONB"
TEXTS = (TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.JSONB)


@dataclass(frozen=True, slots=True)
class CollectedCall:
    """One call over rows whose columns `arguments` are its arguments. `constants`: Python values, the separator of a
    string_agg or the fractions of a percentile, which are one value or a list. `function`: of a user aggregate."""

    kind: str
    arguments: tuple[int, ...]
    output_type: DataType
    is_distinct: bool = False
    constants: tuple[object, ...] = ()
    function: UserFunction | None = None

    @property
    def too_large(self) -> str:
        """The reason for a NULL result of a group with too many rows or bytes."""
        return f"too many rows for {self.kind.upper() if self.function is None else self.function.name}"

    def is_too_large(self, rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """bool[groups]: whether a group of so many rows and bytes has no result."""
        if self.kind in GATHERING:
            return (rows > MOST_ROWS) | (sizes > MOST_BYTES)
        if self.kind in FIRSTS:
            return np.zeros(len(rows), np.bool_)
        return (rows > MOST_SORTED_ROWS) | (sizes > MOST_SORTED_BYTES)


@dataclass(frozen=True, slots=True)
class CollectedColumn:
    """The results of a call for some groups, and for each reason which of them, bool[groups], are NULL for it."""

    column: Column
    failures: Mapping[str, np.ndarray]


def kept_sizes(rows: DataChunk, required: Sequence[int], mask: np.ndarray | None, columns: Sequence[int]) -> Column:
    """BIGINT[capacity]: the bytes of the `columns` of each row, which is NULL if the row is not kept: if one of
    `required` is NULL, or `mask` (uint8[capacity]) is 0."""
    sizes = np.full(rows.capacity, 8 * len(columns), np.int64)
    for column in columns:
        sizes += _bytes_of(rows.columns[column])
    kept = np.ones(rows.capacity, np.bool_) if mask is None else mask.astype(np.bool_)
    for column in required:
        if rows.columns[column].null_count:
            kept &= rows.columns[column].array.is_valid().to_numpy(zero_copy_only=False)
    return Column(pa.array(sizes, mask=~kept))


def _bytes_of(column: Column) -> np.ndarray | int:
    """The bytes of each value beyond a word."""
    data_type = column.data_type
    if data_type.kind in TEXTS:
        array = column.array.storage if data_type.kind is TypeKind.JSONB else column.array
    elif data_type.is_nested:
        array = ValueEncoder([data_type]).encode([column]).to_arrow()
    else:
        return 0
    return np.diff(np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)).astype(np.int64)


def collected(
    call: CollectedCall, rows: DataChunk, starts: np.ndarray, *, strict: bool = False
) -> CollectedColumn:
    """The results of groups of `rows`, none hidden: those of group g are rows starts[g] to starts[g + 1], in the order
    of the call; int64[groups + 1]. `strict`: a user aggregate without a result is a FunctionFailed."""
    if call.is_distinct:
        rows, starts = _without_repeated(rows, call.arguments, starts)
    if call.function is not None:
        arguments = [rows.columns[column].array for column in call.arguments]
        return _found(call, *aggregated(call.function, arguments, starts, strict=strict))
    return _RESULTS[call.kind](call, [rows.columns[column] for column in call.arguments], starts)


def _without_repeated(
    rows: DataChunk, columns: Sequence[int], starts: np.ndarray
) -> tuple[DataChunk, np.ndarray]:
    """Of adjacent rows of a group that are equal in `columns` the first ones."""
    is_first = _changes([rows.columns[column] for column in columns], starts)
    before = np.concatenate([[0], np.cumsum(is_first)])
    return rows.take(np.flatnonzero(is_first).astype(np.int32)), before[starts]


def _changes(columns: Sequence[Column], starts: np.ndarray) -> np.ndarray:
    """bool[rows]: whether a row is the first of its group, or differs from the row before."""
    keys = KeyEncoder([column.data_type for column in columns]).encode(columns).to_arrow()
    found = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        found[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    found[starts[:-1][np.diff(starts) > 0]] = True
    return found


def _list_array(values: pa.Array, starts: np.ndarray) -> pa.Array:
    """Lists of adjacent values, NULL where there are none."""
    offsets = starts.astype(np.int32)
    first, last = int(starts[0]), int(starts[-1])
    offsets = pa.array(offsets - offsets[0], pa.int32())
    return pa.ListArray.from_arrays(offsets, values.slice(first, last - first), mask=pa.array(np.diff(starts) == 0))


def _array_agg(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    return _found(call, _list_array(arguments[0].array, starts))


def _string_agg(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    separator = call.constants[0]
    if separator is None:
        separator = b"" if call.output_type.kind is TypeKind.BYTEA else ""
    lists = _list_array(arguments[0].array, starts)
    return _found(call, pc.binary_join(lists, pa.scalar(separator, arguments[0].array.type)))


def _jsonb_agg(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    return _found(call, _enclosed("[", pc.fill_null(arguments[0].array.storage, "null"), "]", starts))


def _jsonb_object_agg(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    keys, values = arguments[0].array, pc.fill_null(arguments[1].array.storage, "null")
    wrong = {NULL_KEY: keys.is_null(), ZERO_IN_KEY: pc.fill_null(pc.match_substring(keys, "\0"), False)}
    failures = {reason: _groups_with(rows, starts) for reason, rows in wrong.items() if pc.any(rows).as_py()}
    if failures:
        is_wrong = reduce(pc.or_, wrong.values())
        keys = pc.if_else(is_wrong, "", keys)
    texts = _enclosed("{", pc.binary_join_element_wise(json_strings(keys), values, ":"), "}", starts)
    for failed in failures.values():
        texts = pc.if_else(pa.array(failed), pa.scalar(None, pa.utf8()), texts)
    return _found(call, canonical_json(texts), failures)


def _groups_with(rows: pa.Array, starts: np.ndarray) -> np.ndarray:
    """bool[groups]: whether a group has one of `rows`, a BOOLEAN column."""
    before = np.concatenate([[0], np.cumsum(rows.to_numpy(zero_copy_only=False))])
    return before[starts[1:]] > before[starts[:-1]]


def _enclosed(opening: str, parts: pa.Array, closing: str, starts: np.ndarray) -> pa.Array:
    joined = pc.binary_join(_list_array(parts, starts), ",")
    return pc.binary_join_element_wise(opening, joined, closing, "")


def _first(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    return _found(call, _taken(arguments[0], np.where(np.diff(starts) > 0, starts[:-1], -1)))


def _mode(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    """The value with the most rows, of several the first one."""
    runs = np.append(np.flatnonzero(_changes(arguments, starts)), starts[-1])
    lengths = np.diff(runs)
    has_rows = np.diff(starts) > 0
    at = np.full(len(has_rows), -1, np.int64)
    if len(lengths):
        first_run = np.searchsorted(runs, starts[:-1][has_rows])
        most = np.maximum.reduceat(lengths, first_run)
        of_run = np.repeat(np.arange(len(first_run)), np.diff(np.append(first_run, len(lengths))))
        longest = np.flatnonzero(lengths == most[of_run])
        at[has_rows] = runs[longest[np.unique(of_run[longest], return_index=True)[1]]]
    return _found(call, _taken(arguments[0], at))


def _percentile_disc(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    """The first value whose share of the rows up to it is the fraction, or more."""
    counts = np.diff(starts)

    def at(fraction: float) -> pa.Array:
        number = np.maximum(np.ceil(fraction * counts).astype(np.int64), 1)
        return _taken(arguments[0], np.where(counts > 0, starts[:-1] + number - 1, -1))

    return _of_fractions(call, at, arguments[0].array.type, counts)


def _percentile_cont(call: CollectedCall, arguments: Sequence[Column], starts: np.ndarray) -> CollectedColumn:
    """Between the two values at both sides of the fraction of the way from the first row to the last one."""
    counts, values = np.diff(starts), arguments[0].array.to_numpy(zero_copy_only=False)
    has_rows = counts > 0

    def at(fraction: float) -> pa.Array:
        found = np.zeros(len(counts), np.float64)
        way = fraction * (counts[has_rows] - 1)
        low = np.floor(way).astype(np.int64)
        high = np.ceil(way).astype(np.int64)
        first = starts[:-1][has_rows]
        below, above = values[first + low], values[first + high]
        with np.errstate(invalid="ignore", over="ignore"):
            found[has_rows] = np.where(low == high, below, below + (way - low) * (above - below))
        return pa.array(found, pa.float64(), mask=~has_rows)

    return _of_fractions(call, at, pa.float64(), counts)


def _of_fractions(
    call: CollectedCall, at: Callable[[float], pa.Array], arrow: pa.DataType, counts: np.ndarray
) -> CollectedColumn:
    """The value at the fraction, or the list of those at each of them; NULL at NULL."""
    (given,) = call.constants
    nothing = pa.nulls(len(counts), arrow)
    if not isinstance(given, list):
        return _found(call, nothing if given is None else at(float(given)))  # type: ignore[arg-type]
    columns = [nothing if each is None else at(float(each)) for each in given]
    width, groups = len(columns), len(counts)
    if not width:
        return _found(call, pa.nulls(groups, call.output_type.arrow))
    by_group = np.arange(width * groups).reshape(width, groups).T.ravel()
    values = Column(pa.concat_arrays(columns)).array.take(pa.array(by_group))
    offsets = pa.array(np.arange(0, width * groups + 1, width), pa.int32())
    return _found(call, pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0)))


def _taken(column: Column, rows: np.ndarray) -> pa.Array:
    """The values at these rows, NULL at -1."""
    return DataChunk([column]).take(rows.astype(np.int32)).columns[0].array


def _found(
    call: CollectedCall, array: pa.Array, failures: Mapping[str, np.ndarray] | None = None
) -> CollectedColumn:
    arrow = call.output_type.arrow
    if isinstance(arrow, pa.BaseExtensionType) and not isinstance(array.type, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(arrow, array)
    return CollectedColumn(Column(array, call.output_type), failures or {})


_RESULTS: dict[str, Callable[[CollectedCall, Sequence[Column], np.ndarray], CollectedColumn]] = {
    "array_agg": _array_agg,
    "string_agg": _string_agg,
    "jsonb_agg": _jsonb_agg,
    "jsonb_object_agg": _jsonb_object_agg,
    "first_value": _first,
    "last_value": _first,
    "arg_min": _first,
    "arg_max": _first,
    "mode": _mode,
    "percentile_cont": _percentile_cont,
    "percentile_disc": _percentile_disc,
}
