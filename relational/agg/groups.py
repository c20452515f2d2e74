"""AggGroups: the groups of an aggregation in memory, one kernel per call.

The interface for executors and batch queries. A chunk is first located (rows to group ids); new groups may be loaded
from their stored states; then the chunk is applied. No step is per row or per group in Python. A flush returns the
changes since the last one, in pieces. The columns of a group are decoded from its encoded key, so they are SQL-equal to
the input. One thread at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.agg.apply import GroupStates
from relational.agg.bit_agg import BitAggKernel, BitCountsKernel
from relational.agg.bool_agg import BoolAggKernel
from relational.agg.changes import plan
from relational.agg.collected import CollectedColumn
from relational.agg.distinct import DistinctValues, ReadRows
from relational.agg.distinct_sketch import DistinctSketchKernel
from relational.agg.exact_sum import ExactSumKernel
from relational.agg.float_sum import FloatSumKernel
from relational.agg.group_hashes import GroupHashes
from relational.agg.kept_rows import KeptRowsKernel
from relational.agg.kernels import AggKernel, CountKernel
from relational.agg.min_max import MinMaxKernel
from relational.agg.pair_moments import PairMomentsKernel
from relational.agg.spec import PAIR, SKETCH, USER_STATE, AggSpec
from relational.agg.top_values import TopValuesKernel
from relational.agg.user_states import UserStates
from relational.agg.variance import ExactVarianceKernel, FloatVarianceKernel
from relational.agg.word_extreme import WordExtremeKernel
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import StreamChunk
from relational.errors import ConsistencyError
from relational.hash.evicted_keys import EvictedKeys
from relational.hash.key_ids import KeyInterner
from relational.hash.located_keys import LocatedKeys
from relational.memory_budget import MemoryBudget, MemoryShare
from relational.memory_use import MemoryUse
from relational.types import DataType

EXCESS_BYTES = 512 << 20  # beyond the capacity, or half of it, with the saved records of dirty groups
EVICTION_SHARE = 3 / 4  # of the capacity remains filled after an eviction
FLUSH_GROUPS = 32_768  # in one piece of a flush; twice as many take as long per group, half as many 5 % longer
COLLECTED_ROWS = 1 << 18  # in one piece of a flush, of rows that are read for calls that collect, unless of one group
MIN_CLOSED = 4096  # groups and their distinct values in memory below which a watermark forgets none
MIN_VANISHED = 4096  # vanished groups that make a rebuild worthwhile


@dataclass(frozen=True, slots=True)
class AggChange:
    """The changes of one epoch, or a piece of them. None: no rows. `output`: (group columns, results), its updates are
    U-/U+ pairs. `state`: (group columns, count(*), states), its updates are U+ alone, as accepted by StateTable.
    `failures`: for each reason why results of `output` are NULL, the change in the number of groups with such a result;
    negative if results became valid again.
    """

    output: StreamChunk | None
    state: StreamChunk | None
    failures: Mapping[str, int] = field(default_factory=dict)


NO_CHANGE = AggChange(None, None)


@dataclass(frozen=True, slots=True)
class CollectedChange:
    """`touched`, bool[groups]: those whose rows changed. `results`: by call its results before and after that."""

    touched: np.ndarray
    results: Mapping[int, tuple[CollectedColumn, CollectedColumn]]


class RowCollector(Protocol):
    """Keeps the rows of groups for the calls numbered `calls`, whose results it computes."""

    @property
    def calls(self) -> tuple[int, ...]: ...

    def rows_read(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """How many rows the change of a group reads, int64[groups]. `before`, `after`: int64[2, groups], the numbers
        and bytes of its rows."""

    def change(self, ids: np.ndarray, keys: DataChunk, before: np.ndarray, after: np.ndarray) -> CollectedChange:
        """Applies what has come for the groups `ids`, whose columns are `keys`."""


class AggGroups:
    """Groups by id. A group exists while its count(*) is above 0; the one without group columns always does."""

    def __init__(
        self,
        group_by: Sequence[int],
        group_types: Sequence[DataType],
        specs: Sequence[AggSpec],
        *,
        strict: bool = False,
        memory: MemoryShare | None = None,
        hashes: GroupHashes | None = None,
    ):
        """`group_by` are columns of the input chunks. `strict`: a result that does not fit its type is an
        EvaluationError, else NULL. Above the capacity of `memory` a flush evicts clean groups, oldest first; the
        caller must be able to load them again. `hashes`: empty ones, which stand for the group columns in the state
        tables of `distinct`; None: these have the columns.
        """
        self.group_by, self.group_types, self.specs = tuple(group_by), tuple(group_types), tuple(specs)
        self._memory = memory
        self._numbers, self._hashes = KeyInterner(self.group_types), hashes
        self._rows = CountKernel(AggSpec("count", None, None, DataType.BIGINT))
        self._calls = tuple(
            self._rows if spec.counts_rows else kernel_of(spec, strict) for spec in self.specs
        )
        self._stored: tuple[AggKernel, ...] = (self._rows, *self._calls)
        self._stored_states = [(kernel, len(kernel.spec.state_types)) for kernel in self._stored]
        self._states = GroupStates(dict.fromkeys(self._stored))
        called: dict[AggKernel, tuple[int | None, int | None]] = {self._rows: (None, None)}
        for call, spec in enumerate(self.specs):
            called.setdefault(self._calls[call], (spec.argument, call))
        self._arguments = [called[kernel] for kernel in self._states.kernels]  # column of the chunk, and call
        self._pairs = {call: (spec.argument, spec.second) for call, spec in enumerate(self.specs) if spec.is_of_pairs}
        self._user = [(call, spec) for call, spec in enumerate(self.specs) if spec.kind == USER_STATE]
        self._had_row = False  # the global group had a row at the last flush
        self._vanished = 0  # approximate number of groups in memory that no longer exist
        self._forget_at = MIN_CLOSED  # keys in memory by which a watermark is compared with all groups
        self._evicted = EvictedKeys(memory)
        self.distinct = tuple(
            DistinctValues(argument, data_type, calls, has_counts, self._numbers, hashes, memory)
            for argument, data_type, calls, has_counts in _distinct_arguments(self.specs)
        )
        """For each argument of DISTINCT calls its values."""

    def __del__(self) -> None:
        if "_states" in self.__dict__:
            self.release()

    @property
    def groups(self) -> int:
        """Groups in memory."""
        return self._numbers.count

    @property
    def dirty_groups(self) -> int:
        """Groups touched since the last flush."""
        return self._states.count

    @property
    def flushes(self) -> int:
        """The number of the next flush."""
        return self._states.epoch

    def flushed_since(self, flush: int, first: int) -> int:
        """How many of the `first` dirty groups were emitted by a flush from number `flush` on already."""
        return self._states.finished_since(flush, first)

    @property
    def size_bytes(self) -> int:
        """Memory used by keys, marks, states and distinct values."""
        hashes = () if self._hashes is None else (self._hashes,)
        parts = (self._numbers, *hashes, self._states, *self._states.kernels, *self.distinct)
        return sum(part.size_bytes for part in parts)

    def move_to(self, budget: MemoryBudget) -> None:
        """From here on its memory is a share of `budget`. REQUIRES that it has a share of one."""
        assert self._memory is not None
        self._memory.move_to(budget)

    def memory(self) -> MemoryUse:
        """Of the groups without their distinct values, whose budget is this one. From any thread."""
        used = self.size_bytes - sum(values.size_bytes for values in self.distinct) + self._evicted.size_bytes
        columns = self._numbers.column_bytes + self._states.column_bytes
        budget = None if self._memory is None else self._memory.capacity_bytes
        return MemoryUse(self.groups, columns, used, budget, self._evicted.count)

    @property
    def is_full(self) -> bool:
        """Whether the groups and what a flush releases exceed the capacity by so much that they should be flushed."""
        if self._memory is None:
            return False
        capacity = self._memory.capacity_bytes
        return self.size_bytes > capacity + min(capacity // 2, EXCESS_BYTES)

    @property
    def overflows(self) -> int:
        """The number of emitted results that are NULL because their type cannot represent them."""
        return sum(kernel.overflows for kernel in self._calls)

    @property
    def state_types(self) -> tuple[DataType, ...]:
        """The types of a stored group: group columns, count(*), the states of each call, and the high parts of wide
        sums.
        """
        states = (data_type for spec in self.specs for data_type in spec.state_types)
        above = (data_type for spec in self.specs for data_type in spec.wide_types)
        return (*self.group_types, DataType.BIGINT, *states, *above)

    def locate(self, chunk: DataChunk, *, of_states: bool = False) -> LocatedKeys:
        """The groups of the visible rows; assigns ids to new groups. `of_states`: the rows are of `state_types`."""
        before = self._numbers.count
        if self.group_by:
            keys = range(len(self.group_by)) if of_states else self.group_by
            ids = self._numbers.find([chunk.columns[index] for index in keys], chunk.visibility)
        else:
            self.open_global()
            ids = np.zeros(chunk.capacity, np.int32)
            if chunk.visibility is not None:
                ids[chunk.visibility == 0] = -1
        return LocatedKeys(ids, self._grow(before))

    def open_global(self) -> np.ndarray:
        """Creates the one group of an aggregation without group columns; returns its id if it is new.

        The group is then dirty, so the next flush emits it even if no row ever arrives.
        """
        if self.group_by:
            raise ValueError(f"there are group columns {self.group_by}")
        before = self._numbers.count
        if before == 0:
            self._numbers.find([], rows=1)
        new_ids = self._grow(before)
        self._states.touch(new_ids)
        return new_ids

    def track_evictions(self) -> None:
        """From now on groups that were never evicted are known not to be stored. REQUIRES that none is stored now."""
        self._evicted.track()

    def possibly_stored(self, new_ids: np.ndarray) -> np.ndarray:
        """Those of the new groups that may have a stored state."""
        return self._evicted.possibly_stored(new_ids, self.keys)

    def keys(self, ids: np.ndarray) -> DataChunk:
        """The group columns of `ids`, one row each."""
        return DataChunk(self._numbers.keys(ids), capacity=len(ids))

    def load(self, ids: np.ndarray, rows: DataChunk, found: np.ndarray | None = None) -> None:
        """Sets new groups to their stored states. `rows`: a row of `state_types` per id; if `found` (uint8[ids]) is 0
        the group starts empty. REQUIRES that nothing was applied to `ids` yet.
        """
        exists = np.ones(len(ids), np.uint8) if found is None else np.ascontiguousarray(found, np.uint8)
        for kernel, columns in self._states_in(rows).items():
            self._states.load(kernel, ids, columns, exists)
        if not self.group_by and len(ids):
            self._had_row = bool(exists[0])
            self._states.resave()

    def load_all(self, rows: DataChunk) -> None:
        """Sets all groups that are stored, `rows` of `state_types`, to their states; from now on evictions are tracked.
        REQUIRES that nothing was applied to any group yet.
        """
        before, keys = self._numbers.count, len(self.group_types)
        ids = self._numbers.find(list(rows.columns[:keys]), rows=rows.capacity)
        self._grow(before)
        self.load(ids, rows)
        self.track_evictions()

    def _states_in(self, rows: DataChunk) -> dict[AggKernel, list[Column]]:
        """The state columns of each kernel in rows of `state_types`."""
        columns = iter(rows.columns[len(self.group_types) :])
        states = [list(islice(columns, len(kernel.spec.state_types))) for kernel in self._stored]
        return {kernel: [*state, *islice(columns, len(kernel.spec.wide_types))]
                for kernel, state in zip(self._stored, states, strict=True)}

    def merge(self, rows: DataChunk, ids: np.ndarray) -> None:
        """Adds states that other groups have taken, `rows` of `state_types`, to the groups `ids` as located with
        `of_states`: as if what was applied there had been applied here. REQUIRES that no row is hidden, and calls whose
        states add up."""
        found = self._states_in(rows)
        self._states.merge(ids, [found[kernel] for kernel in self._states.kernels])

    def take_states(self) -> Iterator[DataChunk]:
        """The states of all dirty groups, rows of `state_types`, FLUSH_GROUPS at a time, also of those without rows:
        what was applied here may retract rows that others have. REQUIRES that nothing was loaded or flushed, and ends
        the use of these groups."""
        dirty = self._states.dirty_groups()
        for first in range(0, len(dirty), FLUSH_GROUPS):
            ids = dirty[first : first + FLUSH_GROUPS]
            self._states.gather(ids)
            states = self._state_columns(np.arange(len(ids), dtype=np.int32))
            yield DataChunk([*self.keys(ids).columns, *states], capacity=len(ids))

    def release(self) -> None:
        """Frees the memory of the states, which would stay until unreachable cycles are collected. Ends the use of
        these groups."""
        self._states.release()

    def apply(
        self,
        chunk: DataChunk,
        ids: np.ndarray,
        masks: Sequence[np.ndarray | None] | None = None,
        read_values: Sequence[ReadRows] | None = None,
    ) -> None:
        """Applies the rows to their groups. `ids` as returned by `locate`; `masks`: per call uint8[capacity], 1 where
        its FILTER is true, or None. A chunk without ops is all inserts. `read_values`: for each of `distinct`, from its
        state table; None: nothing is stored. ValueError for the mask of a call that has no FILTER.
        """
        if masks is not None:
            self._check_masks(masks)
        counted = [None] * len(self.specs) if masks is None else list(masks)
        for number, values in enumerate(self.distinct):
            read = None if read_values is None else read_values[number]
            changes = values.apply(chunk, ids, [counted[call] for call in values.calls], read)
            for call, mask in zip(values.calls, changes, strict=True):
                counted[call] = mask
        arguments = [
            (self._argument(chunk, column, call), None if call is None else counted[call])
            for column, call in self._arguments
        ]
        self._states.apply(ids, arguments, getattr(chunk, "ops", None))
        for call, spec in self._user:
            self._calls[call].settle([chunk.columns[each] for each in spec.arguments])

    def add_first(self, ids: np.ndarray) -> None:
        """Instead of `apply`, or of `merge`, for groups without calls whose rows are only inserted: a group changes
        with its first row, and has one."""
        self._states.apply(self._states.first_rows(ids, self._rows), [(None, None)])

    def _argument(self, chunk: DataChunk, column: int | None, call: int | None) -> Column | None:
        if call in self._pairs:
            return _paired(*(chunk.columns[each] for each in self._pairs[call] if each is not None))
        if call is not None and self.specs[call].kind == USER_STATE:
            return _counted(self.specs[call], chunk)
        return None if column is None else chunk.columns[column]

    def _check_masks(self, masks: Sequence[np.ndarray | None]) -> None:
        for index, (spec, mask) in enumerate(zip(self.specs, masks, strict=True)):
            if mask is not None and not spec.is_filtered:
                raise ValueError(f"a mask for call {index}, {spec.kind}, which has no FILTER")

    def stale(self, call: int) -> np.ndarray:
        """The groups whose extreme of `call` must be looked up before the next flush, int32[n]."""
        return self._calls[call].stale(self._states.dirty_groups())

    def refill(self, call: int, ids: np.ndarray, values: Column) -> None:
        """Sets the extremes of `call` in the stale groups `ids`. ConsistencyError for NULL: a group that has arguments
        has an extreme.
        """
        self._calls[call].refill(ids, values)

    def overflow(self, call: int) -> tuple[np.ndarray, Column, np.ndarray]:
        """The changes of the overflow table of `call` since the last time: (int32[n]: groups, values, int64[n]: the
        change of the number of rows with that value). REQUIRED before each flush, and before `stale`."""
        ids, values, rows = self._calls[call].overflow()
        return ids, Column(values, self.specs[call].input_type), rows

    def refill_values(
        self, call: int, ids: np.ndarray, owners: np.ndarray, values: Column, rows: Column
    ) -> None:
        """Moves values from the overflow table of `call` into the stale groups `ids`: row r has the number of rows with
        one value of group ids[owners[r]]; those of a group are adjacent, its extreme first. ConsistencyError if a group
        gets none, or more than it has there."""
        self._calls[call].refill(ids, owners, values, rows)

    def flush(self, collectors: Sequence[RowCollector] = (), first: int | None = None) -> Iterator[AggChange]:
        """The changes since the last flush, FLUSH_GROUPS groups at a time, or fewer, and none between the parts of an
        eviction; after the last piece the epoch of these groups has ended. `collectors` have the rows of all calls that
        collect. `first`: only so many groups, those that were touched first since their last flush, and no eviction;
        without collectors. REQUIRES that all pieces are consumed before the groups are used again, and that all of
        `distinct` are flushed before.

        ConsistencyError for a group with more retracted than inserted rows, or with a stale extreme.
        """
        dirty, vanished = self._states.dirty_groups()[:first], 0
        for begin, end in self._pieces(dirty, collectors):
            ids = dirty[begin:end]
            flags, has_gone = self._compare(ids, begin)
            yield self._change(ids, flags, self._collected(ids, flags, collectors))
            if has_gone:
                gone = ids[flags[1] == 0]
                self._states.reset(gone)
                vanished += len(gone)
        self._states.finish(len(dirty))
        self._had_row = True
        self._vanished += vanished
        if first is None:
            yield from self._evict()

    def _pieces(self, dirty: np.ndarray, collectors: Sequence[RowCollector]) -> Iterator[tuple[int, int]]:
        """The first and last of the dirty groups in each piece of a flush."""
        if collectors:
            self._states.gather(dirty)
            rows = sum(each.rows_read(*self._sizes(each.calls[0], len(dirty))) for each in collectors)
            read = np.cumsum(rows)
        first = 0
        while first < len(dirty):
            last = min(first + FLUSH_GROUPS, len(dirty))
            if collectors:
                most = read[first] + COLLECTED_ROWS
                last = min(last, max(first + 1, int(np.searchsorted(read, most, "right"))))
            yield first, last
            first = last

    def _sizes(self, call: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and bytes of rows that are kept for `call` in the gathered groups, before and after their
        changes."""
        picks, kernel = np.arange(count, dtype=np.int32), self._calls[call]
        return kernel.sizes(~picks), kernel.sizes(picks)

    def _collected(
        self, ids: np.ndarray, flags: np.ndarray, collectors: Sequence[RowCollector]
    ) -> dict[int, tuple[CollectedColumn, CollectedColumn]]:
        """By call, the results of the gathered groups before and after; marks those that changed in `flags`."""
        found: dict[int, tuple[CollectedColumn, CollectedColumn]] = {}
        for each in collectors:
            change = each.change(ids, self.keys(ids), *self._sizes(each.calls[0], len(ids)))
            flags[3] |= change.touched
            found |= change.results
        return found

    def forget_below(self, position: int, value: object) -> None:
        """Groups whose column at `position` is below `value` get no further rows: they are forgotten, once there may be
        as many of them as others. REQUIRES that no group is dirty."""
        if self._keys_in_memory < self._forget_at:
            return
        ids = np.arange(self.groups, dtype=np.int32)
        column = self.keys(ids).columns[position].array
        bound = Column.from_pylist([value], self.group_types[position]).array[0]
        closed = pc.less(column, bound).fill_null(False)
        kept = ids[~closed.to_numpy(zero_copy_only=False)]
        if len(kept) < len(ids):
            for values in self.distinct:
                values.forget(kept, self.groups)
            self._keep(kept)
        self._forget_at = max(MIN_CLOSED, 2 * self._keys_in_memory)

    @property
    def _keys_in_memory(self) -> int:
        return self.groups + sum(values.entries for values in self.distinct)

    def results(self, ids: np.ndarray | None = None, collected: Mapping[int, Column] | None = None) -> DataChunk:
        """The existing groups, of `ids` or of all, with their results, in order of creation. `collected`: by call the
        results of `ids` for the calls that collect."""
        ids = np.arange(self.groups, dtype=np.int32) if ids is None else ids
        picks = np.flatnonzero(self._exists(ids)).astype(np.int32)
        columns = [
            DataChunk([collected[call]]).take(picks).columns[0] if collected and call in collected
            else kernel.outputs(picks)
            for call, kernel in enumerate(self._calls)
        ]
        return DataChunk([*self.keys(ids[picks]).columns, *columns], capacity=len(picks))

    def kept_sizes(self, call: int, ids: np.ndarray) -> np.ndarray:
        """int64[2, ids]: the numbers and bytes of the rows that are kept for `call`."""
        self._states.gather(ids)
        return self._calls[call].sizes(np.arange(len(ids), dtype=np.int32))

    def _grow(self, before: int) -> np.ndarray:
        """Allocates every part for the groups from id `before` on; returns their ids."""
        self._states.grow(self.groups)
        if self._hashes is not None:
            self._hashes.add(self._numbers)
        return np.arange(before, self.groups, dtype=np.int32)

    def _compare(self, ids: np.ndarray, first: int) -> tuple[np.ndarray, bool]:
        """What changed in `ids`, dirty groups from index `first` on, see `GroupStates.compare`, and whether some are
        gone."""
        flags, wrong, have_rows = self._states.compare(ids, first, self._rows, self._calls)
        if wrong >= 0:
            more = -self._rows.outputs(np.array([wrong], np.int32))[0]
            key = next(iter(self.keys(ids[[wrong]]).rows()))
            raise ConsistencyError(f"{more} rows more were retracted than came", key=key)
        if not self.group_by:
            flags[0], flags[1] = self._had_row, True
            return flags, False
        return flags, not have_rows

    def _exists(self, ids: np.ndarray) -> np.ndarray:
        """bool[ids]: whether the groups have rows; their states are then gathered."""
        self._states.gather(ids)
        if not self.group_by:
            return np.ones(len(ids), bool)
        return self._rows.outputs(np.arange(len(ids), dtype=np.int32)).array.to_numpy() > 0

    def _change(
        self, ids: np.ndarray, flags: np.ndarray, collected: Mapping[int, tuple[CollectedColumn, CollectedColumn]]
    ) -> AggChange:
        """The rows that describe the changes of the gathered groups `ids`."""
        existed, exists, state_changed, output_changed = flags
        keys = self.keys(ids)
        picks, ops, groups = plan(existed, exists, output_changed, False)
        before = [kernel.overflows for kernel in self._calls]
        failures: Counter[str] = Counter()
        columns = [
            _picked(*collected[call], picks, failures) if call in collected else kernel.outputs(picks)
            for call, kernel in enumerate(self._calls)
        ]
        output = _chunk(keys, groups, ops, columns)
        if collected and output is not None:
            output = output.without_unchanged_updates().compact()
            output = output if output.capacity else None
        for kernel, count in zip(self._calls, before, strict=True):
            if kernel.overflows != count:
                failures[kernel.overflow_reason] += kernel.overflows - count
        picks, ops, groups = plan(existed, exists, state_changed, True)
        state = _chunk(keys, groups, ops, self._state_columns(picks))
        return AggChange(output, state, {reason: count for reason, count in failures.items() if count})

    def _state_columns(self, picks: np.ndarray) -> list[Column]:
        """The states of the picked groups, in the order of `state_types`."""
        states, above = [], []
        for kernel, count in self._stored_states:
            columns = kernel.state_columns(picks)
            states += columns[:count]
            above += columns[count:]
        return states + above

    def _evict(self) -> Iterator[AggChange]:
        """Evicts vanished groups once there are many, and above the capacity also the oldest ones; in parts, between
        which it yields no change."""
        share = of_values = 1.0
        capacity = None if self._memory is None else self._memory.report(self.size_bytes)
        if capacity is not None and self.size_bytes > capacity:
            share, of_values = self._kept_shares(capacity * EVICTION_SHARE)
        elif self._vanished < max(MIN_VANISHED, self.groups // 2) and not any(each.is_sparse for each in self.distinct):
            return
        exists = np.ones(self.groups, bool)
        if self._vanished and self.group_by:
            exists = self._exists(np.arange(self.groups, dtype=np.int32))
        kept = self._states.latest(int(self.groups * share), exists)
        self._vanished = 0
        exists[kept] = False
        self._evicted.add(np.flatnonzero(exists).astype(np.int32), self.keys)
        for values in self.distinct:
            for _ in values.evict(of_values, kept, self.groups):
                yield NO_CHANGE
        self._keep(kept)
        if self._memory is not None:
            self._memory.report(self.size_bytes)

    def _kept_shares(self, wanted: float) -> tuple[float, float]:
        """Which share of groups, and of distinct values, fit into so many bytes. Values leave first, down to a half of
        it: with a group all of its values leave."""
        size = sum(values.size_bytes for values in self.distinct)
        groups = self.size_bytes - size
        kept = min(size, max(wanted - groups, wanted / 2))
        return min((wanted - kept) / groups, 1.0), kept / size if size else 1.0

    def _keep(self, kept: np.ndarray) -> None:
        """Discards all groups but `kept`."""
        if len(kept) < self.groups:
            self._numbers.keep(kept)
            self._states.keep(kept)
            if self._hashes is not None:
                self._hashes.keep(kept)


def _distinct_arguments(specs: Sequence[AggSpec]) -> Iterator[tuple[int, DataType, list[int], bool]]:
    """Each argument of DISTINCT calls: its column and type, the numbers of its calls, and whether values can be lost.
    """
    arguments = dict.fromkeys(spec.argument for spec in specs if spec.is_distinct)
    for argument in arguments:
        calls = [number for number, spec in enumerate(specs) if spec.is_distinct and spec.argument == argument]
        assert argument is not None
        yield argument, specs[calls[0]].argument_type, calls, any(specs[call].is_retractable for call in calls)


def kernel_of(spec: AggSpec, strict: bool) -> AggKernel:
    """The kernel for the states of a call."""
    if spec.kind == "count":
        return CountKernel(spec, strict)
    if spec.is_bool:
        return BoolAggKernel(spec, strict)
    if spec.is_min_max:
        if spec.keeps_values:
            return TopValuesKernel(spec, strict)
        is_one_word = spec.argument_type.is_word and not spec.is_retractable
        return (WordExtremeKernel if is_one_word else MinMaxKernel)(spec, strict)
    if spec.is_collected:
        return KeptRowsKernel(spec, strict)
    if spec.is_bitwise:
        return (BitCountsKernel if spec.counts_bits else BitAggKernel)(spec, strict)
    if spec.is_of_pairs:
        return PairMomentsKernel(spec, strict)
    if spec.kind == SKETCH:
        return DistinctSketchKernel(spec, strict)
    if spec.kind == USER_STATE:
        return UserStates(spec, strict)
    if spec.is_variance:
        return (FloatVarianceKernel if spec.argument_type.is_float else ExactVarianceKernel)(spec, strict)
    return (FloatSumKernel if spec.argument_type.is_float else ExactSumKernel)(spec, strict)


def _paired(y: Column, x: Column) -> Column:
    """Pairs, NULL where one of both is."""
    null = None
    if y.null_count or x.null_count:
        null = pc.or_(y.array.is_null(), x.array.is_null())
    names = [each.name for each in PAIR.fields]
    return Column(pa.StructArray.from_arrays([y.array, x.array], names, mask=null), PAIR)


def _counted(spec: AggSpec, chunk: DataChunk) -> Column:
    """BIGINT[capacity], NULL for rows that a user aggregate does not see: with a NULL argument, if it is strict."""
    assert spec.function is not None
    missing = np.zeros(chunk.capacity, np.bool_)
    for each in spec.arguments if spec.function.is_strict else ():
        if chunk.columns[each].null_count:
            missing |= chunk.columns[each].array.is_null().to_numpy(zero_copy_only=False)
    return Column(pa.array(np.zeros(chunk.capacity, np.int64), mask=missing if missing.any() else None))


def _picked(
    before: CollectedColumn, after: CollectedColumn, picks: np.ndarray, failures: Counter[str]
) -> Column:
    """The results at `picks`, see `GroupRecords`; changes the numbers of those that are NULL for a reason."""
    is_new = picks >= 0
    for found, chosen, weight in ((after, picks[is_new], 1), (before, ~picks[~is_new], -1)):
        for reason, failed in found.failures.items():
            failures[reason] += weight * int(np.count_nonzero(failed[chosen]))
    if before is after:
        return DataChunk([after.column]).take(np.where(is_new, picks, ~picks)).columns[0]
    both = DataChunk.concat([DataChunk([after.column]), DataChunk([before.column])])
    return both.take(np.where(is_new, picks, len(after.column) + ~picks).astype(np.int32)).columns[0]


def _chunk(
    keys: DataChunk, groups: np.ndarray | None, ops: np.ndarray, columns: list[Column]
) -> StreamChunk | None:
    """Planned rows as a chunk that begins with the group columns; None without rows. `keys`: those of the dirty groups;
    `groups`: the index of each row's group, None: each has one row."""
    if len(ops) == 0:
        return None
    group_columns = (keys if groups is None else keys.take(groups)).columns
    return StreamChunk([*group_columns, *columns], ops)
