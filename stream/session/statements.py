"""SessionStatements: executes bound SQL statements on a playground.

There is one method per kind of statement, in the table _HANDLERS. A DDL returns when it is committed; a data change
when the table's own actor has evaluated it, so that its success is known; a query is evaluated lazily."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from hummock.epoch import monotonic_seconds, wall_clock_ms
from relational.batch import plan_query
from relational.catalog.names import PUBLIC, ObjectName
from relational.catalog.objects import ConflictBehaviour, RowFormat, TableCatalog, TableKind
from relational.chunk import DataChunk
from relational.errors import BindError, shortened
from relational.expr.bind import literal
from relational.expr.unbound import UnboundLiteral
from relational.plan.changes import default_of, writable
from relational.plan.logical import AggPhases, LogicalPlan
from relational.plan.optimizer import optimize
from relational.plan.view import view_of
from relational.relation import Relation
from relational.result import ResultSet
from relational.sql import introspect
from relational.sql import statement as bound
from relational.sql.binder import bind_sql
from relational.sql.ddl.create_table import TableSyntax, source_of, table_of
from relational.sql.ddl.options import ROW_FORMAT, TTL, VNODE_COUNT, Options, ttl_text
from relational.sql.ddl.watermark import watermark_syntax
from relational.sql.parameters import Given, Parameters
from relational.sql.settings import agg_phases
from relational.types import DataType
from relational.types.vnodes import DEFAULT_VNODE_COUNT
from stream.errors import PlanNotSupported, ReadOnlySession
from stream.job_memory import memory_table
from stream.job_profile import measured_tables, profile_table, profile_text
from stream.plan.fragments import explained
from stream.serving import Host, ServingNode
from stream.session.change_feed import ChangeFeed
from stream.session.copies import copy_from, copy_to
from stream.session.executions import Executions
from stream.session.job_status import with_deliveries
from stream.session.queries import Change
from stream.session.rows import chunk_of_rows
from stream.session.subscriptions import Subscriptions
from stream.session.variables import Names, Variables, keeping_frames
from stream.spark.driver import BulkBackfill
from stream.spark.job import OwnSpark, SparkTasks

if TYPE_CHECKING:
    from stream.meta.ddl import Ddl
    from stream.playground import Playground
    from stream.session.queries import SessionQueries

Answer: TypeAlias = Relation | ResultSet | ChangeFeed | pa.Table | int | None


class SessionStatements:
    """Thread safe: all changes are made through the meta node or a table's channel."""

    def __init__(
        self,
        host: Host,
        queries: SessionQueries,
        relation: Callable[[ObjectName], Relation],
        flush: Callable[[], Any],
        jobs: Callable[[], ResultSet],
        errors: Callable[[], ResultSet],
        epochs: Callable[[], ResultSet],
        cursors: Callable[[], ResultSet],
    ) -> None:
        self._host = host
        self._spark = OwnSpark(host.options.stream.spark_master)
        self._catalog = host.catalog
        self._queries = queries
        self._relation = relation
        self._flush = flush
        self._jobs = jobs
        self._errors, self._epochs, self._cursors = errors, epochs, cursors
        self._subscriptions = Subscriptions(host)
        self._settings = queries.settings
        self._transaction = queries.transaction
        self.executions = Executions(
            host, queries, self.now, lambda: self.settings, self._transaction, self.run, queries.settled
        )

    @property
    def _playground(self) -> Playground:
        """Where the jobs run. ReadOnlySession."""
        if isinstance(self._host, ServingNode):
            raise ReadOnlySession("a statement about running jobs")
        return self._host

    @property
    def _ddl(self) -> Ddl:
        return self._playground.meta.ddl

    @property
    def settings(self) -> Hashable:
        """All settings that the meaning of a query or data change depends on."""
        return self._settings.changed

    def run_text(
        self, text: str, given: Given, names: Names
    ) -> tuple[Relation | ResultSet | ChangeFeed | int | None, bool]:
        """The result of the last statement of a text, see Session.sql, and whether that is a query. `names`: the
        variables of the program. An error aborts the transaction."""
        try:
            answer: Answer = self.executions.run(text, given, names)
            is_query = isinstance(answer, Relation)
            for statement in () if answer is not None else self.bind(text, given, names):
                answer, is_query = self.run(statement), isinstance(statement, bound.Select)
        except BaseException as error:
            self._transaction.abort(error)
            raise
        return (ResultSet(answer) if isinstance(answer, pa.Table) else answer), is_query

    def bind(self, text: str, none: Given = (), names: Names = None) -> Iterator[bound.Statement]:
        """The statements of a text, each bound lazily; `none`: no values of parameters. ParseError, BindError."""
        parameters = Parameters(none, is_by_value=True)
        return bind_sql(
            text, self._catalog, self.now(), parameters, self._settings.is_set, Variables(self._host, names)
        )

    def run(self, statement: bound.Statement) -> Answer:
        """The result of one statement, see Session.sql."""
        self._transaction.check(statement)
        return _HANDLERS[type(statement)](self, statement)

    def close(self) -> None:
        """Ends the transaction, and the Spark session that a statement started."""
        self._transaction.end()
        self._subscriptions.close()
        self._spark.close()

    def now(self) -> datetime:
        """The value of now() in a query or data change that is bound now: the time at which the transaction began."""
        return self._transaction.now or datetime.fromtimestamp(wall_clock_ms() / 1_000, UTC)

    @property
    def agg_phases(self) -> AggPhases:
        """The phases of the aggregations of jobs that are created now."""
        return agg_phases(self._settings.is_set)

    # -- DDL -------------------------------------------------------------------------------------------

    def _create_table(self, statement: bound.CreateTable) -> Relation:
        query = statement.query
        if query is None:
            return self._created(statement.table, statement.if_not_exists, self._ddl.create_table)
        return self._created(statement.table, statement.if_not_exists, lambda draft: self.create_table_as(draft, query))

    def create_table_as(self, draft: TableCatalog, query: LogicalPlan) -> TableCatalog:
        """The table with the committed rows of `query`, which has its columns: both are committed at once. Duplicate;
        what `SessionQueries.first_rows` raises, before anything was created."""
        self._ddl.check_new(draft)
        return self._ddl.create_table(draft, self._queries.first_rows(draft, query))

    def create_table_of(self, draft: TableCatalog, rows: pa.Table | None) -> TableCatalog:
        """The table, with `rows` if there are some: both are committed at once. Errors as `create_table_as`."""
        if rows is None:
            return self._ddl.create_table(draft)
        self._ddl.check_new(draft)
        chunk = chunk_of_rows(writable(draft), rows)
        return self._ddl.create_table(draft, self._queries.checked_first_rows(draft, chunk))

    def _create_source(self, statement: bound.CreateSource) -> Relation:
        return self._created(statement.source, statement.if_not_exists, self._ddl.create_source)

    def _create_sink(self, statement: bound.CreateSink) -> Relation:
        return self._created(statement.sink, statement.if_not_exists, self._job_of(statement.parallelism))

    def _create_materialized_view(self, statement: bound.CreateMaterializedView) -> Relation:
        if statement.backfill is bound.Backfill.SPARK:
            return self._created(statement.view, statement.if_not_exists, self.create_in_bulk)
        return self._created(statement.view, statement.if_not_exists, self._job_of(statement.parallelism))

    def _job_of(self, parallelism: int | None = None) -> Callable[[TableCatalog], TableCatalog]:
        """Creates the job of a draft, with this parallelism or that of the session."""
        return lambda draft: self._ddl.create_job(draft, parallelism or self._settings.parallelism)

    def create_in_bulk(self, view: TableCatalog) -> TableCatalog:
        """The view, whose existing rows the Spark session of this process computes. Errors as `OwnSpark.session` and
        `BulkBackfill.create`."""
        return BulkBackfill(SparkTasks(self._spark.session(view.name))).create(self._playground, view)

    def _create_view(self, statement: bound.CreateView) -> Relation:
        return self._created(statement.view, statement.if_not_exists, self._ddl.create_view)

    def _create_index(self, statement: bound.CreateIndex) -> Relation:
        return self._created(statement.index, statement.if_not_exists, self._job_of())

    def _created(
        self, draft: TableCatalog, if_not_exists: bool, create: Callable[[TableCatalog], TableCatalog]
    ) -> Relation:
        name = self._catalog.snapshot.name_of(draft)
        if not (if_not_exists and self._catalog.find(name)):
            create(draft)
        return self._relation(name)

    def _create_function(self, statement: bound.CreateFunction) -> None:
        draft = statement.function
        known = self._catalog.snapshot.find_function(draft.schema_id, draft.name)
        if not (statement.if_not_exists and known):
            self._ddl.create_function(draft, replaces=statement.replaces)

    def _drop_function(self, statement: bound.DropFunction) -> None:
        self._ddl.drop_function(statement.function.id, cascade=statement.cascade)

    def _create_schema(self, statement: bound.CreateSchema) -> None:
        known = self._catalog.snapshot.find_schema(statement.name, statement.database)
        if not (statement.if_not_exists and known):
            self._ddl.create_schema(statement.name, statement.database)

    def _create_database(self, statement: bound.CreateDatabase) -> None:
        if not (statement.if_not_exists and self._knows_database(statement.name)):
            self._ddl.create_database(statement.name)

    def _add_column(self, statement: bound.AddColumn) -> None:
        self._ddl.add_column(
            statement.table.id,
            statement.name,
            statement.data_type,
            statement.default,
            not_null=statement.not_null,
            max_length=statement.max_length,
        )

    def _drop_column(self, statement: bound.DropColumn) -> None:
        self._ddl.drop_column(statement.table.id, statement.name, cascade=statement.cascade)

    def _rename_column(self, statement: bound.RenameColumn) -> None:
        self._ddl.rename_column(statement.table.id, statement.name, statement.new)

    def _rename(self, statement: bound.Rename) -> None:
        self._ddl.rename(statement.table.id, statement.name, statement.definition)

    def _resume(self, statement: bound.Resume) -> None:
        self._playground.meta.revival.resume(statement.table, statement.skip)

    def _set_parallelism(self, statement: bound.SetParallelism) -> None:
        self._ddl.set_parallelism(statement.table, statement.parallelism)

    def _set_ttl(self, statement: bound.SetTtl) -> None:
        self._ddl.set_ttl(statement.table.id, statement.ttl_ms)

    def _comment(self, statement: bound.Comment) -> None:
        self._ddl.comment(statement.table.id, statement.column, statement.text)

    def _set_option(self, statement: bound.SetOption) -> None:
        self._settings.set(statement.name, statement.value)

    def _drop(self, statement: bound.Drop) -> None:
        if statement.table is not None:
            self._ddl.drop(statement.name, cascade=statement.cascade)

    def _drop_schema(self, statement: bound.DropSchema) -> None:
        known = self._catalog.snapshot.find_schema(statement.name, statement.database)
        if known or not statement.if_exists:
            self._ddl.drop_schema(statement.name, statement.database, cascade=statement.cascade)

    def _drop_database(self, statement: bound.DropDatabase) -> None:
        if self._knows_database(statement.name) or not statement.if_exists:
            self._ddl.drop_database(statement.name)

    def _nothing(self, statement: bound.Nothing) -> None:
        """No effect, because of IF EXISTS or IF NOT EXISTS."""

    def _knows_database(self, name: str) -> bool:
        return any(database.name == name for database in self._catalog.snapshot.databases.values())

    # -- data ------------------------------------------------------------------------------------------

    def _insert(self, statement: bound.Insert) -> int | pa.Table:
        if statement.returning is not None:
            rows = self._queries.returned_by_insert(statement.table, statement.query, statement.returning)
            return self._queries.settled(rows)
        return self._queries.settled(self._queries.insert(statement.table, statement.query))

    def _copy_from(self, statement: bound.CopyFrom) -> int:
        return self._queries.settled(copy_from(statement, self._queries))

    def _copy_to(self, statement: bound.CopyTo) -> int:
        return copy_to(statement, self._queries)

    def _update(self, statement: bound.Update) -> int | pa.Table:
        keys = self._keys(statement.table, statement.keys)
        if statement.returning is not None:
            change = Change(statement.assignments, statement.predicate)
            return self._queries.settled(
                self._queries.returned_by_change(statement.table, change, keys, statement.returning)
            )
        update = self._queries.update
        return self._queries.settled(update(statement.table, statement.assignments, statement.predicate, keys))

    def _delete(self, statement: bound.Delete) -> int | pa.Table:
        keys = self._keys(statement.table, statement.keys)
        if statement.returning is not None:
            change = Change(None, statement.predicate)
            return self._queries.settled(
                self._queries.returned_by_change(statement.table, change, keys, statement.returning)
            )
        return self._queries.settled(self._queries.delete(statement.table, statement.predicate, keys))

    def _keys(self, table: TableCatalog, query: LogicalPlan | None) -> DataChunk | None:
        """The primary keys of rows that a condition with subqueries selects: after all earlier changes are committed,
        or at the epoch of the transaction."""
        if query is None:
            return None
        if not self._transaction.is_open:
            self._flush()
        return self._queries.keys_of(table, query)

    def _prepare(self, statement: bound.Prepare) -> None:
        self.executions.prepare(statement)

    def _execute(self, statement: bound.Execute) -> pa.Table | int:
        return self.executions.execute(statement)

    def _deallocate(self, statement: bound.Deallocate) -> None:
        self.executions.deallocate(statement)

    def _wait(self, statement: bound.Flush) -> None:
        self._flush()

    # -- answers ---------------------------------------------------------------------------------------

    def _select(self, statement: bound.Select) -> Relation:
        return Relation(keeping_frames(statement.plan), self._queries, statement.views)

    def _begin(self, statement: bound.Begin) -> None:
        self._transaction.begin(statement.is_read_only, self.now())

    def _end(self, statement: bound.End) -> int | None:
        if statement.is_rollback:
            self._transaction.end()
            return None
        return self.commit()

    def commit(self) -> int | None:
        """Ends the transaction: the rows affected by its changes, which are committed; None without changes."""
        rows = self._transaction.commit()
        if rows is not None:
            self._flush()
        return rows

    def _declare(self, statement: bound.DeclareCursor) -> None:
        self._transaction.declare(statement.name, self._select(statement.query))

    def _fetch(self, statement: bound.Fetch) -> pa.Table:
        if self._transaction.has_cursor(statement.name):
            return self._transaction.fetch(statement.name, statement.count)
        return self._subscriptions.fetch(statement.name, statement.count)

    def _subscribe(self, statement: bound.Subscribe) -> ChangeFeed:
        return ChangeFeed(self._host, statement.table, statement.since, follow=True)

    def _create_subscription(self, statement: bound.CreateSubscription) -> None:
        self._subscriptions.create(
            statement.name, statement.table, statement.retention_ms, if_not_exists=statement.if_not_exists
        )

    def _drop_subscription(self, statement: bound.DropSubscription) -> None:
        self._subscriptions.drop(statement.name, if_exists=statement.if_exists)

    def _show_subscriptions(self, statement: bound.ShowSubscriptions) -> ResultSet:
        return self._cursors()

    def _close_cursor(self, statement: bound.CloseCursor) -> None:
        self._transaction.close_cursor(statement.name)

    def _show(self, statement: bound.Show) -> pa.Table:
        shown = introspect.show(statement, self._catalog)
        if statement.kind is not bound.ShowKind.SINKS:
            return shown
        known = self._catalog.snapshot
        deliveries = {} if isinstance(self._host, ServingNode) else self._playground.deliveries.status()
        within = (statement.schema or PUBLIC).id
        return with_deliveries(shown, [deliveries.get(sink.id) for sink in known.list(TableKind.SINK, within)])

    def _show_options(self, statement: bound.ShowOptions) -> pa.Table:
        return introspect.show_settings(statement.name, self._settings)

    def _show_jobs(self, statement: bound.ShowJobs) -> ResultSet:
        return self._jobs()

    def _show_errors(self, statement: bound.ShowErrors) -> ResultSet:
        return self._errors()

    def _show_epochs(self, statement: bound.ShowEpochs) -> ResultSet:
        return self._epochs()

    def _show_memory(self, statement: bound.ShowMemory) -> pa.Table:
        return self.memory(statement.table)

    def memory(self, table: TableCatalog | None) -> pa.Table:
        """What the operators of all running jobs, or of that of `table`, keep in memory, see `stream.job_memory`.
        JobFailed."""
        known = self._catalog.snapshot
        if table is not None:
            self._ddl.check_runs([table.id])
        jobs = known.jobs() if table is None else [table]
        return memory_table(self._playground.memory(), {job.id: str(known.name_of(job)) for job in jobs})

    def _show_create(self, statement: bound.ShowCreate) -> ResultSet:
        return ResultSet(introspect.show_create(statement.table, self._catalog.snapshot), "definition")

    def _show_create_function(self, statement: bound.ShowCreateFunction) -> ResultSet:
        return ResultSet(introspect.show_create_function(statement.function, self._catalog.snapshot), "definition")

    def _describe(self, statement: bound.Describe) -> pa.Table:
        return introspect.describe(statement.table)

    def _explained(self, statement: bound.Explain) -> ResultSet:
        return ResultSet(pa.table({"plan": self.explain(statement.statement).split("\n")}), "plan")

    def _explain_analyzed(self, statement: bound.ExplainAnalyze) -> pa.Table:
        return self.analyze(statement.table, statement.seconds)

    def analyze(self, table: TableCatalog, seconds: float) -> pa.Table:
        """The profile of a running job, see `stream.job_profile`: from one commit to the first one after `seconds`.
        JobFailed, JobNotRunning, ProfileInterrupted."""
        self._ddl.check_runs([table.id])
        elapsed = 0.0

        def interval() -> None:
            nonlocal elapsed
            began = monotonic_seconds()
            time.sleep(seconds)
            self._flush()
            elapsed = monotonic_seconds() - began

        self._flush()
        fragments = self._playground.profile(table, interval)
        return profile_table(fragments, elapsed, self._playground.storage.table_bytes(measured_tables(fragments)))

    def explain(self, statement: bound.Statement) -> str:
        """The plan of a statement, as text."""
        if isinstance(statement, bound.Explain):
            return self.explain(statement.statement)
        if isinstance(statement, bound.ExplainAnalyze):
            return profile_text(self.analyze(statement.table, statement.seconds))
        if isinstance(statement, bound.CreateMaterializedView):
            return self._explain_view(statement.view, statement.plan)
        if isinstance(statement, bound.CreateSink):
            return self._explain_view(statement.sink, statement.plan)
        if isinstance(statement, bound.Select):
            return self.explain_query(statement.plan)
        if isinstance(statement, bound.CreateTable) and statement.query is not None:
            return f"CreateTable {statement.table.name}\n  {_indented(plan_query(statement.query).explain())}"
        if isinstance(statement, bound.Insert):
            return f"Insert {statement.table.name}\n  {_indented(plan_query(statement.query).explain())}"
        return type(statement).__name__

    def explain_query(self, query: LogicalPlan) -> str:
        """The logical and the batch plan of a query, and the stream plan of a view of it."""
        logical, batch = optimize(query).explain(), self._queries.planned(query).query.plan.explain()
        text = f"logical\n  {_indented(logical)}\nbatch\n  {_indented(batch)}"
        try:
            draft, plan = view_of("view", query, "", phases=self.agg_phases)
            return text + "\nas a view\n  " + _indented(explained(self._playground.meta.planner.explained(draft, plan)))
        except (BindError, PlanNotSupported, ReadOnlySession) as refusal:
            return f"{text}\nas a view\n  no: {refusal}"

    def _explain_view(self, view: TableCatalog, query: LogicalPlan) -> str:
        stream = explained(self._playground.meta.planner.explained(view, query))
        return f"logical\n  {_indented(query.explain())}\nstream\n  {_indented(stream)}"


_HANDLERS: Mapping[type, Callable[[SessionStatements, Any], Any]] = {
    bound.CreateTable: SessionStatements._create_table,
    bound.CreateSource: SessionStatements._create_source,
    bound.CreateSink: SessionStatements._create_sink,
    bound.CreateMaterializedView: SessionStatements._create_materialized_view,
    bound.CreateView: SessionStatements._create_view,
    bound.CreateIndex: SessionStatements._create_index,
    bound.CreateFunction: SessionStatements._create_function,
    bound.CreateSchema: SessionStatements._create_schema,
    bound.CreateDatabase: SessionStatements._create_database,
    bound.AddColumn: SessionStatements._add_column,
    bound.DropColumn: SessionStatements._drop_column,
    bound.RenameColumn: SessionStatements._rename_column,
    bound.Rename: SessionStatements._rename,
    bound.Resume: SessionStatements._resume,
    bound.SetParallelism: SessionStatements._set_parallelism,
    bound.SetTtl: SessionStatements._set_ttl,
    bound.Comment: SessionStatements._comment,
    bound.SetOption: SessionStatements._set_option,
    bound.ShowOptions: SessionStatements._show_options,
    bound.Nothing: SessionStatements._nothing,
    bound.Drop: SessionStatements._drop,
    bound.DropFunction: SessionStatements._drop_function,
    bound.DropSchema: SessionStatements._drop_schema,
    bound.DropDatabase: SessionStatements._drop_database,
    bound.Insert: SessionStatements._insert,
    bound.Update: SessionStatements._update,
    bound.Delete: SessionStatements._delete,
    bound.CopyFrom: SessionStatements._copy_from,
    bound.CopyTo: SessionStatements._copy_to,
    bound.Prepare: SessionStatements._prepare,
    bound.Execute: SessionStatements._execute,
    bound.Deallocate: SessionStatements._deallocate,
    bound.Flush: SessionStatements._wait,
    bound.Select: SessionStatements._select,
    bound.Begin: SessionStatements._begin,
    bound.End: SessionStatements._end,
    bound.DeclareCursor: SessionStatements._declare,
    bound.Fetch: SessionStatements._fetch,
    bound.CloseCursor: SessionStatements._close_cursor,
    bound.Subscribe: SessionStatements._subscribe,
    bound.CreateSubscription: SessionStatements._create_subscription,
    bound.DropSubscription: SessionStatements._drop_subscription,
    bound.ShowSubscriptions: SessionStatements._show_subscriptions,
    bound.Show: SessionStatements._show,
    bound.ShowJobs: SessionStatements._show_jobs,
    bound.ShowErrors: SessionStatements._show_errors,
    bound.ShowEpochs: SessionStatements._show_epochs,
    bound.ShowMemory: SessionStatements._show_memory,
    bound.ShowCreate: SessionStatements._show_create,
    bound.ShowCreateFunction: SessionStatements._show_create_function,
    bound.Describe: SessionStatements._describe,
    bound.Explain: SessionStatements._explained,
    bound.ExplainAnalyze: SessionStatements._explain_analyzed,
}


def table_draft(
    name: str,
    columns: Mapping[str, str | DataType],
    primary_key: str | Sequence[str] | None,
    append_only: bool,
    on_conflict: str,
    options: Mapping[str, str],
    defaults: Mapping[str, object],
    watermark: tuple[str, str] | None = None,
) -> TableCatalog:
    """The draft of a table described through the fluent API, equal to that of CREATE TABLE … WITH `options`. BindError.
    """
    types = {column: data_type(kind) for column, kind in columns.items()}
    syntax = table_syntax(name, types, primary_key, append_only, on_conflict, options)
    for what, names in (("primary key", syntax.key or ()), ("default of", defaults)):
        missing = [column for column in names if column not in types]
        if missing:
            raise BindError(f"{what} column {missing[0]!r} is no column of table {name!r}")
    syntax.defaults |= {column: constant(value, column, types[column]) for column, value in defaults.items()}
    syntax.watermark = None if watermark is None else watermark_syntax(*watermark)
    return table_of(syntax, "")


def table_syntax(
    name: str,
    types: Mapping[str, DataType],
    primary_key: str | Sequence[str] | None,
    append_only: bool,
    on_conflict: str,
    options: Mapping[str, str],
) -> TableSyntax:
    """The parts of CREATE TABLE for arguments of the fluent API. BindError for an unknown conflict rule."""
    key = [primary_key] if isinstance(primary_key, str) else None if primary_key is None else list(primary_key)
    try:
        conflict = ConflictBehaviour(str(on_conflict).lower())
    except ValueError:
        raise BindError(f"on_conflict is error, overwrite or ignore, not {on_conflict!r}") from None
    return TableSyntax(
        name, list(types.items()), key=key, is_append_only=append_only, conflict=conflict, options=Options(options)
    )


def table_options(
    connector: Mapping[str, str] | None, ttl: str | timedelta | None, row_format: str, vnode_count: int
) -> dict[str, str]:
    """The options of CREATE TABLE for arguments of the fluent API."""
    options = {} if connector is None else connector_options(connector)
    if ttl is not None:
        options[TTL] = ttl_text(ttl) if isinstance(ttl, timedelta) else str(ttl)
    if row_format != RowFormat.ROW:
        options[ROW_FORMAT] = str(row_format)
    if vnode_count != DEFAULT_VNODE_COUNT:
        options[VNODE_COUNT] = str(vnode_count)
    return options


def source_draft(
    name: str,
    columns: Mapping[str, str | DataType],
    connector: Mapping[str, str],
    watermark: tuple[str, str] | None = None,
) -> TableCatalog:
    """The draft of a source described through the fluent API, equal to that of CREATE SOURCE. BindError."""
    types = [(column, data_type(kind)) for column, kind in columns.items()]
    marked = None if watermark is None else watermark_syntax(*watermark)
    return source_of(TableSyntax(name, types, options=Options(connector_options(connector)), watermark=marked), "")


def connector_options(connector: Mapping[str, str]) -> dict[str, str]:
    """The options of a connector, its name among them. BindError for what is no mapping, such as only its name."""
    if not isinstance(connector, Mapping):
        name = connector if isinstance(connector, str) else "name"
        raise BindError(f"connector is the mapping of its options, {{'connector': {name!r}, …}}, not "
                        f"{shortened(repr(connector))}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in connector.items()}


def data_type(kind: str | DataType) -> DataType:
    """The type, or the type named by a string. BindError."""
    return kind if isinstance(kind, DataType) else DataType.parse(kind)


def constant(value: object, column: str, kind: DataType) -> Any:
    """A default, converted to the column's type. BindError if that is not possible."""
    return default_of(literal(UnboundLiteral(value)), column, kind)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
