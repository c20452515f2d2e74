"""HashJoin: a join of a batch query. Keys are equal as in groups and stored keys [R4].

One input is kept and indexed by its key, the rows of the other one probe the index, chunk by chunk. Which one is kept
is decided by counting, while rows of both are read in turns: the input that ends first is the smaller one.

    the right one ends first        it is kept
    the left one, INNER             it is kept
    the left one, LEFT, SEMI, ANTI  the right one is kept, without the rows that have no partner

RIGHT and FULL keep the right input. If the left one has few rows, and the right one reads a table whose key begins with
the columns of the join, those of its rows are looked up that have a partner, see `lookup`.

If there is no memory for what is kept, both inputs are partitioned on disk by the hash of their keys, and the parts are
joined one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from relational.batch.keyed_rows import KeyedRows, Keys
from relational.batch.partitions import LEVELS, level_below, partitioned
from relational.batch.plan import BatchHashJoin
from relational.batch.query_memory import HeldRows, QueryMemory
from relational.chunk import Column, DataChunk, mask_of
from relational.expr.eval import Evaluator
from relational.plan.logical import JoinKind
from relational.types.schema import Schema

BATCH_ROWS = 65_536
"""Of pairs, or of rows of set-returning functions, that are made at once."""
ROUND_ROWS = 131_072
"""Rows of each input that are read in turns."""
LOOKUP_ROWS = 4_096
"""Rows of an input for which those of the other one are looked up."""
COPIES, ROW_BYTES = 2, 48
"""Of kept rows: as they came and together, and what a key and a position take."""

Chunks = Iterator[DataChunk]
Lookup = Callable[[DataChunk], Chunks]
"""The rows of an input that may have a partner among the rows of the other one."""


class HashJoin:
    """The join `plan`, whose inputs were partitioned `level` times before."""

    def __init__(self, plan: BatchHashJoin, memory: QueryMemory, level: int = 0) -> None:
        self._plan, self._kind = plan, plan.kind
        left, right = zip(*plan.keys, strict=True)
        self._left_keys: tuple[int, ...] = left
        self._right_keys: tuple[int, ...] = right
        self._condition = None if plan.condition is None else Evaluator(plan.condition)
        self._memory, self._level = memory, level

    def rows(self, left: Chunks, right: Chunks, lookup: Lookup | None = None) -> Chunks:
        """The pairs, and the rows without a partner, or the left rows, that the kind says. `lookup`: of right rows.
        QueryTooLarge, SpillFailed."""
        if lookup is not None:
            ahead = self._held()
            if _pull(left, ahead, LOOKUP_ROWS):
                found = lookup(DataChunk.concat(ahead.chunks)) if ahead.chunks else iter(())
                yield from self._with_kept_right(ahead.chunks, _dense(found))
                return
            left = chain(ahead.drain(), left)
        if self._kind.keeps_right:
            yield from self._with_kept_right(left, _dense(right))
        else:
            yield from self._with_kept_smaller(left, right)

    def _with_kept_smaller(self, left: Chunks, right: Chunks) -> Chunks:
        """Reads rows of both inputs in turns until one of them has ended."""
        some_left, some_right = self._held(), self._held()
        while some_left.fits and some_right.fits:
            if _pull(right, some_right, ROUND_ROWS):
                yield from self._probed(chain(some_left.drain(), left), some_right)
                return
            if not _pull(left, some_left, ROUND_ROWS):
                continue
            right = chain(some_right.drain(), _dense(right))
            if self._kind is JoinKind.INNER:
                yield from self._swapped(some_left, right)
            else:
                yield from self._with_kept_right(some_left.chunks, self._partners(some_left.chunks, right))
            return
        yield from self._partitioned(chain(some_left.drain(), left), chain(some_right.drain(), right))

    def _with_kept_right(self, left: Iterable[DataChunk], right: Iterable[DataChunk]) -> Chunks:
        """`right`: without hidden rows."""
        kept = self._held()
        for chunk in right:
            kept.add(chunk)
            if not kept.fits:
                yield from self._partitioned(left, chain(kept.drain(), right))
                return
        yield from self._probed(left, kept)

    def _partitioned(self, left: Iterable[DataChunk], right: Iterable[DataChunk]) -> Chunks:
        """Joins what has the same key part by part."""
        plan, memory, level = self._plan, self._memory, self._level
        if level == LEVELS:
            yield from self._within_memory(left, right)
            return
        right_files = partitioned(right, plan.right.schema.types, self._right_keys, memory, level)
        left_files = partitioned(left, plan.left.schema.types, self._left_keys, memory, level)
        join = HashJoin(plan, memory, level_below(level, left_files, right_files))
        while left_files:
            yield from join.rows(iter(left_files.pop()), iter(right_files.pop()))

    def _within_memory(self, left: Iterable[DataChunk], right: Iterable[DataChunk]) -> Chunks:
        """Keeps the right rows, which the hash of their keys does not part. QueryTooLarge."""
        kept = self._held()
        for chunk in _dense(right):
            kept.add(chunk)
            kept.require("rows that a join keeps")
        yield from self._probed(left, kept)

    def _held(self) -> HeldRows:
        return HeldRows(self._memory, COPIES, ROW_BYTES)

    def _partners(self, left: Iterable[DataChunk], right: Iterable[DataChunk]) -> Chunks:
        """The right rows that have the key of a left one."""
        keys = Keys([self._plan.left.schema.types[column] for column in self._left_keys], self._plan.null_safe)
        for chunk in left:
            keys.add([chunk.columns[column] for column in self._left_keys])
        for chunk in _dense(right):
            kept = np.flatnonzero(keys.find([chunk.columns[column] for column in self._right_keys]) >= 0)
            if len(kept) == chunk.capacity:
                yield chunk
            elif len(kept):
                yield chunk.take(kept.astype(np.int32))

    def _swapped(self, left: HeldRows, right: Iterable[DataChunk]) -> Chunks:
        """The pairs of kept left rows, in the order of the right ones."""
        kept = KeyedRows(self._plan.left.schema.types, left.chunks, self._left_keys, self._plan.null_safe)
        left.chunks.clear()
        for chunk in _dense(right):
            ids = kept.keys.find([chunk.columns[column] for column in self._right_keys])
            for right_rows, left_rows in kept.pairs(ids, BATCH_ROWS):
                pairs = self._joined(kept.rows, left_rows, chunk, right_rows)
                if self._condition is not None:
                    pairs = pairs.filter(self._condition(pairs, strict=True))
                if pairs.visible_rows:
                    yield pairs

    def _probed(self, left: Iterable[DataChunk], right: HeldRows) -> Chunks:
        """The result with kept right rows, in the order of the left ones; right rows without a partner come last."""
        kept = KeyedRows(self._plan.right.schema.types, right.chunks, self._right_keys, self._plan.null_safe)
        right.chunks.clear()
        is_matched = np.zeros(kept.rows.capacity if self._kind.keeps_right else 0, np.bool_)
        for chunk in _dense(left):
            if self._kind.has_pairs:
                yield from self._pairs(chunk, kept, is_matched)
            else:
                yield from self._filtered(chunk, kept)
        alone = np.flatnonzero(~is_matched).astype(np.int32)
        for first in range(0, len(alone), BATCH_ROWS):
            yield self._without_left(kept.rows.take(alone[first : first + BATCH_ROWS]))

    def _filtered(self, left: DataChunk, kept: KeyedRows) -> Chunks:
        """The left rows with, or without, a partner."""
        ids = kept.keys.find([left.columns[column] for column in self._left_keys])
        if self._condition is None:
            has_partner = kept.counts(ids) > 0
        else:
            has_partner = np.zeros(left.capacity, np.bool_)
            for left_rows, right_rows in kept.pairs(ids, BATCH_ROWS):
                holds = self._condition(self._joined(left, left_rows, kept.rows, right_rows), strict=True)
                has_partner[left_rows[mask_of(holds).view(np.bool_)]] = True
        found = left.project(range(self._plan.widths[0])).filter(has_partner ^ self._kind.keeps_left)
        if found.visible_rows:
            yield found

    def _pairs(self, left: DataChunk, kept: KeyedRows, is_matched: np.ndarray) -> Chunks:
        ids = kept.keys.find([left.columns[column] for column in self._left_keys])
        has_partner = np.zeros(left.capacity, np.bool_)
        for left_rows, right_rows in kept.pairs(ids, BATCH_ROWS):
            pairs = self._joined(left, left_rows, kept.rows, right_rows)
            if self._condition is not None:
                holds = self._condition(pairs, strict=True)
                pairs, taken = pairs.filter(holds), mask_of(holds).view(np.bool_)
                left_rows, right_rows = left_rows[taken], right_rows[taken]
            if self._kind.keeps_left:
                has_partner[left_rows] = True
            if self._kind.keeps_right:
                is_matched[right_rows] = True
            if len(left_rows):
                yield pairs
        if self._kind.keeps_left and not has_partner.all():
            alone = left.take(np.flatnonzero(~has_partner).astype(np.int32))
            width, right_width = self._plan.widths
            absent = _nulls(self._plan.right.schema, right_width, alone.capacity)
            yield DataChunk([*alone.columns[:width], *absent], capacity=alone.capacity)

    def _joined(
        self, left: DataChunk, left_rows: np.ndarray, right: DataChunk, right_rows: np.ndarray
    ) -> DataChunk:
        width, right_width = self._plan.widths
        columns = _taken(left, width, left_rows) + _taken(right, right_width, right_rows)
        return DataChunk(columns, capacity=len(left_rows))

    def _without_left(self, right: DataChunk) -> DataChunk:
        width, right_width = self._plan.widths
        absent = _nulls(self._plan.left.schema, width, right.capacity)
        return DataChunk([*absent, *right.columns[:right_width]], capacity=right.capacity)


def _dense(chunks: Iterable[DataChunk]) -> Chunks:
    """The chunks with visible rows, compacted."""
    return (chunk.compact() for chunk in chunks if chunk.visible_rows)


def _pull(chunks: Chunks, held: HeldRows, most: int) -> bool:
    """Holds compacted chunks until they have more than `most` rows, or too many; whether these are all."""
    last = held.rows + most
    for chunk in _dense(chunks):
        held.add(chunk)
        if held.rows > last or not held.fits:
            return False
    return True


def _taken(rows: DataChunk, width: int, indices: np.ndarray) -> list[Column]:
    """The first `width` columns of these rows."""
    if not width:
        return []
    if len(indices) == rows.capacity and bool((indices == np.arange(len(indices))).all()):
        return list(rows.columns[:width])
    return list(rows.project(range(width)).take(indices.astype(np.int32)).columns)


def _nulls(schema: Schema, width: int, rows: int) -> list[Column]:
    """So many rows of NULL in the first `width` columns."""
    return [Column.nulls(data_type, rows) for data_type in schema.types[:width]]
