"""Rows of running jobs that have no value: counted while processed, stored at the barrier, read at an epoch.

The executors of an actor share one `ErrorCounts`. Its counts are state like any other: one row per actor and reason in
the job's internal table `<name>.errors`, committed at the barrier of the counted rows and read back when the actor is
rebuilt. So
a deleted row is subtracted, whenever it was inserted. A job that was created without such a table counts in memory,
from its start on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import pyarrow as pa

from relational.chunk import Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.plan.state_tables import error_table_name

if TYPE_CHECKING:
    import numpy as np
    from prometheus_client.core import Metric

    from hummock.epoch import Epoch, EpochPair
    from hummock.state_store import StateStore
    from relational.catalog.manager import CatalogManager
    from relational.catalog.objects import TableCatalog
    from relational.table.state_table import StateTable

SCHEMA = Schema.of(job="varchar", reason="varchar", rows="bigint")


class StoredErrorCounts:
    """`counts` of one actor, stored in `table`. Used by that actor only.

    The rows of actor number n of a fragment are under the fragment and the first vnode that the actor owns: `owned`,
    uint8[vnode_count], None: all. Rows under other vnodes of its own, which other actors wrote before the parallelism
    changed, are added to its own rows at its first barrier. The table of a job that always had one actor has neither
    column."""

    def __init__(
        self, counts: ErrorCounts, table: StateTable, fragment: int = 0, owned: np.ndarray | None = None
    ) -> None:
        self._counts = counts
        self._table = table
        self._has_parts = len(table.catalog.columns) > 2
        self._fragment, self._owned = fragment, owned
        self._vnode = 0 if owned is None else int(owned.argmax())
        self._foreign: list[tuple] = []  # rows of earlier actors

    def init_epoch(self, epoch: EpochPair) -> None:
        """At the first barrier: the counts continue from those in the table."""
        self._table.init_epoch(epoch)
        counts: dict[str, int] = {}
        for chunk in self._table.scan_chunks():
            for row in chunk.rows():
                if self._is_mine(row):
                    *part, reason, rows = row
                    counts[reason] = counts.get(reason, 0) + rows
                    if part and part[1] != self._vnode:
                        self._foreign.append(row)
        self._counts.restore(counts)

    def commit(self, epoch: EpochPair) -> None:
        """Writes the counts that changed, if any."""
        changed = self._counts.take().keys() | {row[2] for row in self._foreign}
        if changed:
            rows = self._counts.rows
            part = (self._fragment, self._vnode) if self._has_parts else ()
            changes = [(Op.DELETE, row) for row in self._foreign]
            changes += [(Op.UPDATE_INSERT, (*part, reason, rows[reason])) for reason in sorted(changed)]
            self._table.write_chunk(StreamChunk.from_rows(self._table.catalog.schema, changes))
            self._foreign = []
        self._table.commit(epoch)

    def _is_mine(self, row: tuple) -> bool:
        if not self._has_parts:
            return True
        fragment, vnode = row[0], row[1]
        return fragment == self._fragment and (self._owned is None or bool(self._owned[vnode]))


class RunningErrorCounts:
    """The counts of the jobs that run in this process, including uncommitted ones. Thread safe.

    Registered with a Prometheus registry it is the gauge `stream_rows_without_value` by job, its id and reason.
    """

    def __init__(self) -> None:
        self._of_actor: WeakValueDictionary[tuple[int, str, int], ErrorCounts] = WeakValueDictionary()

    def open(self, job: TableCatalog, actor_id: int = 0) -> ErrorCounts:
        """New counts for an actor of `job`, which live as long as the actor."""
        counts = ErrorCounts()
        self._of_actor[job.id, job.name, actor_id] = counts
        return counts

    def of_actor(self, job: TableCatalog, actor_id: int) -> Mapping[str, int]:
        """Rows by reason of one actor."""
        counts = self._of_actor.get((job.id, job.name, actor_id))
        return {} if counts is None else counts.rows

    def of_job(self, job: TableCatalog) -> Mapping[str, int]:
        """Rows by reason."""
        return self._of_jobs().get((job.id, job.name), {})

    def _of_jobs(self) -> dict[tuple[int, str], Counter[str]]:
        """Rows by reason, by id and name of the job."""
        found: dict[tuple[int, str], Counter[str]] = {}
        for (job_id, name, _), counts in list(self._of_actor.items()):
            found.setdefault((job_id, name), Counter()).update(counts.rows)
        return found

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        gauge = GaugeMetricFamily(
            "stream_rows_without_value", "Rows of a job that have no value, by reason", labels=("job", "id", "reason")
        )
        for (job_id, name), counts in self._of_jobs().items():
            for reason, rows in counts.items():
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
            rows: Counter[str] = Counter()
            for chunk in chunks:
                for *_, reason, count in chunk.rows():
                    rows[reason] += count
        else:
            rows = Counter({} if running is None else running.of_job(job))
        name = str(snapshot.name_of(job))
        found += ((name, reason, count) for reason, count in sorted(rows.items()) if count)
    columns = zip(*found, strict=True) if found else ((), (), ())
    arrays = [pa.array(values, field.data_type.arrow) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA.arrow)
