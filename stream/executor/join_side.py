"""One input of a join: its rows, by join key in memory and in the state table.

The table has every row whose key can equal another one. In memory are the rows of keys that were looked up, until they
are evicted, and as long as nothing was evicted all of them: then nothing is read. A key comes into memory with all of
its rows. A change of a key that is not in memory goes to the table alone, unless the number of its rows matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.join.join_index import JoinIndex
from relational.join.net_changes import net_changes
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.message import Barrier


class Shown(Enum):
    """Which rows of an input the result has, apart from pairs: none, or those without, or with, a partner."""

    NONE = auto()
    UNMATCHED = auto()
    MATCHED = auto()


@dataclass(frozen=True, slots=True)
class JoinInput:
    """`types` of the columns; the columns of the join key and of the stream key; whether rows are only inserted, and
    whether they are needed only until they have a partner, the only one, which never goes; how many of the columns are
    part of the result: the first ones; which of its rows are shown."""

    types: tuple[DataType, ...]
    key: tuple[int, ...]
    stream_key: tuple[int, ...]
    is_append_only: bool
    is_passing: bool
    width: int
    shown: Shown


class JoinSide:
    """The rows of `input`. `table` has its columns. `null_safe`: of each key column, whether NULL equals NULL.
    `has_condition`: rows with equal keys match only if a condition holds too. `cache_bytes`: of rows in memory, beyond
    which those of the keys that were looked up longest ago are evicted."""

    def __init__(
        self, input: JoinInput, table: StateTable, null_safe: Sequence[bool], has_condition: bool, cache_bytes: int
    ) -> None:
        self.input = input
        self._table = table
        is_kept = input.is_append_only and not input.is_passing
        name = () if is_kept else input.stream_key or input.key  # of an only row any columns
        self.index = JoinIndex(
            input.types, input.key, name, null_safe=tuple(null_safe), capacity_bytes=cache_bytes)
        self._starts_empty = False
        self.is_tracked = input.shown is not Shown.NONE
        """Whether it matters how many partners a row has."""
        self.has_degrees = self.is_tracked and has_condition
        """Whether each row in memory has the number of its partners; else it is the number of rows with its key."""
        stored = tuple(table.catalog.pk_indices)
        self._long_key = stored if may_be_long(input.types, stored) else None

    def open(self, barrier: Barrier) -> None:
        """At the first barrier."""
        self._table.init_epoch(barrier.epoch)
        self._starts_empty = next(self._table.scan_chunks(), None) is None

    def commit(self, barrier: Barrier) -> None:
        """At each further one."""
        self._table.commit(barrier.epoch)

    @property
    def is_complete(self) -> bool:
        """Whether all rows are in memory."""
        return self._starts_empty and self.index.is_complete

    def net(self, chunk: StreamChunk, errors: ErrorCounts) -> StreamChunk:
        """The net changes of a chunk. Rows with a key that is too long for the store are dropped, and counted [R55]."""
        if self._long_key is not None:
            chunk, lost = without_long_keys(chunk, self._long_key, self._table.catalog)
            errors.add(LONG_KEY, lost)
        return chunk.compact() if self.input.is_append_only else net_changes(chunk, self.input.stream_key)

    def key_of(self, chunk: DataChunk) -> list[Column]:
        """The key columns of rows of this input."""
        return [chunk.columns[column] for column in self.input.key]

    def locate(self, keys: Sequence[Column], *, is_loading: bool, is_adding: bool) -> tuple[np.ndarray, np.ndarray]:
        """(key id of each row, -1 for one that has no rows in memory; ids of keys whose rows were read just now).
        `keys`: of rows of either input. `is_loading`: the rows of all keys are in memory then. `is_adding`: rows will
        be added under these keys."""
        if self.is_complete:
            return self.index.locate(keys, is_adding=is_adding).ids, np.empty(0, np.int32)
        located = self.index.locate(keys, is_adding=is_loading)
        if is_loading and len(located.new_ids):
            self._load(DataChunk(list(keys)).take(located.new_rows))
        return located.ids, located.new_ids

    def remove(self, row_ids: np.ndarray) -> None:
        """Removes rows that are in memory."""
        rows = list(map(Column, self.index.gather(row_ids)))
        chunk = StreamChunk(rows, np.full(len(row_ids), Op.DELETE, np.uint8))
        self.apply(chunk, self.index.locate(self.key_of(chunk), is_adding=False).ids, None)

    def apply(self, chunk: StreamChunk, ids: np.ndarray, degrees: np.ndarray | None) -> None:
        """Applies net changes, in memory where the key has an id. `degrees`: int32[capacity], the partners of inserted
        rows."""
        self.index.apply(chunk, ids, degrees)
        comparable = self.index.comparable(self.key_of(chunk), None)
        self._table.write_slice(chunk if comparable is None else chunk.filter(comparable))

    def _load(self, keys: DataChunk) -> None:
        """Reads the rows of new keys."""
        for _, rows in self._table.rows_under(keys):
            self.index.load(rows)
