"""Rows of running jobs that have no value: counted while processed, stored at the barrier, read at an epoch.

The executors of an actor share one `ErrorCounts`. Its counts are state like any other: one row per reason in the job's
internal table `<name>.errors`, committed at the barrier of the counted rows and read back when the actor is rebuilt. So
a deleted row is subtracted, whenever it was inserted. A job that was created without such a table counts in memory,
from its start on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import pyarrow as pa

from relational.chunk import DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.plan.state_tables import error_table_name

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from hummock.epoch import Epoch, EpochPair
    from hummock.state_store import StateStore
    from relational.catalog.manager import CatalogManager
    from relational.catalog.objects import TableCatalog
    from relational.table.state_table import StateTable

SCHEMA = Schema.of(job="varchar", reason="varchar", rows="bigint")


class StoredErrorCounts:
    """`counts` of one actor, stored in `table`. Used by one thread."""

    def __init__(self, counts: ErrorCounts, table: StateTable) -> None:
        self._counts = counts
        self._table = table

    def init_epoch(self, epoch: EpochPair) -> None:
        """At the first barrier: the counts continue from those in the table."""
        self._table.init_epoch(epoch)
        stored = DataChunk.concat([DataChunk.from_rows(self._table.catalog.schema, []), *self._table.scan_chunks()])
        self._counts.restore(dict(zip(*(column.to_pylist() for column in stored.columns), strict=True)))

    def commit(self, epoch: EpochPair) -> None:
        """Writes the counts that changed, if any."""
        changed = self._counts.take()
        if changed:
            rows = self._counts.rows
            changes = [(Op.UPDATE_INSERT, (reason, rows[reason])) for reason in changed]
            self._table.write_chunk(StreamChunk.from_rows(self._table.catalog.schema, changes))
        self._table.commit(epoch)


class RunningErrorCounts:
    """The counts of the jobs that run in this process, including uncommitted ones. Thread safe.

    Registered with a Prometheus registry it is the gauge `stream_rows_without_value` by job, its id and reason.
    """

    def __init__(self) -> None:
        self._of_job: WeakValueDictionary[tuple[int, str], ErrorCounts] = WeakValueDictionary()

    def open(self, job: TableCatalog) -> ErrorCounts:
        """New counts for the actor of `job`; they replace those of an earlier actor, and live as long as the actor."""
        counts = ErrorCounts()
        self._of_job[job.id, job.name] = counts
        return counts

    def of_job(self, job: TableCatalog) -> Mapping[str, int]:
        """Rows by reason."""
        counts = self._of_job.get((job.id, job.name))
        return {} if counts is None else counts.rows

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        gauge = GaugeMetricFamily(
            "stream_rows_without_value", "Rows of a job that have no value, by reason", labels=("job", "id", "reason")
        )
        for (job_id, name), counts in list(self._of_job.items()):
            for reason, rows in counts.rows.items():
                gauge.add_metric((name, str(job_id), reason), rows)
        yield gauge


def committed_errors(
    catalog: CatalogManager, store: StateStore, epoch: Epoch, running: RunningErrorCounts | None = None
) -> pa.Table:
    """Columns job, reason, rows: each job's rows without a value as of `epoch`, by job and reason, without zeros.

    `running` holds the counts of jobs that were created without a table for them.
    """
    found: list[tuple[str, str, int]] = []
    snapshot = catalog.snapshot
    for job in snapshot.jobs():
        states = {state.name: state for state in snapshot.internal_tables(job.id)}
        state = states.get(error_table_name(job))
        if state is not None:
            chunks = StorageTable(state, store).scan(epoch)
            rows = {reason: count for chunk in chunks for reason, count in chunk.rows()}
        else:
            rows = {} if running is None else dict(running.of_job(job))
        name = str(snapshot.name_of(job))
        found += ((name, reason, count) for reason, count in sorted(rows.items()) if count)
    columns = zip(*found, strict=True) if found else ((), (), ())
    arrays = [pa.array(values, field.data_type.arrow) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA.arrow)
