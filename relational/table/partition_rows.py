"""PartitionRows: parts of the partitions of an ordered table.

The key of the table begins with the columns of the partition, then those of the order. The rows of a partition that are
equal in the order, peers, are adjacent; a part is around the peers of a first and of a last row, which need not exist:

    `before` rows | … of values `since` | peers of first … peers of last | `behind` rows

Each part is read by key ranges of its partition, of which no more than these rows are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hummock.base.key import KeyRange, successor_of_prefix
from relational.chunk import DataChunk
from relational.table.state_table import StateTable


@dataclass(frozen=True, slots=True)
class PartRows:
    """`rows`, part by part and in order, and for each of them `part` (int32[n]), ascending: the number of its part. By
    part: `before` int64, how many of its rows are before the peers of `first`; `reaches_end` bool, whether it has all
    rows behind them."""

    rows: DataChunk
    part: np.ndarray
    before: np.ndarray
    reaches_end: np.ndarray


class PartitionRows:
    """Reads `table`, whose partitions have the same values in the first `width` columns of its key, and peers in the
    first `peer_width`."""

    def __init__(self, table: StateTable, width: int, peer_width: int) -> None:
        self._table, self._width, self._peer_width = table, width, peer_width
        self.key = tuple(table.catalog.pk_indices[:peer_width])
        """Of a row, the columns that its peers have in common."""

    def whole(self, partitions: DataChunk) -> PartRows:
        """All rows of the partitions, one for each row of `partitions`: their columns."""
        found = list(self._table.rows_under(partitions))
        if not found:
            rows, part = DataChunk.from_rows(self._table.catalog.schema, []), np.empty(0, np.int32)
        else:
            rows, part = DataChunk.concat([rows for _, rows in found]), np.concatenate([part for part, _ in found])
        count = partitions.capacity
        return PartRows(rows, part, np.zeros(count, np.int64), np.ones(count, np.bool_))

    def last(self, partitions: DataChunk, count: int) -> tuple[DataChunk, np.ndarray]:
        """The last rows of each partition, so many or all, and the row of `partitions` that each is of."""
        ranges = [KeyRange.prefix(key) for key in self._keys(partitions)]
        part, rows = self._table.rows_between(ranges, reverse=True, limit=count)
        return rows, part

    def around(
        self, first: DataChunk, last: DataChunk, before: int, behind: int | None, since: DataChunk | None = None
    ) -> PartRows:
        """The part of one partition for each row of `first` and `last`, which have the columns `key`. `behind` None:
        all rows. `since`: in addition to the rows `before`, those from a value of the first column of the order on, in
        rows of the columns of the partition and this one; where it is NULL, all rows."""
        partitions = self._keys(first.project(range(self._width)))
        firsts, lasts = self._keys(first), self._keys(last)
        ends = [KeyRange.prefix(key).end for key in partitions]
        parts = [self._before(partitions, firsts, before, since)]
        middle = [KeyRange(start, end if behind is None else successor_of_prefix(key))
                  for start, key, end in zip(firsts, lasts, ends, strict=True)]
        parts.append(self._table.rows_between(middle))
        reaches_end = np.full(first.capacity, behind is None)
        if behind:
            rest = [KeyRange(successor_of_prefix(key) or b"", end) for key, end in zip(lasts, ends, strict=True)]
            parts.append(self._table.rows_between(rest, limit=behind))
            reaches_end = np.bincount(parts[-1][0], minlength=first.capacity) < behind
        rows_before = np.bincount(parts[0][0], minlength=first.capacity)
        part = np.concatenate([part for part, _ in parts])
        order = np.argsort(part, kind="stable").astype(np.int32)
        return PartRows(
            DataChunk.concat([rows for _, rows in parts]).take(order), part[order], rows_before, reaches_end
        )

    def _before(
        self, partitions: list[bytes], firsts: list[bytes], count: int, since: DataChunk | None
    ) -> tuple[np.ndarray, DataChunk]:
        """The rows before the peers of the first rows, in their order: so many, or those of the values `since` if they
        are more."""
        ranges = [KeyRange(start, end) for start, end in zip(partitions, firsts, strict=True)]
        if since is None:
            return _reversed(*self._table.rows_between(ranges, reverse=True, limit=count))
        is_open = since.columns[-1].array.is_null().to_numpy(zero_copy_only=False)
        starts = [start if opened else key
                  for start, key, opened in zip(partitions, self._keys(since), is_open, strict=True)]
        part, rows = self._table.rows_between([KeyRange(*each) for each in zip(starts, firsts, strict=True)])
        few = np.bincount(part, minlength=len(firsts)) < count
        chosen = np.flatnonzero(few)
        other_part, other_rows = _reversed(
            *self._table.rows_between([ranges[at] for at in chosen], reverse=True, limit=count))
        kept = np.flatnonzero(~few[part]).astype(np.int32)
        return (np.concatenate([part[kept], chosen.astype(np.int32)[other_part]]),
                DataChunk.concat([rows.take(kept), other_rows]))

    def _keys(self, rows: DataChunk) -> list[bytes]:
        """User keys, or their prefixes, of rows of the first columns of the key."""
        return self._table.serde.keys_of_pks(rows.columns, rows.capacity)[0].to_arrow().to_pylist()


def _reversed(part: np.ndarray, rows: DataChunk) -> tuple[np.ndarray, DataChunk]:
    order = np.arange(len(part) - 1, -1, -1, dtype=np.int32)
    return part[order], rows.take(order)
