"""The results of user aggregates, for many groups at once.

A group without rows is NULL, without a call. In a view a call that raises is repeated with ever fewer groups, until
those that make it raise are known: these are NULL and counted; for an answer of the wrong form all groups of the call
are [R55].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from relational.chunk.scatter import scattered
from relational.udf.function import UserFunction
from relational.udf.invoke import called_by_parts, group_results


def aggregated(
    function: UserFunction, columns: Sequence[pa.Array], starts: np.ndarray, *, strict: bool
) -> tuple[pa.Array, dict[str, np.ndarray]]:
    """(the result of each group, for each reason which groups, bool[groups], have none for it). The rows of group g are
    starts[g] to starts[g + 1]; int64[groups + 1]. FunctionFailed, instead of reasons, if `strict`."""
    filled = np.flatnonzero(np.diff(starts) > 0)
    offsets, groups = np.append(starts[filled], starts[-1]), len(starts) - 1

    def of_groups(first: int, last: int) -> pa.Array:
        begin, end = int(offsets[first]), int(offsets[last])
        rows = [column.slice(begin, end - begin) for column in columns]
        return group_results(function, rows, offsets[first : last + 1] - begin)

    values, at, failed = called_by_parts(function, of_groups, len(filled), function.returns, strict=strict)
    return scattered(values, filled[at], groups), {
        reason: np.isin(np.arange(groups), filled[each]) for reason, each in failed.items()
    }
