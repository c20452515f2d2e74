"""LocatedKeys: the result of looking up the keys of a chunk in an index or an aggregation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """Where the rows of a chunk belong: `ids` int32[capacity], -1 for rows that belong nowhere (hidden ones), and
    the numbers that no earlier chunk has met, int32[n], ascending.
    """

    ids: np.ndarray
    new_ids: np.ndarray
