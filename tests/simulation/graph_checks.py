"""What holds of a simulated graph at an epoch: each created job that is not set aside equals its query.

A query over tables and views is answered by the batch engine at the same epoch; one over a source by DuckDB, over the
rows of the source up to the offsets that the job has committed by then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from hummock.errors import EpochTooOld
from relational.catalog.job_failure import JobFailure
from relational.catalog.names import ObjectName
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.change_digest import change_digest
from stream.session.session import Session
from stream.session.snapshot import Snapshot
from tests.simulation.graph_sinks import Receiver
from tests.simulation.graph_source import SCHEMA, Script
from tests.simulation.graph_steps import FED, SOURCES, Definition
from tests.support.suites.duck import answer

SOON_SECONDS = 60.0

Rows = Counter[tuple]


@dataclass
class Job:
    """A view or sink, and what the simulation knows of it."""

    definition: Definition
    receiver: Receiver | None = None
    left_out: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Source, split, first and last record that RESUME has skipped."""
    skipping: tuple[str, str, int, int] | None = None
    """What a RESUME skips that may have been undone."""
    table_id: int = 0
    built_after: int = 0
    """An epoch after which everything came that a sink delivers for its present id."""
    created_by: int = 0
    """An epoch at which all rows were read that its tables had."""
    is_created: bool = False
    """CREATE was acknowledged."""
    is_dropped: bool = False
    """DROP was sent."""


@dataclass
class Checker:
    """Looks at one session; `counts` counts what it has compared."""

    session: Session
    scripts: Mapping[str, Script]
    jobs: Mapping[str, Job]
    fed: Job
    counts: Counter[str]

    def check(self) -> None:
        """All jobs at the committed epoch, and those that are set aside at the one at which they stopped."""
        known = self.session._playground.catalog.snapshot
        creating = {known.tables[job_id].name for job_id in known.creating}
        present = set(self.session.names()) - creating
        with self.session.at() as snapshot:
            failed = self.failures()
            jobs = {FED: self.fed, **self.jobs}
            for name in sorted(present & jobs.keys()):
                failure = failed.get(name)
                if failure is None or failure.since >= snapshot.epoch:
                    self._check(snapshot, jobs[name])
        for name, failure in failed.items():
            if name in present:
                self._check_at(jobs[name], failure.since, "set aside")

    def failures(self) -> dict[str, JobFailure]:
        """The jobs that are set aside, by name."""
        known = self.session._playground.catalog.snapshot
        failed = self.session.failed_jobs
        return {known.tables[each.job_id].name: each for each in failed if each.job_id in known.tables}

    def offsets(self, snapshot: Snapshot, name: str) -> dict[str, dict[str, str]]:
        """By source: the offsets of a job."""
        inputs = [FED] if name == FED else [each for each in self.jobs[name].definition.inputs if each in SOURCES]
        found = snapshot.offsets(name)
        if len(inputs) == 1:
            return {inputs[0]: found}
        split_names = [tuple(split.split("/")) for split in found]
        return {source: {split: found[f"{source}/{split}"] for each, split in split_names if each == source}
                for source in inputs}

    def settle(self, snapshot: Snapshot, name: str, job: Job) -> None:
        """Whether the last RESUME that skips rows was committed: then the offset is beyond them."""
        if job.skipping is not None:
            source, split, begin, _ = job.skipping
            if int(self.offsets(snapshot, name)[source].get(split, "0")) > begin:
                job.left_out.append(job.skipping)
            job.skipping = None

    def _check(self, snapshot: Snapshot, job: Job) -> None:
        definition, name = job.definition, job.definition.name
        self.settle(snapshot, name, job)
        job.created_by = job.created_by or snapshot.epoch
        if definition.connector == "arrow":
            self._check_delivered(snapshot, job)
            return
        expected = self._expected(snapshot, job)
        found = snapshot.sql(f"SELECT * FROM {name}")
        if definition.connector == "digest":
            chunk = StreamChunk.inserts(DataChunk.from_arrow(expected.combine_chunks()))
            _, _, digest = change_digest(chunk)
            (row,) = found.to_pylist()
            assert row["inserted"] - row["deleted"] == expected.num_rows, (name, row, expected.num_rows)
            assert row["digest"] == f"{digest:016x}", (name, row)
        else:
            assert rows_of(found) == rows_of(expected), (name, definition.query, differences(found, expected))
        self.counts[definition.connector or "view"] += 1

    def _check_at(self, job: Job, epoch: int, what: str) -> None:
        """As far as the epoch can still be read."""
        try:
            with self.session.at(epoch) as snapshot:
                self._check(snapshot, job)
                self.counts[what] += 1
        except EpochTooOld:
            self.counts[f"{what}, too old"] += 1

    def _check_delivered(self, snapshot: Snapshot, job: Job) -> None:
        """What arrived leaves the rows of the query; a target that hangs is checked as far as it is."""
        receiver, name = job.receiver, job.definition.name
        assert receiver is not None
        assert not receiver.violations, (name, receiver.violations)
        if not receiver.is_hung:
            self._wait_delivered(snapshot, job)
        if receiver.is_hung or job.definition.is_delayed:
            epoch = receiver.newest(snapshot.epoch)
            if epoch > max(job.built_after, job.created_by):
                self._check_folded_at(job, receiver, epoch)
        else:
            self._check_folded(snapshot, job, receiver)

    def _check_folded_at(self, job: Job, receiver: Receiver, epoch: int) -> None:
        try:
            with self.session.at(epoch) as then:
                self._check_folded(then, job, receiver)
        except EpochTooOld:
            self.counts["arrow, too old"] += 1

    def _check_folded(self, snapshot: Snapshot, job: Job, receiver: Receiver) -> None:
        expected, found = rows_of(self._expected(snapshot, job)), receiver.folded(job.built_after, snapshot.epoch)
        assert found == expected, (job.definition.name, job.definition.query, found - expected, expected - found)
        self.counts["arrow"] += 1

    def _wait_delivered(self, snapshot: Snapshot, job: Job) -> None:
        """Until everything is that is committed and closed at the snapshot's epoch."""
        deliveries = self.session._playground.deliveries
        table = self.session._playground.catalog.resolve(ObjectName.parse(job.definition.name))
        deadline = time.monotonic() + SOON_SECONDS
        while True:
            delivery = deliveries._running.get(table.id)
            if delivery is not None:
                waiting = delivery._reader.closed(delivery.progress.delivered)
                if not [batch for batch in waiting if batch.epoch <= snapshot.epoch]:
                    return
            self.session.check_alive()
            assert time.monotonic() < deadline, f"{table.name} is not delivered: {deliveries.status().get(table.id)}"
            time.sleep(0.001)

    def _expected(self, snapshot: Snapshot, job: Job) -> pa.Table:
        """The rows of its query, of the records that a source or table has read."""
        definition = job.definition
        if not any(each in self.scripts for each in (definition.name, *definition.inputs)) or (
            definition.name != FED and not any(each in SOURCES for each in definition.inputs)
        ):
            return snapshot.sql(definition.query)
        offsets = self.offsets(snapshot, definition.name)
        tables = {each: snapshot.sql(f"SELECT * FROM {each}") for each in definition.inputs if each not in offsets}
        for source, of_split in offsets.items():
            left_out = [each[1:] for each in job.left_out if each[0] == source]
            rows = self.scripts[source].rows(of_split, left_out)
            columns = list(zip(*rows, strict=True)) or [[] for _ in SCHEMA]
            arrays = [pa.array(column, pa.int64()) for column in columns]
            tables[source] = pa.table(arrays, SCHEMA.names)
        return answer(definition.query, tables)


def rows_of(table: pa.Table) -> Rows:
    """The multiset of rows."""
    columns = [column.to_pylist() for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def differences(found: pa.Table, expected: pa.Table) -> str:
    """For the message of a failure."""
    ours, theirs = rows_of(found), rows_of(expected)
    return f"too many: {dict(ours - theirs)}, missing: {dict(theirs - ours)}"
