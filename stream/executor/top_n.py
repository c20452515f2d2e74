"""TopN: the first rows of each group in an order, kept up to date.

The changes of an epoch are kept, as net changes, until the barrier, or until there are many. Then the groups that they
touch are ranked anew: the rows that were in the window before, without the deleted ones, and the inserted ones. So a
group emits what is different after the epoch, however often it changed.

In memory are the rows of the windows, those up to the last number; the state table has all rows, in the order of their
groups. A window that was full and has lost a row is read again from the table, once for all of these groups. Where rows
are only inserted a row behind the window never comes back: then the table has the windows alone. Rows are ranked by the
columns of the order; other columns are gathered only of those that come or go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.expr.window_functions import RankKind
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.rows_by_key import RowsByKey
from relational.order.ranking import ranking
from relational.table.state_table import StateTable
from relational.types.ordering import SortKey
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.ordered_groups import OrderedGroupsExecutor, is_deleted, no_rows, positions

READ_AT_ONCE = 4_096
"""Windows that are read from the table at a time."""
MOST_READ = 1 << 16
"""Rows of a window that are read at first."""


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
    """Rows of which the columns `ordered` are gathered. `groups`: of each of them. `taken(at, width)`: the first
    columns of the rows at ascending positions."""

    ordered: DataChunk
    groups: np.ndarray
    taken: Callable[[np.ndarray, int], DataChunk]

    @property
    def count(self) -> int:
        return len(self.groups)

    def only(self, at: np.ndarray) -> _Rows:
        """Those at some positions."""
        return _Rows(self.ordered.take(at), self.groups[at], lambda rows, width: self.taken(at[rows], width))

    @classmethod
    def together(cls, parts: Sequence[_Rows]) -> _Rows:
        ends = np.cumsum([part.count for part in parts])

        def taken(at: np.ndarray, width: int) -> DataChunk:
            pieces = np.split(at, np.searchsorted(at, ends[:-1]))
            found = zip(parts, pieces, (0, *ends[:-1]), strict=True)
            return DataChunk.concat([part.taken(piece - first, width) for part, piece, first in found])

        groups = np.concatenate([part.groups for part in parts])
        return cls(DataChunk.concat([part.ordered for part in parts]), groups, taken)


class TopNExecutor(OrderedGroupsExecutor):
    """`table` has the columns of the input, the groups first in its key, then the order. `cache_bytes`: of windows in
    memory; those of the groups that were looked up longest ago are evicted at barriers, and far beyond it
    before them. `errors` counts rows dropped because their key is too long for the store. Watermarks of group columns
    are passed on."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        window: Window,
        table: StateTable,
        errors: ErrorCounts,
        *,
        is_append_only: bool,
        cache_bytes: int,
        chunk_rows: int,
    ) -> None:
        super().__init__(
            info, input, table, errors, is_append_only=is_append_only, chunk_rows=chunk_rows, marked=window.groups
        )
        self._window = window
        name = self._stream_key or window.groups  # of an only row any columns
        self._index = JoinIndex(
            self._types, window.groups, name, null_safe=(True,) * len(window.groups), capacity_bytes=cache_bytes
        )
        self._starts_empty = False
        keys = [key.column for key in window.keys]
        self._ordering = tuple(dict.fromkeys([*window.groups, *keys, *self._stream_key]))
        """The columns that rows are found and ranked by."""
        self._groups_at = tuple(map(self._ordering.index, window.groups))
        self._keys_at = tuple(SortKey(self._ordering.index(key.column), key.order) for key in window.keys)
        self._stream_key_at = tuple(map(self._ordering.index, self._stream_key))

    def _begin(self) -> None:
        self._starts_empty = next(self._table.scan_chunks(), None) is None

    def _limit_memory(self) -> None:
        self._index.limit_memory()

    def _end_epoch(self) -> None:
        self._index.end_epoch()

    def _changed(self, changes: StreamChunk) -> Iterator[StreamChunk]:
        yield self._changed_windows(changes)

    def _changed_windows(self, changes: StreamChunk) -> StreamChunk:
        """Applies net changes; the changes of the result."""
        ids = self._located(changes)
        before = self._windows(np.unique(ids))
        numbers = self._numbers(before)
        keys = RowsByKey(before.ordered, self._stream_key_at)
        is_deletion = is_deleted(changes)
        is_lost = np.zeros(before.count, np.bool_)
        deleted = keys.find(changes.project(self._ordering))[is_deletion]
        is_lost[deleted[deleted >= 0]] = True
        if not self._is_append_only:
            self._table.write_slice(changes)
        rows = self._candidates(changes, ids, before, numbers, is_lost)
        origin = keys.find(rows.ordered)
        origin[np.append(is_lost, False)[origin]] = -1
        new_numbers = self._numbers(rows)
        in_window = new_numbers <= self._window.last
        is_kept = np.zeros(before.count, np.bool_)
        is_kept[origin[in_window & (origin >= 0)]] = True
        comes = in_window & (origin < 0)
        output = self._output(before, numbers, rows, np.where(in_window, new_numbers, 0), origin)
        self._apply(before, ~is_kept, rows, comes)
        return output

    def _candidates(
        self, changes: StreamChunk, ids: np.ndarray, before: _Rows, numbers: np.ndarray, is_lost: np.ndarray
    ) -> _Rows:
        """The rows among which all rows of the new windows are."""
        refilled = self._incomplete(before.groups, numbers, is_lost)
        survives = positions(~(is_lost | np.isin(before.groups, refilled)))
        comes = positions(~(is_deleted(changes) | np.isin(ids, refilled)))
        added = DataChunk(changes.columns)
        parts = [before.only(survives), self._rows_of(added, ids).only(comes)]
        parts += [self._rows_of(rows, groups) for rows, groups in self._read(before, refilled)]
        return _Rows.together(parts)

    def _rows_of(self, rows: DataChunk, groups: np.ndarray) -> _Rows:
        def taken(at: np.ndarray, width: int) -> DataChunk:
            return rows.project(range(width)).take(at)

        return _Rows(rows.project(self._ordering), groups, taken)

    def _located(self, changes: DataChunk) -> np.ndarray:
        """The group of each row, whose window is in memory then: int32[capacity]."""
        columns = [changes.columns[column] for column in self._window.groups]
        located = self._index.locate(columns)
        if len(located.new_ids) and not (self._starts_empty and self._index.is_complete):
            for rows, _ in self._stored(DataChunk(columns).take(located.new_rows)):
                self._index.load(rows)
        return located.ids

    def _windows(self, groups: np.ndarray) -> _Rows:
        """The rows of windows in memory."""
        found = list(JoinProbe(self._index, groups))
        if not found:
            return self._rows_of(no_rows(self._types), np.empty(0, np.int32))
        row_ids = np.concatenate([rows for _, rows in found])

        def taken(at: np.ndarray, width: int) -> DataChunk:
            return self._gathered(row_ids[at], range(width))

        of_rows = groups[np.concatenate([at for at, _ in found])]
        return _Rows(self._gathered(row_ids, self._ordering), of_rows, taken)

    def _gathered(self, row_ids: np.ndarray, columns: Sequence[int]) -> DataChunk:
        return DataChunk(list(map(Column, self._index.gather(row_ids, columns))), capacity=len(row_ids))

    def _incomplete(self, of_before: np.ndarray, numbers: np.ndarray, is_lost: np.ndarray) -> np.ndarray:
        """The groups that have lost a row, and may have rows behind their window, which fill it again."""
        if not is_lost.any():
            return np.empty(0, np.int32)
        groups, at = np.unique(of_before, return_inverse=True)
        if self._window.kind is RankKind.DENSE_RANK:
            filled = np.zeros(len(groups), np.int64)
            np.maximum.at(filled, at, numbers)
        else:
            filled = np.bincount(at, minlength=len(groups))
        has_lost = np.bincount(at, is_lost, len(groups)) > 0
        return groups[has_lost & (filled >= self._window.last)]

    def _read(self, before: _Rows, groups: np.ndarray) -> list[tuple[DataChunk, np.ndarray]]:
        """The windows of groups of which `before` has a row, as the table has them now."""
        if not len(groups):
            return []
        _, first = np.unique(before.groups, return_index=True)
        chosen = first[np.isin(before.groups[first], groups)].astype(np.int32)
        prefixes = before.ordered.project(self._groups_at).take(chosen)
        return [(rows, before.groups[chosen][owners]) for rows, owners in self._stored(prefixes)]

    def _stored(self, prefixes: DataChunk) -> Iterator[tuple[DataChunk, np.ndarray]]:
        """The stored rows of the windows of groups, and the row of `prefixes` that each is under."""
        for start in range(0, prefixes.capacity, READ_AT_ONCE):
            part = prefixes.slice(start, min(READ_AT_ONCE, prefixes.capacity - start))
            left, limit = np.arange(part.capacity, dtype=np.int32), min(self._window.last, MOST_READ)
            while len(left):
                owners, rows = self._table.first_rows(part.take(left), limit)
                numbers = self._numbers(self._rows_of(rows, owners))
                is_open = np.bincount(owners, minlength=len(left)) >= limit
                is_open[owners[numbers > self._window.last]] = False
                is_open &= self._window.kind is not RankKind.ROW_NUMBER or limit < self._window.last
                whole = positions(~is_open[owners] & (numbers <= self._window.last))
                yield rows.take(whole), start + left[owners[whole]]
                left, limit = left[is_open], 2 * limit

    def _numbers(self, rows: _Rows) -> np.ndarray:
        """The number of each row among all rows of its group: int64[n]."""
        found = ranking(rows.ordered, rows.groups, self._keys_at, self._stream_key_at)
        numbers = np.empty(rows.count, np.int64)
        numbers[found.rows] = getattr(found, self._window.kind)
        return numbers

    def _apply(self, before: _Rows, goes: np.ndarray, rows: _Rows, comes: np.ndarray) -> None:
        """Takes rows out of the windows in memory, and others into them."""
        gone, come = positions(goes), positions(comes)
        width = len(self._types)
        chunk = StreamChunk(
            DataChunk.concat([before.taken(gone, width), rows.taken(come, width)]).columns, _ops(gone, come)
        )
        self._index.apply(chunk, np.concatenate([before.groups[gone], rows.groups[come]]).astype(np.int32))
        if self._is_append_only:
            self._table.write_slice(chunk)

    def _output(self, before: _Rows, old: np.ndarray, rows: _Rows, new: np.ndarray, origin: np.ndarray) -> StreamChunk:
        """The changes from the old to the new rows. `old`, `new`: their numbers, 0: not in the window. `origin`: the
        position of a new row among the old ones."""
        window = self._window
        was, is_now = old > window.offset, new > window.offset
        same = is_now & np.append(was, False)[origin]
        if window.has_number:
            same &= np.append(old, 0)[origin] == new
        was[origin[same]] = False
        gone, come = positions(was), positions(is_now & ~same)
        columns = DataChunk.concat([before.taken(gone, window.width), rows.taken(come, window.width)]).columns
        if window.has_number:
            columns = (*columns, Column(pa.array(np.concatenate([old[gone], new[come]]))))
        return StreamChunk(columns, _ops(gone, come))


def _ops(gone: np.ndarray, come: np.ndarray) -> np.ndarray:
    return np.repeat(np.array([Op.DELETE, Op.INSERT], np.uint8), (len(gone), len(come)))
