"""The materialized inputs of minima and maxima that a retraction can change.

Each such call keeps the rows of its groups in a state table of its own, ordered by group, argument (the extreme first)
and stream key. In memory a group holds only the extreme. When that value is retracted the group is stale, and the next
flush reads the new extreme from its first remaining row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hummock.epoch import EpochPair
from relational.agg import AggGroups
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable


class MaterializedInput:
    """The kept rows of aggregate call number `call`.

    `columns` are the input columns that form a row of `table`, in its order; `argument` is the position of the argument
    among them, right after the group columns. Only rows that pass the call's FILTER and have an argument that is not
    NULL are kept [R9].
    """

    def __init__(self, call: int, table: StateTable, columns: Sequence[int], argument: int) -> None:
        self.call = call
        self.table = table
        self._columns = tuple(columns)
        self._argument = argument

    @property
    def key(self) -> tuple[TableCatalog, tuple[int, ...]]:
        """The table, and the input columns that are its key."""
        catalog = self.table.catalog
        return catalog, tuple(self._columns[index] for index in catalog.pk_indices)

    def init_epoch(self, epoch: EpochPair) -> None:
        self.table.init_epoch(epoch)

    def write(self, chunk: StreamChunk, mask: np.ndarray | None) -> None:
        """Apply the changes of `chunk`; `mask`, uint8[capacity], is the call's FILTER."""
        kept = chunk.project(self._columns)
        if mask is not None:
            kept = kept.filter(mask)
        argument = kept.columns[self._argument].array
        if argument.null_count:
            kept = kept.filter(argument.is_valid().to_numpy(zero_copy_only=False))
        kept = kept.without_unchanged_updates()
        if kept.visible_rows:
            self.table.write_chunk(kept)

    def refill(self, groups: AggGroups) -> None:
        """Set the extreme of every stale group to that of its remaining rows, NULL if there are none."""
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
