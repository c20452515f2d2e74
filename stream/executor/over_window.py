"""OverWindow: the values of window functions over ordered groups of rows, the partitions, kept up to date.

The changes of an epoch are kept, as net changes, until the barrier, or until there are many. Then the part of each
partition that they may affect is read from the state table, and its values are computed twice: of the rows that were
there before, and of those that are there now. A row is emitted if it came or went, or if a value is different.

The state table has all rows, in the order of their partitions, and with each row the states that its calls have there.
So the part begins a few rows before the first change even if a frame begins with the partition. Values depend on the
rows of their frames alone, also in the last bit of a sum of doubles, so those that are computed again from other parts
are those that were emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.encoding import KeyEncoder
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Cast, InputRef
from relational.expr.window_functions import WindowCall
from relational.expr.window_reach import Reach
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.order.late_rows import LateRows
from relational.order.ordered_rows import OrderedRows
from relational.order.over_window import KnownRows, window_values
from relational.order.ranking import group_numbers, ranking
from relational.table.partition_rows import PartitionRows, PartRows
from relational.table.state_table import StateTable
from relational.types.ordering import SortKey
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.ordered_groups import OrderedGroupsExecutor, is_deleted, lost_rows, positions
from stream.executor.partition_tails import PartitionTails

MOST_PARTITIONS = 4_096
READ_AT_ONCE = 1 << 17
"""Partitions, and about how many rows of them, that are read from the table at a time."""
MORE_KEPT = 8
"""Rows of a partition in memory beyond those that a row at its end needs: for rows that come a little late."""


@dataclass(frozen=True, slots=True)
class Windows:
    """`calls` over the rows that are equal in `groups`, in the order `keys`. `width`: the columns of the input that are
    emitted, the first ones; the values come behind them. `reach`: how far changes reach, None: through the whole
    partition; `states`: how many state columns each call has then."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]
    width: int
    reach: Reach | None
    states: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """Of each row `values`, a column for each call, `states`, the columns of all states one after the other, and
    `row_number`, among those that were evaluated of its partition, in the order of these. `failures`: by reason the
    number of NULLs for want of room."""

    values: DataChunk
    states: DataChunk
    row_number: np.ndarray
    failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Tails:
    """What was in memory of the `partitions` with these `ids`: `rows`, and the partition of each. `is_hit`: bool by
    partition, whether they are what was read of it."""

    partitions: DataChunk
    ids: np.ndarray
    rows: DataChunk
    part: np.ndarray
    is_hit: np.ndarray


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of some partitions that are computed again, and what was in memory of these, None: nothing ever is."""

    read: PartRows
    tails: _Tails | None = None


class OverWindowExecutor(OrderedGroupsExecutor):
    """`table` has the columns of the input and those of the states, in the order of the calls. `memory`: for the last
    rows of partitions."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        windows: Windows,
        table: StateTable,
        errors: ErrorCounts,
        *,
        is_append_only: bool,
        memory: MemoryShare,
        chunk_rows: int,
    ) -> None:
        super().__init__(
            info, input, table, errors, is_append_only=is_append_only, chunk_rows=chunk_rows, marked=windows.groups
        )
        self._windows = windows
        self._reach = windows.reach
        peers = dict.fromkeys((*windows.groups, *(key.column for key in windows.keys)))
        by_peers = self._reach is not None and self._reach.has_peers
        width = len(peers) if by_peers else len(table.catalog.pk_indices)
        self._rows = PartitionRows(table, len(dict.fromkeys(windows.groups)), width)
        self._since = [self._in_type_of_key(column) for column in self._reach.since] if self._reach else []
        self._at_once = 64
        self._tails: PartitionTails | None = None
        if self._reach is not None and not self._since:
            types, name = table.catalog.schema.types, self._stream_key or windows.groups  # of an only row any columns
            length = self._reach.first_row + MORE_KEPT
            self._tails = PartitionTails(types, windows.groups, name, length, memory)

    def _in_type_of_key(self, column: int) -> Evaluator:
        """A column in the type of the only sort key."""
        target, bound = self._types[self._windows.keys[0].column], InputRef(column, self._types[column])
        return Evaluator(bound if bound.data_type == target else Cast(bound, target))

    def memory(self) -> list[tuple[str, MemoryUse]]:
        return [] if self._tails is None else [("last rows of partitions", self._tails.memory())]

    def _begin(self) -> None:
        if self._tails is not None:
            self._tails.begin(is_empty=next(self._table.scan_chunks(), None) is None)

    def _limit_memory(self) -> None:
        if self._tails is not None:
            self._tails.limit_memory()

    def _end_epoch(self) -> None:
        if self._tails is not None:
            self._tails.end_epoch()

    def _changed(self, chunks: Sequence[StreamChunk]) -> Iterator[StreamChunk]:
        changes = StreamChunk.compacted(chunks)
        numbers = group_numbers([changes.columns[column] for column in self._windows.groups], changes.capacity)
        first, count = 0, int(numbers.max()) + 1
        while first < count:
            chosen = (numbers >= first) & (numbers < first + self._at_once)
            part = changes.filter(chosen)  # an update of two partitions becomes a deletion and an insertion
            rows = part.compact()
            read, made = self._changed_partitions(rows, numbers[chosen] - first)
            yield made
            done = min(self._at_once, count - first)
            first += self._at_once
            self._at_once = max(1, min(MOST_PARTITIONS, 4 * self._at_once, READ_AT_ONCE * done // max(read, 1)))

    def _changed_partitions(self, changes: StreamChunk, partition: np.ndarray) -> tuple[int, StreamChunk]:
        """Applies the changes of some partitions, which are numbered `partition`; how many rows were read, and the
        changes of the result."""
        part = self._part_of(changes, partition)
        before, width = part.read, len(self._types)
        old = before.rows.project(range(width))
        known = before.rows.project(range(width, len(before.rows.columns)))
        has_state = self._first_rows(before)
        is_deletion = is_deleted(changes)
        deleted = LateRows.of(DataChunk(changes.columns)).only(positions(is_deletion))
        is_lost = lost_rows(LateRows.of(old), deleted, self._stream_key)
        stays = positions(~is_lost)
        rows = DataChunk.concat([old.take(stays), DataChunk(changes.columns).take(positions(~is_deletion))])
        parts = np.concatenate([before.part[stays], partition[~is_deletion]])
        padded = np.append(stays, np.full(rows.capacity - len(stays), -1, np.int32))
        is_known = np.append(has_state, False)[padded]
        then = self._evaluated(old, before.part, has_state, known)
        now = self._evaluated(rows, parts, is_known, known.take(padded))
        for reason in then.failures.keys() | now.failures.keys():
            self._errors.add(reason, now.failures.get(reason, 0) - then.failures.get(reason, 0))
        self._write(changes, is_deletion, rows, known.take(stays), now.states, len(stays))
        if self._tails is not None and part.tails is not None:
            self._keep_tails(self._tails, part.tails, before, rows, parts, now)
        return old.capacity, self._output(old, then.values, positions(is_lost), rows, now.values, stays)

    def _part_of(self, changes: StreamChunk, partition: np.ndarray) -> _Part:
        """The rows that these changes may affect, and those that their values depend on."""
        groups = DataChunk(changes.columns).project(self._windows.groups)
        if self._reach is None:
            firsts = np.unique(partition, return_index=True)[1].astype(np.int32)
            return _Part(self._rows.whole(groups.take(firsts)))
        found = ranking(changes, partition, self._windows.keys, self._stream_key)
        begins = np.flatnonzero(found.row_number == 1)
        first, last = found.rows[begins], found.rows[np.append(begins[1:], len(found.rows)) - 1]
        firsts, lasts = DataChunk(changes.columns).take(first), DataChunk(changes.columns).take(last)
        groups = groups.take(first)
        if self._tails is None:
            since = self._first_values(firsts, groups) if self._since else None
            return _Part(self._stored(firsts, lasts, self._reach.first_row, since))
        ids, is_known = self._tails.locate(groups)
        tail = self._tails.rows(ids)
        read, is_hit = self._in_memory(self._tails.length, *tail, firsts, is_known)
        missed = positions(~is_hit)
        if len(missed):
            more = self._stored(firsts.take(missed), lasts.take(missed), self._tails.length, None)
            read = _joined(read, more, missed)
        return _Part(read, _Tails(groups, ids, *tail, is_hit))

    def _stored(self, firsts: DataChunk, lasts: DataChunk, before: int, since: DataChunk | None) -> PartRows:
        """The parts around the rows `firsts` and `lasts` of each partition, from the table."""
        assert self._reach is not None
        first, last = firsts.project(self._rows.key), lasts.project(self._rows.key)
        return self._rows.around(first, last, before, self._reach.last_row, since)

    def _in_memory(
        self, length: int, tail: DataChunk, of_tail: np.ndarray, firsts: DataChunk, is_known: np.ndarray
    ) -> tuple[PartRows, np.ndarray]:
        """The parts that are in memory, of the rows `tail` of the partitions `of_tail`, and which these are: those that
        have enough rows before the first change, or all that there are."""
        assert self._reach is not None
        count = firsts.capacity
        rows = DataChunk.concat([tail.project(range(len(self._types))), firsts])
        parts = np.concatenate([of_tail, np.arange(count, dtype=np.int32)])
        peers = self._windows.keys
        if not self._reach.has_peers:
            peers = (*peers, *map(SortKey, self._stream_key))
        found = ranking(rows, parts, peers, ())
        rank = np.empty(rows.capacity, np.int64)
        rank[found.rows] = found.rank
        before, in_tail = rank[tail.capacity :] - 1, np.bincount(of_tail, minlength=count)
        is_hit = is_known & ((before >= self._reach.first_row) | (in_tail < length))
        found = ranking(tail, of_tail, self._windows.keys, self._stream_key)
        kept = found.rows[is_hit[found.group]]
        return PartRows(tail.take(kept), of_tail[kept], np.where(is_hit, before, 0), is_hit), is_hit

    def _keep_tails(
        self,
        tails: PartitionTails,
        old: _Tails,
        before: PartRows,
        rows: DataChunk,
        parts: np.ndarray,
        now: _Evaluated,
    ) -> None:
        """Replaces the last rows in memory: by those of `rows`, where these are the last ones, else from the table."""
        count = len(old.ids)
        had = np.bincount(before.part, minlength=count)
        is_whole = np.where(old.is_hit, had < tails.length, before.before < tails.length)
        is_enough = before.reaches_end & (is_whole | (np.bincount(parts, minlength=count) >= tails.length))
        kept = tails.last_rows(parts, now.row_number, is_enough)
        come = DataChunk([*rows.take(kept).columns, *now.states.take(kept).columns], capacity=len(kept))
        lacking = positions(~is_enough)
        more, of_more = self._rows.last(old.partitions.take(lacking), tails.length)
        new = DataChunk.concat([come, more]), np.concatenate([parts[kept], lacking[of_more]])
        tails.replace(old.ids, (old.rows, old.part), new)

    def _first_values(self, first: DataChunk, groups: DataChunk) -> DataChunk:
        """The columns of the partitions, and the first value that the frames of the rows `first` have, NULL: of all."""
        values = [each(first) for each in self._since]
        order = self._windows.keys[0].order
        encoder = KeyEncoder([values[0].data_type], [order])
        found = values[0]
        for value in values[1:]:
            is_less = pc.less(encoder.encode([value]).to_arrow(), encoder.encode([found]).to_arrow())
            found = Column(pc.if_else(is_less, value.array, found.array))
        return DataChunk([*groups.columns, found], capacity=first.capacity)

    def _evaluated(self, rows: DataChunk, parts: np.ndarray, is_known: np.ndarray, states: DataChunk) -> _Evaluated:
        """The values of `rows` of the partitions `parts`. Where `is_known`, at the first row of a partition at most,
        `states` has its states."""
        found = ranking(rows, parts, self._windows.keys, self._stream_key)
        at = positions(is_known[found.rows])
        given = states.take(found.rows[at])
        by_call, first = {}, 0
        for number, count in enumerate(self._windows.states):
            by_call[number] = given.columns[first : first + count] if len(at) else ()
            first += count
        ordered = OrderedRows.of(rows, found, self._windows.keys)
        known = None if self._reach is None else KnownRows(at, by_call)
        made = window_values(self._windows.calls, ordered, known)
        back = np.empty(rows.capacity, np.int32)
        back[found.rows] = np.arange(rows.capacity, dtype=np.int32)
        columns = [column for number in sorted(made.states) for column in made.states[number]]
        return _Evaluated(
            DataChunk(made.values, capacity=rows.capacity).take(back),
            DataChunk(columns, capacity=rows.capacity).take(back),
            found.row_number[back],
            made.failures,
        )

    def _first_rows(self, read: PartRows) -> np.ndarray:
        """bool[rows]: the first row of each part that begins before the first change."""
        is_first = np.ones(len(read.part), np.bool_)
        is_first[1:] = read.part[1:] != read.part[:-1]
        return is_first & (read.before[read.part] > 0)

    def _write(
        self,
        changes: StreamChunk,
        is_deletion: np.ndarray,
        rows: DataChunk,
        known: DataChunk,
        states: DataChunk,
        stay: int,
    ) -> None:
        """Writes the changes, whose inserted rows are the last of `rows`, and the `states` of the first ones, so many,
        which stayed, where they differ from the `known` ones."""
        if not states.columns:
            self._table.write_slice(changes)
            return
        of_change = np.full(changes.capacity, -1, np.int32)
        of_change[~is_deletion] = np.arange(stay, rows.capacity, dtype=np.int32)
        renewed = positions(_differ(known, states.take(np.arange(stay, dtype=np.int32))))
        columns = DataChunk.concat([DataChunk(changes.columns), rows.take(renewed)]).columns
        more = states.take(np.append(of_change, renewed)).columns
        ops = np.append(changes.ops, np.full(len(renewed), Op.UPDATE_INSERT, np.uint8))
        self._table.write_slice(StreamChunk([*columns, *more], ops))

    def _output(
        self, old: DataChunk, then: DataChunk, lost: np.ndarray, rows: DataChunk, now: DataChunk, stays: np.ndarray
    ) -> StreamChunk:
        """The changes from the rows `old` with the values `then`, of which those at `stays` are the first of `rows` and
        have the values `now`."""
        stay, width = len(stays), range(self._windows.width)
        changed = positions(_differ(then.take(stays), now.take(np.arange(stay, dtype=np.int32))))
        came = np.arange(stay, rows.capacity, dtype=np.int32)
        before = DataChunk([*old.project(width).columns, *then.columns], capacity=old.capacity)
        after = DataChunk([*rows.project(width).columns, *now.columns], capacity=rows.capacity)
        parts = [before.take(lost), before.take(stays[changed]), after.take(changed), after.take(came)]
        columns = DataChunk.concat(parts)
        pairs = len(lost) + np.arange(2 * len(changed)).reshape(2, -1).T.reshape(-1)
        order = np.concatenate([np.arange(len(lost)), pairs, len(lost) + len(pairs) + np.arange(len(came))])
        ops = [np.full(len(lost), Op.DELETE, np.uint8),
               np.tile(np.array([Op.UPDATE_DELETE, Op.UPDATE_INSERT], np.uint8), len(changed)),
               np.full(len(came), Op.INSERT, np.uint8)]
        return StreamChunk(columns.take(order.astype(np.int32)).columns, np.concatenate(ops))


def _differ(one: DataChunk, other: DataChunk) -> np.ndarray:
    """bool[rows]: where the rows of two chunks are not exactly equal."""
    rows = one.capacity
    if not rows or not one.columns:
        return np.zeros(rows, np.bool_)
    both = DataChunk.concat([one, other]).take(np.arange(2 * rows, dtype=np.int32).reshape(2, -1).T.reshape(-1))
    pairs = StreamChunk(both.columns, np.tile(np.array([Op.UPDATE_DELETE, Op.UPDATE_INSERT], np.uint8), rows))
    shown = pairs.without_unchanged_updates().visibility
    return np.ones(rows, np.bool_) if shown is None else shown[::2].astype(np.bool_)


def _joined(one: PartRows, other: PartRows, parts: np.ndarray) -> PartRows:
    """Two sets of parts as one: those of `other`, which are numbered `parts`, in the place of empty ones."""
    part = np.concatenate([one.part, parts[other.part]])
    order = np.argsort(part, kind="stable").astype(np.int32)
    before, reaches_end = one.before.copy(), one.reaches_end.copy()
    before[parts], reaches_end[parts] = other.before, other.reaches_end
    return PartRows(DataChunk.concat([one.rows, other.rows]).take(order), part[order], before, reaches_end)
