"""SessionQueries: the reads and data changes of a session, from SQL and from the fluent API.

A read is at one committed epoch, which is never older than that of the read before it [R15]. A change returns when the
table's own actor has evaluated it on the table's current state [R14]: then its success and the rows affected are
known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pyarrow as pa

from hummock.epoch import SPILL_MASK, Epoch, pure_epoch, to_unix_ms, wall_clock_ms
from hummock.errors import InvalidEpoch
from relational.batch import PreparedQuery, RecursionLimits, plan_query
from relational.catalog.changes import changed_after
from relational.catalog.objects import ConflictBehaviour, RowFormat, TableCatalog
from relational.catalog.snapshot import CatalogSnapshot
from relational.chunk import DataChunk, StreamChunk
from relational.errors import BindError, InvalidValue, NotFound
from relational.expr.expression import Expression, Literal
from relational.plan.cardinality import TableRows
from relational.plan.descent import transformed
from relational.plan.logical import ExternalScan, LogicalPlan, Scan, nodes
from relational.table.column_cache import COUNTED, ColumnCache
from relational.table.row_checks import check_rows, first_repeated_key
from stream.errors import DuplicateKey, InvalidStatement, ReadOnlySession
from stream.message import DeleteRows, InsertRows, Statement, UpdateRows
from stream.meta.creations import check_created
from stream.meta.job_failures import job_error

if TYPE_CHECKING:
    from hummock.meta.store.base import MetaOperations
    from relational.sql.settings import Settings
    from relational.sql.statement import Returning
    from stream.serving import Host
    from stream.session.transaction import Transaction
    from stream.worker.session_worker import SessionWorker

Method = TypeVar("Method", bound=Callable[..., Any])
Rows = TypeVar("Rows", int, pa.Table)
MOST_PLANS = 256
"""Of relations, whose batch plans are kept."""
NOT_KNOWN = -1
"""Rows affected by an UPDATE or DELETE in a transaction, before COMMIT; as in the DB-API."""


class Change(NamedTuple):
    """The assignments of an update, None for a delete; the predicate; the values of the parameters of both."""

    assignments: tuple[tuple[int, Expression], ...] | None
    predicate: Expression | None
    values: tuple[Literal, ...] = ()


def total(rows: Iterable[int]) -> int:
    """Rows affected by several changes: NOT_KNOWN if those of one are not."""
    counts = list(rows)
    return NOT_KNOWN if NOT_KNOWN in counts else sum(counts)


def aborting(method: Method) -> Method:
    """A method of SessionQueries whose errors abort the transaction, if there is one."""

    @wraps(method)
    def run(self: SessionQueries, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except BaseException as error:
            self.transaction.abort(error)
            raise

    return cast(Method, run)


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A logical plan `source`, the columns of it that are `shown`, the ids of the tables that it reads at the epoch of
    the query and of those that it reads at `epochs` of their own, and how it is executed over the catalog `known`
    (None: without indexes)."""

    source: LogicalPlan
    shown: Sequence[int]
    tables: tuple[int, ...]
    past_tables: tuple[int, ...]
    epochs: tuple[Epoch, ...]
    query: PreparedQuery
    known: CatalogSnapshot | None


def plan_for(
    plan: LogicalPlan, shown: Sequence[int], known: CatalogSnapshot | None, host: Host
) -> PlannedQuery:
    """Plans a query. Its joins are ordered by the sizes of the tables, and it may read the indexes that `known` has,
    unless these are incomplete or set aside. BindError for a plan that is too deep."""
    failed = {} if known is None else host.failed_jobs()

    def indexes(table_id: int) -> list[TableCatalog]:
        found = () if known is None else known.indexes_of(table_id)
        return [index for index in found if index.id not in failed]

    scans = [node for node in nodes(plan) if isinstance(node, Scan)]
    tables = tuple(dict.fromkeys(scan.table.id for scan in scans if scan.epoch is None))
    past = tuple(dict.fromkeys(scan.table.id for scan in scans if scan.epoch is not None))
    epochs = tuple(dict.fromkeys(Epoch(scan.epoch) for scan in scans if scan.epoch is not None))
    batch = plan_query(plan, indexes, estimated_rows_in(host))
    query = PreparedQuery(batch, shown, host.storage, recursion_limits(host), host.query_memory)
    return PlannedQuery(plan, shown, tables, past, epochs, query, known)


def has_external_rows(plan: LogicalPlan) -> bool:
    """Whether it reads files, or frames of the program."""
    return any(isinstance(node, ExternalScan) for node in nodes(plan))


def check_not_dropped(plan: LogicalPlan, known: CatalogSnapshot) -> None:
    """NotFound if a table of the plan is gone since it was bound: its rows went with it, at all epochs."""
    for node in nodes(plan):
        if isinstance(node, Scan) and node.table.id not in known.tables:
            raise NotFound(f"{node.table.name!r} was dropped", name=node.table.name)


def recursion_limits(host: Host) -> RecursionLimits:
    """Of the queries of a session."""
    options = host.options.stream
    return RecursionLimits(options.recursion_rounds, options.recursion_rows)


def estimated_rows_in(host: Host) -> TableRows:
    """The rows of a table by the sizes of the files that have them."""
    entries: dict[int, float] = {}

    def rows(table: TableCatalog) -> float:
        if table.id not in entries:
            entries.update(host.storage.table_entries((table.id,)))
        of_row = len(table.columns) - len(table.pk) + 1 if table.row_format is RowFormat.CELL else 1
        return entries[table.id] / of_row

    return rows


class SessionQueries:
    """Executes the reads and changes of all relations of a session; in its `transaction`, if that is open. Thread safe.

    Without the `worker` that carries them out, changes raise ReadOnlySession."""

    def __init__(
        self,
        host: Host,
        transaction: Transaction,
        settings: Settings,
        worker: SessionWorker | None,
        flush: Callable[[], Any],
    ) -> None:
        """`flush()` returns when all changes that were sent are committed."""
        self.transaction, self.settings, self._flush = transaction, settings, flush
        self.host, self._storage, self._worker = host, host.storage, worker
        self._catalog = host.catalog
        self._rows_limit = host.options.stream.statement_rows
        self._bytes_limit = host.options.stream.ingest_bytes
        cache_bytes = host.options.stream.column_cache_bytes
        self._columns = ColumnCache(cache_bytes, self._storage.unchanged_since)
        host.metrics.watch(lambda: self._columns.counts, COUNTED)
        self._lock = threading.Lock()
        self._planned: dict[int, PlannedQuery] = {}  # by the id of the logical plan, which it keeps

    @property
    def _node(self) -> SessionWorker:
        if self._worker is None:
            raise ReadOnlySession("a change")
        return self._worker

    # -- reads -----------------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        """The epoch of a read that begins now; it never decreases."""
        return self._storage.committed_epoch

    @aborting
    def query(self, plan: LogicalPlan, values: Sequence[Literal] = ()) -> pa.Table:
        """The rows of a plan, without hidden columns; `values` are those of its parameters by number. EvaluationError,
        EpochTooOld; JobFailed if it reads a table that was set aside and is no longer fresh, JobCreating if it reads a
        view that does not have all its rows yet; InvalidStatement if it reads a table that the transaction has
        written."""
        return self.rows_of(self.planned(plan), values)

    def preview(self, plan: LogicalPlan) -> pa.Table:
        """As `query`; the plan is not kept, and an error does not abort the transaction."""
        return self._rows_of(plan_for(plan, plan.visible, self._catalog.snapshot, self.host))

    @aborting
    def rows_of(self, planned: PlannedQuery, values: Sequence[Literal] = ()) -> pa.Table:
        """As `query`, with the values of parameters by number, that of 0 the time; at the epoch that is set, else at
        that of the transaction or the newest one. ParameterError."""
        return self._rows_of(planned, values)

    def _rows_of(self, planned: PlannedQuery, values: Sequence[Literal] = ()) -> pa.Table:
        past, is_in_transaction = self.settings.query_epoch, self.transaction.is_open
        self._check_fresh(planned, is_past=past is not None)
        if past is not None or planned.epochs or is_in_transaction:
            with self._pinned(planned, past) as (pinned, epoch):
                return self._without_indexes(pinned).query.rows_at(epoch, values)
        rows = planned.query.rows(values, self._storage.snapshot, self._columns)
        self._check_not_dropped(planned)
        if planned.query.indexes and not planned.query.indexes <= self._catalog.snapshot.tables.keys():
            return self._rows_of(self.replanned(planned), values)  # an index was dropped, whose rows are gone at once
        return rows

    @contextmanager
    def batches(self, plan: LogicalPlan) -> Iterator[Iterator[pa.RecordBatch]]:
        """As `query`, in batches that are computed as they are asked for, within the block."""
        planned = self.planned(plan)
        past, schema = self.settings.query_epoch, plan.schema.project(plan.visible)
        self._check_fresh(planned, is_past=past is not None)
        with self._pinned(planned, past) as (pinned, epoch):
            chunks = self._without_indexes(pinned).query.chunks((), epoch)
            yield (chunk.project(plan.visible).to_arrow(schema) for chunk in chunks)

    def planned(self, plan: LogicalPlan) -> PlannedQuery:
        """A logical plan as it is executed. It is planned once for each version of the catalog, while it is among the
        last ones, unless it holds rows that are not of the store."""
        known = self._catalog.snapshot
        found = self._planned.get(id(plan))
        if found is not None and found.source is plan and found.known is known:
            return found
        planned = plan_for(plan, plan.visible, known, self.host)
        if has_external_rows(plan):
            return planned
        with self._lock:
            self._planned[id(plan)] = planned
            while len(self._planned) > MOST_PLANS:
                self._planned.pop(next(iter(self._planned)))
        return planned

    def current(self, planned: PlannedQuery) -> PlannedQuery:
        """The same, planned again if the catalog is another one since."""
        return planned if planned.known is self._catalog.snapshot else self.replanned(planned)

    def replanned(self, planned: PlannedQuery) -> PlannedQuery:
        """For the current catalog."""
        known = self._catalog.snapshot
        return plan_for(planned.source, planned.shown, known, self.host)

    def _without_indexes(self, planned: PlannedQuery) -> PlannedQuery:
        """For an older epoch, at which an index may lack rows."""
        return plan_for(planned.source, planned.shown, None, self.host) if planned.query.indexes else planned

    @contextmanager
    def _pinned(self, planned: PlannedQuery, past: int | None = None) -> Iterator[tuple[PlannedQuery, Epoch]]:
        """The query with epochs in place of times, and the epoch at which it reads: `past`, else that of the
        transaction or the newest one. All of them are pinned. EpochTooOld, InvalidEpoch; BindError for a table that a
        DDL after `past` has changed [R59]."""
        with ExitStack() as pins:
            epoch = self.transaction.reading(planned.tables)
            if past is not None:
                reason = changed_after(past, planned.tables, self._catalog.snapshot)
                if reason is not None:
                    raise BindError(f"{reason}, or RESET query_epoch")
                epoch = pins.enter_context(self._storage.snapshot(Epoch(past)))
            elif epoch is None:
                epoch = pins.enter_context(self._storage.snapshot())
            planned = self._with_committed(planned)
            for each in planned.epochs:
                pins.enter_context(self._storage.snapshot(each))
            yield planned, epoch

    def _with_committed(self, planned: PlannedQuery) -> PlannedQuery:
        """The query with the committed epoch for times since that. InvalidEpoch for a time in the future."""
        committed = self._storage.committed_epoch
        late = [each for each in planned.epochs if each & SPILL_MASK and each > committed]
        if not late:
            return planned
        if to_unix_ms(max(late)) > wall_clock_ms():
            raise InvalidEpoch(pure_epoch(max(late)), "the time of FOR SYSTEM_TIME AS OF has not come yet")

        def settled(node: LogicalPlan) -> LogicalPlan:
            return replace(node, epoch=committed) if isinstance(node, Scan) and node.epoch in late else node

        return plan_for(transformed(planned.source, settled), planned.shown, None, self.host)

    def _check_fresh(self, planned: PlannedQuery, *, is_past: bool = False) -> None:
        """JobFailed for a table that was set aside, unless an older epoch is read; JobCreating."""
        known = self._catalog.snapshot
        if not is_past:
            self.host.settle(planned.tables, known)
        self._check_not_dropped(planned)
        failed = self.host.failed_jobs()
        if failed or known.creating:
            for table_id in () if is_past else planned.tables:
                if table_id in failed:
                    raise job_error(failed[table_id], known)
            check_created(known, (*planned.tables, *planned.past_tables))

    def _check_not_dropped(self, planned: PlannedQuery) -> None:
        """NotFound if one of the tables is gone since the query was bound."""
        known = self._catalog.snapshot
        if not all(table_id in known.tables for table_id in (*planned.tables, *planned.past_tables)):
            check_not_dropped(planned.source, known)

    # -- changes ---------------------------------------------------------------------------------------

    @property
    def part_rows(self) -> int:
        """Rows that are one statement at most."""
        return self._rows_limit

    @property
    def part_bytes(self) -> int:
        """Bytes of rows that are held in memory before they are sent."""
        return self.host.options.stream.transaction_bytes

    def check_may_flush(self, flush: bool) -> None:
        """InvalidStatement if a change is to be committed at once, in a transaction."""
        if flush and self.transaction.is_open:
            raise InvalidStatement("flush", "a transaction is committed at its end, which waits for that: leave it out")

    def settled(self, rows: Rows, flush: bool = False) -> Rows:
        """The rows that a data change has affected or returns. It is committed if `flush`, or the session's setting,
        says so, unless it is part of a transaction."""
        if (flush or self.settings.flushes) and not self.transaction.is_open:
            self._flush()
        return rows

    @aborting
    def insert(self, table: TableCatalog, query: LogicalPlan) -> int:
        """Insert the committed rows of `query`, which has one column per stored column of the table. JobFailed."""
        return self.insert_rows_of(table, self._planned_now(query))

    def insert_rows_of(self, table: TableCatalog, planned: PlannedQuery, values: Sequence[Literal] = ()) -> int:
        """As `insert`, with the values of parameters."""
        rows = self._rows_to_insert(table, planned, values)
        return 0 if rows is None else self.insert_rows(table, rows)

    def _rows_to_insert(
        self, table: TableCatalog, planned: PlannedQuery, values: Sequence[Literal]
    ) -> DataChunk | None:
        chunks = self._counted_rows(table, planned, "INSERT", values)
        return DataChunk.concat(chunks) if chunks else None

    def _counted_rows(
        self, table: TableCatalog, planned: PlannedQuery, statement: str, values: Sequence[Literal] = ()
    ) -> list[DataChunk]:
        """The committed rows of a query for a `statement` that changes `table`. InvalidStatement if they are too many.
        """
        self._check_fresh(planned)
        chunks, rows = list[DataChunk](), 0
        with self._pinned(planned) as (pinned, epoch):
            for chunk in pinned.query.chunks(values, epoch):
                chunks.append(chunk)
                rows += chunk.capacity
                self._check_count(table, rows, statement)
        return chunks

    def returned_by_insert(
        self,
        table: TableCatalog,
        query: LogicalPlan | PlannedQuery,
        returning: Returning,
        values: Sequence[Literal] = (),
    ) -> pa.Table:
        """The values of RETURNING over the rows that an INSERT has stored; errors as `insert`."""
        planned = query if isinstance(query, PlannedQuery) else self._planned_now(query)
        rows = self._rows_to_insert(table, planned, values)
        if rows is None or not rows.visible_rows:
            return returning.schema.arrow.empty_table()
        self._check_count(table, rows.visible_rows)
        chunk, number = StreamChunk.inserts(rows), self._node.pending.next_id()
        statement = InsertRows(number, chunk, table.column_ids, returning=returning.expressions)
        return self._returned(table, statement, returning)

    def returned_by_change(
        self, table: TableCatalog, change: Change, keys: DataChunk | None, returning: Returning
    ) -> pa.Table:
        """The values of RETURNING over the rows that an UPDATE has stored or a DELETE has deleted."""
        statement = replace(self._change(table, change, keys), returning=returning.expressions)
        return self._returned(table, statement, returning)

    def _returned(self, table: TableCatalog, statement: Statement, returning: Returning) -> pa.Table:
        self._send_now(table, statement)
        rows, schema = statement.result.returned, returning.schema
        return schema.arrow.empty_table() if rows is None else pa.Table.from_batches([rows.to_arrow(schema)])

    def _planned_now(self, query: LogicalPlan) -> PlannedQuery:
        """A query of which all columns are read, without indexes: they could be dropped meanwhile."""
        return plan_for(query, range(len(query.schema)), None, self.host)

    def first_rows(self, table: TableCatalog, query: LogicalPlan) -> StreamChunk | None:
        """The committed rows of `query` as the first ones of a new table, None if there are none. EvaluationError;
        DuplicateKey or InvalidStatement if the table cannot hold them."""
        chunks = self._counted_rows(table, self._planned_now(query), "INSERT")
        if not chunks:
            return None
        return self.checked_first_rows(table, DataChunk.concat(chunks))

    def checked_first_rows(self, table: TableCatalog, rows: DataChunk) -> StreamChunk | None:
        """`rows` as the first ones of a new table, None if there are none; errors as `first_rows`."""
        if not rows.visible_rows:
            return None
        self._check_count(table, rows.visible_rows)
        try:
            check_rows(table, rows)
        except InvalidValue as error:
            raise InvalidStatement(table.name, str(error)) from error
        if table.row_id_index is None and table.conflict is ConflictBehaviour.ERROR:
            row = first_repeated_key(table, rows)
            if row is not None:
                raise DuplicateKey(table.name, next(iter(rows.project(table.pk_indices).take([row]).rows())))
        return StreamChunk.inserts(rows)

    def _check_count(self, table: TableCatalog, rows: int, statement: str = "INSERT") -> None:
        if rows > self._rows_limit:
            raise InvalidStatement(table.name, f"{rows} rows in one {statement}; the limit is {self._rows_limit}")

    def insert_rows(self, table: TableCatalog, rows: DataChunk) -> int:
        """Rows affected. DuplicateKey or InvalidStatement if the statement failed, which then changed nothing. In a
        transaction it is buffered, as are the other changes, and only what does not depend on other rows is checked."""
        self._check_count(table, rows.visible_rows)
        if not rows.visible_rows:
            return 0
        return self._send(table, InsertRows(self._node.pending.next_id(), StreamChunk.inserts(rows), table.column_ids))

    def check_bytes(self, table: TableCatalog, size: int) -> None:
        """InvalidStatement for more bytes of rows than one epoch takes from outside at once."""
        if size > self._bytes_limit:
            cure = ("send less at once: maxFilesPerTrigger, maxBytesPerTrigger and the like bound a query's batches. "
                    "A batch that a query has begun stays as it is: connect with a greater ingest_bytes for that one")
            reason = f"{size:,} bytes of rows at once; ingest_bytes is {self._bytes_limit:,}: {cure}"
            raise InvalidStatement(table.name, reason)

    def ingest_rows(self, table: TableCatalog, rows: DataChunk, operations: Callable[[int], MetaOperations]) -> int:
        """As `insert_rows`, with what the commit of their epoch does besides; never in the transaction. Their bytes are
        limited, not their number. REQUIRES rows."""
        self.check_bytes(table, rows.nbytes)
        number = self._node.pending.next_id()
        statement = InsertRows(number, StreamChunk.inserts(rows), table.column_ids, operations=operations)
        return self._send_now(table, statement)

    @aborting
    def update(
        self,
        table: TableCatalog,
        assignments: Sequence[tuple[int, Expression]],
        predicate: Expression | None,
        keys: DataChunk | None = None,
    ) -> int:
        """Rows affected. `assignments`: column numbers and their new values over the old row; `predicate` None: every
        row. `keys`: primary keys, of which a row must have one."""
        return self._send(table, self._change(table, Change(tuple(assignments), predicate), keys))

    @aborting
    def delete(self, table: TableCatalog, predicate: Expression | None, keys: DataChunk | None = None) -> int:
        """Rows affected; `predicate` None: every row. `keys` as in `update`."""
        return self._send(table, self._change(table, Change(None, predicate), keys))

    def keys_of(self, table: TableCatalog, query: LogicalPlan) -> DataChunk:
        """The committed rows of `query`, primary keys of `table`. InvalidStatement if they are too many."""
        chunks = self._counted_rows(table, self._planned_now(query), "UPDATE or DELETE with a subquery")
        return DataChunk.concat([DataChunk.from_rows(query.schema, []), *chunks])

    def change_many(self, table: TableCatalog, changes: Sequence[Change]) -> int:
        """Rows affected by updates and deletes, in this order, each of which is sent before the results of those before
        it are known. The first error is raised when all have ended: a failed one does not keep the later ones back."""
        if self.transaction.is_open:
            return total(self._send(table, self._change(table, change)) for change in changes)
        self._storage.check_process()
        waiting = [self._node.begin(table.id, table.name, self._change(table, change)) for change in changes]
        affected = 0
        errors: list[Exception] = []
        for result in waiting:
            try:
                affected += result()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return affected

    def _change(self, table: TableCatalog, change: Change, keys: DataChunk | None = None) -> Statement:
        number, (assignments, predicate, values) = self._node.pending.next_id(), change
        if assignments is None:
            return DeleteRows(number, predicate, table.column_ids, keys=keys, values=values)
        return UpdateRows(number, predicate, assignments, table.column_ids, keys=keys, values=values)

    def _send(self, table: TableCatalog, statement: Statement) -> int:
        if not self.transaction.is_open:
            return self._send_now(table, statement)
        if isinstance(statement, InsertRows):
            try:
                check_rows(table, statement.chunk)
            except InvalidValue as error:
                raise InvalidStatement(table.name, str(error)) from error
        return self.transaction.buffer(table, statement)

    def _send_now(self, table: TableCatalog, statement: Statement) -> int:
        self._storage.check_process()
        return self._node.execute(table.id, table.name, statement)
