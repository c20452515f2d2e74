"""Session: what a user holds. SQL and the fluent face on one store.

Statements are carried out in the order they are given. A read sees one committed epoch for all its
tables, and no read sees an older one than the read before it [R15]. What a statement changed is readable
after `flush()`, or after the next barrier. Errors of a statement are typed and leave the session as it
was. A statement that was acknowledged is undone by nobody else's failure; where a recovery could not keep
one, StatementsLost names it at the next call of any kind. Thread safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from hummock.epoch import Epoch
from hummock.errors import InvalidOption
from hummock.options import CompactionOptions, StorageOptions
from relational.catalog.job_failure import JobFailure
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import CatalogError
from relational.plan.view import plain_view_of, view_of
from relational.relation import Relation
from relational.sql.binder import bind_sql
from relational.sql.query import rows_of
from relational.types import DataType
from stream.error_counts import committed_errors
from stream.errors import SessionClosed, StatementsLost
from stream.meta.barrier_stats import BarrierFigures
from stream.options import StreamOptions
from stream.playground import SESSION_COMPACTION, Playground, PlaygroundOptions, open_playground
from stream.session.bulk_load import TASK_MEMORY_BYTES, BulkLoader, LoadReport, LoadRequest
from stream.session.job_status import jobs_table
from stream.session.queries import SessionRunner
from stream.session.snapshot import Snapshot
from stream.session.statements import StatementRunner, constant, data_type, table_draft
from stream.session.table import Table
from stream.spark.driver import BulkBackfill
from stream.spark.job import SparkTasks

if TYPE_CHECKING:
    from relational.spark.bulk_load import DataFrame
    from stream.spark.job import SparkSession


def connect(url: str, *, meta: str | None = None, accept_rollback: bool = False, **options: Any) -> Session:
    """A session on `memory://` (a new store, gone with the session), `file:///directory` or a bucket, `s3://...`.

    `url`, `meta`, which says where the truth is, and `accept_rollback` are as `hummock.open` takes them. `options` are
    those of StreamOptions, StorageOptions and CompactionOptions by name. It takes the writer role: a session that
    another process has open there ends with Fenced at its next commit. InvalidOption for an unknown option.
    An epoch stays readable while a snapshot, cursor, bulk load or backfill, or another process's reader pins it, and
    for `history_ms` more, here 0 by default; at one that is gone `at` and `AS OF` raise EpochTooOld.
    """
    return Session(open_playground(url, playground_options(options), meta=meta, accept_rollback=accept_rollback))


def playground_options(options: Mapping[str, Any]) -> PlaygroundOptions:
    """Options by name, given to the floor that knows them."""
    kinds = (StreamOptions, CompactionOptions, StorageOptions)
    parts = {kind: {field.name for field in fields(kind)} for kind in kinds}
    known = set().union(*parts.values())
    for name, value in options.items():
        if name not in known:
            raise InvalidOption(name, value, f"one of {', '.join(sorted(known))}")
    given = {kind: {name: options[name] for name in names & options.keys()} for kind, names in parts.items()}
    return PlaygroundOptions(
        StreamOptions(**given[StreamOptions]),
        StorageOptions(**given[StorageOptions]),
        replace(SESSION_COMPACTION, **given[CompactionOptions]),
    )


class Session:
    """Owns its playground. Leaving a `with` block without an error flushes; with one it does not."""

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._runner = SessionRunner(playground)
        self._statements = StatementRunner(
            playground, self._runner, self._relation_of, self.flush, self.jobs, self.errors
        )
        self._is_closed = False

    # -- SQL -------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Relation | pa.Table | int | None:
        """Run the statements of `text`; the answer of the last one.

        SELECT: a lazy Relation. SHOW, DESCRIBE, EXPLAIN: rows. INSERT, UPDATE, DELETE: rows affected. CREATE:
        the Table, of a view the Relation. Others None. ParseError and BindError point at the text;
        StatementError when a statement failed.
        """
        answer = None
        self._check_open()
        for statement in bind_sql(text, self._playground.catalog, self._statements.now()):
            answer = self._statements.run(statement)
        return answer

    def explain(self, query: str | Relation) -> str:
        """How a statement or a relation would run: its logical plan, and what a view of it would run as."""
        self._check_open()
        if isinstance(query, Relation):
            return self._statements.explain_query(query.plan)
        return "\n".join(self._statements.explain(each) for each in bind_sql(query, self._playground.catalog))

    # -- tables and views ------------------------------------------------------------------------------
    # Names are written as in SQL but are not folded: `orders`, `shop.orders`, `dev.shop.orders`, `"any.thing"`.

    def create_table(
        self,
        name: str,
        columns: Mapping[str, str | DataType],
        *,
        primary_key: str | Sequence[str] | None = None,
        append_only: bool = False,
        on_conflict: str = "error",
        connector: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> Table:
        """A table, committed when this returns. Without a primary key its rows get a generated, hidden one.

        `on_conflict`: what an inserted row does to one of the same key: error, overwrite or ignore.
        `connector`: options of the connector that feeds it, its name under "connector". `defaults`: what a
        column holds where an inserted row does not say. Duplicate if the name is taken."""
        self._check_open()
        whole = ObjectName.parse(name)
        draft = table_draft(whole.name, columns, primary_key, append_only, on_conflict, connector, defaults)
        self._playground.meta.ddl.create_table(self._placed(draft, whole))
        return self.table(name)

    def create_materialized_view(
        self, name: str, query: Relation, *, backfill: SparkSession | BulkBackfill | None = None
    ) -> Table:
        """A view that holds the rows of `query` when this returns and follows its changes from then on.

        `backfill`: the Spark session whose executors compute what there is by now, or how they do it; then the stream
        goes on meanwhile. BackfillRefused where they cannot."""
        self._check_open()
        whole = ObjectName.parse(name)
        draft, _ = view_of(whole.name, query.plan, "", query.views)
        placed = self._placed(draft, whole)
        if backfill is None:
            self._playground.meta.ddl.create_job(placed)
        else:
            how = backfill if isinstance(backfill, BulkBackfill) else BulkBackfill(SparkTasks(backfill))
            how.create(self._playground, placed)
        return self.table(name)

    def create_view(self, name: str, query: Relation) -> Relation:
        """A name for a query, which is answered when it is read. Duplicate."""
        self._check_open()
        whole = ObjectName.parse(name)
        draft = plain_view_of(whole.name, query.plan, "", query.views)
        self._playground.meta.ddl.create_view(self._placed(draft, whole))
        return self.relation(name)

    def bulk_load(
        self,
        frame: DataFrame,
        table: str,
        *,
        on_duplicate: str = "error",
        mode: str = "append",
        primary_key: str | Sequence[str] | None = None,
        load_id: str = "",
        partitions: int | None = None,
        memory_bytes: int = TASK_MEMORY_BYTES,
        is_cancelled: Callable[[], bool] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> LoadReport:
        """The rows of a Spark DataFrame in a table, written by Spark's executors and committed at one epoch.

        `mode`: "append" to the table's rows, "create" the table from the frame's columns with `primary_key`, or
        "overwrite" all of its rows at once. `on_duplicate`, of rows with one key, stored ones included: "error"
        (DuplicateRows), or the "last" or "first" stays, in the order of the frame, stored rows before all. While it
        runs the table takes no statements. `load_id`: a repeated call with it answers what the first one did.
        `partitions` of the sort, by default by the frame's size; `memory_bytes` of rows that a task holds.
        `on_progress` is told of tasks that are done, of how many. BulkLoadRefused says what stands in the way, as
        views that follow the table; Fenced, that another process serves the store by now: only the session that
        does can load. After any error the table is as it was. SparkJobCancelled.
        """
        self._check_open()
        request = LoadRequest(frame, ObjectName.parse(table), on_duplicate, mode, primary_key, load_id, partitions,
                              memory_bytes, is_cancelled, on_progress)
        return BulkLoader(self._playground, request).run()

    def add_column(self, table: str, name: str, kind: str | DataType, *, default: object = None) -> Table:
        """The table with one more column, which holds `default` in the rows there are. No row is rewritten; views
        keep the columns they have. Duplicate, CatalogError."""
        self._check_open()
        whole, found = data_type(kind), self._playground.catalog.resolve(ObjectName.parse(table))
        self._playground.meta.ddl.add_column(found.id, name, whole, constant(default, name, whole))
        return self.table(table)

    def drop_column(self, table: str, name: str, *, cascade: bool = False) -> Table:
        """The table without a column. DependencyError names what reads it; `cascade` drops that too."""
        self._check_open()
        found = self._playground.catalog.resolve(ObjectName.parse(table))
        self._playground.meta.ddl.drop_column(found.id, name, cascade=cascade)
        return self.table(table)

    def table(self, name: str) -> Table:
        """The table or materialized view of that name. NotFound; CatalogError for a view: `relation` reads it."""
        found = self._relation_of(ObjectName.parse(name))
        if not isinstance(found, Table):
            raise CatalogError(f"{name!r} is a view, which has no rows of its own: relation({name!r})", name=name)
        return found

    def relation(self, name: str) -> Relation:
        """The rows of a table, view or index of that name; NotFound."""
        return self._relation_of(ObjectName.parse(name))

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Drop a table, view or index, with `cascade` also what reads it. NotFound, DependencyError."""
        self._check_open()
        self._playground.meta.ddl.drop(ObjectName.parse(name), cascade=cascade)

    def create_schema(self, name: str) -> None:
        """A schema, in which names are unique. Duplicate."""
        self._check_open()
        self._playground.meta.ddl.create_schema(name)

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop an empty schema, with `cascade` all that stands in it. NotFound, DependencyError."""
        self._check_open()
        self._playground.meta.ddl.drop_schema(name, cascade=cascade)

    def names(self) -> tuple[str, ...]:
        """All tables, views and indexes, of every schema."""
        known = self._playground.catalog.snapshot
        return tuple(known.show(known.list()))

    def _relation_of(self, name: ObjectName) -> Relation:
        self._check_open()
        catalog = self._playground.catalog
        table = catalog.resolve(name)
        if table.kind is TableKind.VIEW:
            return Relation(rows_of(table, catalog), self._runner, frozenset({table.id}))
        return Table.of(table, self._runner)

    def _placed(self, draft: TableCatalog, name: ObjectName) -> TableCatalog:
        """The draft in the schema of its name. NotFound."""
        return replace(draft, schema_id=self._playground.catalog.resolve_schema(name.schema, name.database).id)

    # -- time ------------------------------------------------------------------------------------------

    def flush(self) -> Epoch:
        """Wait until everything sent so far is committed; the epoch that holds it.

        StatementsLost as from any call; what came after the lost ones is committed all the same. Fenced,
        RecoveryFailed, Corruption if the session is at its end.
        """
        self._check_open()
        epoch = self._playground.meta.flush().result()
        self._check_lost()
        return Epoch(epoch)

    def pause(self) -> None:
        """Sources read nothing more from the next barrier on, which is committed when this returns."""
        self._check_open()
        self._playground.meta.ddl.pause(True)

    def resume(self) -> None:
        """Sources read again."""
        self._check_open()
        self._playground.meta.ddl.pause(False)

    def at(self, epoch: int | None = None) -> Snapshot:
        """All that was committed up to `epoch`, by default the newest one, for several reads of one
        moment; use it in a `with` block. EpochTooOld, InvalidEpoch."""
        self._check_open()
        return Snapshot(self._playground, epoch)

    # -- jobs ------------------------------------------------------------------------------------------

    def jobs(self) -> pa.Table:
        """What SHOW JOBS gives: one row per table, view and index that is kept, see `stream.session.job_status`."""
        self._check_open()
        known = self._playground.catalog.snapshot
        with self.at() as snapshot:
            sources = [table for table in known.jobs() if table.connector is not None]
            offsets = {table.id: snapshot.offsets_of(table) for table in sources}
        meta = self._playground.meta
        return jobs_table(known, meta.failures.failed(known), offsets, sources_paused=meta.sources_paused)

    def errors(self) -> pa.Table:
        """What SHOW ERRORS gives: job, reason and number of the rows that have no value as of the committed epoch, in
        tables with connectors of the records that were no rows. A row that goes is counted no more."""
        self._check_open()
        with self.at() as snapshot:
            return committed_errors(
                self._playground.catalog, self._playground.storage, snapshot.epoch, self._playground.errors
            )

    @property
    def failed_jobs(self) -> tuple[JobFailure, ...]:
        """The jobs that are set aside."""
        self._check_open()
        failed = self._playground.meta.failures.failed(self._playground.catalog.snapshot)
        return tuple(failed[job_id] for job_id in sorted(failed))

    def resume_job(self, name: str, *, skip: int = 0) -> Table:
        """Let the job of a table, view or index run again that was set aside, with those that read it; `skip`: how many
        malformed records its source leaves out, or rows where no record was to blame. InvalidStatement where it runs,
        JobNotRunning where it reads one that does not."""
        self._check_open()
        self._playground.meta.revival.resume(self._playground.catalog.resolve(ObjectName.parse(name)), skip)
        return self.table(name)

    @property
    def committed_epoch(self) -> Epoch:
        """The epoch that reads see now."""
        return self._runner.epoch

    @property
    def figures(self) -> BarrierFigures:
        """How long barriers take, and how many there were."""
        return self._playground.meta.figures

    def emitted_rows(self, *names: str) -> int:
        """Changes that the jobs of these tables and views have emitted since they were started."""
        jobs = [self._playground.catalog.resolve(ObjectName.parse(name)).id for name in names]
        return self._playground.node.emitted_rows(jobs)

    def source_offsets(self, name: str, *, epoch: int | None = None) -> dict[str, str]:
        """How far the connector of table `name` was read: split -> offset, as committed at `epoch` or last.

        {} for a table without a connector. NotFound, EpochTooOld.
        """
        with self.at(epoch) as snapshot:
            return snapshot.offsets(name)

    def check_alive(self) -> None:
        """Raises what ended the session, if something did."""
        self._check_open()
        self._playground.meta.check_alive()

    # -- end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and end. Closing twice is fine. Raises as flush does, and is closed all the same.

        In a forked child nothing happens: the session is the parent's.
        """
        if not self._is_closed and not self._playground.storage.is_forked:
            try:
                self.flush()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """End without a flush: what is not committed is gone."""
        self._is_closed = True
        if self._playground.storage.is_forked:
            return
        try:
            self._playground.close()
        finally:
            self._statements.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def _check_open(self) -> None:
        self._playground.storage.check_process()
        if self._is_closed:
            raise SessionClosed("the session is closed")
        self._check_lost()

    def _check_lost(self) -> None:
        """Whoever calls next hears of statements that were acknowledged and lost since."""
        lost = self._playground.node.pending.take_lost()
        if lost:
            raise StatementsLost(lost)
