"""LocatedKeys: the result of looking up the keys of a chunk in an index or an aggregation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """The key ids of the rows of a chunk: `ids` int32[capacity], -1 for rows without one (hidden ones), and the ids
    first assigned by this chunk, int32[n], ascending.
    """

    ids: np.ndarray
    new_ids: np.ndarray

    @property
    def new_rows(self) -> np.ndarray:
        """For each of `new_ids` the first row of the chunk that has it: int32[n]. REQUIRES that they are consecutive
        numbers, and that there is one."""
        first = np.zeros(len(self.new_ids), np.int32)
        rows = np.flatnonzero(self.ids >= self.new_ids[0])[::-1].astype(np.int32)
        first[self.ids[rows] - self.new_ids[0]] = rows
        return first
