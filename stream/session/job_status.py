"""What a session says of itself in one line, and SHOW JOBS: the state of each job, the reason of its failure, and the
offsets of its source.

    name      the table, view, sink or index that the job writes
    kind      table, materialized view, sink or index
    state     CREATING: it reads the existing rows of its tables; RUNNING; PAUSED: a source that is paused; FAILED: set
              aside
    progress  of a job that is being created, the share of these rows that it has read, from 0 to 1; else NULL
    since     when it was set aside
    epoch     the last epoch that was committed with it
    reason    the error, or the job whose failure also stopped this one
    position  split and offset of the source when it failed
    offsets   the offset of each split as of the last commit, as JSON; NULL without a source. Of a job that reads
              several, a split is called <source>/<split>
    delivery  how far a sink is behind, as JSON, see `DeliveryStatus`; NULL for other jobs and sinks within the store
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from relational.catalog.job_failure import JobFailure
from relational.catalog.objects import TableCatalog, TableKind
from relational.catalog.snapshot import CatalogSnapshot
from stream.sink_delivery import DeliveryStatus

if TYPE_CHECKING:
    from stream.serving import Host

DELIVERY_COLUMNS = {
    "rows": pa.int64(),
    "bytes": pa.int64(),
    "behind_ms": pa.int64(),
    "delivered_epoch": pa.int64(),
    "error": pa.string(),
    "is_full": pa.bool_(),
}
CREATING, RUNNING, PAUSED, FAILED = "CREATING", "RUNNING", "PAUSED", "FAILED"
SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "kind": pa.string(),
        "state": pa.string(),
        "since": pa.timestamp("ms", "UTC"),
        "epoch": pa.int64(),
        "reason": pa.string(),
        "position": pa.string(),
        "offsets": pa.string(),
        "progress": pa.float64(),
        "delivery": pa.string(),
    }
)


def jobs_table(
    known: CatalogSnapshot,
    failed: Mapping[int, JobFailure],
    offsets: Mapping[int, Mapping[str, str]],
    progress: Mapping[int, float],
    deliveries: Mapping[int, DeliveryStatus],
    *,
    sources_paused: bool,
) -> pa.Table:
    """One row per job, ordered by name. `offsets`: job id -> split -> offset, of jobs that read a connector.
    `progress`: of jobs that are being created, by id. `deliveries`: of sinks that have a log."""
    jobs = sorted(known.jobs(), key=lambda table: str(known.name_of(table)))
    rows = [_row(known, table, failed.get(table.id), offsets, progress, sources_paused) for table in jobs]
    for row, table in zip(rows, jobs, strict=True):
        if table.id in deliveries:
            row["delivery"] = json.dumps(asdict(deliveries[table.id]))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def with_deliveries(shown: pa.Table, sinks: Sequence[DeliveryStatus | None]) -> pa.Table:
    """The result of SHOW SINKS with a column for each figure of the deliveries, NULL for sinks within the store."""
    for name, kind in DELIVERY_COLUMNS.items():
        values = [None if status is None else getattr(status, name) for status in sinks]
        shown = shown.append_column(name, pa.array(values, kind))
    return shown


def _row(
    known: CatalogSnapshot,
    table: TableCatalog,
    failure: JobFailure | None,
    offsets: Mapping[int, Mapping[str, str]],
    progress: Mapping[int, float],
    sources_paused: bool,
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": str(known.name_of(table)), "kind": str(table.kind), "state": RUNNING}
    if table.id in offsets:
        row["state"] = PAUSED if sources_paused else RUNNING
        row["offsets"] = json.dumps(dict(offsets[table.id]), sort_keys=True)
    if table.id in progress:
        row["state"], row["progress"] = CREATING, progress[table.id]
    if failure is not None:
        row["state"] = FAILED
        row["since"] = datetime.fromtimestamp(failure.failed_at_ms / 1_000, UTC)
        row["epoch"] = failure.since
        row["reason"] = failure.reason
        row["position"] = None if failure.split is None else f"{failure.split} at {failure.offset}"
    return row


def session_text(host: Host) -> str:
    """URL, role, committed epoch and the numbers of objects, from memory."""
    known, storage = host.catalog.snapshot, host.storage
    role = "reader" if storage.session is None else "writer"
    parts = [repr(host.url), role, f"epoch {storage.committed_epoch}"]
    for kind in TableKind:
        count = sum(table.kind is kind for table in known.list())
        if count or kind is TableKind.TABLE:
            parts.append(f"{count} {kind if count == 1 else 'indexes' if kind is TableKind.INDEX else f'{kind}s'}")
    failed = len(host.failed_jobs())
    if failed:
        parts.append(f"{failed} set aside")
    return ", ".join(parts)
