"""DistinctValues: the values of each group, for the DISTINCT calls over one argument.

Values have numbers, shared by all groups, so that a group with a value is one word, see `ValueNumbers`. In memory are
the entries that rows have come for, in the state table all of them: (group, value, words of the record), see
`DistinctRecords`. The group is its columns there, or the two of its hash, see `GroupHashes`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from relational.agg.changes import plan
from relational.agg.distinct_records import DistinctRecords
from relational.agg.group_hashes import GroupHashes
from relational.agg.value_numbers import ValueNumbers
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import StreamChunk
from relational.errors import ConsistencyError
from relational.hash.evicted_keys import EvictedKeys
from relational.hash.key_ids import KeyInterner
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.types import DataType

FLUSHED_VALUES = 32_768  # in one piece of a flush
PART_ENTRIES = 1 << 17  # in one part of an eviction: 5 to 25 ms
PAIR_BYTES, WORD_BYTES = 8, 8
MIN_VANISHED = 4096  # entries without rows in memory that make a rebuild worthwhile

ReadRows: TypeAlias = Callable[[DataChunk], tuple[DataChunk, np.ndarray]]
"""Keys of entries -> (rows of the state table, uint8[rows]: which of them exist)."""


class DistinctValues:
    """The values of column `argument` for the calls numbered `calls`, which may lose them if `has_counts`.
    `group_numbers`: those of the groups; `hashes`: theirs, if these are in the state table. `memory`: of the whole
    aggregation."""

    def __init__(
        self,
        argument: int,
        data_type: DataType,
        calls: Sequence[int],
        has_counts: bool,
        group_numbers: KeyInterner,
        hashes: GroupHashes | None,
        memory: MemoryShare | None,
    ) -> None:
        self.argument, self.calls = argument, tuple(calls)
        self._type, self._values = data_type, ValueNumbers(data_type)
        self._records = DistinctRecords(len(self.calls), has_counts)
        self._group_numbers, self._stored_groups = group_numbers, group_numbers if hashes is None else hashes
        self._evicted = EvictedKeys(memory)
        self._vanished = 0  # approximate number of entries in memory without rows

    @property
    def entries(self) -> int:
        """Pairs of a group and a value in memory."""
        return self._records.groups

    @property
    def size_bytes(self) -> int:
        """Memory used."""
        return self._values.size_bytes + self._records.size_bytes

    def memory(self) -> MemoryUse:
        """Of the entries and the dictionary of values. The columns of an entry are the numbers of its group and value,
        and the words of its record. From any thread."""
        entries, used = self.entries, self.size_bytes + self._evicted.size_bytes
        columns = entries * (PAIR_BYTES + WORD_BYTES * self._records.words) + self._values.column_bytes
        return MemoryUse(entries, columns, used, None, self._evicted.count)

    @property
    def changed_entries(self) -> int:
        """Entries that were touched since the last flush."""
        return self._records.count

    @property
    def is_sparse(self) -> bool:
        """Whether so many entries have no rows any more that memory should be rebuilt without them."""
        return self._vanished >= max(MIN_VANISHED, self.entries // 2)

    def keys(self, ids: np.ndarray) -> DataChunk:
        """(group, value) of entries, the key of their rows in the state table."""
        groups, values = self._records.owners(ids)
        return DataChunk([*self._stored_groups.keys(groups), self._values.values(values)], capacity=len(ids))

    def track_evictions(self) -> None:
        """From now on entries that were never evicted are known not to be stored. REQUIRES that none is stored now."""
        self._evicted.track()

    def apply(
        self, chunk: DataChunk, groups: np.ndarray, masks: Sequence[np.ndarray | None], read: ReadRows | None
    ) -> np.ndarray:
        """Applies rows to their groups (negative: none); see `DistinctRecords.apply`. `masks` are those of `calls`;
        `read`: from the state table, None: nothing is stored."""
        column, before = chunk.columns[self.argument], self.entries
        counted = _counted(groups, column, masks)
        values = self._values.find(column, counted)
        if values is None:
            self._begin_dictionary()
            values = self._values.find(column, counted)
        assert values is not None
        ids = self._records.find(groups, values)
        new_ids = np.arange(before, self.entries, dtype=np.int32)
        if read is not None:
            self._load(self._evicted.possibly_stored(new_ids, self.keys), read)
        return self._records.apply(ids, masks, getattr(chunk, "ops", None))

    def _begin_dictionary(self) -> None:
        """From now on values have the numbers of a dictionary. Entries keep their ids."""
        numbered = ValueNumbers(self._type, has_dictionary=True)
        groups, values = self._records.owners(np.arange(self.entries, dtype=np.int32))
        numbers = numbered.find(self._values.values(values), np.ones(len(values), np.uint8))
        assert numbers is not None
        self._records.replace_pairs(groups, numbers)
        self._values = numbered

    def _load(self, new_ids: np.ndarray, read: ReadRows) -> None:
        if len(new_ids):
            rows, found = read(self.keys(new_ids))
            self._records.load(new_ids, rows.columns[-self._records.words :], found)

    def flush(self) -> Iterator[StreamChunk]:
        """The changes of the state table since the last flush; an update is U+ alone. REQUIRES that all are consumed,
        before the groups are flushed. ConsistencyError for a value with more retracted than inserted rows."""
        records, dirty = self._records, self._records.dirty_groups()
        for first in range(0, len(dirty), FLUSHED_VALUES):
            ids = dirty[first : first + FLUSHED_VALUES]
            (existed, exists, changed), wrong = records.compare(ids, first)
            if wrong >= 0:
                group, value = self._records.owners(ids[[wrong]])
                columns = [*self._group_numbers.keys(group), self._values.values(value)]
                key = next(iter(DataChunk(columns).rows()))
                raise ConsistencyError("more rows with a value were retracted than came", key=key)
            self._vanished += len(ids) - int(np.count_nonzero(exists))
            picks, ops, rows = plan(existed, exists, changed, True)
            if len(ops):
                keys = self.keys(ids if rows is None else ids[rows])
                words = [Column(pa.array(each)) for each in records.columns(picks)]
                yield StreamChunk([*keys.columns, *words], ops)
        records.finish()

    def evict(self, share: float, groups: np.ndarray, count: int) -> Iterator[None]:
        """Keeps the entries of the groups `groups`, of `count`, ascending, by their new numbers; and of all entries no
        more than this share, the last used ones. In parts, each of which takes little time: REQUIRES that all are
        consumed, a flush before, and the old numbers of groups."""
        if share >= 1 and len(groups) == count and not self.is_sparse:
            return
        renumbered = _renumbered(groups, count)
        gone = self._records.living() if self._vanished else np.ones(self.entries, bool)
        kept_of = gone if len(groups) == count else gone & (renumbered[self._owners()] >= 0)
        yield
        kept = self._records.latest(int(self.entries * share), kept_of)
        gone[kept] = False
        self._vanished = 0
        yield
        leaving = np.flatnonzero(gone).astype(np.int32)
        for first in range(0, len(leaving), PART_ENTRIES):
            self._evicted.add(leaving[first : first + PART_ENTRIES], self.keys)
            yield
        yield from self._keep(kept, renumbered)

    def forget(self, groups: np.ndarray, count: int) -> None:
        """As `evict`, when the groups besides `groups` get no further rows."""
        renumbered = _renumbered(groups, count)
        kept = np.flatnonzero(renumbered[self._owners()] >= 0).astype(np.int32)
        for _ in self._keep(kept, renumbered):
            pass

    def _owners(self) -> np.ndarray:
        """The group of each entry."""
        return self._records.owners(np.arange(self.entries, dtype=np.int32))[0]

    def _keep(self, kept: np.ndarray, renumbered: np.ndarray) -> Iterator[None]:
        """Discards all entries but `kept`, ascending, and the values that are left without any, in parts. `renumbered`:
        by group its new number."""
        parts = [kept[first : first + PART_ENTRIES] for first in range(0, len(kept), PART_ENTRIES)]
        numbers = None
        if self._values.dictionary is not None:
            numbers = yield from self._keep_values(self._values.dictionary, parts)
        self._records.begin_renumbering(len(kept))
        yield
        for part in parts:
            of_group, of_value = self._records.owners(part)
            of_value = of_value if numbers is None else numbers[of_value]
            self._records.renumber(part, renumbered[of_group], of_value)
            yield
        self._records.end_renumbering()

    def _keep_values(self, known: KeyInterner, parts: Sequence[np.ndarray]) -> Generator[None, None, np.ndarray]:
        """Discards the values of the dictionary that no entry of `parts` has; by number the new one."""
        is_used = np.zeros(known.count, bool)
        for part in parts:
            is_used[self._records.owners(part)[1]] = True
            yield
        kept = ValueNumbers(self._type, has_dictionary=True)
        values, numbers = kept.dictionary, np.empty(len(is_used), np.int32)
        assert values is not None
        values.reserve(int(np.count_nonzero(is_used)))
        yield
        for first in range(0, len(is_used), PART_ENTRIES):
            used = first + np.flatnonzero(is_used[first : first + PART_ENTRIES])
            numbers[used] = np.arange(values.count, values.count + len(used))
            values.add_from(known, used.astype(np.int32))
            yield
        self._values = kept
        return numbers


def _renumbered(kept: np.ndarray, count: int) -> np.ndarray:
    """The index in `kept` of each of `count` numbers, else -1."""
    found = np.full(count, -1, np.int32)
    found[kept] = np.arange(len(kept), dtype=np.int32)
    return found


def _counted(groups: np.ndarray, column: Column, masks: Sequence[np.ndarray | None]) -> np.ndarray:
    """uint8[rows], 1 for a row of a group with a value, that passes the FILTER of some call."""
    counted = groups >= 0
    if column.array.null_count:
        counted &= column.array.is_valid().to_numpy(zero_copy_only=False)
    filters = [mask for mask in masks if mask is not None]
    if len(filters) == len(masks):
        counted &= np.bitwise_or.reduce(filters) != 0
    return counted.view(np.uint8)
