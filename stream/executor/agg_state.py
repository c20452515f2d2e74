"""The tables of an aggregation beside that of its groups.

Minima and maxima that a retraction can change; each such call has a table of its own.

Values of one word: the state of a group has the most extreme ones with their numbers of rows, and an overflow
table, ordered by group and value, the extreme first, has the others. It changes at a flush only, by the net number of
rows of each value. A group that has used up its own values is then refilled from its first ones in the table. Most
groups never have as many different values as a state keeps; then nothing is written here.

Other values: the rows of all groups are kept, ordered by group, argument, the extreme first, and stream key. In memory
a group has only the extreme. When that value is retracted the group is stale, and the next flush reads the new extreme
from its first remaining row.

DISTINCT calls: each of their arguments has a table of the values of each group, for all its calls together. In memory
are the values that rows have come for, see `relational.agg.distinct`; others are read when rows for them come, those of
a chunk in one batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from relational.agg import REFILLED_VALUES, AggGroups, DistinctValues
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import ConsistencyError
from relational.table.state_table import StateTable

WRITTEN_VALUES, REFILLED_GROUPS = 65_536, 4_096  # at a time
EARLY_VALUES = 16_384
"""Changed values of DISTINCT calls, which are written before the barrier: some milliseconds for it."""


class TableOfInputs:
    """A table whose first columns, at least those of its key, are `columns` of the input. None: none of these, a BIGINT
    that is computed."""

    def __init__(self, table: StateTable, columns: Sequence[int | None]) -> None:
        self.table = table
        self._columns = tuple(columns)

    @property
    def key(self) -> tuple[int | None, ...]:
        """The input columns that are the key of the table."""
        return tuple(self._columns[index] for index in self.table.catalog.pk_indices)


class ExtremeTable(TableOfInputs, ABC):
    """The table of aggregate call number `call`."""

    keeps_values: ClassVar[bool]
    """Whether the states of groups keep values, as `AggSpec.keeps_values` says."""

    def __init__(self, call: int, table: StateTable, columns: Sequence[int]) -> None:
        super().__init__(table, columns)
        self.call = call

    def write(self, chunk: StreamChunk, mask: np.ndarray | None) -> None:
        """Apply the changes of `chunk`, if not later; `mask`, uint8[capacity], is the call's FILTER."""

    @abstractmethod
    def settle(self, groups: AggGroups) -> None:
        """Look up the extremes of stale groups, before a flush of `groups`. ConsistencyError if the table lacks rows.
        """


class MaterializedInput(ExtremeTable):
    """`columns` are the input columns that form a row of `table`, in its order; `argument` is the position of the
    argument among them, right after the group columns. Only rows that pass the call's FILTER and have an argument that
    is not NULL are kept [R9].
    """

    keeps_values = False

    def __init__(self, call: int, table: StateTable, columns: Sequence[int], argument: int) -> None:
        super().__init__(call, table, columns)
        self._argument = argument

    def write(self, chunk: StreamChunk, mask: np.ndarray | None) -> None:
        kept = chunk.project(self._columns)
        if mask is not None:
            kept = kept.filter(mask)
        argument = kept.columns[self._argument].array
        if argument.null_count:
            kept = kept.filter(argument.is_valid().to_numpy(zero_copy_only=False))
        kept = kept.without_unchanged_updates()
        if kept.visible_rows:
            self.table.write_chunk(kept)

    def settle(self, groups: AggGroups) -> None:
        stale = groups.stale(self.call)
        if not len(stale):
            return
        keys = groups.keys(stale)
        prefix = self.table.catalog.pk_indices[: len(keys.columns)]
        owners, rows = self.table.first_rows(keys.project(prefix), limit=1)
        source = np.full(len(stale), -1, np.int32)
        source[owners] = np.arange(len(owners), dtype=np.int32)
        values = rows.project((self._argument,)).take(source)
        groups.refill(self.call, stale, values.columns[0])


class OverflowTable(ExtremeTable):
    """`table` has (group columns, value, number of rows); `columns` are the input columns of all but the last."""

    keeps_values = True

    def settle(self, groups: AggGroups) -> None:
        ids, values, changes = groups.overflow(self.call)
        for first in range(0, len(ids), WRITTEN_VALUES):
            part = slice(first, first + WRITTEN_VALUES)
            keys = DataChunk([*groups.keys(ids[part]).columns, values.slice(first, len(ids[part]))])
            self._write_changes(keys, changes[part])
        stale = groups.stale(self.call)
        for first in range(0, len(stale), REFILLED_GROUPS):
            self._refill(groups, stale[first : first + REFILLED_GROUPS])

    def _write_changes(self, keys: DataChunk, changes: np.ndarray) -> None:
        """Change the numbers of rows of the values `keys`. ConsistencyError for a number below 0."""
        stored, found = self.table.get_rows(keys.project(self.table.catalog.pk_indices))
        before = stored.columns[-1].array.fill_null(0).to_numpy() * found
        after = before + changes
        if after.min() < 0:
            wrong = next(iter(keys.slice(int(after.argmin()), 1).rows()))
            reason = f"{-after.min()} rows more were retracted than came"
            raise ConsistencyError(reason, table=self.table.catalog.name, key=wrong)
        ops = np.full(len(changes), Op.UPDATE_INSERT, np.uint8)
        ops[before == 0] = Op.INSERT
        ops[after == 0] = Op.DELETE
        counts = Column(pa.array(np.where(after == 0, before, after)))
        self.table.write_slice(StreamChunk([*keys.columns, counts], ops))

    def _refill(self, groups: AggGroups, stale: np.ndarray) -> None:
        """Move the first values of stale groups into their states."""
        prefix = self.table.catalog.pk_indices[:-1]
        owners, rows = self.table.first_rows(groups.keys(stale).project(prefix), limit=REFILLED_VALUES)
        *_, values, counts = rows.columns
        groups.refill_values(self.call, stale, owners, values, counts)
        self.table.write_slice(StreamChunk(rows.columns, np.full(len(owners), Op.DELETE, np.uint8)))


class DistinctTable(TableOfInputs):
    """The values of each group, for the DISTINCT calls numbered `calls`, which have one argument. `columns`: the group
    columns, or two of None if the table has their hash, and the argument. `has_counts`: values can be lost."""

    def __init__(
        self, calls: Sequence[int], table: StateTable, columns: Sequence[int | None], has_counts: bool
    ) -> None:
        super().__init__(table, columns)
        self.calls, self.has_counts = tuple(calls), has_counts

    def open(self, values: DistinctValues) -> None:
        """At the first barrier."""
        if next(self.table.scan_chunks(), None) is None:
            values.track_evictions()

    def read(self, keys: DataChunk) -> tuple[DataChunk, np.ndarray]:
        """The rows of these (group, value), and which of them exist."""
        return self.table.get_rows(keys.project(self.table.catalog.pk_indices))

    def write_new(self, values: DistinctValues) -> None:
        """Store values before a flush of groups if there are many, so that the barrier does not have to wait for all
        of them. Where values can be lost those that come and go are stored once, at the flush."""
        if not self.has_counts and values.changed_entries >= EARLY_VALUES:
            self.write(values)

    def write(self, values: DistinctValues) -> None:
        """Store what has changed since the last time, before a flush of groups."""
        for changes in values.flush():
            self.table.write_slice(changes)
