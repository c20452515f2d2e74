"""The results of user aggregates, for many groups at once.

A group without rows is NULL, without a call. In a view a call that raises is repeated with ever fewer groups, until
those that make it raise are known: these are NULL and counted; for an answer of the wrong form all groups of the call
are [R55].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from relational.errors import FunctionFailed
from relational.udf.function import UserFunction
from relational.udf.invoke import WRONG_FORM, WrongAnswer, group_results
from relational.udf.source import RAISED, described


def aggregated(
    function: UserFunction, columns: Sequence[pa.Array], starts: np.ndarray, *, strict: bool
) -> tuple[pa.Array, dict[str, np.ndarray]]:
    """(the result of each group, for each reason which groups, bool[groups], have none for it). The rows of group g are
    starts[g] to starts[g + 1]; int64[groups + 1]. FunctionFailed, instead of reasons, if `strict`."""
    filled = np.flatnonzero(np.diff(starts) > 0)
    offsets = np.append(starts[filled], starts[-1])
    if strict:
        return _scattered(_strict(function, columns, offsets), filled, len(starts) - 1), {}
    parts, order, reasons = [], [], dict[str, list[int]]()
    todo = [(0, len(filled))] if len(filled) else []
    while todo:
        first, last = todo.pop()
        try:
            parts.append(_of_groups(function, columns, offsets[first : last + 1]))
            order.append(filled[first:last])
        except MemoryError:
            raise
        except WrongAnswer:
            reasons.setdefault(f"function {function.name}: {WRONG_FORM}", []).extend(filled[first:last])
        except RAISED as error:
            middle = (first + last) // 2
            if last - first == 1:
                reasons.setdefault(f"function {function.name}: {type(error).__name__}", []).append(filled[first])
            else:
                todo += [(middle, last), (first, middle)]
    groups = len(starts) - 1
    values = pa.concat_arrays([pa.nulls(0, function.returns.arrow), *parts])
    at = np.concatenate([np.empty(0, np.int64), *order])
    return _scattered(values, at, groups), {
        reason: np.isin(np.arange(groups), failed) for reason, failed in reasons.items()
    }


def _strict(function: UserFunction, columns: Sequence[pa.Array], offsets: np.ndarray) -> pa.Array:
    if len(offsets) == 1:
        return pa.nulls(0, function.returns.arrow)
    try:
        return _of_groups(function, columns, offsets)
    except MemoryError:
        raise
    except WrongAnswer as error:
        raise FunctionFailed(function.name, str(error)) from error
    except RAISED as error:
        raise FunctionFailed(function.name, described(error)) from error


def _of_groups(function: UserFunction, columns: Sequence[pa.Array], offsets: np.ndarray) -> pa.Array:
    first, rows = int(offsets[0]), int(offsets[-1] - offsets[0])
    return group_results(function, [column.slice(first, rows) for column in columns], offsets - first)


def _scattered(values: pa.Array, at: np.ndarray, groups: int) -> pa.Array:
    """The values of the groups `at`, NULL for all others."""
    if len(at) == groups and (np.diff(at) > 0).all():
        return values
    source, missing = np.zeros(groups, np.int64), np.ones(groups, np.bool_)
    source[at], missing[at] = np.arange(len(at)), False
    return values.take(pa.array(source, mask=missing))
