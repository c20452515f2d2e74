"""Session: the main object of a user. SQL and the fluent API on one store.

Statements are executed in the order they are given. A read sees one committed epoch for all its tables, which is never
older than that of the read before it [R15]. The changes of a statement are readable after `flush()`, or after the next
barrier. Errors of a statement are typed and leave the session unchanged. An acknowledged statement is not undone by
other failures; if a recovery could not keep one, StatementsLost names it at the next call of any kind. Thread safe."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hummock.base.process import usable_memory_bytes
from hummock.epoch import Epoch
from hummock.errors import InvalidOption
from hummock.options import check_range
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import BindError, shortened
from relational.plan.changes import column_of, writable
from relational.plan.view import plain_view_of, sink_into, sink_of, view_of
from relational.relation import Relation
from relational.result import ResultSet
from relational.types import DataType
from relational.types.vnodes import DEFAULT_VNODE_COUNT
from stream.engine_choice import PROCESS, SPARK, EngineChoice, EngineFigures, choose_engine
from stream.epoch_figures import epochs_table
from stream.errors import InvalidStatement, StatementsLost
from stream.meta.barrier_stats import BarrierFigures
from stream.options import RANGES, TASK_MEMORY_BYTES
from stream.playground import Playground
from stream.session.frames import ArrowColumns, columns_and_rows
from stream.session.inbox_server import InboxServer
from stream.session.ingest import BatchIngestion, IngestReport
from stream.session.reader import ReaderSession
from stream.session.table import Table

if TYPE_CHECKING:
    from datetime import timedelta

    from relational.spark.bulk_load import DataFrame
    from relational.sql.parameters import Given
    from stream.error_counts import RunningErrorCounts
    from stream.session.bulk_load import LoadReport
    from stream.session.functions import Function, Types
    from stream.sink_delivery import DeliveryStatus
    from stream.spark.driver import BulkBackfill
    from stream.spark.job import SparkSession


DRAIN_SECONDS = 5.0
"""How long `close()` waits for sinks that are behind."""


_OPEN: WeakSet[Session] = WeakSet()


def _close_at_exit() -> None:
    """What a program has changed is kept though it ends without `close`. If an error has ended it, no second one of a
    session is raised."""
    with ExitStack() as ending:
        if hasattr(sys, "last_value"):
            ending.enter_context(suppress(Exception))
        for session in list(_OPEN):
            ending.callback(session.close)


threading._register_atexit(_close_at_exit)  # type: ignore[attr-defined]  # `atexit` is after the end of pools


class Session(ReaderSession):
    """What `connect` gives: it runs the tables, views and sinks of a store, and has SQL and methods for them.

        with stream.connect("memory://") as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE MATERIALIZED VIEW rows AS SELECT count(*) AS n FROM t")
            db.execute("INSERT INTO t VALUES (?), (?)", [1, 2])     # 2
            db.flush()
            db.query("SELECT n FROM rows").rows()                   # [{'n': 2}]

    Leaving a `with` block flushes, unless it is left with an error; so does the end of the program, of sessions that
    are open then. Owns its playground."""

    def __init__(self, playground: Playground) -> None:
        from stream.session.functions import SessionFunctions

        self._playground = playground
        super().__init__(playground, playground.node)
        self._functions = SessionFunctions(playground)
        self._ingestion = BatchIngestion(playground, self._queries)
        self._inbox = InboxServer(playground, self._queries, self._ingestion)
        _OPEN.add(self)
        if playground.options.stream.inbox_poll_ms and not playground.url.startswith("memory:"):
            self._inbox.start()

    # -- SQL -------------------------------------------------------------------------------------------

    def execute(
        self,
        text: str,
        params: Given = (),
        *,
        flush: bool = False,
        frames: Mapping[str, object] | None = None,
    ) -> int:
        """As `sql`, for statements that are no query: the rows that the last one has affected or gives, 0 if it is of
        another kind; -1 if their number is not known before COMMIT. `flush`: return when the changes are committed, so
        that the next query sees them. `frames` as in `sql`. InvalidStatement for a query."""
        self._check_open()
        self._queries.check_may_flush(flush)
        answer, is_query = self._statements.run_text(text, params, self._names(frames))
        if is_query:
            raise InvalidStatement("", "execute() runs other statements; query() gives the rows of a query")
        if flush:
            self.flush()
        return answer if isinstance(answer, int) else len(answer) if isinstance(answer, ResultSet) else 0

    def executemany(self, text: str, rows: Iterable[Given], *, flush: bool = False) -> int:
        """Rows affected by an INSERT, UPDATE or DELETE that is executed with each of `rows` as parameters, in order.

        The statements are sent without waiting for one another, many of them in one epoch, and inserted rows in batches
        of a thousand. The first error is raised; other statements and batches, earlier ones and some later ones, are
        executed nevertheless. In a transaction all of them are, or none. `flush` as in `execute`."""
        self._check_open()
        self._queries.check_may_flush(flush)
        try:
            affected = self._statements.executions.run_many(text, rows)
        except BaseException as error:
            self._transaction.abort(error)
            raise
        if flush:
            self.flush()
        return affected

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[None]:
        """BEGIN, and at the end of the `with` block COMMIT, or ROLLBACK if it is left with an error.

            with db.transaction():
                db.sql("UPDATE orders SET amount = amount - 5 WHERE id = 1")
                db.table("orders").update({"amount": 5}, id=2)

        All queries of the block, SQL and relations, read the epoch that was the newest one at its beginning. Changes
        are buffered, up to the option `transaction_bytes`; they are committed at the end, in one epoch, or none of them
        is. They are evaluated then: a table that the block has written cannot be read in it, and an UPDATE or DELETE
        returns -1. It is the transaction of the session, whatever the thread; `ingest` and requests of other processes
        take no part in it. InvalidStatement within another transaction; TransactionAborted at the end if a statement
        failed and its error was caught; the errors of the changes."""
        self._check_open()
        if self._transaction.is_open:
            raise InvalidStatement("", "a transaction is open already: COMMIT or ROLLBACK it first, or leave its block")
        self._transaction.begin(read_only, self._statements.now())
        try:
            yield
            self._transaction.check_not_aborted()
        except BaseException:
            self._transaction.end()
            raise
        self._check_open()
        self._statements.commit()

    def analyze(self, name: str, *, seconds: float = 1.0) -> ResultSet:
        """The result of EXPLAIN ANALYZE: what the running job of a table, view, sink or index does within `seconds`, by
        fragment and executor, see `stream.job_profile`. InvalidOption, NotFound, JobFailed, ProfileInterrupted."""
        from relational.sql.explain import MOST_SECONDS

        if not 0 < seconds <= MOST_SECONDS:
            raise InvalidOption("seconds", seconds, f"above 0, up to {MOST_SECONDS:g}")
        self._check_open()
        return ResultSet(self._statements.analyze(self._playground.catalog.resolve(ObjectName.parse(name)), seconds))

    def memory(self, name: str | None = None) -> ResultSet:
        """The result of SHOW MEMORY: what the operators of all running jobs, or of the job of one table, view, sink or
        index, keep in memory; in the last row the process. See `stream.job_memory`. NotFound, JobFailed."""
        self._check_open()
        job = None if name is None else self._playground.catalog.resolve(ObjectName.parse(name))
        return ResultSet(self._statements.memory(job))

    # -- tables and views ------------------------------------------------------------------------------
    # Names are written as in SQL but are not folded: `orders`, `shop.orders`, `dev.shop.orders`, `"any.thing"`.

    def create_table(
        self,
        name: str,
        columns: Mapping[str, str | DataType] | ArrowColumns,
        *,
        primary_key: str | Sequence[str] | None = None,
        append_only: bool = False,
        on_conflict: str = "error",
        connector: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] = MappingProxyType({}),
        ttl: str | timedelta | None = None,
        row_format: str = "row",
        vnode_count: int = DEFAULT_VNODE_COUNT,
        watermark: tuple[str, str] | None = None,
    ) -> Table:
        """A table, committed when this returns. Without a primary key its rows get a generated, hidden one.

        `columns`: types by name; a schema of Arrow or `relational.Schema`; or a frame of pandas or Polars, or whatever
        else exports Arrow columns, whose rows the table has then. Named levels of a pandas index are columns.

            db.create_table("flights", polars.read_csv("flights.csv"), primary_key="id")

        `on_conflict`: the effect of an inserted row whose key exists: error, overwrite or ignore. `connector`: options
        of the connector that feeds the table, its name under "connector". `defaults`: values of columns that an
        inserted row does not specify. `ttl` ("1 hour"), `row_format` ("row" or "cell") and `vnode_count`: the options
        of CREATE TABLE; `watermark`: the column and the expression of its WATERMARK FOR, see docs/sql.md. Duplicate if
        the name exists; BindError."""
        from stream.session.statements import table_draft, table_options

        self._check_open()
        whole = ObjectName.parse(name)
        types, rows = columns_and_rows(columns)
        options = table_options(connector, ttl, row_format, vnode_count)
        draft = table_draft(whole.name, types, primary_key, append_only, on_conflict, options, defaults, watermark)
        self._statements.create_table_of(self._in_schema(draft, whole), rows)
        return self.table(name)

    def create_table_as(
        self,
        name: str,
        query: Relation,
        *,
        primary_key: str | Sequence[str] | None = None,
        append_only: bool = False,
        on_conflict: str = "error",
        ttl: str | timedelta | None = None,
        row_format: str = "row",
        vnode_count: int = DEFAULT_VNODE_COUNT,
    ) -> Table:
        """A table with the columns and the committed rows of `query`, both of which are committed when this returns, or
        neither if it raises. Arguments as `create_table`. Duplicate, BindError; EvaluationError; DuplicateKey or
        InvalidStatement for rows that the table cannot hold."""
        from relational.sql.ddl.create_table import table_as
        from stream.session.statements import table_options, table_syntax

        self._check_open()
        whole = ObjectName.parse(name)
        options = table_options(None, ttl, row_format, vnode_count)
        syntax = table_syntax(whole.name, {}, primary_key, append_only, on_conflict, options)
        draft, rows = table_as(syntax, query.plan)
        self._statements.create_table_as(self._in_schema(draft, whole), rows)
        return self.table(name)

    def create_source(
        self,
        name: str,
        columns: Mapping[str, str | DataType],
        *,
        connector: Mapping[str, str],
        watermark: tuple[str, str] | None = None,
    ) -> Relation:
        """A source: rows of a connector that are only inserted. Nothing is read before a view or sink names it; each
        reads the connector for itself, with offsets of its own. `watermark`: as in `create_table`. Duplicate,
        UnknownConnector, ConnectorError, BindError."""
        from stream.session.statements import source_draft

        self._check_open()
        whole = ObjectName.parse(name)
        draft = source_draft(whole.name, columns, connector, watermark)
        self._playground.meta.ddl.create_source(self._in_schema(draft, whole))
        return self.relation(name)

    def create_sink(
        self,
        name: str,
        query: Relation,
        *,
        connector: Mapping[str, str] | None = None,
        into: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Table:
        """A sink of the changes of `query`, to a `connector` or `into` a table: into its columns of the same names, or
        the `columns` in their order. The one row of the sink is the state of the delivery: rows inserted, rows deleted,
        digest. Duplicate, UnknownConnector, ConnectorError; BindError for a query that does not fit the table."""
        from stream.session.statements import connector_options

        self._check_open()
        whole, known, query = ObjectName.parse(name), self._playground.catalog, relation_of(query)
        if (connector is None) == (into is None):
            raise BindError("a sink has either a connector or a table into which it writes")
        phases = self._statements.agg_phases
        if into is None:
            options = connector_options(connector or {})
            draft, _ = sink_of(whole.name, query.plan, options, "", query.views, phases)
        else:
            table = writable(known.resolve(ObjectName.parse(into)))
            targets = None if columns is None else [column_of(table, column) for column in columns]
            draft, _ = sink_into(whole.name, query.plan, table, targets, known.snapshot, "", query.views, phases)
        self._playground.meta.ddl.create_job(self._in_schema(draft, whole))
        return self.table(name)

    def create_materialized_view(
        self,
        name: str,
        query: Relation,
        *,
        backfill: SparkSession | BulkBackfill | str | None = None,
        vnode_count: int = DEFAULT_VNODE_COUNT,
        parallelism: int | None = None,
    ) -> Table:
        """A view that holds the rows of `query` when this returns and follows its changes from then on. Statements,
        flushes and other views continue meanwhile; `jobs()` shows how far it is, `drop` from another thread cancels it.

        `backfill`: what computes the existing rows: the executors of a Spark session, a BulkBackfill, or as in SQL
        "stream", the view's own actors, as by default, or "spark", the Spark session of this process. BackfillRefused
        if that is not possible; InvalidOption. `vnode_count`: of all tables of the view. `parallelism`: the actors of
        each of its fragments, 1 to 1,024; None: the session's. JobFailed if it fails before it is complete: then it is
        dropped."""
        if parallelism is not None:
            check_range("parallelism", parallelism, 1, RANGES["parallelism"][1])
        self._check_open()
        whole = ObjectName.parse(name)
        phases = self._statements.agg_phases
        query = relation_of(query)
        draft, _ = view_of(whole.name, query.plan, "", query.views, vnode_count, phases=phases)
        draft = self._in_schema(draft, whole)
        if isinstance(backfill, str):
            backfill = backfill.lower()
        if backfill in (None, "stream"):
            self._playground.meta.ddl.create_job(draft, parallelism)
        elif backfill == "spark":
            self._statements.create_in_bulk(draft)
        else:
            self._create_by(backfill, draft)
        return self.table(name)

    def _create_by(self, backfill: Any, draft: TableCatalog) -> None:
        """A view, whose existing rows executors compute. InvalidOption; errors as `BulkBackfill.create`."""
        from stream.spark.driver import BulkBackfill
        from stream.spark.job import SparkTasks

        if not isinstance(backfill, BulkBackfill):
            check_spark_session("backfill", backfill, ', "stream", "spark" or a BulkBackfill')
            backfill = BulkBackfill(SparkTasks(backfill))
        backfill.create(self._playground, draft)

    def create_view(self, name: str, query: Relation) -> Relation:
        """A named query, which is evaluated when it is read. Duplicate."""
        self._check_open()
        whole, query = ObjectName.parse(name), relation_of(query)
        draft = plain_view_of(whole.name, query.plan, "", query.views)
        self._playground.meta.ddl.create_view(self._in_schema(draft, whole))
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
        """Load the rows of a Spark DataFrame into a table, written by Spark's executors and committed at one epoch.

        `mode`: "append" to the table's rows, "create" the table from the frame's columns with `primary_key`, or
        "overwrite" all of its rows at once. `on_duplicate`, for rows with the same key, including stored ones: "error"
        (DuplicateRows), or keep the "last" or "first" in the order of the frame, with stored rows before all. During
        the load the table accepts no statements. `load_id`: a repeated call with the same id returns the report of the
        first one. `partitions`: of the sort, by default derived from the frame's size. `memory_bytes`: of rows that a
        task buffers. `on_progress(done, total)` is called with the number of finished tasks.

        BulkLoadRefused names the obstacle, such as views that follow the table. Fenced if another process has the
        writer role by now: only the session that has it can load. SparkJobCancelled. After any error the table is
        unchanged.
        """
        from stream.session.bulk_load import BulkLoader, LoadRequest

        self._check_open()
        request = LoadRequest(frame, ObjectName.parse(table), on_duplicate, mode, primary_key, load_id, partitions,
                              memory_bytes, is_cancelled, on_progress)
        return BulkLoader(self._playground, request).run()

    def ingest(
        self, rows: Any, table: str, *, writer: str, batch_id: int, checkpoint: str | None = None
    ) -> IngestReport:
        """Insert batch `batch_id` of a streaming writer, exactly once: returns when its rows are committed, with the
        number of the batch in the same transaction.

            query = frame.writeStream.foreachBatch(
                lambda batch, number: db.ingest(batch, table="orders", writer="orders", batch_id=number)
            ).option("checkpointLocation", ...).start()

        `rows`: a Spark DataFrame, whose rows Spark's executors write to the store, or what `Table.insert` takes, such
        as an Arrow table or a pandas frame; also an empty one. `writer`: a name for the writer, its own in this table.
        `checkpoint`: the id of what counts the batches; None: that of the streaming query whose batch the frame is. A
        batch up to the newest one of the writer is skipped: its rows are there.

        BatchGap, CheckpointChanged: the rows do not follow what is in the table; the text says what to do. DuplicateKey
        or InvalidStatement if the table refuses a row or there are more than `ingest_bytes`; SparkJobFailed; nothing
        of the batch is inserted after any of these. StatementsLost: a recovery could not insert it again."""
        self._check_open()
        return self._ingestion.ingest(rows, table, writer, batch_id, checkpoint)

    def add_column(self, table: str, name: str, kind: str | DataType, *, default: object = None) -> Table:
        """The table with one more column, which has the value `default` in existing rows. No row is rewritten; views
        keep their columns. Duplicate, CatalogError."""
        from stream.session.statements import constant, data_type

        self._check_open()
        whole, found = data_type(kind), self._playground.catalog.resolve(ObjectName.parse(table))
        self._playground.meta.ddl.add_column(found.id, name, whole, constant(default, name, whole))
        return self.table(table)

    def drop_column(self, table: str, name: str, *, cascade: bool = False) -> Table:
        """The table without a column. DependencyError names its readers; `cascade` drops them too."""
        self._check_open()
        found = self._playground.catalog.resolve(ObjectName.parse(table))
        self._playground.meta.ddl.drop_column(found.id, name, cascade=cascade)
        return self.table(table)

    def set_ttl(self, table: str, ttl: str | timedelta) -> Table:
        """The table, whose rows expire so long ("1 hour") after they were inserted, from this commit on. CatalogError
        unless it is append-only, and for a longer time than now; DependencyError names the jobs that follow it."""
        from relational.sql.ddl.options import TTL, Options, ttl_of, ttl_text

        self._check_open()
        text = ttl if isinstance(ttl, str) else ttl_text(ttl)
        ttl_ms = Options({TTL: text}).take(TTL, ttl_of, 0)
        self._playground.meta.ddl.set_ttl(self._playground.catalog.resolve(ObjectName.parse(table)).id, ttl_ms)
        return self.table(table)

    def table(self, name: str) -> Table:
        """The table or materialized view of that name. NotFound; CatalogError for a view: `relation` reads it."""
        found = super().table(name)
        assert isinstance(found, Table)
        return found

    def _handle_of(self, table: TableCatalog) -> Table:
        return Table.of(table, self._queries)

    def create_function(
        self,
        name: str,
        function: Callable[..., Any] | str,
        arguments: Types,
        returns: str | DataType | Mapping[str, str | DataType],
        *,
        volatility: str = "volatile",
        strict: bool = False,
        row_wise: bool = False,
        handler: str | None = None,
        replace: bool = False,
    ) -> Function:
        """A user function, which SQL calls by its name and this API by the returned handle:
        `orders.select(db.function("net")(col("price")))`. It is called once for each chunk, with a pyarrow Array for
        each argument, of visible rows only, and returns an Array of as many values; with `returns` a mapping of columns
        to types it is a table function, which returns (rows, columns): the number of the row that each result belongs
        to, from 0, and the columns, as arrays, a dict or a record batch. See docs/sql.md.

        `function`: one defined by `def`, whose text is stored, so that it may use modules that its own module imports
        and nothing else from around it; or the source text of a module with a function `handler`, by default `name`.
        `arguments`: their types, or a mapping of their names to types. `volatility`: "immutable" (equal arguments have
        equal results: views need it), "stable" within a statement, or "volatile". `strict`: rows with a NULL argument
        have the result NULL, or no rows, without a call. `row_wise`: it is called for each row with Python values,
        which is slow. `replace`: it may be the next version of a function, which views that exist do not call.

        The text is part of the store and runs in the process of each session that calls it, with all of its rights:
        FunctionsNotAllowed unless this session was opened with `allow_user_functions`. BindError for a text that cannot
        be called; Duplicate, NotFound."""
        from stream.session.functions import FunctionDefinition

        self._check_open()
        definition = FunctionDefinition(function, arguments, returns, volatility, strict, row_wise, handler)
        return self._functions.create(name, definition, replaces=replace)

    def create_aggregate(
        self,
        name: str,
        function: Callable[..., Any] | str,
        arguments: Types,
        returns: str | DataType,
        *,
        volatility: str = "volatile",
        strict: bool = False,
        row_wise: bool = False,
        handler: str | None = None,
        state: str | DataType | None = None,
        replace: bool = False,
    ) -> Function:
        """A user aggregate: called for many groups at once, with their int64 offsets, groups + 1 of them, and the
        arguments of all rows, those of group g from offsets[g] to offsets[g + 1]; it returns a value for each group.
        A group's rows come in the order of the call's ORDER BY. `strict`: without rows with a NULL argument.
        `row_wise`: called for each group, with a list for each argument. Otherwise as `create_function`.

        `state`: the type of a state for each group, which the rows of a chunk change, so that the rows themselves are
        not kept. Then `function` is a source text with `accumulate(states, groups, ...)`, which returns the states
        after rows of the arguments, each of the group at its position of `states` (NULL: a new one), and
        `finish(states)`, which returns a value for each; and `retract(states, groups, ...)`, without which views whose
        rows can be deleted keep all rows."""
        from stream.session.functions import FunctionDefinition

        self._check_open()
        definition = FunctionDefinition(function, arguments, returns, volatility, strict, row_wise, handler, True,
                                        state)
        return self._functions.create(name, definition, replaces=replace)

    def function(self, name: str) -> Function:
        """The current version of a user function or aggregate. NotFound, FunctionsNotAllowed."""
        self._check_open()
        return self._functions.get(name)

    def drop_function(self, name: str, *, cascade: bool = False) -> None:
        """Drop a user function or aggregate, with `cascade` also what calls it. NotFound; DependencyError names the
        views, indexes and sinks that call it."""
        self._check_open()
        self._functions.drop(name, cascade=cascade)

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Drop a table, view or index, with `cascade` also its readers. NotFound, DependencyError."""
        self._check_open()
        self._playground.meta.ddl.drop(ObjectName.parse(name), cascade=cascade)

    def create_schema(self, name: str) -> None:
        """A schema, in which names are unique. Duplicate."""
        self._check_open()
        self._playground.meta.ddl.create_schema(name)

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop an empty schema, with `cascade` also its contents. NotFound, DependencyError."""
        self._check_open()
        self._playground.meta.ddl.drop_schema(name, cascade=cascade)

    def _in_schema(self, draft: TableCatalog, name: ObjectName) -> TableCatalog:
        """The draft with the schema of its name. NotFound."""
        return replace(draft, schema_id=self._playground.catalog.resolve_schema(name.schema, name.database).id)

    # -- time ------------------------------------------------------------------------------------------

    def flush(self) -> Epoch:
        """Wait until everything sent so far is committed; the epoch that holds it.

        StatementsLost as from any call; later statements are committed nevertheless. Fenced, RecoveryFailed, Corruption
        if the session has ended.
        """
        self._check_open()
        epoch = self._playground.meta.flush().result()
        self._check_lost()
        return Epoch(epoch)

    def pause(self) -> None:
        """Pause all sources from the next barrier on, which is committed when this returns."""
        self._check_open()
        self._playground.meta.ddl.pause(True)

    def resume(self) -> None:
        """Resume all sources."""
        self._check_open()
        self._playground.meta.ddl.pause(False)

    # -- jobs ------------------------------------------------------------------------------------------

    def _deliveries(self) -> Mapping[int, DeliveryStatus]:
        return self._playground.deliveries.status()

    def _are_sources_paused(self) -> bool:
        return self._playground.meta.sources_paused

    def _running_errors(self) -> RunningErrorCounts:
        return self._playground.errors

    def wait_created(self, *names: str) -> None:
        """Wait until these views, indexes and sinks are created, or all that are being created; an interrupted CREATE
        goes on when the store is opened again. JobFailed, NotFound; both leave the others as they are."""
        self._check_open()
        known, meta = self._playground.catalog.snapshot, self._playground.meta
        jobs = [self._playground.catalog.resolve(ObjectName.parse(name)) for name in names]
        for job in jobs or [known.tables[job_id] for job_id in sorted(known.creating)]:
            meta.creations.wait(job.id, job.name)

    def resume_job(self, name: str, *, skip: int = 0) -> Table:
        """Resume the job of a table, view or index that was set aside, with its readers. `skip`: how many malformed
        records its source skips, or rows if it did not fail at a malformed record. InvalidStatement if the job runs,
        JobNotRunning if it reads one that does not."""
        self._check_open()
        self._playground.meta.revival.resume(self._playground.catalog.resolve(ObjectName.parse(name)), skip)
        return self.table(name)

    @property
    def figures(self) -> BarrierFigures:
        """Latencies and counts of barriers."""
        return self._playground.meta.figures

    @property
    def emitted_changes(self) -> int:
        """Changes that the fragments of all running jobs have emitted since they were built."""
        return sum(each.rows for each in self._playground.fragments())

    def epochs(self) -> ResultSet:
        """The last epochs that ran as tasks of a Spark engine, the newest one last, a row for each stage: when, where,
        how long, how many tasks, changes and bytes, and how evenly they were divided. See `stream.epoch_figures`.
        """
        return ResultSet(epochs_table(self._playground.node.recent_epochs()))

    def engine_choice(self, *, seconds: float = 1.0) -> EngineChoice:
        """Which engine the jobs should run on, by what they do within `seconds`: the rule is in
        `stream.engine_choice`."""
        before = sum(each.cpu_seconds for each in self._playground.fragments())
        time.sleep(seconds)
        busy = max(sum(each.cpu_seconds for each in self._playground.fragments()) - before, 0.0) / seconds
        tables = self._playground.catalog.snapshot.tables
        state = sum(self._playground.storage.table_bytes(tables).values())
        engine = SPARK if self._playground.is_divided else PROCESS
        return choose_engine(EngineFigures(engine, busy, os.cpu_count() or 1, state, usable_memory_bytes()))

    def check_alive(self) -> None:
        """Raises what ended the session, if something did."""
        self._check_open()
        self._playground.meta.check_alive()

    # -- end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close. Idempotent. Raises as flush does, and is closed nevertheless. Waits a few seconds for sinks
        that are behind.

        No effect in a forked child: the session belongs to the parent.
        """
        if not self._is_closed and not self._playground.storage.is_forked:
            try:
                self.flush()
                if self._playground.deliveries.drain(DRAIN_SECONDS):
                    self.flush()  # so that it is not delivered again
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close without a flush: uncommitted changes are lost."""
        self._is_closed = True
        _OPEN.discard(self)
        if self._playground.storage.is_forked:
            return
        self._transaction.close()
        self._inbox.stop()
        try:
            self._playground.close()
        finally:
            self._inbox.join()
            self._statements.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def _check_open(self) -> None:
        super()._check_open()
        self._check_lost()

    def _check_lost(self) -> None:
        """StatementsLost if acknowledged statements were lost since the last call."""
        lost = self._playground.node.pending.take_lost()
        if lost:
            raise StatementsLost(lost)


def check_spark_session(option: str, value: object, others: str = "") -> None:
    """InvalidOption for what is no Spark session: `others` is what the option can be, too."""
    if not hasattr(value, "createDataFrame"):
        raise InvalidOption(option, value, f"a Spark session (SparkSession.builder.getOrCreate()){others}")


def relation_of(query: object) -> Relation:
    """`query` itself. BindError for what is no relation, such as a text of SQL."""
    if isinstance(query, Relation):
        return query
    hint = f"db.sql({shortened(query)!r}) gives one" if isinstance(query, str) else f"not {type(query).__name__}"
    raise BindError(f"the query is a relation: {hint}")
