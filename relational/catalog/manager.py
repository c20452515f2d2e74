"""CatalogManager: the databases, schemas, tables, views and indexes, as rows of the meta store.

DDL is planned here and executed elsewhere: the `plan_...` methods return operations that join the transaction that
commits the epoch of the DDL, so an object exists exactly if the epoch that made it was committed. Each DDL requires the
catalog version that it was planned on and makes the next one.

Reads use a snapshot in memory. `refresh` loads a newer one if there is one, and passes it to the subscribers before it
returns; it must be called after such a transaction. Another process sees the change when it refreshes: on an unknown
name and, if it `follow`s them, with each version of the store. Ids are allocated in a transaction of their own and are
never reused, even if the DDL that allocated them fails. Thread safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hummock.errors import PreconditionFailed
from hummock.meta.notification import NotificationService, TopicSubscription
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.metrics import Metrics
from relational.catalog import ddl_plan as planning
from relational.catalog.ddl_plan import DropPlan
from relational.catalog.followers import NO_FOLLOWERS, Followers, followers_of, forget_followers, names_of
from relational.catalog.functions import FunctionCatalog, next_version, put_function, running_functions
from relational.catalog.job_failure import JobFailure
from relational.catalog.job_record import JobRecord
from relational.catalog.names import DEFAULT_DATABASE, DEFAULT_SCHEMA, DatabaseCatalog, ObjectName, SchemaCatalog
from relational.catalog.objects import TableCatalog, TableKind
from relational.catalog.records import CATALOG_PREFIX, CREATING_PREFIX, FAILED_PREFIX, NEXT_ID, VERSION
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import CatalogError, FunctionsNotAllowed, NotFound
from relational.types.row_source import OpenRowSource, RowSource

CATALOG_TOPIC = "catalog"
ACKNOWLEDGE_MS = 10_000
FIRST_ID = 1
ID_ATTEMPTS = 16


class CatalogManager:
    """DDL over a meta store. Any process may open one; the transaction decides between two that disagree.

    Names may be given as text, which is one name of `public`, or as ObjectName.
    """

    def __init__(
        self,
        meta_store: MetaStore,
        notifications: NotificationService | None = None,
        *,
        allows_functions: bool = False,
        open_rows: OpenRowSource | None = None,
    ):
        """`notifications` orders updates with those of other components of the process; None: a service of its own.
        `allows_functions`: whether the Python text of stored functions may run in this process. `open_rows`: opens the
        files that a query names; None: it may name none."""
        self.allows_functions = allows_functions
        self._open_rows = open_rows
        self._store = meta_store
        self._notifications = notifications or NotificationService(Metrics(), ACKNOWLEDGE_MS)
        self._lock = threading.Lock()  # guards the snapshot and the order of notifications
        self._snapshot = CatalogSnapshot()
        self._posted = 0  # serial number of the newest notification
        self.refresh()

    # ---- reads -------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot."""
        return self._snapshot

    @property
    def version(self) -> int:
        """The number of DDLs in the current snapshot."""
        return self._snapshot.version

    def refresh(self, *, is_forced: bool = False) -> CatalogSnapshot:
        """Loads everything committed before the call, and notifies the subscribers before it returns, unless one hangs.
        `is_forced`: also what was committed without a new version of the catalog.
        """
        with self._lock, self._store.one_moment():
            known = self._snapshot
            version = self._store.get(VERSION)
            states = {key: row for prefix in (FAILED_PREFIX, CREATING_PREFIX) for key, row in self._store.list(prefix)}
            if is_forced or version is None or version != known.rows.get(VERSION) or states != known.state_rows:
                rows = dict(self._store.list(CATALOG_PREFIX))
                self._snapshot = CatalogSnapshot.read(rows, known)
                if self._snapshot.version > known.version or self._snapshot.state_rows != known.state_rows:
                    self._posted = self._notifications.post(CATALOG_TOPIC, self._snapshot)
            serial = self._posted
        self._notifications.deliver(serial)
        return self._snapshot

    def open_rows(self, form: str, location: str, options: Mapping[str, str]) -> RowSource:
        """The rows of files. CatalogError if this process reads none; the errors of what opens them."""
        if self._open_rows is None:
            raise CatalogError(f"this process reads no files in queries: {location}", name=location)
        return self._open_rows(form, location, options)

    def subscribe(self, callback: Callable[[CatalogSnapshot], None]) -> TopicSubscription:
        """Calls `callback` with each later snapshot, in ascending order of version; see `NotificationService`."""
        return self._notifications.subscribe(CATALOG_TOPIC, callback)

    def follow(self, subscribe: Callable[[Callable[[Any], Any]], TopicSubscription]) -> TopicSubscription:
        """Refreshes at each version of the store; `subscribe` is a HummockManager's. A DDL is part of a version, so a
        reader of that version sees exactly its objects.
        """
        return subscribe(lambda _: self.refresh())

    def resolve(self, name: str | ObjectName) -> TableCatalog:
        """The table, view or index of a name; NotFound with the closest name."""
        wanted = _object_name(name)
        try:
            return self._snapshot.resolve(wanted)
        except NotFound:
            return self.refresh().resolve(wanted)

    def find(self, name: str | ObjectName) -> TableCatalog | None:
        """As `resolve`, but None if there is none."""
        wanted = _object_name(name)
        return self._snapshot.find(wanted) or self.refresh().find(wanted)

    def resolve_schema(self, name: str, database: str = DEFAULT_DATABASE) -> SchemaCatalog:
        """The schema of a name; NotFound with the closest name."""
        try:
            return self._snapshot.resolve_schema(name, database)
        except NotFound:
            return self.refresh().resolve_schema(name, database)

    def get(self, table_id: int) -> TableCatalog:
        """The object with this id, state tables included; NotFound if it was never committed or was dropped."""
        return self._snapshot.get(table_id)

    def list(self, kind: TableKind | None = None, schema_id: int | None = None) -> tuple[TableCatalog, ...]:
        """Tables, views and indexes by name, or those of one kind; of one schema or of all."""
        return self._snapshot.list(kind, schema_id)

    def jobs(self) -> tuple[TableCatalog, ...]:
        """All objects that an actor writes, each after those it reads."""
        return self._snapshot.jobs()

    def internal_tables(self, job_id: int) -> tuple[TableCatalog, ...]:
        """The state tables of a job's executors, by id."""
        return self._snapshot.internal_tables(job_id)

    def offset_table(self, table: TableCatalog) -> TableCatalog | None:
        """The table of source offsets of `table`."""
        return self._snapshot.offset_table(table)

    def dependents(self, table_id: int) -> tuple[TableCatalog, ...]:
        """The direct readers of a table or view, by name."""
        return self._snapshot.dependents(table_id)

    def find_function(self, name: ObjectName) -> FunctionCatalog | None:
        """The user function of a name, or None. FunctionsNotAllowed if there is one that may not run."""
        schema = self._snapshot.find_schema(name.schema, name.database)
        found = None if schema is None else self._snapshot.find_function(schema.id, name.name)
        if found is not None and not self.allows_functions:
            raise FunctionsNotAllowed(f"function {name.name!r} is", name=name.name)
        return found

    def check_functions(self, tables: Iterable[TableCatalog]) -> None:
        """FunctionsNotAllowed, naming one of these views, indexes and sinks whose plan calls a function that may not
        run. It reads the plans themselves: what else the catalog says of them, a writer of the store could change."""
        if self.allows_functions:
            return
        for table in tables:
            for name in running_functions(self._snapshot, table).values():
                raise FunctionsNotAllowed(f"{table.kind} {table.name!r} calls function {name!r}, which is",
                                          name=table.name)

    # ---- DDL ---------------------------------------------------------------------------------------------------

    def allocate_ids(self, count: int) -> range:
        """`count` ids that were never used and are never reused. CatalogError after too many lost races."""
        for _ in range(ID_ATTEMPTS):
            before = self._store.get(NEXT_ID)
            first = FIRST_ID if before is None else int(before)
            try:
                self._store.transaction(
                    MetaOperations(require={NEXT_ID: before}, put={NEXT_ID: str(first + count).encode()})
                )
            except PreconditionFailed:
                continue
            return range(first, first + count)
        raise CatalogError(f"no id after {ID_ATTEMPTS} attempts: others take them all the time")

    def plan_create(
        self,
        draft: TableCatalog,
        internals: Iterable[TableCatalog] = (),
        record: JobRecord | None = None,
        *,
        is_creating: bool = False,
    ) -> tuple[TableCatalog, MetaOperations]:
        """The object under its id (allocated if the draft's is 0) and the operations that create it.

        `internals` are the state tables of its job, `record` how the job runs. `is_creating`: it has yet to read the
        existing rows of the tables that it reads. Duplicate, NotFound; the transaction fails if either condition
        arises in the meantime.
        """
        snapshot = self._snapshot
        planning.create_table(snapshot, draft.with_id(draft.id or -1))
        table = draft if draft.id else draft.with_id(self.allocate_ids(1)[0])
        created = planning.create_table(snapshot, table, internals, record, is_creating=is_creating)
        return table, self._as_next(snapshot, created)

    def plan_created(self, job_ids: Iterable[int]) -> MetaOperations:
        """Operations for jobs that have read all existing rows; they create no catalog version."""
        return planning.finish_creating(job_ids)

    def plan_parallelism(self, record: JobRecord) -> MetaOperations:
        """Operations that change how a job runs, as the next version of the catalog."""
        return self._as_next(self._snapshot, planning.put_job_records([record]))

    def plan_job_records(self, records: Iterable[JobRecord], states: Iterable[TableCatalog]) -> MetaOperations:
        """Operations that store how jobs of an older release run, with their state tables as they are today. Another
        process that runs jobs is fenced, so there is no condition; they create no catalog version.
        """
        return planning.put_job_records(records, states)

    def plan_loaded(self, table_id: int, table_ids: Iterable[int]) -> MetaOperations:
        """Operations recording that a load filled `table_ids` for an object that does not exist yet, until it is
        created.
        """
        snapshot = self._snapshot
        return self._as_next(snapshot, planning.note_loaded(table_id, table_ids))

    def plan_forget_loaded(self, table_ids: Iterable[int]) -> MetaOperations:
        """Operations that delete the load records of objects that will not be created; the caller also drops the rows.
        """
        snapshot = self._snapshot
        gone = sum((planning.forget_loaded(table_id) for table_id in table_ids), NONE)
        return self._as_next(snapshot, gone)

    def plan_failures(
        self, failures: Iterable[JobFailure], beside: Iterable[MetaOperations] = ()
    ) -> MetaOperations:
        """Operations that suspend jobs in the transaction that also applies `beside`; they create no catalog version.
        """
        return planning.note_failures(failures, beside)

    def plan_resume(self, job_ids: Iterable[int], records: Iterable[JobRecord] = ()) -> MetaOperations:
        """Operations that resume jobs set aside, with new `records` of some; they create no catalog version either.
        """
        return planning.forget_failures(job_ids) + planning.put_job_records(records)

    def plan_rebuild(
        self, jobs: Sequence[TableCatalog], states: Iterable[TableCatalog], records: Sequence[JobRecord]
    ) -> DropPlan:
        """Replaces rebuilt views and indexes by `jobs`, which have the same names and new ids, with their state tables
        `states` and `records`, to be created anew. The old rows are dropped.
        """
        snapshot = self._snapshot
        return self._next_plan(snapshot, planning.rebuild_jobs(snapshot, jobs, states, records))

    def plan_alter(self, altered: TableCatalog) -> MetaOperations:
        """Operations that make `altered` the next version of its table. CatalogError if it no longer is the next one.
        """
        snapshot = self._snapshot
        return self._as_next(snapshot, planning.alter_table(snapshot, altered))

    def plan_ttl(self, table_id: int, ttl_ms: int) -> tuple[TableCatalog, MetaOperations]:
        """The next version of a table, whose rows expire after `ttl_ms`, and the operations. NotFound, CatalogError,
        DependencyError.
        """
        snapshot = self._snapshot
        altered, operations = planning.set_ttl(snapshot, table_id, ttl_ms)
        return altered, self._as_next(snapshot, operations)

    def plan_rename_column(self, table_id: int, name: str, new: str) -> tuple[TableCatalog, MetaOperations]:
        """The next version of a table, with another name of a column, and the operations. NotFound, Duplicate,
        CatalogError, DependencyError.
        """
        snapshot = self._snapshot
        altered, operations = planning.rename_column(snapshot, table_id, name, new)
        return altered, self._as_next(snapshot, operations)

    def plan_rename(self, table_id: int, name: str, definition: str) -> MetaOperations:
        """Operations that give a table, view or index another name. NotFound, Duplicate, CatalogError,
        DependencyError.
        """
        snapshot = self._snapshot
        return self._as_next(snapshot, planning.rename_table(snapshot, snapshot.get(table_id), name, definition))

    def plan_comment(self, table_id: int, column: str | None, text: str) -> MetaOperations:
        """Operations that give an object, or a column of it, a comment; "": none. NotFound."""
        snapshot = self._snapshot
        return self._as_next(snapshot, planning.comment(snapshot, table_id, column, text))

    def plan_drop_column(
        self, table_id: int, column: str, *, cascade: bool = False
    ) -> tuple[TableCatalog, DropPlan]:
        """The next version of a table and the drops with its column. NotFound, DependencyError, CatalogError."""
        snapshot = self._snapshot
        altered, plan = planning.drop_column(snapshot, table_id, column, cascade=cascade)
        return altered, self._next_plan(snapshot, plan, followers_of(self._store))

    def plan_drop(self, name: str | ObjectName, *, cascade: bool = False) -> DropPlan:
        """The drops of a table, view or index. NotFound, DependencyError."""
        table, snapshot, followers = self.resolve(name), self._snapshot, followers_of(self._store)
        plan = planning.drop_table(snapshot, table, cascade=cascade, followers=followers)
        return self._next_plan(snapshot, plan, followers)

    def plan_replace(self, table_id: int, table: TableCatalog, internals: Iterable[TableCatalog] = ()) -> DropPlan:
        """The drops when `table` replaces the table `table_id`: `table` has the same name and a new id. NotFound,
        DependencyError.
        """
        snapshot, followers = self._snapshot, followers_of(self._store)
        plan = planning.replace_table(snapshot, snapshot.get(table_id), table, internals, followers)
        return self._next_plan(snapshot, plan)

    def plan_create_function(
        self, draft: FunctionCatalog, *, replaces: bool = False
    ) -> tuple[FunctionCatalog, MetaOperations]:
        """The function with its id and version, and the operations that store it; it `replaces` one of its name, if
        there is one. Duplicate, CatalogError, NotFound; FunctionsNotAllowed."""
        if not self.allows_functions:
            raise FunctionsNotAllowed(f"function {draft.name!r} is", name=draft.name)
        snapshot = self._snapshot
        function = next_version(snapshot, draft, lambda: self.allocate_ids(1)[0], replaces=replaces)
        return function, self._as_next(snapshot, put_function(snapshot, function))

    def plan_drop_function(self, function_id: int, *, cascade: bool = False) -> DropPlan:
        """The drops of a function. NotFound, DependencyError."""
        snapshot = self._snapshot
        function = snapshot.functions.get(function_id)
        if function is None:
            raise NotFound("the function was dropped meanwhile", name=str(function_id))
        plan = planning.drop_function(snapshot, function, cascade=cascade)
        return self._next_plan(snapshot, plan, followers_of(self._store))

    def plan_create_schema(self, name: str, database: str = DEFAULT_DATABASE) -> tuple[SchemaCatalog, MetaOperations]:
        """A new schema and the operations that create it. Duplicate, NotFound."""
        snapshot = self._snapshot
        draft = SchemaCatalog(-1, name, snapshot.resolve_database(database).id)
        planning.create_schema(snapshot, draft)
        schema = replace(draft, id=self.allocate_ids(1)[0])
        return schema, self._as_next(snapshot, planning.create_schema(snapshot, schema))

    def plan_drop_schema(self, name: str, database: str = DEFAULT_DATABASE, *, cascade: bool = False) -> DropPlan:
        """The drops of a schema. NotFound, DependencyError, CatalogError."""
        schema, snapshot = self.resolve_schema(name, database), self._snapshot
        plan = planning.drop_schema(snapshot, schema, cascade=cascade)
        return self._next_plan(snapshot, plan, followers_of(self._store))

    def plan_create_database(self, name: str) -> tuple[DatabaseCatalog, MetaOperations]:
        """A new database with its `public` schema, and the operations that create it. Duplicate."""
        snapshot = self._snapshot
        planning.create_database(snapshot, DatabaseCatalog(-1, name), SchemaCatalog(-2, DEFAULT_SCHEMA, -1))
        first, second = self.allocate_ids(2)
        database, public = DatabaseCatalog(first, name), SchemaCatalog(second, DEFAULT_SCHEMA, first)
        return database, self._as_next(snapshot, planning.create_database(snapshot, database, public))

    def plan_drop_database(self, name: str) -> DropPlan:
        """The drops of a database, whose schemas must be empty. NotFound, DependencyError, CatalogError."""
        snapshot = self._snapshot
        return self._next_plan(snapshot, planning.drop_database(snapshot, snapshot.resolve_database(name)))

    def apply(self, operations: MetaOperations) -> None:
        """Executes planned operations in a separate transaction. PreconditionFailed if the catalog has changed."""
        self._store.transaction(operations)
        self.refresh()

    def create(self, draft: TableCatalog, internals: Iterable[TableCatalog] = ()) -> TableCatalog:
        """Creates an object in a separate transaction."""
        table, operations = self.plan_create(draft, internals)
        self.apply(operations)
        return table

    def drop(self, name: str | ObjectName, *, cascade: bool = False) -> tuple[TableCatalog, ...]:
        """Drops an object in a separate transaction; returns the dropped objects, dependents first."""
        plan = self.plan_drop(name, cascade=cascade)
        self.apply(plan.operations)
        return plan.dropped

    def _next_plan(
        self, snapshot: CatalogSnapshot, plan: DropPlan, followers: Followers = NO_FOLLOWERS
    ) -> DropPlan:
        """The plan that also drops those `followers` that are of dropped objects."""
        gone = names_of(followers, plan.dropped)
        operations = self._as_next(snapshot, plan.operations + forget_followers(gone))
        return replace(plan, operations=operations, followers=gone)

    def _as_next(self, snapshot: CatalogSnapshot, operations: MetaOperations) -> MetaOperations:
        """The operations, committed as the version after the one they were planned on."""
        before, after = snapshot.rows.get(VERSION), str(snapshot.version + 1).encode()
        return operations + MetaOperations(require={VERSION: before}, put={VERSION: after})


def _object_name(name: str | ObjectName) -> ObjectName:
    return ObjectName(name) if isinstance(name, str) else name
