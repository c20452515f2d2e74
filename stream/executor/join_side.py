"""One input of a join: its rows, by join key in memory and in the state table.

The table has every row whose key can equal another one. In memory are the rows of keys that were looked up, until they
are evicted, and as long as nothing was evicted all of them: then nothing is read. A key comes into memory with all of
its rows, or not at all, if these exceed the budget: then they are read from the table a part at a time. A change of a
key that is not in memory goes to the table alone, unless the number of its rows matters.

Rows that watermarks have made final go. Where these are of the first column of the key, a key watermark of the table
drops them; otherwise they are found in a second table, which has the keys of all rows in the order of a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.large_keys import UNKNOWN, LargeKeys
from relational.join.net_changes import net_changes
from relational.memory_budget import MemoryShare
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.executor.waiting_rows import reached_rows
from stream.message import PAUSE, Barrier, Wait

DROPPED_AT_ONCE, READ_ROWS = 1 << 16, 1 << 15
"""Rows."""
LOADED_BYTES = 512 << 20
"""At most, of rows that are read into memory for one chunk, where the budget allows more."""
LARGE_SHARE = 8
"""A key is large if one of so many rows that exceed the budget together is under it."""
NO_ROWS = np.empty(0, np.int32)


class Shown(Enum):
    """Which rows of an input the result has, apart from pairs: none, or those without, or with, a partner."""

    NONE = auto()
    UNMATCHED = auto()
    MATCHED = auto()


@dataclass(frozen=True, slots=True)
class JoinInput:
    """`types` of the columns; the columns of the join key and of the stream key; whether rows are only inserted,
    whether only the first one of each key counts, and whether they are needed only until they have a partner, the only
    one, which never goes; how many of the columns are part of the result: the first ones; which of its rows are shown.
    """

    types: tuple[DataType, ...]
    key: tuple[int, ...]
    stream_key: tuple[int, ...]
    is_append_only: bool
    is_distinct: bool
    is_passing: bool
    width: int
    shown: Shown


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The `columns` of an input that are in `table`: the time, then the key of the rows. A row without a time matches
    nothing."""

    columns: tuple[int, ...]
    table: StateTable


class Located(NamedTuple):
    """The key id of each row, whose rows are in memory, or -1; of each key whose rows are not, since they exceed the
    budget, a row that has it; the ids of keys whose rows were read just now, consecutive numbers."""

    ids: np.ndarray
    unread: np.ndarray
    new_ids: np.ndarray


class JoinSide:
    """The rows of `input`. `table` has its columns, `times` those by which rows are dropped; None: only whole keys are.
    `null_safe`: of each key column, whether NULL equals NULL. `has_condition`: rows with equal keys match only if a
    condition holds too. `memory`: for rows, beyond which those of the keys that were looked up longest ago are
    evicted."""

    def __init__(
        self,
        input: JoinInput,
        table: StateTable,
        null_safe: Sequence[bool],
        has_condition: bool,
        memory: MemoryShare,
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
            input.types, input.key, name, null_safe=tuple(null_safe), memory=memory,
            has_degrees=self.has_degrees)
        self._large = LargeKeys([input.types[column] for column in input.key])
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
        if self._starts_empty and self.input.is_distinct:
            self.index.track_evictions()  # all keys are located, so new ones need not be looked up

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
        if self._large.is_full:
            self._large.clear()

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
        self._large.apply(self.key_of(rows), rows.ops)
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

    def locate(self, keys: Sequence[Column]) -> np.ndarray:
        """The key id of each row, of either input; -1 for a key that is not in memory. Rows will be added under these
        keys."""
        return self.index.locate(keys, is_adding=self.is_complete).ids

    def locate_within_budget(self, keys: Sequence[Column], *, is_adding: bool) -> Generator[Wait, None, Located]:
        """Reads the rows of all keys into memory, besides those whose rows exceed the budget. `keys`: of rows of either
        input. `is_adding`: rows will be added under these keys. Yields between parts that are read."""
        if self.is_complete:
            return Located(self.index.locate(keys, is_adding=is_adding).ids, NO_ROWS, NO_ROWS)
        while True:
            large = self._large.find(keys) if len(self._large) else None
            located = self.index.locate(keys, None if large is None else (large < 0).view(np.uint8))
            unread = NO_ROWS
            if large is not None:
                known = np.flatnonzero(large >= 0).astype(np.int32)
                unread = known[np.unique(large[known], return_index=True)[1]]
            if not len(located.new_ids):
                return Located(located.ids, unread, NO_ROWS)
            wanted = self.index.possibly_stored(located.new_ids)
            if not len(wanted):
                return Located(located.ids, unread, located.new_ids)
            new = _taken(keys, located.new_rows[wanted - located.new_ids[0]])
            counts = yield from self._load(new)
            if counts is None:
                return Located(located.ids, unread, located.new_ids)
            self.index.forget(located.new_ids)
            is_large = LARGE_SHARE * counts >= counts.sum()
            if not is_large.any() or self._large.is_full:
                ids = np.where(located.ids >= located.new_ids[0], np.int32(-1), located.ids)
                return Located(ids, np.concatenate([unread, located.new_rows]), NO_ROWS)
            self._large.add(_taken(new, np.flatnonzero(is_large).astype(np.int32)))

    def unknown(self, changes: StreamChunk) -> Generator[Wait, None, StreamChunk]:
        """The first row of each key that no row had before, of insertions into a distinct input."""
        keys = self.key_of(changes)
        located = yield from self.locate_within_budget(keys, is_adding=True)
        rows = self.index.first_rows(located.ids)
        return changes if len(rows) == changes.capacity else changes.take(rows)

    def read(self, keys: Sequence[Column]) -> Iterator[DataChunk]:
        """The stored rows of distinct keys; in chunks of READ_ROWS at least."""
        parts: list[DataChunk] = []
        for _, rows in self._table.rows_under(self._prefixes(keys)):
            parts.append(rows)
            if sum(each.capacity for each in parts) >= READ_ROWS:
                yield DataChunk.concat(parts)
                parts = []
        if parts:
            yield DataChunk.concat(parts)

    def row_counts(self, keys: Sequence[Column]) -> Generator[Wait, None, np.ndarray]:
        """The number of stored rows of each of some distinct keys: int64[n]. Yields between parts that are read."""
        numbers = self._large.find(keys)
        counts = self._large.rows(numbers)
        unknown = np.flatnonzero(counts == UNKNOWN).astype(np.int32)
        if len(unknown):
            counts[unknown] = 0
            for owners, _ in self._table.rows_under(self._prefixes(keys).take(unknown)):
                counts[unknown] += np.bincount(owners, minlength=len(unknown))
                yield PAUSE
            self._large.set_rows(numbers[unknown], counts[unknown])
        return counts

    def rows_in_memory(self, key_ids: np.ndarray) -> Iterator[DataChunk]:
        """The rows of keys that are in memory, in chunks of at most READ_ROWS. REQUIRES that no id changes."""
        for _, row_ids in JoinProbe(self.index, np.ascontiguousarray(key_ids, np.int32), READ_ROWS):
            yield DataChunk(list(map(Column, self.index.gather(row_ids))))

    def remove(self, row_ids: np.ndarray) -> None:
        """Removes rows that are in memory."""
        rows = list(map(Column, self.index.gather(row_ids)))
        chunk = StreamChunk(rows, np.full(len(row_ids), Op.DELETE, np.uint8))
        self.apply(chunk, self.index.locate(self.key_of(chunk), is_adding=False).ids, None)

    def discard(self, rows: DataChunk) -> None:
        """Removes stored rows that are not in memory."""
        chunk = StreamChunk(rows.columns, np.full(rows.capacity, Op.DELETE, np.uint8))
        self.apply(chunk, np.full(rows.capacity, -1, np.int32), None)

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
        self._large.apply(self.key_of(chunk), chunk.ops)
        self._table.write_slice(stored)
        if self._times is not None:
            self._times.table.write_slice(stored.project(self._times.columns))

    def _prefixes(self, keys: Sequence[Column]) -> DataChunk:
        """Keys as leading columns of the key of the table."""
        return DataChunk([keys[number] for number in self._prefix])

    def _load(self, keys: Sequence[Column]) -> Generator[Wait, None, np.ndarray | None]:
        """Reads the rows of new keys into memory, until they exceed the budget: then the rows of each key that have
        been read, int64[n]. None: all have, as always of a distinct input, which has one for each key."""
        counts = np.zeros(len(keys[0]), np.int64)
        most_bytes = None
        if self.index.capacity_bytes is not None and not self.input.is_distinct:
            most_bytes = self.index.size_bytes + min(self.index.capacity_bytes, LOADED_BYTES)
        for owners, rows in self._table.rows_under(self._prefixes(keys)):
            self.index.load(rows)
            counts += np.bincount(owners, minlength=len(counts))
            if most_bytes is not None and self.index.size_bytes > most_bytes:
                return counts
            yield PAUSE
        return None


def _taken(keys: Sequence[Column], rows: np.ndarray) -> list[Column]:
    return DataChunk(list(keys)).take(rows).columns
