"""Ranking: rows in the order of their groups, and their numbers in it.

Rows are compared by words of the values of the first columns, those of fixed width, and where they are equal by
memcomparable keys of the others: the order is that of stored keys and of sorted queries [R4].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import Column, DataChunk
from relational.encoding import KeyEncoder
from relational.order.late_rows import LateRows
from relational.order.rank_words import BEGINS, DIFFERS, DISTINCT, leading_rows, rank_words
from relational.types.data_type import TypeKind
from relational.types.ordering import ASCENDING, OrderType, SortKey

_BY_BYTES = {
    TypeKind.SMALLINT: 2, TypeKind.INT: 4, TypeKind.BIGINT: 8, TypeKind.NUMERIC: 8, TypeKind.DATE: 4, TypeKind.TIME: 8,
    TypeKind.TIMESTAMP: 8, TypeKind.TIMESTAMPTZ: 8,
}  # fmt: skip
"""Bytes of the integers that values are made of."""
_FLOATS = (TypeKind.REAL, TypeKind.DOUBLE)
MOST_EMPTY_GROUPS, SPARSE_GROUPS = 1_024, 4
"""Group numbers up to so many times the number of rows, and so many more, are counted as they are."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """`rows` int32[n]: the rows, group by group, each in its order. Of each of them, in this sequence, int64[n]:
    `group`; `row_number`, `rank` and `dense_rank`, as in SQL."""

    rows: np.ndarray
    group: np.ndarray
    row_number: np.ndarray
    rank: np.ndarray
    dense_rank: np.ndarray


def ranking(
    rows: DataChunk | LateRows, groups: np.ndarray, keys: Sequence[SortKey], ties: Sequence[int]
) -> Ranking:
    """The rows, none of them hidden, whose groups are numbered `groups` (integers[capacity]), in the order `keys` of
    each; rows that are equal in it by the columns `ties`, ascending, and then as they come."""
    late = LateRows.of(rows) if isinstance(rows, DataChunk) else rows
    order, begins, differs = _by_words(late, groups, keys, ties) or _by_encoded_keys(late, groups, keys, ties)
    at = np.arange(len(order))
    start = np.maximum.accumulate(np.where(begins, at, 0)) if len(order) else at
    tie = np.maximum.accumulate(np.where(differs, at, 0)) if len(order) else at
    steps = np.cumsum(differs)
    return Ranking(order, np.asarray(groups)[order], at - start + 1, tie - start + 1, steps - steps[start] + 1)


def contenders(rows: LateRows, groups: np.ndarray, key: SortKey, most: int) -> np.ndarray | None:
    """The positions of the rows that fewer than `most` of their group precede by the first key alone, as far as its
    words tell: int32[n], ascending; None for all. So others have no rank up to `most`. `groups`: integers[n], most of
    those up to the greatest one."""
    words = order_words(rows.column(key.column), key.order)
    if words is None or not len(groups):
        return None
    first = words[0]
    if rows.column(key.column).array.null_count:
        first = (words[0] << np.uint64(63)) | (words[1] >> np.uint64(1))
    most = max(min(most, len(groups)), 1)
    return leading_rows(np.ascontiguousarray(groups, np.int32), first, int(groups.max()) + 1, most)


_Order = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The rows in their order, where in it another group begins, and where a row is not equal to the one before it."""


def _by_words(rows: LateRows, groups: np.ndarray, keys: Sequence[SortKey], ties: Sequence[int]) -> _Order | None:
    """By words of the first columns, and where these are equal by the encoded keys of the others. None if the first
    column has no words."""
    every = [*keys, *map(SortKey, ties)]
    words: list[np.ndarray] = []
    known = width = 0
    for key in every:
        found = order_words(rows.column(key.column), key.order)
        if found is None:
            break
        words += found
        known += 1
        width = len(words) if known <= len(keys) else width
    if every and not known:
        return None
    groups = np.asarray(groups)
    count = int(groups.max()) + 1 if len(groups) else 0
    if count > MOST_EMPTY_GROUPS + SPARSE_GROUPS * len(groups):
        distinct, groups = np.unique(groups, return_inverse=True)
        count = len(distinct)
    table = np.stack(words, axis=1) if words else np.empty((len(groups), 0), np.uint64)
    order, marks = rank_words(np.ascontiguousarray(groups, np.int32), table, width, count)
    differs = (marks & DIFFERS).astype(np.bool_)
    if known < len(every):
        _order_equal_ones(rows, order, (marks & DISTINCT) == 0, differs, every[known:], max(len(keys) - known, 0))
    return order, (marks & BEGINS).astype(np.bool_), differs


def _order_equal_ones(
    rows: LateRows, order: np.ndarray, is_equal: np.ndarray, differs: np.ndarray, rest: Sequence[SortKey], keys: int
) -> None:
    """Orders runs of rows, each equal to the one before it in what `order` is by, by `rest`, of which the first `keys`
    make them differ."""
    at = np.flatnonzero(is_equal | np.append(is_equal[1:], False))
    if not len(at):
        return
    run = np.cumsum(~is_equal)[at]
    columns = [key.column for key in rest]
    chosen = LateRows.of(rows.take(order[at], columns))
    own = [SortKey(number, key.order) for number, key in enumerate(rest)]
    found, begins, differ = _by_encoded_keys(chosen, run, own[:keys], range(keys, len(rest)))
    order[at] = order[at][found]
    differs[at] = np.where(begins, differs[at], differ)


def _by_encoded_keys(rows: LateRows, groups: np.ndarray, keys: Sequence[SortKey], ties: Sequence[int]) -> _Order:
    parts = [pa.array(groups)]
    for columns in ([(key.column, key.order) for key in keys], [(column, ASCENDING) for column in ties]):
        if columns:
            parts.append(_encoded(rows, columns))
    names = [str(number) for number in range(len(parts))]
    table = pa.table(parts, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy().astype(np.int32)
    begins = _begins(np.asarray(groups)[order])
    return order, begins, begins | _changes(parts[1].take(pa.array(order))) if keys else begins


def order_words(column: Column, order: OrderType) -> list[np.ndarray] | None:
    """The values of a column as words, uint64[n] each, whose ascending order is `order` of the values: one or two of
    the value, behind one that says whether it is NULL, if any is. Equal words are equal values. None for a type whose
    values have no fixed width."""
    array, kind = column.array, column.data_type.kind
    if kind in _BY_BYTES:
        width, first = _BY_BYTES[kind], array.offset
        stored = np.frombuffer(array.buffers()[1] or b"", f"<i{width}")
        if kind is TypeKind.NUMERIC:
            pairs = stored[2 * first : 2 * (first + len(array))].reshape(-1, 2)
            found = [_ascending(pairs[:, 1]), pairs[:, 0].view(np.uint64)]
        else:
            found = [_ascending(stored[first : first + len(array)])]
    elif kind in _FLOATS:
        found = [_ascending(_bits(array.fill_null(0).to_numpy()))]
    else:
        return None
    if order.descending:
        found = [~each for each in found]
    if not array.null_count:
        return found
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    values = (np.where(is_null, np.uint64(0), each) for each in found)
    return [(is_null != order.nulls_first).astype(np.uint64), *values]


def _ascending(values: np.ndarray) -> np.ndarray:
    """Signed integers as words in the same order."""
    return values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)


def _bits(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order: -0.0 is 0.0, and NaN the greatest [R4]."""
    bits = (values.astype(np.float64) + 0.0).view(np.int64)
    ordered = bits ^ ((bits >> 63) & np.int64((1 << 63) - 1))
    return np.where(np.isnan(values), np.int64((1 << 63) - 1), ordered)


def group_numbers(columns: Sequence[Column], rows: int) -> np.ndarray:
    """A number for each of so many rows, equal for rows that are equal in `columns`, NULL to NULL."""
    if not columns:
        return np.zeros(rows, np.int32)
    encoded = KeyEncoder([column.data_type for column in columns]).encode(columns).to_arrow()
    return encoded.dictionary_encode().indices.to_numpy()


def _encoded(rows: LateRows, columns: Sequence[tuple[int, object]]) -> pa.Array:
    chosen = [rows.column(column) for column, _ in columns]
    encoder = KeyEncoder([column.data_type for column in chosen], [order for _, order in columns])
    return encoder.encode(chosen).to_arrow()


def _begins(group: np.ndarray) -> np.ndarray:
    """Where another group begins: bool[n]."""
    found = np.ones(len(group), np.bool_)
    found[1:] = group[1:] != group[:-1]
    return found


def _changes(ordered: pa.Array) -> np.ndarray:
    """Where a value differs from the one before: bool[n]."""
    found = np.ones(len(ordered), np.bool_)
    if len(ordered) > 1:
        found[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    return found
