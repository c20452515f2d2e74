"""Hash aggregation of a query: all groups in memory, and the rows that some calls are computed from.

If there is no memory for them, the input is read again and partitioned on disk by the hash of the group columns, and
the groups of one part after the other are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from relational.agg import AggGroups, AggSpec
from relational.agg.collected import GATHERING, MOST_BYTES, MOST_ROWS, CollectedCall, collected, kept_sizes
from relational.agg.spec import PAIR
from relational.batch.partitions import LEVELS, level_below, partitioned
from relational.batch.plan import BatchHashAgg
from relational.batch.query_memory import QueryMemory
from relational.chunk import Column, DataChunk
from relational.encoding import KeyEncoder
from relational.errors import EvaluationError
from relational.expr.aggregates import AggCall, AggKind, KeptOrder, kept_orders
from relational.expr.eval import Evaluator, masks_of
from relational.table.key_sort import sorted_rows
from relational.types import ASCENDING, DESCENDING, DataType

PIECE_ROWS, PIECE_BYTES = 1 << 18, 64 << 20
"""Of the rows that the results of one chunk are computed from, unless they are of one group."""
HELD_ROWS = 1 << 19
"""Rows beyond which only the first one of each group is held, where no other counts."""
GROUP_COPIES, ROW_COPIES = 2, 4
"""What the results take: groups and what they are made from; rows as they came, together, in order, and their keys."""


def aggregated(
    plan: BatchHashAgg, read: Callable[[], Iterable[DataChunk]], memory: QueryMemory, level: int = 0
) -> Iterator[DataChunk]:
    """One row for each group of the rows that `read` reads, which were partitioned `level` times before.
    EvaluationError; QueryTooLarge, SpillFailed."""
    user, aggregation, is_split = memory.use(), HashAgg(plan), bool(plan.group_by) and level < LEVELS
    for chunk in read():
        aggregation.add(chunk)
        size = aggregation.size_bytes
        if not is_split:
            user.require(size, "the groups of an aggregation")
        elif not user.fits(size):
            break
    else:
        yield from aggregation.results()
        return
    del aggregation
    user.fits(0)
    files = partitioned(read(), plan.input.schema.types, plan.group_by, memory, level)
    level = level_below(level, files)
    while files:
        yield from aggregated(plan, files.pop().__iter__, memory, level)


class HashAgg:
    """Evaluates a node, chunk by chunk."""

    def __init__(self, plan: BatchHashAgg) -> None:
        types = plan.input.schema.types
        self._kept = [
            _KeptRows(order, numbers, plan.calls, types, plan.ties)
            for order, numbers in kept_orders(plan.calls).items()
        ]
        sizes = {number: len(types) + at for at, each in enumerate(self._kept) for number in each.numbers}
        specs = [_spec(call, types, sizes.get(number)) for number, call in enumerate(plan.calls)]
        self._groups = AggGroups(plan.group_by, [types[column] for column in plan.group_by], specs, strict=True)
        if not plan.group_by:
            self._groups.open_global()
        self._filters = [None if call.filter is None else Evaluator(call.filter) for call in plan.calls]

    def add(self, chunk: DataChunk) -> None:
        """EvaluationError for a FILTER without a value."""
        masks = masks_of(self._filters, chunk, strict=True)
        ids = self._groups.locate(chunk).ids
        if self._kept:
            sizes = [each.sizes(chunk, masks) for each in self._kept]
            for each, column in zip(self._kept, sizes, strict=True):
                each.add(chunk, ids, column)
                for number in each.numbers:
                    masks[number] = None
            chunk = DataChunk([*chunk.columns, *sizes], chunk.visibility, capacity=chunk.capacity)
        self._groups.apply(chunk, ids, masks)

    @property
    def size_bytes(self) -> int:
        """Memory that it takes until the results are computed."""
        return GROUP_COPIES * self._groups.size_bytes + ROW_COPIES * sum(each.held_bytes for each in self._kept)

    def results(self) -> Iterator[DataChunk]:
        """One row for each group. EvaluationError for a result that its type cannot hold, or that is too large."""
        if not self._kept:
            yield self._groups.results()
            return
        ids = np.arange(self._groups.groups, dtype=np.int32)
        for each in self._kept:
            each.finish(len(ids))
        sizes = [self._groups.kept_sizes(each.numbers[0], ids) for each in self._kept]
        for each, (rows, taken) in zip(self._kept, sizes, strict=True):
            each.check(rows, taken)
        read = np.cumsum(np.sum(sizes, axis=0), axis=1)
        first = 0
        while first < len(ids):
            within = [np.searchsorted(total, total[first] + most, "right")
                      for total, most in zip(read, (PIECE_ROWS, PIECE_BYTES), strict=True)]
            last = max(first + 1, int(min(within)))
            found: dict[int, Column] = {}
            for each in self._kept:
                found |= each.results(first, last)
            yield self._groups.results(ids[first:last], found)
            first = last


def _spec(call: AggCall, types: Sequence[DataType], sizes: int | None) -> AggSpec:
    """`sizes`: the column of the sizes of its rows, of a call that collects."""
    if sizes is not None:
        return AggSpec(call.kind.value, sizes, DataType.BIGINT, call.data_type)
    if call.kind is AggKind.USER_STATE:
        return AggSpec.of_user(call.function, call.arguments, call.data_type, is_filtered=call.filter is not None)
    argument = None if call.argument is None else types[call.argument]
    return AggSpec(
        call.kind.value,
        call.argument,
        PAIR if call.kind.is_of_pairs else argument,
        call.data_type,
        is_filtered=call.filter is not None,
        is_distinct=call.needs_distinct_values,
        second=call.more[0] if call.kind.is_of_pairs else None,
    )


class _KeptRows:
    """The rows of one order, for the calls `numbers` of `calls`. Rows that are equal in it are in the order of `ties`,
    and then as they came."""

    def __init__(
        self,
        order: KeptOrder,
        numbers: Sequence[int],
        calls: Sequence[AggCall],
        types: Sequence[DataType],
        ties: Sequence[int],
    ) -> None:
        self.numbers = tuple(numbers)
        self._order = order
        keys = [(key.column, key.order) for key in order.keys]
        keys += [(column, DESCENDING if order.ties_descend else ASCENDING) for column in ties]
        self._arguments = tuple(dict.fromkeys(column for number in numbers for column in calls[number].arguments))
        self._columns = tuple(dict.fromkeys((*(column for column, _ in keys), *self._arguments)))
        self._keys = [(self._columns.index(column), how) for column, how in keys]
        self._encoder = KeyEncoder(
            [DataType.INT, *(types[column] for column, _ in keys)], [ASCENDING, *(how for _, how in keys)]
        )
        self._types = [types[column] for column in self._columns]
        self._calls = {number: CollectedCall(*calls[number].over(self._columns)) for number in numbers}
        self._held: list[tuple[DataChunk, np.ndarray]] = []
        self._held_rows = self._most_held = self.held_bytes = 0
        self._starts = np.zeros(1, np.int64)

    def sizes(self, chunk: DataChunk, masks: Sequence[np.ndarray | None]) -> Column:
        """As `kept_sizes`."""
        return kept_sizes(chunk, self._order.required, masks[self.numbers[0]], self._arguments)

    def add(self, chunk: DataChunk, ids: np.ndarray, sizes: Column) -> None:
        """Holds the rows of groups that have a size."""
        kept = np.flatnonzero((ids >= 0) & sizes.array.is_valid().to_numpy(zero_copy_only=False)).astype(np.int32)
        if not len(kept):
            return
        rows = chunk.project(self._columns)
        self._hold(rows if len(kept) == chunk.capacity else rows.take(kept), ids[kept])
        if self._order.takes_first and self._held_rows > max(HELD_ROWS, 2 * self._most_held):
            self._sort()
            self._most_held = self._held_rows

    def _sort(self) -> None:
        """Sorts all rows by group and order; of an order whose first row alone counts the others are dropped."""
        if not self._held:
            return
        rows = self._held[0][0] if len(self._held) == 1 else DataChunk.concat([each for each, _ in self._held])
        ids = np.concatenate([each for _, each in self._held])
        keys = [Column(pa.array(ids)), *(rows.columns[column] for column, _ in self._keys)]
        order = sorted_rows(self._encoder.encode(keys))
        ids = ids[order]
        if self._order.takes_first:
            is_first = np.append(True, ids[1:] != ids[:-1])
            order, ids = order[is_first], ids[is_first]
        self._held, self._held_rows, self.held_bytes = [], 0, 0
        self._hold(rows.take(order), ids)

    def _hold(self, rows: DataChunk, ids: np.ndarray) -> None:
        self._held.append((rows, ids))
        self._held_rows += len(ids)
        self.held_bytes += rows.nbytes + ids.nbytes

    def finish(self, groups: int) -> None:
        """No row comes any more; there are so many groups."""
        self._sort()
        ids = self._held[0][1] if self._held else np.empty(0, np.int32)
        self._starts = np.searchsorted(ids, np.arange(groups + 1))

    def check(self, rows: np.ndarray, sizes: np.ndarray) -> None:
        """EvaluationError for a group that has too many rows, or bytes, for a result that has them all."""
        for call in self._calls.values():
            if call.kind in GATHERING and call.is_too_large(rows, sizes).any():
                limit = f"a group has more than {MOST_ROWS:,} rows or {MOST_BYTES:,} bytes"
                raise EvaluationError(f"{call.too_large}: {limit}")

    def results(self, first: int, last: int) -> Mapping[int, Column]:
        """By call those of groups from `first` to before `last`. REQUIRES `finish`."""
        starts = self._starts[first : last + 1]
        if self._held:
            rows = self._held[0][0].slice(int(starts[0]), int(starts[-1] - starts[0]))
        else:
            rows = DataChunk([Column.nulls(each, 0) for each in self._types], capacity=0)
        found = {number: collected(call, rows, starts - starts[0], strict=True) for number, call in self._calls.items()}
        for reason in (reason for each in found.values() for reason in each.failures):
            raise EvaluationError(reason)
        return {number: each.column for number, each in found.items()}
