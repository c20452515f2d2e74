"""Calls a kernel so that its rows do not depend on each other, whatever the kernel raises.

A kernel reports rows without a value. If it raises instead, it is called again on ever smaller subsets of the selected
rows, until the rows that make it raise are isolated: they have no value either. So a row's value is the same in any
chunk, and a failing row never affects another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from relational.chunk.scatter import scattered
from relational.expr.eval_context import Attempt, EvalContext, Value
from relational.types.data_type import DataType

Compute: TypeAlias = Callable[[EvalContext, list[Value]], Value]


class PartTooLarge(Exception):
    """The results of these rows together are too large: the caller evaluates fewer rows at once."""


FATAL = (MemoryError, AssertionError, PartTooLarge)
"""Exceptions that do not depend on the rows."""


def computed(compute: Compute, evaluation: EvalContext, args: list[Value], data_type: DataType, what: str) -> Value:
    """`compute` of `args`, columns of the evaluation's rows or constants; failures are reported to `evaluation`.

    `what` names the kernel in the reason for rows for which it reports none.
    """
    attempt = Attempt(evaluation.rows)
    try:
        value = compute(attempt, args)
    except FATAL:
        raise
    except Exception:  # an exception may concern only some of the rows
        return _computed_by_parts(compute, evaluation, args, data_type, f"no value of {what}")
    for rows, reason in attempt.failures:
        evaluation.fail(rows, reason)
    return value


def _computed_by_parts(
    compute: Compute, evaluation: EvalContext, args: list[Value], data_type: DataType, reason: str
) -> pa.Array:
    """As `computed` for the selected rows, halved until no half raises or it is a single row."""
    counted = np.arange(evaluation.rows)
    if evaluation.selection is not None:
        counted = counted[evaluation.selection]
    parts, values = [counted] if len(counted) else [], []
    order: list[np.ndarray] = []
    failures: list[tuple[np.ndarray, str]] = []
    while parts:
        part = parts.pop()
        attempt = Attempt(len(part))
        try:
            value = attempt.column(compute(attempt, [_taken(arg, part) for arg in args]))
        except FATAL:
            raise
        except Exception:
            if len(part) == 1:
                failures.append((part, reason))
            else:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            continue
        failures += [(part[rows], why) for rows, why in attempt.failures]
        order.append(part)
        values.append(value)
    _report(evaluation, failures)
    if not values:
        return pa.nulls(evaluation.rows, data_type.arrow)
    return scattered(pa.concat_arrays(values), np.concatenate(order), evaluation.rows)


def _taken(arg: Value, rows: np.ndarray) -> Value:
    return arg if isinstance(arg, pa.Scalar) else arg.take(pa.array(rows))


def _report(evaluation: EvalContext, failures: Sequence[tuple[np.ndarray, str]]) -> None:
    """Reports each reason once, with all its rows (row indices)."""
    for reason in dict.fromkeys(why for _, why in failures):
        failed = np.zeros(evaluation.rows, np.bool_)
        for rows, why in failures:
            failed[rows] |= why == reason
        evaluation.fail(failed, reason)
