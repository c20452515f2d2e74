"""Values of some rows as a column of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def scattered(values: pa.Array, at: np.ndarray, rows: int) -> pa.Array:
    """An array of `rows` values: `values` at the positions `at`, distinct integers, and NULL elsewhere."""
    source, missing = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    source[at], missing[at] = np.arange(len(at)), False
    return values.take(pa.array(source, mask=missing))
