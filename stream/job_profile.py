"""The profile of a running job: what EXPLAIN ANALYZE measures of its fragments and their executors.

    plan             the fragments, the last one first, and below each its executors, from the root down
    actors           of a fragment
    rows_per_second  that an executor emits; of a fragment: that its last one does
    cpu              CPU time of all actors, as a share of one core; an executor's without those below it
    share            of the CPU time of the job
    state_bytes      stored bytes of the tables that an executor writes, older versions of rows included
    waiting_rows     rows in the channels of a fragment
    channel_fill     as a share of what the fullest of these channels holds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stream.plan.stream_plan import MaterializeNode, SinkNode, StreamNode

SCHEMA = pa.schema(
    {
        "plan": pa.string(),
        "actors": pa.int32(),
        "rows_per_second": pa.int64(),
        "cpu": pa.float64(),
        "share": pa.float64(),
        "state_bytes": pa.int64(),
        "waiting_rows": pa.int64(),
        "channel_fill": pa.float64(),
    }
)
DIGITS = 4


@dataclass(frozen=True, slots=True)
class ExecutorProfile:
    """The executors of one node of a plan, in all actors of the fragment, within an interval: visible rows emitted, and
    CPU seconds without those of the executors below."""

    node: StreamNode
    depth: int
    rows: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class FragmentProfile:
    """One fragment within an interval. `cpu_seconds` are those of its actors, of which its executors and the sending of
    their output are a part. `executors`: in pre-order, one at least."""

    number: int
    actors: int
    executors: tuple[ExecutorProfile, ...]
    cpu_seconds: float
    waiting_rows: int
    channel_fill: float


def tables_of(node: StreamNode) -> tuple[int, ...]:
    """Ids of the tables that the executor of a node writes."""
    own = (node.table.id,) if isinstance(node, MaterializeNode | SinkNode) else ()
    return (*own, *(table.id for table in node.state_tables))


def profile_table(
    fragments: Sequence[FragmentProfile], seconds: float, state_bytes: Mapping[int, int]
) -> pa.Table:
    """The figures of an interval of so many seconds as rows. `state_bytes`: by table id."""
    total = sum(fragment.cpu_seconds for fragment in fragments)
    rows = (row for fragment in reversed(fragments) for row in _rows(fragment, seconds, total, state_bytes))
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def profile_text(profile: pa.Table) -> str:
    """One line per fragment and executor: its plan, rows per second, share of the job's time, bytes of state."""
    rows = profile.to_pylist()
    width = max(len(row["plan"]) for row in rows)
    lines = []
    for row in rows:
        figures = [f"{row['rows_per_second']:>12,} rows/s", f"{row['share']:>6.1%}"]
        if row["state_bytes"] is not None:
            figures.append(f"{row['state_bytes']:,} bytes")
        if row["actors"] is not None:
            figures.append(f"actors {row['actors']}, channels {row['channel_fill']:.0%} full")
        lines.append(f"{row['plan']:<{width}}  {'  '.join(figures)}")
    return "\n".join(lines)


def measured_tables(fragments: Iterable[FragmentProfile]) -> list[int]:
    """Ids of all tables that these executors write."""
    return [table_id for fragment in fragments for each in fragment.executors for table_id in tables_of(each.node)]


def _rows(
    fragment: FragmentProfile, seconds: float, total: float, state_bytes: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    yield {
        "plan": f"fragment {fragment.number}",
        "actors": fragment.actors,
        "waiting_rows": fragment.waiting_rows,
        "channel_fill": round(fragment.channel_fill, DIGITS),
    } | _speed(fragment.executors[0].rows, fragment.cpu_seconds, seconds, total)
    for each in fragment.executors:
        tables = tables_of(each.node)
        size = sum(state_bytes.get(table_id, 0) for table_id in tables) if tables else None
        text = f"{each.node.identity} {each.node.details}".rstrip()
        yield {"plan": "  " * (each.depth + 1) + text, "state_bytes": size} | _speed(
            each.rows, each.cpu_seconds, seconds, total
        )


def _speed(rows: int, cpu_seconds: float, seconds: float, total: float) -> dict[str, Any]:
    return {
        "rows_per_second": round(rows / seconds),
        "cpu": round(cpu_seconds / seconds, DIGITS),
        "share": round(cpu_seconds / total, DIGITS) if total else 0.0,
    }
