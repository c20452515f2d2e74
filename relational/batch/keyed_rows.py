"""KeyedRows: the rows of one input of a join by their key, as the columns they came in.

Each key has a dense id. Rows are ordered by the id, so those of one key are neighbours; where no key has two rows,
their position is all that is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from relational.chunk import Column, DataChunk
from relational.hash.key_ids import KeyInterner
from relational.types.data_type import DataType

Pairs = tuple[np.ndarray, np.ndarray]


class Keys:
    """Ids of keys of `types`; `null_safe`: of each column, whether NULL equals NULL."""

    def __init__(self, types: Sequence[DataType], null_safe: Sequence[bool]) -> None:
        self._interner, self._null_safe = KeyInterner(types), tuple(null_safe)

    @property
    def count(self) -> int:
        """Ids assigned so far."""
        return int(self._interner.count)

    def add(self, columns: Sequence[Column]) -> np.ndarray:
        """int32[rows]: the id of each row's key, -1 for a key that equals nothing."""
        return self._interner.find(columns, self._comparable(columns), True)

    def find(self, columns: Sequence[Column]) -> np.ndarray:
        """As `add`, -1 for an unknown key too."""
        return self._interner.find(columns, self._comparable(columns), False)

    def _comparable(self, columns: Sequence[Column]) -> np.ndarray | None:
        """uint8[rows]: 0 for rows whose key equals nothing; None if there are none."""
        found = None
        for column, is_safe in zip(columns, self._null_safe, strict=True):
            if not is_safe and column.array.null_count:
                present = column.array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
                found = present if found is None else found & present
        return found


class KeyedRows:
    """The rows of `chunks`, which are dense and have at least one column or none at all; `key`: positions of their key.
    Rows whose key equals nothing are in `rows`, and in no pair."""

    def __init__(
        self, types: Sequence[DataType], chunks: Sequence[DataChunk], key: Sequence[int], null_safe: Sequence[bool]
    ) -> None:
        self.keys = Keys([types[column] for column in key], null_safe)
        ids = [self.keys.add([chunk.columns[column] for column in key]) for chunk in chunks]
        self.rows = DataChunk.concat(chunks) if chunks else DataChunk([Column.nulls(each, 0) for each in types])
        self.ids = np.concatenate(ids) if ids else np.empty(0, np.int32)
        placed = self.ids if len(self.ids) == 0 or self.ids.min() >= 0 else self.ids[self.ids >= 0]
        self._counts = np.bincount(placed, minlength=self.keys.count).astype(np.int64)
        self.is_unique = bool(len(placed) == self.keys.count)
        if self.is_unique:
            self._order = np.empty(self.keys.count, np.int64)
            self._order[placed] = np.flatnonzero(self.ids >= 0)
        else:
            self._order = np.argsort(self.ids, kind="stable")[len(self.ids) - len(placed) :]
            self._starts = np.cumsum(self._counts) - self._counts

    def counts(self, ids: np.ndarray) -> np.ndarray:
        """The number of rows with each of the ids `keys.find` returned, 0 for -1."""
        if not len(self._counts):
            return np.zeros(len(ids), np.int64)
        return np.where(ids >= 0, self._counts[ids], 0)

    def pairs(self, ids: np.ndarray, most: int) -> Iterator[Pairs]:
        """(row of `ids`, row of `rows`) of each pair, at most `most` at once, in the order of `ids`."""
        if self.is_unique:
            found = np.flatnonzero(ids >= 0)
            for start in range(0, len(found), most):
                some = found[start : start + most]
                yield some, self._order[ids[some]]
            return
        counts = self.counts(ids)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, most):
            yield self._between(ids, counts, ends, first, min(first + most, total))

    def _between(self, ids: np.ndarray, counts: np.ndarray, ends: np.ndarray, first: int, last: int) -> Pairs:
        """The pairs number `first` to `last`, exclusive."""
        low, high = int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, last, "left")) + 1
        rows = np.arange(low, high)
        begin = np.maximum(ends[low:high] - counts[low:high], first)
        taken = np.minimum(ends[low:high], last) - begin
        skipped = begin - (ends[low:high] - counts[low:high])
        offsets = np.arange(last - first) - np.repeat(np.cumsum(taken) - taken, taken)
        starts = self._starts[ids[low:high]] + skipped
        return np.repeat(rows, taken), self._order[np.repeat(starts, taken) + offsets]
