"""Window functions of a query: all rows of some partitions at once, in memory.

If there is no memory for all rows, they are divided on disk by the hash of the columns of PARTITION BY, and the rows of
one part after the other are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from relational.batch.partitions import LEVELS, level_below, partitioned
from relational.batch.plan import BatchOverWindow
from relational.batch.query_memory import HeldRows, QueryMemory
from relational.chunk import DataChunk
from relational.order.ordered_rows import OrderedRows
from relational.order.over_window import window_values
from relational.order.ranking import group_numbers, ranking

COPIES, ROW_BYTES = 3, 96
"""The rows as they came, together and in order; their positions, numbers and words."""


def windows_of(
    plan: BatchOverWindow, chunks: Iterator[DataChunk], memory: QueryMemory, level: int = 0
) -> Iterator[DataChunk]:
    """The visible rows of `chunks`, which were divided `level` times before, and behind their columns the values of the
    calls. EvaluationError; QueryTooLarge, SpillFailed."""
    is_split = bool(plan.groups) and level < LEVELS
    held = HeldRows(memory, COPIES, ROW_BYTES)
    for chunk in (each.compact() for each in chunks if each.visible_rows):
        held.add(chunk)
        if not is_split:
            held.require("the rows of a window")
        elif not held.fits:
            yield from _divided(plan, chain(held.drain(), chunks), memory, level)
            return
    yield _values(plan, DataChunk.concat(held.chunks) if held.chunks else DataChunk.from_rows(plan.input.schema, []))


def _divided(
    plan: BatchOverWindow, chunks: Iterable[DataChunk], memory: QueryMemory, level: int
) -> Iterator[DataChunk]:
    files = partitioned(chunks, plan.input.schema.types, plan.groups, memory, level)
    level = level_below(level, files)
    while files:
        yield from windows_of(plan, iter(files.pop()), memory, level)


def _values(plan: BatchOverWindow, rows: DataChunk) -> DataChunk:
    """Over the whole of partitions."""
    numbers = group_numbers([rows.columns[column] for column in plan.groups], rows.capacity)
    ordered = OrderedRows.of(rows, ranking(rows, numbers, plan.keys, plan.ties), plan.keys)
    values = window_values(plan.calls, ordered, strict=True)
    return DataChunk([*ordered.rows.columns, *values.values], capacity=rows.capacity)
