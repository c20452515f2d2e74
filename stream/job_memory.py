"""SHOW MEMORY: what the operators of running jobs keep in memory, and the memory of the process.

    job              the table, view, sink or index that the job writes
    fragment         its number in the plan of the job, as EXPLAIN ANALYZE shows it
    operator         as there, the executors of all actors of the fragment together
    state            which rows it keeps: those of a side of a join, of windows, groups, distinct values …
    rows             that are in memory
    column_bytes     of the columns of these rows
    beside_bytes     of all buffers without them: indexes, ids, chains, tags, keys that are kept twice, free lists, and
                     capacity that is not used yet
    beside_per_row   bytes
    budget_bytes     what an actor may use of state_cache_bytes now: all that others leave, at least an equal part;
                     beyond it rows are evicted; NULL: within the budget of the first state of the operator
    evicted          keys, groups or values that have left memory since the actors began
    resident_bytes   of the process, in the last row alone

Figures are read while the actors run. They do not include the buffers of uncommitted changes, the caches of the store,
nor those of rows read by key, at most 8 MiB for each table of an actor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from relational.memory_use import MemoryUse

SCHEMA = pa.schema(
    {
        "job": pa.string(),
        "fragment": pa.int32(),
        "operator": pa.string(),
        "state": pa.string(),
        "rows": pa.int64(),
        "column_bytes": pa.int64(),
        "beside_bytes": pa.int64(),
        "beside_per_row": pa.float64(),
        "budget_bytes": pa.int64(),
        "evicted": pa.int64(),
        "resident_bytes": pa.int64(),
    }
)
NO_MEMORY = MemoryUse(0, 0, 0, None, 0)
NOT_RESIDENT = "nothing is resident: each epoch reads its state from the store"
PROCESS = "process"
STATM = Path("/proc/self/statm")
DIGITS = 1


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """One state of an operator in all actors of its fragment. None: of a whole job."""

    job_id: int
    fragment: int | None
    operator: str | None
    state: str
    use: MemoryUse


def memory_table(found: Iterable[OperatorMemory], names: Mapping[int, str]) -> pa.Table:
    """A row for each state of the jobs that have a name, ordered by name, and a last one for the process."""
    shown = sorted((each for each in found if each.job_id in names), key=lambda each: names[each.job_id])
    rows = [_row(each, names[each.job_id]) for each in shown]
    return pa.Table.from_pylist([*rows, {"state": PROCESS, "resident_bytes": resident_bytes()}], schema=SCHEMA)


def resident_bytes() -> int | None:
    """The resident set size of this process; None where the system does not tell."""
    if not STATM.exists():
        return None
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _row(found: OperatorMemory, job: str) -> dict[str, Any]:
    use = found.use
    return {
        "job": job,
        "fragment": found.fragment,
        "operator": found.operator,
        "state": found.state,
        "rows": use.rows,
        "column_bytes": use.column_bytes,
        "beside_bytes": use.beside_bytes,
        "beside_per_row": round(use.beside_bytes / use.rows, DIGITS) if use.rows else None,
        "budget_bytes": use.budget_bytes,
        "evicted": use.evicted,
    }
