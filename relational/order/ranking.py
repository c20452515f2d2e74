"""Ranking: rows in the order of their groups, and their numbers in it.

Rows are compared by memcomparable keys, so the order is that of stored keys and of sorted queries [R4].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk import Column, DataChunk
from relational.encoding import KeyEncoder
from relational.types.ordering import ASCENDING, SortKey


@dataclass(frozen=True, slots=True)
class Ranking:
    """`rows` int32[n]: the rows, group by group, each in its order. Of each of them, in this sequence, int64[n]:
    `group`; `row_number`, `rank` and `dense_rank`, as in SQL."""

    rows: np.ndarray
    group: np.ndarray
    row_number: np.ndarray
    rank: np.ndarray
    dense_rank: np.ndarray


def ranking(rows: DataChunk, groups: np.ndarray, keys: Sequence[SortKey], ties: Sequence[int]) -> Ranking:
    """The rows, none of them hidden, whose groups are numbered `groups` (integers[capacity]), in the order `keys` of
    each; rows that are equal in it by the columns `ties`, ascending, and then as they come."""
    parts = [pa.array(groups)]
    for columns in ([(key.column, key.order) for key in keys], [(column, ASCENDING) for column in ties]):
        if columns:
            parts.append(_encoded(rows, columns))
    names = [str(number) for number in range(len(parts))]
    table = pa.table(parts, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy().astype(np.int32)
    group = np.asarray(groups)[order]
    begins = _begins(group)
    differs = begins
    if keys:
        ordered = parts[1].take(pa.array(order))
        differs = begins | _changes(ordered)
    at = np.arange(len(order))
    start = np.maximum.accumulate(np.where(begins, at, 0)) if len(order) else at
    tie = np.maximum.accumulate(np.where(differs, at, 0)) if len(order) else at
    steps = np.cumsum(differs)
    return Ranking(order, group, at - start + 1, tie - start + 1, steps - steps[start] + 1)


def group_numbers(columns: Sequence[Column], rows: int) -> np.ndarray:
    """A number for each of so many rows, equal for rows that are equal in `columns`, NULL to NULL."""
    if not columns:
        return np.zeros(rows, np.int32)
    encoded = KeyEncoder([column.data_type for column in columns]).encode(columns).to_arrow()
    return encoded.dictionary_encode().indices.to_numpy()


def _encoded(rows: DataChunk, columns: Sequence[tuple[int, object]]) -> pa.Array:
    chosen = [rows.columns[column] for column, _ in columns]
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
