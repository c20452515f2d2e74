"""HashJoin: a join of a batch query. The rows of the right input are indexed by their key, then those of the left one
probe the index, chunk by chunk. Keys are equal as in groups and stored keys [R4].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from relational.batch.plan import BatchHashJoin
from relational.chunk import Column, DataChunk, StreamChunk, mask_of
from relational.expr.eval import Evaluator
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.types.schema import Schema

BATCH_ROWS = 65_536
"""Of pairs, or of rows of set-returning functions, that are made at once."""


class HashJoin:
    """The join `plan`, over the right rows `rows`, which are read and kept."""

    def __init__(self, plan: BatchHashJoin, rows: Iterable[DataChunk]) -> None:
        self._plan = plan
        self._left_keys, right_keys = zip(*plan.keys, strict=True)
        self._condition = None if plan.condition is None else Evaluator(plan.condition)
        self._index = JoinIndex(plan.right.schema.types, right_keys, (), null_safe=plan.null_safe)
        self._keyless: list[DataChunk] = []  # right rows whose key equals nothing
        for chunk in rows:
            dense = chunk.compact()
            ids = self._index.locate([dense.columns[column] for column in right_keys]).ids
            self._index.apply(StreamChunk.inserts(dense), ids)
            if plan.kind.keeps_right and (ids < 0).any():
                self._keyless.append(dense.take(np.flatnonzero(ids < 0).astype(np.int32)))
        self._is_matched = np.zeros(self._index.rows if plan.kind.keeps_right else 0, np.bool_)

    def rows(self, left: Iterable[DataChunk]) -> Iterator[DataChunk]:
        """The pairs, in the order of the left rows, and after each chunk its rows without a partner, last the right
        rows without one; or the left rows that the kind says. REQUIRES one call."""
        for chunk in left:
            yield from self._pairs(chunk.compact()) if self._plan.kind.has_pairs else self._filtered(chunk.compact())
        if not self._plan.kind.keeps_right:
            return
        alone = np.flatnonzero(~self._is_matched).astype(np.int32)
        for first in range(0, len(alone), BATCH_ROWS):
            yield self._without_left(list(map(Column, self._index.gather(alone[first : first + BATCH_ROWS]))))
        for chunk in self._keyless:
            yield self._without_left(chunk.columns)

    def _filtered(self, left: DataChunk) -> Iterator[DataChunk]:
        """The left rows with, or without, a partner."""
        ids = self._index.locate([left.columns[column] for column in self._left_keys], is_adding=False).ids
        if self._condition is None:
            has_partner = self._index.counts(ids) > 0
        else:
            has_partner = np.zeros(left.capacity, np.bool_)
            for left_rows, right_rows in JoinProbe(self._index, ids, BATCH_ROWS):
                holds = self._condition(self._joined(left, left_rows, right_rows), strict=True)
                has_partner[left_rows[mask_of(holds).view(np.bool_)]] = True
        kept = left.project(range(self._plan.widths[0])).filter(has_partner ^ self._plan.kind.keeps_left)
        if kept.visible_rows:
            yield kept

    def _pairs(self, left: DataChunk) -> Iterator[DataChunk]:
        ids = self._index.locate([left.columns[column] for column in self._left_keys], is_adding=False).ids
        has_partner = np.zeros(left.capacity, np.bool_)
        for left_rows, right_rows in JoinProbe(self._index, ids, BATCH_ROWS):
            pairs = self._joined(left, left_rows, right_rows)
            if self._condition is not None:
                holds = self._condition(pairs, strict=True)
                pairs, kept = pairs.filter(holds), mask_of(holds).view(np.bool_)
                left_rows, right_rows = left_rows[kept], right_rows[kept]
            has_partner[left_rows] = True
            if self._plan.kind.keeps_right:
                self._is_matched[right_rows] = True
            if len(left_rows):
                yield pairs
        if self._plan.kind.keeps_left and not has_partner.all():
            alone = left.take(np.flatnonzero(~has_partner).astype(np.int32))
            width, right_width = self._plan.widths
            absent = _nulls(self._plan.right.schema, right_width, alone.capacity)
            yield DataChunk([*alone.columns[:width], *absent], capacity=alone.capacity)

    def _joined(self, left: DataChunk, left_rows: np.ndarray, right_rows: np.ndarray) -> DataChunk:
        width, right_width = self._plan.widths
        columns = left.project(range(width)).take(left_rows).columns
        found = self._index.gather(right_rows, range(right_width)) if right_width else []
        return DataChunk([*columns, *map(Column, found)], capacity=len(left_rows))

    def _without_left(self, columns: list[Column]) -> DataChunk:
        width, right_width = self._plan.widths
        rows = len(columns[0])
        absent = _nulls(self._plan.left.schema, width, rows)
        return DataChunk([*absent, *columns[:right_width]], capacity=rows)


def _nulls(schema: Schema, width: int, rows: int) -> list[Column]:
    """So many rows of NULL in the first `width` columns."""
    return [Column.nulls(data_type, rows) for data_type in schema.types[:width]]
