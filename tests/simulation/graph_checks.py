"""What holds of a simulated graph at an epoch: each created job that is not set aside equals its query.

A query over tables and views is answered by the batch engine at the same epoch; one over a source by DuckDB, over the
rows of the source up to the offsets that the job has committed by then, without those that were late for that job, see
`graph_late`. A table of a connector is checked like a view over it. One whose rows expire is read at earlier epochs
too, and has the rows that `graph_expiry` says. A job without committed offsets of its sources was committed by its
first barrier, and holds nothing yet.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hummock.errors import EpochTooOld
from relational.catalog.job_failure import JobFailure
from relational.catalog.names import ObjectName
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.change_digest import change_digest
from stream.error_counts import committed_errors
from stream.executor.watermark_filter import late_reason
from stream.session.session import Session
from stream.session.snapshot import Snapshot
from tests.simulation.graph_expiry import BirthLog, split_by_age
from tests.simulation.graph_late import ReadingLog
from tests.simulation.graph_sinks import Receiver
from tests.simulation.graph_source import Script
from tests.simulation.graph_steps import EXPIRED_VIEWS, EXPIRING, FED, SOURCES, TIMED, Definition
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
class Logs:
    """What was recorded of the actors, and what the checks have seen of it."""

    readings: ReadingLog = field(default_factory=ReadingLog)
    births: BirthLog = field(default_factory=lambda: BirthLog(EXPIRING))
    late: set[tuple[int, str, int]] = field(default_factory=set)
    expired: set[tuple[str, int, int]] = field(default_factory=set)
    earlier: int = 0
    """An epoch that was looked at."""


@dataclass
class Checker:
    """Looks at one session; `fed` are the tables with connectors, `counts` counts what it has compared."""

    session: Session
    scripts: Mapping[str, Script]
    jobs: Mapping[str, Job]
    fed: Mapping[str, Job]
    logs: Logs
    counts: Counter[str]

    def check(self) -> None:
        """All jobs at the committed epoch, and those that are set aside at the one at which they stopped."""
        names = set(self.session.names())
        known = self.session._playground.catalog.snapshot  # after the names: a creation may begin or end between both
        creating = {known.tables[job_id].name for job_id in known.creating}
        present = names & {table.name for table in known.tables.values()} - creating
        with self.session.at() as snapshot:
            failed = self.failures()
            jobs = {**self.fed, **self.jobs}
            for name in sorted(present & jobs.keys()):
                failure = failed.get(name)
                if failure is None or failure.since >= snapshot.epoch:
                    self._check(snapshot, jobs[name])
            self._check_expiring(snapshot, failed)
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
        inputs = [name] if name in FED else [each for each in self.jobs[name].definition.inputs if each in SOURCES]
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
        if self._has_not_begun(snapshot, job):
            assert not self._held(snapshot, job), (name, self._held(snapshot, job))
            self.counts["not begun"] += 1
            return
        if definition.connector == "arrow":
            self._check_delivered(snapshot, job)
            return
        found = snapshot.sql(f"SELECT * FROM {name}").to_arrow()
        expected = self._expected(snapshot, job)
        if definition.connector == "digest":
            chunk = StreamChunk.inserts(DataChunk.from_arrow(expected.combine_chunks()))
            _, _, digest = change_digest(chunk)
            (row,) = found.to_pylist()
            assert row["inserted"] - row["deleted"] == expected.num_rows, (name, row, expected.num_rows)
            assert row["digest"] == f"{digest:016x}", (name, row)
        else:
            assert rows_of(found) == rows_of(expected), (name, definition.query, differences(found, expected))
        self.counts[definition.connector or "view"] += 1

    @staticmethod
    def _held(snapshot: Snapshot, job: Job) -> Rows:
        """The rows of a job, or of the target of its sink."""
        if job.receiver is not None:
            return job.receiver.folded(job.built_after, snapshot.epoch)
        return rows_of(snapshot.sql(f"SELECT * FROM {job.definition.name}").to_arrow())

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

    def _reads_scripts(self, definition: Definition) -> bool:
        return definition.name in FED or any(each in SOURCES for each in definition.inputs)

    def _has_not_begun(self, snapshot: Snapshot, job: Job) -> bool:
        """A view or sink that has read none of its sources in a committed epoch."""
        name = job.definition.name
        return self._reads_scripts(job.definition) and not any(self.offsets(snapshot, name).values())

    def _expected(self, snapshot: Snapshot, job: Job) -> pa.Table:
        """The rows of its query, of the records that a source or table has read."""
        definition = job.definition
        if not self._reads_scripts(definition):
            return snapshot.sql(definition.query).to_arrow()
        offsets = self.offsets(snapshot, definition.name)
        read = [each for each in definition.inputs if each not in offsets]
        tables = {each: snapshot.sql(f"SELECT * FROM {each}").to_arrow() for each in read}
        late_rows = 0
        for source, of_split in offsets.items():
            left_out = [each[1:] for each in job.left_out if each[0] == source]
            late = self._late(snapshot, job, source, of_split, left_out) if source in TIMED else set()
            late_rows += len(late)
            rows = self.scripts[source].rows(of_split, left_out, late)
            tables[source] = table_of(rows, self.scripts[source].columns)
        if any(source in TIMED for source in offsets):
            self._check_late_counts(snapshot, definition.name, late_rows)
        if definition.name in EXPIRING:
            tables[definition.name] = self._unexpired(snapshot, definition.name, tables[definition.name])
        return answer(definition.duck_query, tables)

    def _late(
        self, snapshot: Snapshot, job: Job, source: str, offsets: Mapping[str, str], left_out: list
    ) -> set[tuple[str, int]]:
        """The late records of a source, as far as a job has read it."""
        readings, script = self.logs.readings, self.scripts[source]
        (state,) = self.watermark_states(job.definition.name, source)
        late = readings.late(state, snapshot.epoch, script, left_out)
        known = readings.offsets(state, snapshot.epoch)
        assert {split: known.get(split, 0) for split in offsets} == {split: int(at) for split, at in offsets.items()}
        new = {(state, *each) for each in late} - self.logs.late
        self.logs.late |= new
        self.counts["late rows"] += len(new)
        return late

    def watermark_states(self, name: str, *sources: str) -> list[int]:
        """The ids of the state tables of what a job knows of the watermarks of its sources, or of some of them."""
        known = self.session._playground.catalog.snapshot
        states = known.internal_tables(known.resolve(ObjectName.parse(name)).id)
        names = {f"{name}.watermark", *(f"{name}.watermark.{each}" for each in sources or TIMED)}
        return [state.id for state in states if state.name in names]

    def _check_late_counts(self, snapshot: Snapshot, name: str, late: int) -> None:
        """SHOW ERRORS counts each late row once."""
        playground = self.session._playground
        errors = committed_errors(playground.catalog, playground.storage, snapshot.epoch).to_pylist()
        found = sum(row["rows"] for row in errors if row["job"] == name and row["reason"] == late_reason("ts"))
        assert found == late, (name, f"{found} rows are counted as late, {late} were")

    # -- rows that expire ------------------------------------------------------------------------------

    def ttl_ms(self, name: str) -> int:
        return self.session._playground.catalog.resolve(ObjectName.parse(name)).ttl_ms

    def _unexpired(self, snapshot: Snapshot, name: str, rows: pa.Table) -> pa.Table:
        """Those of `rows`, which were inserted by the snapshot's epoch, that are there."""
        births = self.logs.births.rows(name, snapshot.epoch)
        inserted = set(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert inserted == {birth.row for birth in births.values()}, (name, "other rows were inserted than read")
        there, _ = split_by_age(births, snapshot.epoch, self.ttl_ms(name))
        return table_of(list(there.values()), rows.column_names)

    def _check_expiring(self, snapshot: Snapshot, failed: Mapping[str, JobFailure]) -> None:
        """Tables whose rows expire, and queries over them, at this epoch and at one that was looked at before."""
        for name in EXPIRING.keys() - failed.keys():
            self._check_ages(snapshot, name)
        logs = self.logs
        try:
            with self.session.at(logs.earlier or snapshot.epoch) as then:
                self._check_ages(then, "e0")
                self.counts["earlier epochs"] += then.epoch < snapshot.epoch
        except EpochTooOld:
            self.counts["earlier epochs, too old"] += 1
        logs.earlier = snapshot.epoch

    def _check_ages(self, snapshot: Snapshot, name: str) -> None:
        births = self.logs.births.rows(name, snapshot.epoch)
        there, expired = split_by_age(births, snapshot.epoch, self.ttl_ms(name))
        found = snapshot.sql(f"SELECT * FROM {name}").to_arrow()
        expected = table_of(list(there.values()), found.column_names)
        assert rows_of(found) == rows_of(expected), (name, snapshot.epoch, differences(found, expected))
        view = f"{name}_groups"
        groups = snapshot.sql(f"SELECT * FROM {view}").to_arrow()
        expected_groups = answer(EXPIRED_VIEWS[view], {name: expected})
        assert rows_of(groups) == rows_of(expected_groups), (view, differences(groups, expected_groups))
        new = {(name, *each) for each in expired} - self.logs.expired
        self.logs.expired |= new
        self.counts["expired rows"] += len(new)
        self.counts["unexpired rows"] += len(there)


def table_of(rows: Sequence[tuple], names: Sequence[str]) -> pa.Table:
    """A table of whole numbers."""
    columns = list(zip(*rows, strict=True)) or [[] for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], list(names))


def rows_of(table: pa.Table) -> Rows:
    """The multiset of rows."""
    columns = [column.to_pylist() for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def differences(found: pa.Table, expected: pa.Table) -> str:
    """For the message of a failure."""
    ours, theirs = rows_of(found), rows_of(expected)
    return f"too many: {dict(ours - theirs)}, missing: {dict(theirs - ours)}"
