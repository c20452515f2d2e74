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
