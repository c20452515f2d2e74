"""One input of a join: its rows, by join key in memory and in the state table.

The table has every row whose key can equal another one. In memory are the rows of keys that were looked up, until they
are evicted, and as long as nothing was evicted all of them: then nothing is read. A key comes into memory with all of
its rows. A change of a key that is not in memory goes to the table alone, unless the number of its rows matters.

Rows that watermarks have made final go. Where these are of the first column of the key, a key watermark of the table
drops them; otherwise they are found in a second table, which has the keys of all rows in the order of a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.join.join_index import JoinIndex
from relational.join.net_changes import net_changes
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.executor.waiting_rows import reached_rows
from stream.message import Barrier

DROPPED_AT_ONCE, READ_ROWS = 1 << 16, 1 << 15
"""Rows."""
NO_KEYS = DataChunk([], capacity=0)


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


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The `columns` of an input that are in `table`: the time, then the key of the rows. A row without a time matches
    nothing."""

    columns: tuple[int, ...]
    table: StateTable


class JoinSide:
    """The rows of `input`. `table` has its columns, `times` those by which rows are dropped; None: only whole keys are.
    `null_safe`: of each key column, whether NULL equals NULL. `has_condition`: rows with equal keys match only if a
    condition holds too. `cache_bytes`: of rows in memory, beyond which those of the keys that were looked up longest
    ago are evicted."""

    def __init__(
        self,
        input: JoinInput,
        table: StateTable,
        null_safe: Sequence[bool],
        has_condition: bool,
        cache_bytes: int,
        times: RowTimes | None = None,
    ) -> None:
        self.input = input
        self._table, self._times = table, times
        self._tables = (table,) if times is None else (table, times.table)
        is_kept = input.is_append_only and not input.is_passing and times is None
        name = () if is_kept else input.stream_key or input.key  # of an only row any columns
        self.is_tracked = input.shown is not Shown.NONE
        """Whether it matters how many partners a row has."""
        self.has_degrees = self.is_tracked and has_condition
        """Whether each row in memory has the number of its partners; else it is the number of rows with its key."""
        self.index = JoinIndex(
            input.types, input.key, name, null_safe=tuple(null_safe), capacity_bytes=cache_bytes,
            has_degrees=self.has_degrees)
        self._starts_empty = False
        pk = tuple(table.catalog.pk_indices)
        self._prefix = [input.key.index(column) for column in pk[: len(input.key)]]
        keys = [(table.catalog, pk), *([] if times is None else [(times.table.catalog, times.columns)])]
        self._long_keys = [(catalog, columns) for catalog, columns in keys if may_be_long(input.types, columns)]
        self._dropped_below: Any = None  # the last watermark
        self._has_dropped = False  # keys, which may be in memory still

    def open(self, barrier: Barrier) -> None:
        """At the first barrier."""
        for table in self._tables:
            table.init_epoch(barrier.epoch)
        self._starts_empty = next(self._table.scan_chunks(), None) is None

    def commit(self, barrier: Barrier) -> None:
        """At each further one."""
        for table in self._tables:
            table.commit(barrier.epoch)

    def end_epoch(self) -> None:
        """After it. Invalidates all ids."""
        if self._has_dropped:
            self.index.forget_below(self._prefix[0], self._dropped_below)
            self._has_dropped = False
        self.index.end_epoch()

    def drop_keys_below(self, value: object) -> None:
        """Before `commit`: nothing changes any more under keys whose first column in the table is below `value`."""
        self._table.update_watermark(value)
        self._dropped_below, self._has_dropped = value, True

    def drop_times_below(self, value: object) -> None:
        """Before `commit`: removes the rows whose time is below `value`."""
        assert self._times is not None
        since, self._dropped_below = self._dropped_below, value
        found: list[StreamChunk] = []
        rows = 0
        for chunk in reached_rows(self._times.table, value, is_inclusive=False, op=Op.DELETE,
                                  width=len(self._times.columns), chunk_rows=DROPPED_AT_ONCE, since=since):
            found.append(chunk)
            rows += chunk.capacity
            if rows >= DROPPED_AT_ONCE:
                self._drop(StreamChunk.compacted(found))
                found, rows = [], 0
        if found:
            self._drop(StreamChunk.compacted(found))

    def _drop(self, keys: StreamChunk) -> None:
        """Deletes rows, of which it has the columns of the table of times."""
        assert self._times is not None
        known = dict(zip(self._times.columns, keys.columns, strict=True))
        rows = keys.with_columns([
            known[at] if at in known else Column.nulls(data_type, keys.capacity)
            for at, data_type in enumerate(self.input.types)
        ])
        self.index.apply(rows, self.index.locate(self.key_of(rows), is_adding=False).ids)
        self._table.write_slice(rows)

    @property
    def is_complete(self) -> bool:
        """Whether all rows are in memory."""
        return self._starts_empty and self.index.is_complete

    def net(self, chunk: StreamChunk, errors: ErrorCounts) -> StreamChunk:
        """The net changes of a chunk. Rows with a key that is too long for the store are dropped, and counted [R55]."""
        for catalog, columns in self._long_keys:
            chunk, lost = without_long_keys(chunk, columns, catalog)
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
            self._load(DataChunk([keys[number] for number in self._prefix]).take(located.new_rows))
        return located.ids, located.new_ids

    def locate_within_budget(self, keys: Sequence[Column]) -> tuple[np.ndarray, DataChunk]:
        """(key id of each row, whose rows are in memory, or -1; the keys, as `read` takes them, whose rows are not,
        since they alone exceed the budget). `keys`: of rows of the other input."""
        if self.is_complete:
            return self.index.locate(keys, is_adding=False).ids, NO_KEYS
        located = self.index.locate(keys)
        if not len(located.new_ids):
            return located.ids, NO_KEYS
        new = DataChunk([keys[number] for number in self._prefix]).take(located.new_rows)
        if self._load(new, self.index.size_bytes + self.index.capacity_bytes):
            return located.ids, NO_KEYS
        self.index.forget(located.new_ids)
        return np.where(located.ids >= located.new_ids[0], np.int32(-1), located.ids), new

    def read(self, keys: DataChunk) -> Iterator[DataChunk]:
        """The stored rows of keys, whose columns are in the order of the table; in chunks of READ_ROWS at least."""
        parts: list[DataChunk] = []
        for _, rows in self._table.rows_under(keys):
            parts.append(rows)
            if sum(each.capacity for each in parts) >= READ_ROWS:
                yield DataChunk.concat(parts)
                parts = []
        if parts:
            yield DataChunk.concat(parts)

    def remove(self, row_ids: np.ndarray) -> None:
        """Removes rows that are in memory."""
        rows = list(map(Column, self.index.gather(row_ids)))
        chunk = StreamChunk(rows, np.full(len(row_ids), Op.DELETE, np.uint8))
        self.apply(chunk, self.index.locate(self.key_of(chunk), is_adding=False).ids, None)

    def apply(self, chunk: StreamChunk, ids: np.ndarray, degrees: np.ndarray | None) -> None:
        """Applies net changes, in memory where the key has an id. `degrees`: int32[capacity], the partners of inserted
        rows."""
        if self._times is not None and chunk.columns[self._times.columns[0]].null_count:
            has_time = chunk.columns[self._times.columns[0]].array.is_valid().to_numpy(zero_copy_only=False)
            ids, degrees = ids[has_time], None if degrees is None else degrees[has_time]
            chunk = chunk.filter(has_time.view(np.uint8)).compact()
        self.index.apply(chunk, ids, degrees)
        comparable = self.index.comparable(self.key_of(chunk), None)
        stored = chunk if comparable is None else chunk.filter(comparable)
        self._table.write_slice(stored)
        if self._times is not None:
            self._times.table.write_slice(stored.project(self._times.columns))

    def _load(self, keys: DataChunk, most_bytes: int | None = None) -> bool:
        """Reads the rows of new keys into memory, where no more than `most_bytes` may be filled: whether these are all.
        """
        for _, rows in self._table.rows_under(keys):
            self.index.load(rows)
            if most_bytes is not None and self.index.size_bytes > most_bytes:
                return False
        return True
