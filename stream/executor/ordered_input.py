"""The rows that the calls of an aggregation are computed from: arrays, joined texts, percentiles, first values.

Calls with one order, filter and NULL handling share a table, ordered by group, order and stream key. The changes
of an epoch are kept, as net changes, until the groups are flushed. Then, for many groups at once, the rows that were
there and those that have come are sorted together, and the results before and after are computed from the same columns;
so nothing of a result is stored. A group whose rows are unchanged is not looked at.

In memory are the rows of groups that were looked up, all of them, or where the first row alone counts that one; groups
that were used longest ago are evicted at barriers. A group that is too large for any of its calls [R61] is not read:
its number of rows and their bytes are in the state of the group.

Where only first rows count and rows are only inserted, the table has the first rows alone: another never comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relational.agg.collected import CollectedCall, CollectedColumn, collected, kept_sizes
from relational.agg.groups import CollectedChange
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.encoding import KeyEncoder
from relational.errors import ConsistencyError
from relational.expr.aggregates import AggCall
from relational.join.join_index import JoinIndex
from relational.join.net_changes import net_changes
from relational.join.rows_by_key import RowsByKey
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.table.key_sort import sorted_rows
from relational.table.state_table import StateTable
from relational.types import DataType, SortKey
from stream.executor.agg_state import TableOfInputs
from stream.executor.ordered_groups import no_rows, positions, rows_in_memory

KEPT_SHARE = 4
"""Changes that take more than this part of the capacity are applied before the barrier."""
READ_GROUPS = 4_096
"""Groups whose rows are read from the table at a time."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """`columns`: those of the input in the table, the first `groups` of them those of the group. Of their positions
    there: `keys`, the order of a group's rows, to the stream key; `stream_key`. `is_append_only`: rows of the input are
    only inserted."""

    columns: tuple[int, ...]
    groups: int
    keys: tuple[SortKey, ...]
    stream_key: tuple[int, ...]
    is_append_only: bool


class OrderedInput(TableOfInputs):
    """The rows for the calls numbered `calls`, which have one `kept_order`. A RowCollector."""

    def __init__(self, calls: Sequence[int], table: StateTable, layout: RowLayout) -> None:
        super().__init__(table, layout.columns)
        self.calls = tuple(calls)
        self._layout = layout
        self._kept: list[StreamChunk] = []
        self._kept_bytes = 0
        self._net: StreamChunk | None = None  # net changes, by group
        self._of_net = _NO_GROUPS

    def open(self, calls: Sequence[AggCall], types: Sequence[DataType], memory: MemoryShare) -> None:
        """Before any other use. `calls`: all of the aggregation; `types`: of its input."""
        layout = self._layout
        of_rows = [types[column] for column in layout.columns]
        self._order = calls[self.calls[0]].kept_order
        self._arguments = tuple(dict.fromkeys(column for call in self.calls for column in calls[call].arguments))
        self._collected = {number: CollectedCall(*calls[number].over(layout.columns)) for number in self.calls}
        self._types = of_rows
        self._encoder = KeyEncoder(
            [DataType.INT, *(of_rows[key.column] for key in layout.keys)],
            [SortKey(0).order, *(key.order for key in layout.keys)],
        )
        self._memory = memory
        constant = () if layout.groups else (DataType.INT,)
        key = tuple(range(layout.groups)) or (len(of_rows),)
        self._index = JoinIndex(
            [*of_rows, *constant], key, layout.stream_key or key, null_safe=(True,) * len(key),
            memory=memory,
        )

    def memory(self) -> MemoryUse:
        """Of the rows of groups. From any thread."""
        return self._index.memory()

    @property
    def is_full(self) -> bool:
        """Whether the changes that are kept should be applied."""
        return self._kept_bytes * KEPT_SHARE > self._memory.capacity_bytes

    def sizes(self, chunk: DataChunk, mask: np.ndarray | None) -> Column:
        """As `kept_sizes`; `mask` is that of the calls' FILTER."""
        return kept_sizes(chunk, self._order.required, mask, self._arguments)

    def keep(self, chunk: StreamChunk, ids: np.ndarray, sizes: Column) -> None:
        """Keeps the changes of `chunk` for the groups `ids` that have a size."""
        columns = [chunk.columns[column] for column in self._layout.columns]
        kept = chunk.with_columns([*columns, Column(pa.array(ids))])
        kept = kept.filter(sizes.array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
        kept = kept.without_unchanged_updates()
        if kept.visible_rows:
            kept = kept.compact()
            self._kept.append(kept)
            self._kept_bytes += kept.nbytes

    def settle(self) -> None:
        """Nets the changes, before a flush of the groups."""
        if self._kept:
            changes = net_changes(StreamChunk.compacted(self._kept), self._layout.stream_key)
            self._net, self._of_net = _by_group(changes)
            self._kept = []

    def finish(self, *, is_barrier: bool) -> None:
        """After that flush."""
        self._net, self._of_net, self._kept_bytes = None, _NO_GROUPS, 0
        if is_barrier:
            self._index.end_epoch()
        else:
            self._index.limit_memory()

    def rows_read(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """As RowCollector says."""
        if self._order.takes_first:
            return np.ones(before.shape[1], np.int64)
        return np.where(self._is_read(before, after), np.maximum(before[0], after[0]), 0)

    def _is_read(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """bool[groups]: whether some call has a result before or after."""
        each = [~call.is_too_large(*sizes) for call in self._collected.values() for sizes in (before, after)]
        return np.logical_or.reduce(each)

    def change(self, ids: np.ndarray, keys: DataChunk, before: np.ndarray, after: np.ndarray) -> CollectedChange:
        """As RowCollector says. ConsistencyError if the table does not have the rows that the groups count."""
        changes, of_changes = self._changes_of(ids)
        numbers = self._located(keys, before, self._is_read(before, after))
        rows, owners = rows_in_memory(self._index, numbers, len(self._types))
        self._check(keys, owners, before, numbers >= 0)
        step = _Step(changes, of_changes, rows, owners)
        union = self._firsts(step, keys, numbers) if self._order.takes_first else self._all(step, numbers)
        touched = np.bincount(of_changes, minlength=len(ids)) > 0
        old = self._results(union, union.was, before)
        new = self._results(union, union.is_now, after) if len(of_changes) else old
        return CollectedChange(touched, {call: (old[call], new[call]) for call in self.calls})

    def _changes_of(self, ids: np.ndarray) -> tuple[StreamChunk, np.ndarray]:
        """The kept changes of the groups `ids`, and the position of each one's group."""
        if self._net is None:
            return StreamChunk.inserts(no_rows(self._types)), _NO_GROUPS
        first, last = (np.searchsorted(self._of_net, ids, side) for side in ("left", "right"))
        counts = last - first
        before = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) + np.repeat(first - before, counts)
        owners = np.repeat(np.arange(len(ids), dtype=np.int32), counts)
        return self._net.take(rows.astype(np.int32)), owners

    def _located(self, keys: DataChunk, before: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        """The number of each group in the index, whose rows are in memory then: int32[groups]; -1 for one that is not
        to be read and is not there."""
        columns = list(keys.columns) or [_zeros(keys.capacity)]
        located = self._index.locate(columns, is_read.view(np.uint8))
        numbers = located.ids
        if not is_read.all():
            known = self._index.locate(columns, (~is_read).view(np.uint8), False).ids
            numbers = np.where(is_read, numbers, known)
        if len(located.new_ids):
            new = located.new_rows
            self._load(keys.take(new[before[0, new] > 0]))
        return numbers

    def _load(self, keys: DataChunk) -> None:
        """Reads the rows of groups into the index."""
        for first in range(0, keys.capacity, READ_GROUPS):
            part = keys.slice(first, min(READ_GROUPS, keys.capacity - first))
            for rows in self._stored(part):
                self._index.load(self._indexed(rows))

    def _stored(self, keys: DataChunk) -> Iterator[DataChunk]:
        """The stored rows of groups that count."""
        prefixes = keys.project(self.table.catalog.pk_indices[: self._layout.groups])
        if self._order.takes_first:
            yield self.table.first_rows(prefixes, 1)[1] if self._layout.groups else self._first_of_all()
        elif self._layout.groups:
            yield from (rows for _, rows in self.table.rows_under(prefixes))
        else:
            yield from self.table.scan_chunks()

    def _first_of_all(self) -> DataChunk:
        return DataChunk.from_rows(self.table.catalog.schema, self.table.scan(limit=1))

    def _indexed(self, rows: DataChunk) -> DataChunk:
        """Rows of the table as the index has them."""
        if self._layout.groups:
            return rows
        return rows.with_columns([*rows.columns, _zeros(rows.capacity)])

    def _check(self, keys: DataChunk, owners: np.ndarray, before: np.ndarray, is_known: np.ndarray) -> None:
        count, wanted = np.bincount(owners, minlength=keys.capacity), before[0]
        if self._order.takes_first:
            wanted = np.minimum(wanted, 1)
        wrong = np.flatnonzero(is_known & (count != wanted))
        if len(wrong):
            key = next(iter(keys.slice(int(wrong[0]), 1).rows()))
            reason = f"there are {count[wrong[0]]} rows of a group that has {before[0, wrong[0]]}"
            raise ConsistencyError(reason, table=self.table.catalog.name, key=key)

    def _all(self, step: _Step, numbers: np.ndarray) -> _Union:
        """Applies changes where all rows of a group count."""
        self.table.write_slice(step.changes)
        is_known = numbers[step.of_changes] >= 0
        self._index.apply(self._with_constant(step.changes), numbers[step.of_changes])
        is_now = ~step.deleted(self._layout.stream_key)
        come = positions(step.is_insertion & is_known)
        return _Union(
            DataChunk.concat([step.rows, step.inserted(come)]),
            np.concatenate([step.owners, step.of_changes[come]]),
            np.append(np.ones(step.rows.capacity, np.bool_), np.zeros(len(come), np.bool_)),
            np.append(is_now, np.ones(len(come), np.bool_)),
        )

    def _firsts(self, step: _Step, keys: DataChunk, numbers: np.ndarray) -> _Union:
        """Applies changes where the first row alone counts."""
        is_append_only = self._layout.is_append_only
        if not is_append_only:
            self.table.write_slice(step.changes)
        is_lost = step.deleted(self._layout.stream_key)
        refilled = np.unique(step.owners[is_lost])
        come = positions(step.is_insertion & ~np.isin(step.of_changes, refilled))
        again, of_again = self._read_again(keys, refilled)
        rows = DataChunk.concat([step.rows, step.inserted(come), again])
        owners = np.concatenate([step.owners, step.of_changes[come], of_again])
        competes = np.append(~is_lost, np.ones(len(owners) - len(is_lost), np.bool_))
        competes[: len(is_lost)] &= ~np.isin(step.owners, refilled)
        order = self._sorted(rows, owners)
        order = order[competes[order]]
        is_first = np.append(True, owners[order][1:] != owners[order][:-1])[: len(order)]
        is_now = np.zeros(len(owners), np.bool_)
        is_now[order[is_first]] = True
        was = np.arange(len(owners)) < len(is_lost)
        gone, new = positions(was & ~is_now), positions(is_now & ~was)
        ops = np.repeat(np.array([Op.DELETE, Op.INSERT], np.uint8), (len(gone), len(new)))
        applied = StreamChunk(rows.take(np.concatenate([gone, new])).columns, ops)
        self._index.apply(self._with_constant(applied), numbers[np.concatenate([owners[gone], owners[new]])])
        if is_append_only:
            self.table.write_slice(applied)
        return _Union(rows, owners, was, is_now)

    def _read_again(self, keys: DataChunk, groups: np.ndarray) -> tuple[DataChunk, np.ndarray]:
        """The first rows of groups, of which there may be none, as the table has them now."""
        if not len(groups):
            return no_rows(self._types), _NO_GROUPS
        if not self._layout.groups:
            rows = self._first_of_all()
            return rows, np.zeros(rows.capacity, np.int32)
        prefixes = keys.take(groups.astype(np.int32)).project(self.table.catalog.pk_indices[: self._layout.groups])
        owners, rows = self.table.first_rows(prefixes, 1)
        return rows, groups[owners].astype(np.int32)

    def _with_constant(self, changes: StreamChunk) -> StreamChunk:
        return StreamChunk(self._indexed(changes).columns, changes.ops)

    def _sorted(self, rows: DataChunk, owners: np.ndarray) -> np.ndarray:
        """The rows group by group, in their order."""
        keys = [Column(pa.array(owners, pa.int32())), *(rows.columns[key.column] for key in self._layout.keys)]
        return sorted_rows(self._encoder.encode(keys))

    def _results(self, union: _Union, chosen: np.ndarray, sizes: np.ndarray) -> Mapping[int, CollectedColumn]:
        """By call, of the rows that are `chosen`."""
        order = self._sorted(union.rows, union.owners) if union.order is None else union.order
        union.order = order
        order = order[chosen[order]]
        return {number: _result(call, union, order, sizes) for number, call in self._collected.items()}


@dataclass(slots=True)
class _Union:
    """Rows that were there or are there now, and the groups that they are of. `order`: sorted, if known."""

    rows: DataChunk
    owners: np.ndarray
    was: np.ndarray
    is_now: np.ndarray
    order: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """Net changes for some groups, and the rows in memory before them, each with its group."""

    changes: StreamChunk
    of_changes: np.ndarray
    rows: DataChunk
    owners: np.ndarray

    @property
    def is_insertion(self) -> np.ndarray:
        return (self.changes.ops & Op.DELETE) == 0

    def inserted(self, positions: np.ndarray) -> DataChunk:
        return DataChunk(self.changes.columns, capacity=self.changes.capacity).take(positions)

    def deleted(self, stream_key: Sequence[int]) -> np.ndarray:
        """bool[rows]: which of the rows in memory are deleted."""
        found = np.zeros(self.rows.capacity, np.bool_)
        is_deletion = ~self.is_insertion
        if self.rows.capacity and is_deletion.any():
            at = RowsByKey(self.rows, stream_key).find(self.changes)[is_deletion]
            found[at[at >= 0]] = True
        return found


def _result(call: CollectedCall, union: _Union, order: np.ndarray, sizes: np.ndarray) -> CollectedColumn:
    """The results of one call over rows in their order. A group that is too large has none."""
    groups, is_large = sizes.shape[1], call.is_too_large(*sizes)
    if is_large.any():
        order = order[~is_large[union.owners[order]]]
    counts = np.bincount(union.owners[order], minlength=groups)
    found = collected(call, union.rows.take(order), np.append(0, np.cumsum(counts)))
    if not is_large.any():
        return found
    return CollectedColumn(found.column, {**found.failures, call.too_large: is_large})


_NO_GROUPS = np.empty(0, np.int32)


def _by_group(changes: StreamChunk) -> tuple[StreamChunk, np.ndarray]:
    """The changes without their last column, the group, in its order; and the group of each. An update whose halves are
    of different groups is a deletion and an insertion [R7]."""
    groups, ops = changes.columns[-1].array.to_numpy(), changes.ops.copy()
    old = np.flatnonzero(ops == Op.UPDATE_DELETE)
    parted = old[groups[old] != groups[old + 1]]
    ops[parted], ops[parted + 1] = Op.DELETE, Op.INSERT
    order = np.argsort(groups, kind="stable").astype(np.int32)
    rows = changes.project(range(len(changes.columns) - 1)).with_ops(ops)
    return rows.take(order), groups[order]


def _zeros(rows: int) -> Column:
    return Column(pa.array(np.zeros(rows, np.int32)))
