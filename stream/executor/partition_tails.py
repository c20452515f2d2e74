"""PartitionTails: the last rows of partitions in memory, for changes near their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relational.chunk import DataChunk, Op, StreamChunk
from relational.join.join_index import JoinIndex
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.types import DataType
from stream.executor.ordered_groups import positions, rows_in_memory


class PartitionTails:
    """Of each partition that is in memory the last `length` rows, or all if it has less. Rows have the columns `types`
    and are identified by the columns `name`; `groups` are those of the partition. Beyond the capacity of `memory` the
    partitions that were looked up longest ago are evicted at barriers, and far beyond it before them."""

    def __init__(
        self,
        types: Sequence[DataType],
        groups: tuple[int, ...],
        name: tuple[int, ...],
        length: int,
        memory: MemoryShare,
    ) -> None:
        self.length = length
        self._index = JoinIndex(types, groups, name, null_safe=(True,) * len(groups), memory=memory)

    def memory(self) -> MemoryUse:
        """From any thread."""
        return self._index.memory()

    def begin(self, *, is_empty: bool) -> None:
        """`is_empty`: there is no row in any partition."""
        if is_empty:
            self._index.track_evictions()

    def locate(self, partitions: DataChunk) -> tuple[np.ndarray, np.ndarray]:
        """(int32[capacity]: the ids of partitions, which differ; bool[capacity]: whether their last rows are in
        memory)."""
        located = self._index.locate(partitions.columns)
        is_known = np.ones(partitions.capacity, np.bool_)
        is_known[np.isin(located.ids, self._index.possibly_stored(located.new_ids))] = False
        return located.ids, is_known

    def rows(self, ids: np.ndarray) -> tuple[DataChunk, np.ndarray]:
        """The rows of partitions in no order, and for each the position of its partition in `ids`."""
        return rows_in_memory(self._index, ids)

    def replace(self, ids: np.ndarray, old: tuple[DataChunk, np.ndarray], new: tuple[DataChunk, np.ndarray]) -> None:
        """Of the partitions `ids` the rows `old`, which are all, by `new` ones; each with its position in `ids`."""
        (gone, of_gone), (come, of_come) = old, new
        ops = np.repeat(np.array([Op.DELETE, Op.INSERT], np.uint8), (gone.capacity, come.capacity))
        chunk = StreamChunk(DataChunk.concat([gone, come]).columns, ops)
        self._index.apply(chunk, ids[np.concatenate([of_gone, of_come])].astype(np.int32))

    def last_rows(self, part: np.ndarray, row_number: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Of rows with their numbers in the parts `part` the positions of the last ones of the `chosen` parts (bool by
        part)."""
        count = np.bincount(part, minlength=len(chosen))
        return positions(chosen[part] & (count[part] - row_number < self.length))

    def limit_memory(self) -> None:
        self._index.limit_memory()

    def end_epoch(self) -> None:
        self._index.end_epoch()
