"""TopN: the first rows of each group in an order, kept up to date.

The changes of an epoch are kept, as net changes, until the barrier, or until there are many. Then the groups that they
touch are ranked anew: the rows that were in the window before, without the deleted ones, and the inserted ones. So a
group emits what is different after the epoch, however often it changed.

In memory are the rows of the windows, those up to the last number; the state table has all rows, in the order of their
groups. A window that was full and has lost a row is read again from the table, once for all of these groups. Where rows
are only inserted a row behind the window never comes back: then the table has the windows alone, in any order, and the
short keys that tell their rows apart; a group of one row is a key, and a new row takes the place of the old one. Rows
are ranked by the columns of the order; other columns are gathered only of those that come or go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.expr.window_functions import RankKind
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.rows_by_key import RowsByKey
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.order.late_rows import LateRows
from relational.order.ranking import contenders, ranking
from relational.order.renumber import renumber
from relational.table.state_table import StateTable
from relational.types.ordering import SortKey
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.ordered_groups import OrderedGroupsExecutor, is_deleted, lost_rows, no_rows, positions

KEPT_ROWS = 1 << 17
"""Changes of an epoch beyond which they are applied before the barrier: tens of milliseconds. Half as many took
a tenth more CPU where few groups change again (Nexmark q19), and more where the same ones do."""
READ_AT_ONCE = 4_096
"""Windows that are read from the table at a time."""
MOST_READ = 1 << 16
"""Rows of a window that are read at first."""
NO_NUMBER = np.iinfo(np.int64).max
"""Of rows that are not in a window."""


@dataclass(frozen=True, slots=True)
class Window:
    """The rows whose number by `kind`, among those that are equal in `groups`, in the order `keys`, is above `offset`
    and at most `last`. `width`: the columns of the input that are emitted, the first ones. `has_number`: the number is
    emitted behind them."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]
    kind: RankKind
    offset: int
    last: int
    width: int
    has_number: bool


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows, and the number of the group of each of them among those that are looked at."""

    late: LateRows
    groups: np.ndarray

    def only(self, at: np.ndarray) -> _Rows:
        """Those at ascending positions, which differ."""
        return _Rows(self.late.only(at), self.groups[at])

    @classmethod
    def together(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(LateRows.together([part.late for part in parts]), np.concatenate([part.groups for part in parts]))


class TopNExecutor(OrderedGroupsExecutor):
    """`table` has the columns of the input, the groups first in its key, then the order unless the input is
    append-only (tables of earlier releases then have it too). `memory`: of windows;
    beyond it those of the groups that were looked up longest ago are evicted at barriers, and far beyond it
    before them. `errors` counts rows dropped because their key is too long for the store. Watermarks of group columns
    are passed on."""

    kept_rows = KEPT_ROWS

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        window: Window,
        table: StateTable,
        errors: ErrorCounts,
        *,
        is_append_only: bool,
        memory: MemoryShare,
        chunk_rows: int,
    ) -> None:
        super().__init__(
            info, input, table, errors, is_append_only=is_append_only, chunk_rows=chunk_rows, marked=window.groups
        )
        self._window = window
        self._replaces_rows = is_append_only and set(table.catalog.pk_indices) == set(window.groups)
        name = self._stream_key or window.groups  # of an only row any columns
        self._index = JoinIndex(
            self._types, window.groups, name, null_safe=(True,) * len(window.groups), memory=memory
        )

    def memory(self) -> list[tuple[str, MemoryUse]]:
        return [("rows of windows", self._index.memory())]

    def _begin(self) -> None:
        if next(self._table.scan_chunks(), None) is None:
            self._index.track_evictions()

    def _limit_memory(self) -> None:
        self._index.limit_memory()

    def _end_epoch(self) -> None:
        self._index.end_epoch()

    def _changed(self, chunks: Sequence[StreamChunk]) -> Iterator[StreamChunk]:
        """Applies net changes; the changes of the result, those of rows that leave it first."""
        groups, ids = renumber(np.concatenate([self._located(chunk) for chunk in chunks]))
        added = _Rows(LateRows.of(*(DataChunk(chunk.columns) for chunk in chunks)), groups)
        is_deletion = np.concatenate([is_deleted(chunk) for chunk in chunks])
        before = self._windows(ids)
        is_lost = lost_rows(before.late, added.late.only(positions(is_deletion)), self._stream_key)
        numbers = self._numbers_before(before, is_lost)
        if not self._is_append_only:
            for chunk in chunks:
                self._table.write_slice(chunk)
        rows, origin = self._candidates(added, is_deletion, before, numbers, is_lost)
        new_numbers = self._numbers(rows)
        in_window = new_numbers <= self._window.last
        is_kept = np.zeros(before.late.count, np.bool_)
        is_kept[origin[in_window & (origin >= 0)]] = True
        leaves, enters = positions(~is_kept), positions(in_window & (origin < 0))
        left, entered = self._changes(before, leaves, Op.DELETE), self._changes(rows, enters, Op.INSERT)
        stays = positions(in_window & (origin >= 0))
        renumbered = self._renumbered(rows, stays, numbers[origin[stays]], new_numbers[stays])
        for moved, of_moved in ((left, before.groups[leaves]), (entered, rows.groups[enters])):
            self._index.apply(moved, ids[of_moved])
            if self._is_append_only and not (moved is left and self._replaces_rows):
                self._table.write_slice(moved)
        yield self._emitted(left, numbers[leaves])
        yield from renumbered
        yield self._emitted(entered, new_numbers[enters])

    def _candidates(
        self, added: _Rows, is_deletion: np.ndarray, before: _Rows, numbers: np.ndarray, is_lost: np.ndarray
    ) -> tuple[_Rows, np.ndarray]:
        """(The rows among which all rows of the new windows are; of each its position in `before`, or -1.)"""
        is_refilled = self._incomplete(before.groups, numbers, is_lost, int(added.groups.max()) + 1)
        is_read = is_refilled[before.groups]
        survives = positions(~(is_lost | is_read))
        comes = positions(~(is_deletion | is_refilled[added.groups]))
        parts, origin = [before.only(survives), added.only(comes)], [survives, np.full(len(comes), -1, np.int32)]
        if is_refilled.any():
            among = positions(~is_lost & is_read)
            keys = RowsByKey(before.late.ascending(among, self._stream_key), range(len(self._stream_key)))
            for rows, groups in self._read(before, is_refilled):
                parts.append(_Rows(LateRows.of(rows), groups))
                origin.append(np.append(among, -1)[keys.find(rows.project(self._stream_key))])
        return _Rows.together(parts), np.concatenate(origin)

    def _located(self, changes: DataChunk) -> np.ndarray:
        """The group of each row, whose window is in memory then: int32[capacity]."""
        columns = [changes.columns[column] for column in self._window.groups]
        located = self._index.locate(columns)
        stored = self._index.possibly_stored(located.new_ids)
        if len(stored):
            rows = located.new_rows[stored - located.new_ids[0]]
            for found, _ in self._stored(DataChunk(columns).take(rows)):
                self._index.load(found)
        return located.ids

    def _windows(self, ids: np.ndarray) -> _Rows:
        """The rows of windows in memory, of groups that are numbered by their positions in `ids`."""
        found = list(JoinProbe(self._index, ids))
        if not found:
            return _Rows(LateRows.of(no_rows(self._types)), np.empty(0, np.int32))
        row_ids = np.concatenate([rows for _, rows in found])

        def gather(at: np.ndarray | None, columns: Sequence[int]) -> DataChunk:
            chosen = row_ids if at is None else row_ids[at]
            return DataChunk(list(map(Column, self._index.gather(chosen, columns))), capacity=len(chosen))

        return _Rows(LateRows(len(row_ids), gather), np.concatenate([at for at, _ in found]))

    def _incomplete(self, of_before: np.ndarray, numbers: np.ndarray, is_lost: np.ndarray, groups: int) -> np.ndarray:
        """bool[groups]: those that have lost a row, and may have rows behind their window, which fill it again."""
        if not is_lost.any():
            return np.zeros(groups, np.bool_)
        if self._window.kind is RankKind.DENSE_RANK:
            filled = np.zeros(groups, np.int64)
            np.maximum.at(filled, of_before, numbers)
        else:
            filled = np.bincount(of_before, minlength=groups)
        return (np.bincount(of_before, is_lost, groups) > 0) & (filled >= self._window.last)

    def _read(self, before: _Rows, is_wanted: np.ndarray) -> list[tuple[DataChunk, np.ndarray]]:
        """The windows of groups of which `before` has a row, as the table has them now."""
        first = np.full(len(is_wanted), -1, np.int32)
        first[before.groups[::-1]] = np.arange(before.late.count, dtype=np.int32)[::-1]
        chosen = first[is_wanted & (first >= 0)]
        prefixes = before.late.take(chosen, self._window.groups)
        return [(rows, before.groups[chosen][owners]) for rows, owners in self._stored(prefixes)]

    def _stored(self, prefixes: DataChunk) -> Iterator[tuple[DataChunk, np.ndarray]]:
        """The stored rows of the windows of groups, and the row of `prefixes` that each is under."""
        if self._is_append_only:
            yield from ((rows, owners) for owners, rows in self._table.rows_under(prefixes))
            return
        for start in range(0, prefixes.capacity, READ_AT_ONCE):
            part = prefixes.slice(start, min(READ_AT_ONCE, prefixes.capacity - start))
            left, limit = np.arange(part.capacity, dtype=np.int32), min(self._window.last, MOST_READ)
            while len(left):
                owners, rows = self._table.first_rows(part.take(left), limit)
                numbers = self._numbers(_Rows(LateRows.of(rows), owners))
                is_open = np.bincount(owners, minlength=len(left)) >= limit
                is_open[owners[numbers > self._window.last]] = False
                is_open &= self._window.kind is not RankKind.ROW_NUMBER or limit < self._window.last
                whole = positions(~is_open[owners] & (numbers <= self._window.last))
                yield rows.take(whole), start + left[owners[whole]]
                left, limit = left[is_open], 2 * limit

    def _numbers_before(self, before: _Rows, is_lost: np.ndarray) -> np.ndarray:
        """The numbers of the rows of windows in memory; 1, where it only matters that they are in the window."""
        window = self._window
        if window.has_number or window.offset or (window.kind is RankKind.DENSE_RANK and is_lost.any()):
            return self._numbers(before)
        return np.ones(before.late.count, np.int64)

    def _numbers(self, rows: _Rows) -> np.ndarray:
        """The number of each row among all rows of its group, or a greater one if it is not in the window: int64[n]."""
        window, at = self._window, None
        if window.keys and window.kind is not RankKind.DENSE_RANK:
            at = contenders(rows.late, rows.groups, window.keys[0], window.last)
        chosen = rows if at is None else rows.only(at)
        found = ranking(chosen.late, chosen.groups, window.keys, self._stream_key)
        numbers = np.full(rows.late.count, NO_NUMBER, np.int64)
        numbers[found.rows if at is None else at[found.rows]] = getattr(found, window.kind)
        return numbers

    def _changes(self, rows: _Rows, at: np.ndarray, op: Op) -> StreamChunk:
        """The changes of rows at ascending positions."""
        columns = rows.late.ascending(at, range(len(self._types))).columns
        return StreamChunk(columns, np.full(len(at), op, np.uint8))

    def _emitted(self, moved: StreamChunk, numbers: np.ndarray) -> StreamChunk:
        """The changes of the result by rows that enter or leave the window under these numbers."""
        at, columns = None, moved.columns[: self._window.width]
        if self._window.has_number:
            columns = (*columns, Column(pa.array(numbers)))
        emitted = StreamChunk(columns, moved.ops)
        if self._window.offset:
            at = positions(numbers > self._window.offset)
        return emitted if at is None or len(at) == len(numbers) else emitted.take(at)

    def _renumbered(self, rows: _Rows, at: np.ndarray, old: np.ndarray, new: np.ndarray) -> list[StreamChunk]:
        """The changes of the result by rows at ascending positions that were in the window and are in it."""
        was, is_now = old > self._window.offset, new > self._window.offset
        differs = (old != new) if self._window.has_number else (was != is_now)
        if not differs.any():
            return []
        gone, come = positions(was & differs), positions(is_now & differs)
        both = LateRows.together([rows.late.only(at[gone]), rows.late.only(at[come])])
        columns = both.ascending(None, range(self._window.width)).columns
        if self._window.has_number:
            columns = (*columns, Column(pa.array(np.concatenate([old[gone], new[come]]))))
        return [StreamChunk(columns, _ops(len(gone), len(come)))]


def _ops(gone: int, come: int) -> np.ndarray:
    return np.repeat(np.array([Op.DELETE, Op.INSERT], np.uint8), (gone, come))
