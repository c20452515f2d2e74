"""Ddl: statements that change the catalog and the jobs.

They are executed one at a time. A DDL is planned against the catalog, carried by a barrier, and takes effect with the
commit of its epoch [C7], in one transaction with the version of the store. The call returns after the commit, when the
catalog's readers see the change, or raises the error that undid it. A DDL that was not committed leaves nothing behind,
except ids that are never used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hummock.epoch import Epoch
from hummock.errors import HummockError
from hummock.loaded_files import LoadedFiles
from hummock.meta.records import lease_key
from hummock.meta.store.base import NONE, MetaOperations
from relational.catalog.alter import with_column
from relational.catalog.ddl_plan import DropPlan
from relational.catalog.followers import NODE
from relational.catalog.functions import FunctionCatalog
from relational.catalog.manager import CatalogManager
from relational.catalog.names import DEFAULT_DATABASE, ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import NotFound, RelationalError
from relational.plan.view import check_followed, check_no_cycle
from relational.types import DataType
from relational.udf.source import check
from stream.connector.base import CONNECTOR_OPTION
from stream.errors import BulkLoadRefused, InvalidStatement, JobFailed, StreamError, TableLoading
from stream.message import Mutation, SkippedRows
from stream.meta.barrier_manager import BarrierManager
from stream.meta.barrier_schedule import Command, JobChange
from stream.meta.creations import Creations
from stream.meta.detached_creations import DetachedCreations, is_detachable, multiplies_rows
from stream.meta.job_failures import JobFailures
from stream.meta.job_planner import JobPlanner
from stream.meta.schedule import Beginning, Job
from stream.meta.stream_manager import StreamManager
from stream.plan.stream_plan import StreamPlan

if TYPE_CHECKING:
    from relational.chunk.stream_chunk import StreamChunk


class Ddl:
    """Thread safe. Names are text, one name of `public`, or ObjectName. `is_large(table_ids,
    multiplies)`: whether a view over these tables, whose joins may give many rows for each of theirs or not, is created
    apart from the graph."""

    def __init__(
        self,
        catalog: CatalogManager,
        planner: JobPlanner,
        streams: StreamManager,
        barriers: BarrierManager,
        failures: JobFailures,
        creations: Creations,
        detached: DetachedCreations,
        is_large: Callable[[Sequence[int], bool], bool],
    ) -> None:
        self._catalog = catalog
        self._planner = planner
        self._streams = streams
        self._barriers = barriers
        self._failures = failures
        self._creations = creations
        self._detached = detached
        self._is_large = is_large
        self.one = threading.Lock()
        """Held during a DDL: at most one is executed at a time."""
        self._loading: frozenset[int] = frozenset()  # tables

    # -- objects ---------------------------------------------------------------------------------------

    def create_table(self, draft: TableCatalog, rows: StreamChunk | None = None) -> TableCatalog:
        """The table, running and committed, with its first `rows`, which belong to its first epoch. Duplicate,
        UnknownConnector, ConnectorError. REQUIRES rows that the table can hold."""
        with self.one:
            table = self._identified(draft)
            return self._create(table, self._planner.new_table(table), rows=rows)

    def check_new(self, draft: TableCatalog) -> None:
        """Duplicate or NotFound if an object of this name cannot be created."""
        self._catalog.plan_create(draft.with_id(-1))

    def create_source(self, draft: TableCatalog) -> TableCatalog:
        """The source, which nobody reads yet. Duplicate, UnknownConnector, ConnectorError."""
        self._planner.check_source(draft)
        return self.create_view(draft)

    def create_job(self, draft: TableCatalog, parallelism: int | None = None) -> TableCatalog:
        """The materialized view, sink or index, which has read all rows that its tables had; other statements go on
        meanwhile. `parallelism`: of its fragments; None: the session's. Duplicate, NotFound, CatalogError,
        PlanNotSupported, UnknownConnector, ConnectorError, JobCreating; JobFailed if it fails meanwhile, and
        KeyboardInterrupt: then it is dropped."""
        begun: TableCatalog | None = None
        try:
            with self.one:
                self._check_usable(draft.dependencies)
                check_followed(self._catalog.snapshot, draft)
                into = draft.sink_table
                if into is not None:  # another sink may have been created after this one was bound
                    check_no_cycle(self._catalog.snapshot, draft.inputs, self._catalog.get(into.table_id))
                begun = self._identified(draft)
                view = self._create(begun, self._planner.new_view(begun, parallelism), parallelism=parallelism)
            self._wait_created(view)
        except KeyboardInterrupt:
            if begun is not None:
                self._drop_failed(begun)
            raise
        return view

    def _wait_created(self, view: TableCatalog) -> None:
        try:
            self._creations.wait(view.id, view.name)
        except JobFailed:
            self._drop_failed(view)
            raise

    def _drop_failed(self, view: TableCatalog) -> None:
        with suppress(HummockError, StreamError, RelationalError), self.one:
            if view.id in self._catalog.snapshot.tables:
                self._drop(self._catalog.plan_drop(self._catalog.snapshot.name_of(view)))

    def plan_history(self, draft: TableCatalog) -> tuple[TableCatalog, StreamPlan]:
        """The materialized view with its id, and its plan, whose tables are to be loaded. Changes nothing. Raises as
        `create_job`."""
        with self.one:
            self._check_usable(draft.dependencies)
            view = self._identified(draft)
            return view, self._planner.new_view(view).plan

    def create_with_history(
        self, view: TableCatalog, plan: StreamPlan, load: LoadedFiles, loaded_at: Epoch
    ) -> TableCatalog:
        """A view and its plan, of `plan_history`: the files of its tables, computed from the rows of epoch `loaded_at`,
        are committed; then the view begins with the changes since [C14]. REQUIRES that this epoch is pinned. Raises as
        `create_job`, and LoadRefused; then nothing of it is left."""
        with self.one:
            self._check_usable(view.dependencies)
            job = self._planner.loaded_view(view, plan)
            states = job.plan.state_tables
            self._catalog.plan_create(view, states)
            filled = self._catalog.plan_loaded(view.id, (view.id, *(state.id for state in states)))
            self._execute(lambda: None, JobChange(filled, loads=(load,)))
            try:
                return self._create(view, job, loaded_at)
            except BaseException:
                with suppress(HummockError, StreamError):  # else the next start does it
                    self._forget_loaded()
                raise

    def forget_loaded(self) -> None:
        """Drops tables that were loaded for views that were not created."""
        with self.one:
            self._forget_loaded()

    def create_view(self, draft: TableCatalog) -> TableCatalog:
        """A view, which is a named query, or a checked source. Duplicate, NotFound."""
        with self.one:
            self._barriers.check_alive()
            view, operations = self._catalog.plan_create(draft)
            self._record(operations)
            return view

    def create_function(self, draft: FunctionCatalog, *, replaces: bool = False) -> FunctionCatalog:
        """The function with its id and version, whose source has run. Views go on with the version that they were
        created with. Duplicate, NotFound, CatalogError, FunctionsNotAllowed; BindError for a source that cannot be
        called."""
        with self.one:
            self._barriers.check_alive()
            function, operations = self._catalog.plan_create_function(draft, replaces=replaces)
            check(function.function)
            self._record(operations)
            return function

    def drop_function(self, function_id: int, *, cascade: bool = False) -> None:
        """NotFound, DependencyError."""
        with self.one:
            self._drop(self._catalog.plan_drop_function(function_id, cascade=cascade))

    def create_schema(self, name: str, database: str = DEFAULT_DATABASE) -> None:
        """An empty schema. Duplicate, NotFound."""
        with self.one:
            self._record(self._catalog.plan_create_schema(name, database)[1])

    def create_database(self, name: str) -> None:
        """A database with an empty `public`. Duplicate."""
        with self.one:
            self._record(self._catalog.plan_create_database(name)[1])

    def drop(self, name: str | ObjectName, *, cascade: bool = False) -> tuple[TableCatalog, ...]:
        """The dropped objects, readers before what they read. NotFound, DependencyError."""
        with self.one:
            return self._drop(self._catalog.plan_drop(name, cascade=cascade))

    def drop_schema(self, name: str, database: str = DEFAULT_DATABASE, *, cascade: bool = False) -> None:
        """NotFound, DependencyError, CatalogError."""
        with self.one:
            self._drop(self._catalog.plan_drop_schema(name, database, cascade=cascade))

    def drop_database(self, name: str) -> None:
        """NotFound, DependencyError, CatalogError."""
        with self.one:
            self._drop(self._catalog.plan_drop_database(name))

    # -- columns ---------------------------------------------------------------------------------------

    def add_column(
        self,
        table_id: int,
        name: str,
        data_type: DataType,
        default: Any = None,
        *,
        not_null: bool = False,
        max_length: int | None = None,
    ) -> TableCatalog:
        """The table with one more column, which rows have from a barrier on. NotFound, Duplicate, CatalogError."""
        with self.one:
            table = self._catalog.get(table_id)
            altered = with_column(table, name, data_type, default, not_null=not_null, max_length=max_length)
            plan = DropPlan((), (), self._catalog.plan_alter(altered))
            return self._alter(altered, plan)

    def drop_column(self, table_id: int, name: str, *, cascade: bool = False) -> TableCatalog:
        """The table without a column. NotFound, CatalogError; DependencyError names the readers of the column."""
        with self.one:
            altered, plan = self._catalog.plan_drop_column(table_id, name, cascade=cascade)
            return self._alter(altered, plan)

    def set_ttl(self, table_id: int, ttl_ms: int) -> TableCatalog:
        """The table, whose rows expire after `ttl_ms` from the commit on. NotFound, CatalogError; DependencyError names
        the jobs that follow it."""
        with self.one:
            altered, operations = self._catalog.plan_ttl(table_id, ttl_ms)
            return self._alter(altered, DropPlan((), (), operations))

    def rename_column(self, table_id: int, name: str, new: str) -> TableCatalog:
        """The table with another name of a column. NotFound, Duplicate, CatalogError, DependencyError."""
        with self.one:
            altered, operations = self._catalog.plan_rename_column(table_id, name, new)
            return self._alter(altered, DropPlan((), (), operations))

    def rename(self, table_id: int, name: str, definition: str) -> None:
        """Gives a table, view or index another name; jobs that read it go on. NotFound, Duplicate, CatalogError,
        DependencyError; JobCreating."""
        with self.one:
            self._creations.check([table_id])
            self._record(self._catalog.plan_rename(table_id, name, definition))

    def comment(self, table_id: int, column: str | None, text: str) -> None:
        """Gives an object, or its column of that name, a comment; "": none. NotFound."""
        with self.one:
            self._record(self._catalog.plan_comment(table_id, column, text))

    # -- parallelism -----------------------------------------------------------------------------------

    def set_parallelism(self, table: TableCatalog, parallelism: int | None) -> None:
        """The fragments of a view, index or sink get other numbers of actors from a barrier on, and those of its
        readers new actors. `parallelism` None: the session's. InvalidStatement for a table; JobFailed if it was set
        aside; NotFound if it was dropped."""
        if not table.plan:
            raise InvalidStatement(table.name, "a table has one actor, which evaluates its statements in order")
        with self.one:
            if table.id not in self._catalog.snapshot.tables:
                raise NotFound(f"{table.name!r} was dropped meanwhile", name=table.name)
            self.check_runs([table.id])
            job = self._planner.known_job(table, may_lack_connector=True)
            if job.plan.is_single:
                raise InvalidStatement(table.name, "its job is one fragment with one actor, and needs no other")
            record = self._planner.record_of(job, parallelism)
            assert record is not None

            def prepare() -> Mutation | None:
                """Of those that run now: a recovery may have set some aside since the statement was sent."""
                self.check_runs([table.id])
                known = self._catalog.snapshot
                failed = self._failures.failed()
                jobs = [each for each in known.with_dependents((known.get(table.id),)) if each.kind.is_job]
                closure = sorted((each for each in jobs if self._runs_in_graph(each, failed)), key=lambda each: each.id)
                if not closure:
                    return None
                beginnings = [Beginning(self._planner.known_job(each, may_lack_connector=True)) for each in closure]
                if closure[0].id == table.id:
                    job = self._planner.with_parallelism(beginnings[0].job, parallelism)
                    beginnings[0] = replace(beginnings[0], job=job)
                return self._streams.prepare_replace(beginnings)

            self._execute(prepare, JobChange(self._catalog.plan_parallelism(record)))
            self._detached.restart([table.id])

    def _runs_in_graph(self, job: TableCatalog, failed: Collection[int]) -> bool:
        return job.id not in failed and not self._detached.is_detached(job.id)

    # -- bulk loads ------------------------------------------------------------------------------------

    def begin_load(self, table_id: int) -> TableCatalog:
        """The table, which holds what is committed by now and is not written until `end_load`. BulkLoadRefused if
        others write it, follow its changes, or load it."""
        with self.one:
            table = self._catalog.get(table_id)
            if table_id in self._loading:
                raise BulkLoadRefused(table.name, "another bulk load of it is under way")
            if table.connector is not None:
                raise BulkLoadRefused(table.name, f"connector {table.connector.get(CONNECTOR_OPTION)!r} writes it")
            self.check_runs([table_id])
            if writers := self._catalog.snapshot.writers(table_id):
                names = ", ".join(self._catalog.snapshot.show(writers))
                raise BulkLoadRefused(table.name, f"{names} writes it: drop the sink, load, and create it again")
            if readers := [each for each in self._catalog.dependents(table_id) if each.kind.is_job]:
                names = ", ".join(self._catalog.snapshot.show(readers))
                raise BulkLoadRefused(table.name, f"{names} would not see the rows: drop what follows the table, load, "
                                                  "and create it again, a large view by a bulk backfill")
            self._set_loading(self._loading | {table_id})
            return table

    def commit_load(self, load: LoadedFiles, is_applied: Callable[[], bool]) -> None:
        """Commits the load. LoadRefused; `is_applied` returns whether a commit of unknown outcome happened."""
        command = Command(lambda: None, JobChange(NONE, loads=(load,)), False, is_applied)
        self._barriers.schedule(command).result()

    def end_load(self, table_id: int) -> None:
        """The table accepts statements again."""
        with self.one:
            self._set_loading(self._loading - {table_id})

    def identified(self, draft: TableCatalog) -> TableCatalog:
        """A new table with an id with which it may be created later. Duplicate."""
        with self.one:
            return self._identified(draft)

    def replaced(self, table: TableCatalog) -> TableCatalog:
        """The same table with a new id, with which it may replace itself later."""
        self._barriers.check_alive()
        return table.with_id(self._catalog.allocate_ids(1)[0])

    def create_loaded(
        self, table: TableCatalog, load: LoadedFiles, replaces: TableCatalog | None = None
    ) -> TableCatalog:
        """The table, running, with the load's rows. It may replace another table, whose rows are then no longer read.
        Duplicate, LoadRefused. REQUIRES that `begin_load` was called for a replaced table."""
        with self.one:
            job = self._planner.new_table(table)
            states = job.plan.state_tables
            if replaces is None:
                table, operations = self._catalog.plan_create(table, states)
                change = JobChange(operations, loads=(load,))
            else:
                plan = self._catalog.plan_replace(replaces.id, table, states)
                change = JobChange(plan.operations, plan.stored, (load,))
            self._execute(lambda: self._streams.prepare_create(job), change, in_new_epoch=True)
            if replaces is not None:
                self._schedule(lambda: self._streams.prepare_end(replaces.id))
            return table

    # -- jobs that were set aside ----------------------------------------------------------------------
    # REQUIRES `one`.

    def begin(self, beginnings: Sequence[Beginning]) -> None:
        """Jobs that were set aside run again, and are no longer recorded as failed in the catalog."""
        resumed = frozenset(beginning.job.job_id for beginning in beginnings)
        known = self._catalog.snapshot
        skipping = [(known.job_record(each.job.job_id), each.skip) for each in beginnings]
        records = [record.skipping(skip.split, skip.rows) for record, skip in skipping
                   if record is not None and skip is not None and skip.is_malformed]
        command = Command(
            lambda: self._prepare_resumed(beginnings),
            JobChange(self._catalog.plan_resume(resumed, records)),
            True,
            lambda: resumed.isdisjoint(self._failures.failed()),
        )
        self._barriers.schedule(command).result()

    def rebuild(self, closure: Sequence[TableCatalog], skip: SkippedRows | None = None) -> list[TableCatalog]:
        """Create views and indexes, given with all their readers, anew from the tables that they read; they have new
        ids afterwards. The first of them also skips `skip` of its source. The caller waits for them, see
        `Creations`. REQUIRES that none of them runs."""
        self._barriers.check_alive()
        ordered = sorted(closure, key=lambda table: table.id)
        views, jobs = self._planner.renewed(ordered)
        states = [state for job in jobs for state in job.plan.state_tables]
        old = [self._catalog.snapshot.job_record(table.id) for table in ordered if table.kind.is_job]
        kept = [None if each is None else each.parallelism for each in old]
        planned = [self._planner.record_of(job, wanted) for job, wanted in zip(jobs, kept, strict=True)]
        records = [record for record in planned if record is not None]
        if skip is not None:
            records[0] = records[0].skipping(skip.split, skip.rows)
            jobs[0] = replace(jobs[0], skippable=records[0].skippable)
        plan = self._catalog.plan_rebuild(views, states, records)
        beginnings = [Beginning(job, is_resumed=True) for job in jobs]
        change = JobChange(plan.operations, plan.stored)
        self._execute(lambda: self._prepare_resumed(beginnings), change)
        return views

    # -- internals -------------------------------------------------------------------------------------

    def _prepare_resumed(self, beginnings: Sequence[Beginning]) -> Mutation:
        """Earlier failures of the jobs are forgotten before they run: the next failure counts as a first one."""
        mutation = self._streams.prepare_all(beginnings)
        self._failures.forget_attempts(beginning.job.job_id for beginning in beginnings)
        return mutation

    def _check_usable(self, table_ids: Iterable[int]) -> None:
        """TableLoading, JobFailed or JobCreating if a job cannot begin over these tables."""
        self._check_not_loading(table_ids)
        self.check_runs(table_ids)
        self._creations.check(table_ids)

    def check_runs(self, table_ids: Iterable[int]) -> None:
        """JobFailed if the job of one of these tables was set aside."""
        failed = self._failures.errors()
        for table_id in table_ids:
            if table_id in failed:
                raise failed[table_id]

    def _check_not_loading(self, table_ids: Iterable[int]) -> None:
        loading = sorted(self._loading.intersection(table_ids))
        if loading:
            raise TableLoading(self._catalog.get(loading[0]).name)

    def _set_loading(self, tables: frozenset[int]) -> None:
        """The set also applies to actors that are rebuilt, so a recovery does not undo it."""
        self._barriers.check_alive()
        self._loading = tables
        mutation = self._streams.set_loading(tables)
        self._schedule(lambda: mutation)

    def _schedule(self, prepare: Callable[[], Mutation | None]) -> None:
        """Schedule a change of the running jobs only; a recovery applies it as well."""
        self._barriers.schedule(Command(prepare, JobChange(NONE), False, lambda: True)).result()

    def _create(
        self,
        table: TableCatalog,
        job: Job,
        loaded_at: Epoch | None = None,
        parallelism: int | None = None,
        rows: StreamChunk | None = None,
    ) -> TableCatalog:
        """A job that reads tables is committed by its first barrier, as being created, unless it was loaded: then, and
        if it reads nothing, it is committed with its first epoch. One that reads a connector is committed by its first
        barrier too, so that it is set aside if it cannot store what it reads first; the call returns after the next
        commit, which holds where it began to read."""
        is_creating = bool(job.plan.scans) and loaded_at is None
        if is_creating and is_detachable(job.plan) and self._is_large(table.inputs, multiplies_rows(job.plan)):
            return self._create_detached(table, job, parallelism)
        has_source = bool(job.plan.sources)
        record = self._planner.record_of(job, parallelism)
        table, operations = self._catalog.plan_create(table, job.plan.state_tables, record, is_creating=is_creating)
        self._execute(
            lambda: self._streams.prepare_create(job, loaded_at, rows),
            JobChange(operations),
            in_new_epoch=not is_creating and not has_source,
        )
        if has_source:
            self._barriers.flush().result()
        return table

    def _create_detached(self, table: TableCatalog, job: Job, parallelism: int | None) -> TableCatalog:
        """The job is committed as being created, and begins in the graph when it has read all rows."""
        record = self._planner.record_of(job, parallelism)
        table, operations = self._catalog.plan_create(table, job.plan.state_tables, record, is_creating=True)
        job = self._planner.with_parallelism(job, parallelism)
        self._detached.register(job)
        try:
            self._execute(lambda: self.check_runs(table.inputs), JobChange(operations))
        except BaseException:
            self._detached.cancel([job.job_id])
            raise
        self._detached.begin([job.job_id])
        return table

    def _forget_loaded(self) -> None:
        loaded = self._catalog.refresh().loaded
        if loaded:
            gone = tuple(table_id for table_ids in loaded.values() for table_id in table_ids)
            self._execute(lambda: None, JobChange(self._catalog.plan_forget_loaded(loaded), dropped_tables=gone))

    def _drop(self, plan: DropPlan) -> tuple[TableCatalog, ...]:
        self._check_not_loading(plan.stored)
        self._execute_drop(plan, lambda: self._streams.prepare_drop(plan.jobs) if plan.jobs else None)
        return plan.dropped

    def _alter(self, altered: TableCatalog, plan: DropPlan) -> TableCatalog:
        self._check_not_loading((altered.id, *plan.stored))
        self.check_runs([altered.id])
        self._execute_drop(plan, lambda: self._streams.prepare_alter(altered, plan.jobs))
        self._detached.restart(each.id for each in self._catalog.dependents(altered.id))
        return altered

    def _execute_drop(self, plan: DropPlan, prepare: Callable[[], Mutation | None]) -> None:
        """What is being created apart from the graph, and is dropped, commits nothing any more. Dropped followers keep
        no epoch readable any more."""
        leases = MetaOperations(delete=tuple(lease_key(NODE + name) for name in plan.followers))
        self._detached.suspend(plan.jobs)
        try:
            self._execute(prepare, JobChange(plan.operations + leases, dropped_tables=plan.stored))
        except BaseException:
            self._detached.begin(plan.jobs)
            raise
        self._detached.cancel(plan.jobs)

    def _record(self, operations: MetaOperations) -> None:
        """Commit a change of the catalog only."""
        self._execute(lambda: None, JobChange(operations))

    def _execute(
        self, prepare: Callable[[], Mutation | None], change: JobChange, *, in_new_epoch: bool = False
    ) -> None:
        """While this process has the writer role no other makes the next catalog version, so it is this change."""
        version = self._catalog.version + 1
        command = Command(prepare, change, in_new_epoch, lambda: self._catalog.version >= version)
        done = self._barriers.schedule(command)
        try:
            done.result()
        except KeyboardInterrupt:
            done.result()  # it is committed nevertheless; the caller undoes it
            raise

    def pause(self, is_paused: bool) -> None:
        """All sources stop reading at the next barrier, or resume with it; barriers and statements continue.
        ConnectorError if a source that should resume has no connector."""
        with self.one:
            if not is_paused:
                self._planner.check_readable()
            mutation = self._streams.set_paused(is_paused)
            self._schedule(lambda: mutation)

    def _identified(self, draft: TableCatalog) -> TableCatalog:
        """The draft with a new id, after the cheap checks that need none."""
        self._barriers.check_alive()
        self.check_new(draft)
        return draft.with_id(self._catalog.allocate_ids(1)[0])
