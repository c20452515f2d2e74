"""Aggregation: one row per group, kept up to date.

Groups are held in memory as columns (`relational.agg`), and in the intermediate state table as one row each: the group
columns, count(*), the states of every call. A chunk only changes memory. At a barrier every group that changed is
written to its table and emitted: as an insert if it is new, a delete if its last row was deleted, an update if its
outputs differ, otherwise not at all. So a group emits one change per epoch, however often it changed, unless so many
groups are dirty that they are flushed before the barrier.

A watermark of a group column is passed on after the changes of its epoch. Where the column is the first of the key of
the state tables, the rows below it are dropped from these and from memory: nothing will be added to those groups [R29].
The rows of the view that this feeds stay.

Where a partial aggregation runs before the exchange below, states of groups come as well as rows, and are added to
those that are here.

The states of groups are read when rows for them come: those of a chunk by their keys, in one batch; or, at the first
chunk of an executor that begins, those of all groups, if they are not many more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from relational.agg import NO_CHANGE, AggGroups, AggSpec
from relational.agg.group_hashes import GroupHashes
from relational.agg.spec import PAIR
from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk, StreamChunk
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.eval import Evaluator, masks_of
from relational.expr.eval_context import ErrorCounts
from relational.memory_budget import MemoryBudget, MemoryShare
from relational.memory_use import MemoryUse
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.executor.agg_state import DistinctTable, ExtremeTable, TableOfInputs
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.executor.flush_pace import EARLY_GROUPS, FlushPace
from stream.executor.ordered_input import OrderedInput
from stream.message import PAUSE, Barrier, GroupStates, Message, Stop, Wait, Watermark
from stream.runtime.barrier_forecast import BarrierForecast

SCANNED_SHARE = 4
"""Stored groups are all read at once if there are at most so many times as many as the first chunk needs: reading a row
in a scan takes about a quarter of the time that reading it by its key takes."""


class HashAggExecutor(Executor):
    """`info`'s columns are the group columns, then one per call. Without group columns there is one group,
    which always exists and emits its row at the first barrier: count 0 before any input.

    `extremes` are the tables of the minima and maxima that a retraction can change, `distinct` those of the values of
    DISTINCT calls, in the order of their first calls, `ordered` those of the rows of calls that collect. `state_table`
    has the columns that `AggGroups` flushes. Clean groups and the rows of groups beyond their shares of `memory`
    are evicted after a flush. Far beyond it groups are flushed before the barrier, and so are as many dirty ones as
    FlushPace says, between `early_groups` and `flush_groups`, fewer before the barriers of `forecast`. `errors` counts
    rows whose FILTER failed, rows dropped because a key made of them is too long for the store [R55], and groups whose
    sum or average exceeds its type, or that are too large for a call that collects [R61].

    `is_append_only`: it has no calls, and rows are only inserted: a group changes once, with its first row.

    `hashes`: empty ones, of the groups, if tables of `distinct` have these.

    `groups`: those that another executor has left, whose tables have the same rows. `leave` gets the groups of this one
    after a barrier with a Stop, which REQUIRES that such a barrier is its last.
    """

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        group_by: Sequence[int],
        calls: Sequence[AggCall],
        state_table: StateTable,
        extremes: Sequence[ExtremeTable],
        distinct: Sequence[DistinctTable],
        ordered: Sequence[OrderedInput],
        errors: ErrorCounts,
        *,
        memory: MemoryBudget,
        flush_groups: int,
        chunk_rows: int,
        early_groups: int = EARLY_GROUPS,
        forecast: BarrierForecast | None = None,
        is_append_only: bool = False,
        hashes: GroupHashes | None = None,
        groups: AggGroups | None = None,
        leave: Callable[[AggGroups], None] | None = None,
    ) -> None:
        self.info = info
        self._input, self._is_append_only = input, is_append_only
        self._filters = [None if call.filter is None else Evaluator(call.filter) for call in calls]
        self._errors = errors
        self._has_groups, self._leave = groups is not None, leave
        self._is_loaded = self._has_groups  # some state was read, or none is to be read before an eviction
        types = input.info.schema.types
        self._ordered = tuple(ordered)
        self._collecting = [f"rows of {calls[each.calls[0]].kind}" for each in self._ordered]
        self._width = len(types)
        for each in self._ordered:
            each.open(calls, types, memory.share())
        if groups is None:
            groups = agg_groups(
                group_by, types, calls, extremes, distinct, memory.share(), state_table.catalog, self._ordered, hashes)
        else:
            groups.move_to(memory)
        self._groups = groups
        self._is_global = not group_by
        self._state_table = state_table
        self._extremes, self._distinct, self._is_hashed = tuple(extremes), tuple(distinct), hashes is not None
        self._read_values = [each.read for each in self._distinct]
        beside: list[TableOfInputs] = [*self._extremes, *self._distinct, *self._ordered]
        self._tables = (state_table, *(each.table for each in beside))
        self._group_by = tuple(group_by)
        self._key = state_table.catalog.pk_indices  # positions of the group columns, in key order
        keys = [
            (state_table.catalog, tuple(group_by[index] for index in self._key)),
            *((each.table.catalog, each.key) for each in beside),
        ]
        self._long_keys = [
            (table, columns) for table, columns in keys if may_be_long(types, columns)
        ]
        self._watermarks: dict[int, Watermark] = {}  # of this epoch, by position of the group column
        self._pace = FlushPace(early_groups, flush_groups, forecast)
        self._first_flush = groups.flushes  # of this epoch
        self._chunk_rows = chunk_rows

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._open(barrier)
        yield barrier
        for message in messages:
            if isinstance(message, (StreamChunk, GroupStates)):
                if isinstance(message, StreamChunk):
                    self._apply(message)
                else:
                    self._merge(message.chunk.compact())
                yield from self._flush_early()
            elif isinstance(message, Barrier):
                yield from self._flush(is_barrier=True)
                self._pace.note_barrier()
                self._first_flush = self._groups.flushes
                yield from self._pass_barrier(message)
            elif isinstance(message, Watermark):
                self._note(message)
            else:
                yield message

    def memory(self) -> list[tuple[str, MemoryUse]]:
        names = self._input.info.schema.names
        distinct = [(f"distinct values of {names[each.argument]}", each.memory()) for each in self._groups.distinct]
        ordered = zip(self._collecting, (each.memory() for each in self._ordered), strict=True)
        return [("groups", self._groups.memory()), *distinct, *ordered]

    def _flush_early(self) -> Iterator[StreamChunk | Wait]:
        """Flushes before the barrier: what does not fit, or the half of many dirty groups that was touched first."""
        dirty = self._groups.dirty_groups
        is_full = self._groups.is_full or any(each.is_full for each in self._ordered)
        if is_full or dirty >= self._pace.limit:
            flushed = dirty if is_full or self._ordered else dirty - dirty // 2
            self._pace.note_flush(flushed, self._groups.flushed_since(self._first_flush, flushed))
            yield from self._flush(first=None if flushed == dirty else flushed)

    def _note(self, watermark: Watermark) -> None:
        if watermark.column in self._group_by:
            position = self._group_by.index(watermark.column)
            self._watermarks[position] = Watermark(position, watermark.value)

    def _pass_barrier(self, barrier: Barrier) -> Iterator[Message]:
        """Commits the tables, without what a watermark has passed, then the watermarks and the barrier."""
        closing = self._watermarks.get(self._key[0]) if self._key else None
        assert closing is None or not self._is_hashed, "a watermark would drop rows by the hash of their group"
        for table in self._tables:
            if closing is not None:
                table.update_watermark(closing.value)
            table.commit(barrier.epoch)
        if closing is not None:
            self._groups.forget_below(closing.column, closing.value)
        yield from self._watermarks.values()
        self._watermarks.clear()
        if self._leave is not None and isinstance(barrier.mutation, Stop):
            self._leave(self._groups)
        yield barrier

    def _open(self, barrier: Barrier) -> None:
        for table in self._tables:
            table.init_epoch(barrier.epoch)
        if self._has_groups:
            return
        if next(self._state_table.scan_chunks(), None) is None:
            self._groups.track_evictions()
            self._is_loaded = True
        for each, values in zip(self._distinct, self._groups.distinct, strict=True):
            each.open(values)
        if self._is_global:
            self._load(self._groups.open_global())

    def _apply(self, chunk: StreamChunk) -> None:
        for table, columns in self._long_keys:
            chunk, lost = without_long_keys(chunk, columns, table)
            self._errors.add(LONG_KEY, lost)
        located = self._groups.locate(chunk)
        self._load(located.new_ids)
        if self._is_append_only:
            self._groups.add_first(located.ids)
            return
        masks = masks_of(self._filters, chunk, errors=self._errors)
        for each in self._extremes:
            each.write(chunk, masks[each.call])
        sizes = [rows.sizes(chunk, masks[rows.calls[0]]) for rows in self._ordered]
        for rows, column in zip(self._ordered, sizes, strict=True):
            rows.keep(chunk, located.ids, column)
            for number in rows.calls:
                masks[number] = None  # sizes of rows that are not kept are NULL
        whole = chunk.with_columns([*chunk.columns, *sizes]) if sizes else chunk
        self._groups.apply(whole, located.ids, masks, self._read_values)
        for distinct, values in zip(self._distinct, self._groups.distinct, strict=True):
            distinct.write_new(values)

    def _merge(self, states: StreamChunk) -> None:
        """Adds states of groups, whose rows were checked and counted where they were made."""
        located = self._groups.locate(states, of_states=True)
        self._load(located.new_ids)
        if self._is_append_only:
            self._groups.add_first(located.ids)
        else:
            self._groups.merge(states, located.ids)

    def _load(self, new_ids: np.ndarray) -> None:
        """Read the committed state of groups that were not in memory, in one batch; at the first time that of all
        groups, if there are few others."""
        wanted = self._groups.possibly_stored(new_ids)
        if not len(wanted):
            return
        is_first, self._is_loaded = not self._is_loaded, True
        stored = self._all_stored(SCANNED_SHARE * len(wanted)) if is_first and not self._is_global else None
        if stored is not None:
            self._groups.load_all(stored)
        else:
            self._groups.load(wanted, *self._state_table.get_rows(self._groups.keys(wanted).project(self._key)))

    def _all_stored(self, most: int) -> DataChunk | None:
        """All rows of the state table, None if there are more than `most`, or none."""
        chunks: list[DataChunk] = []
        rows = 0
        for chunk in self._state_table.scan_chunks():
            rows += chunk.capacity
            if rows > most:
                return None
            chunks.append(chunk)
        return DataChunk.concat(chunks) if chunks else None

    def _flush(self, *, is_barrier: bool = False, first: int | None = None) -> Iterator[StreamChunk | Wait]:
        for rows in self._ordered:
            rows.settle()
        for each in self._extremes:
            each.settle(self._groups)
        for distinct, values in zip(self._distinct, self._groups.distinct, strict=True):
            distinct.write(values)
        for change in self._groups.flush(self._ordered, first):
            if change is NO_CHANGE:
                yield PAUSE
            for reason, groups in change.failures.items():
                self._errors.add(reason, groups)
            if change.state is not None:
                self._state_table.write_slice(change.state)
            if change.output is not None:
                yield from slices(change.output, self._chunk_rows)
        for rows in self._ordered:
            rows.finish(is_barrier=is_barrier)


def agg_groups(
    group_by: Sequence[int],
    types: Sequence[DataType],
    calls: Sequence[AggCall],
    extremes: Sequence[ExtremeTable],
    distinct: Sequence[DistinctTable],
    memory: MemoryShare | None,
    state_table: TableCatalog,
    ordered: Sequence[OrderedInput] = (),
    hashes: GroupHashes | None = None,
) -> AggGroups:
    """Empty groups for `calls` over input columns of `types`, stored in `state_table`; behind these columns are the
    sizes of the rows of `ordered`."""
    retractable = {each.call: each.keeps_values for each in extremes}
    retractable |= {call: False for each in distinct if each.has_counts for call in each.calls}
    counted = {column.name for column in state_table.columns if column.data_type == DataType.BYTEA}
    retractable |= {number: False for number, call in enumerate(calls)
                    if call.kind.is_bitwise and f"state_{number}_0" in counted}
    sizes = {number: len(types) + at for at, each in enumerate(ordered) for number in each.calls}
    specs = [
        AggSpec(call.kind, sizes[number], DataType.BIGINT, call.data_type) if number in sizes
        else AggSpec.of_user(call.function, call.arguments, call.data_type, is_filtered=call.filter is not None)
        if call.kind is AggKind.USER_STATE
        else AggSpec(
            call.kind,
            call.argument,
            PAIR if call.kind.is_of_pairs else None if call.argument is None else types[call.argument],
            call.data_type,
            is_retractable=number in retractable,
            keeps_values=retractable.get(number, False),
            is_filtered=call.filter is not None,
            is_distinct=call.needs_distinct_values,
            second=call.more[0] if call.kind.is_of_pairs else None,
        )
        for number, call in enumerate(calls)
    ]
    return AggGroups(group_by, [types[index] for index in group_by], specs, memory=memory, hashes=hashes)
