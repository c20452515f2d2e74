"""WITH RECURSIVE in a batch query: rounds over the rows of the one before, within limits [R61]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from relational.batch.plan import BatchNode, BatchRecursive, BatchShare, BatchWorkingTable
from relational.chunk import DataChunk
from relational.errors import QueryTooLarge
from relational.hash.key_ids import KeyInterner


@dataclass(frozen=True, slots=True)
class RecursionLimits:
    """Of one WITH RECURSIVE: rounds, and rows of all rounds together."""

    rounds: int = 100_000
    rows: int = 10_000_000


def depends(node: BatchNode, number: int) -> bool:
    """Whether a node reads the working table of this number."""
    if isinstance(node, BatchWorkingTable) and node.number == number:
        return True
    return any(depends(child, number) for child in node.inputs)


def dependent_shares(node: BatchNode, number: int) -> frozenset[int]:
    """The numbers of the shared inputs at and below a node that read the working table of this number."""
    own = {node.number} if isinstance(node, BatchShare) and depends(node, number) else set()
    return frozenset(own).union(*(dependent_shares(child, number) for child in node.inputs))


def recursive_rows(
    plan: BatchRecursive,
    base: Iterable[DataChunk],
    step: Callable[[list[DataChunk]], Iterable[DataChunk]],
    limits: RecursionLimits,
) -> Iterator[DataChunk]:
    """The rows of `base`, then again and again those that `step` gives for the last ones, until it gives none.
    QueryTooLarge."""
    seen = KeyInterner(plan.schema.types) if plan.is_distinct else None
    rounds, rows = 0, 0
    coming = base
    while True:
        working = [chunk for each in coming if (chunk := _fresh(each.compact(), seen)).capacity]
        if not working:
            return
        rows += sum(chunk.capacity for chunk in working)
        if rows > limits.rows:
            raise QueryTooLarge("rows of WITH RECURSIVE", "recursion_rows", limits.rows)
        yield from working
        rounds += 1
        if rounds > limits.rounds:
            raise QueryTooLarge("rounds of WITH RECURSIVE", "recursion_rounds", limits.rounds)
        coming = step(working)


def _fresh(rows: DataChunk, seen: KeyInterner | None) -> DataChunk:
    """The rows that are not `seen`, each once."""
    if seen is None or not rows.capacity:
        return rows
    before = seen.count
    ids = seen.find(rows.columns)
    new, first = np.unique(ids, return_index=True)
    return rows.take(np.sort(first[new >= before]).astype(np.int32))
