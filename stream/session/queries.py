"""SessionQueries: the reads and data changes of a session, from SQL and from the fluent API.

A read is at one committed epoch, which is never older than that of the read before it [R15]. A change returns when the
table's own actor has evaluated it on the table's current state [R14]: then its success and the rows affected are
known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.epoch import Epoch
from relational.batch import RecursionLimits, query_chunks, run_query
from relational.catalog.objects import ConflictBehaviour, TableCatalog
from relational.chunk import DataChunk, StreamChunk
from relational.errors import InvalidValue
from relational.expr.expression import Expression
from relational.plan.logical import LogicalPlan, Scan, nodes
from relational.table.column_cache import COUNTED, ColumnCache
from relational.table.row_checks import check_rows, first_repeated_key
from stream.errors import DuplicateKey, InvalidStatement
from stream.message import DeleteRows, InsertRows, Statement, UpdateRows
from stream.meta.job_failures import job_error

if TYPE_CHECKING:
    from hummock.meta.store.base import MetaOperations
    from stream.playground import Playground


class SessionQueries:
    """Executes the reads and changes of all relations of a session. Thread safe."""

    def __init__(self, playground: Playground) -> None:
        self._storage = playground.storage
        self._node = playground.node
        self._catalog = playground.catalog
        self._failures = playground.meta.failures
        self._creations = playground.meta.creations
        self._rows_limit = playground.options.stream.statement_rows
        self._bytes_limit = playground.options.stream.ingest_bytes
        options = playground.options.stream
        self._limits = RecursionLimits(options.recursion_rounds, options.recursion_rows)
        self._columns = ColumnCache(playground.options.stream.column_cache_bytes)
        playground.metrics.watch(lambda: self._columns.counts, COUNTED)

    # -- reads -----------------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        """The epoch of a read that begins now; it never decreases."""
        return self._storage.committed_epoch

    def query(self, plan: LogicalPlan) -> pa.Table:
        """The rows of a plan, without hidden columns. EvaluationError, EpochTooOld; JobFailed if it reads a table that
        was set aside and is no longer fresh, JobCreating if it reads a view that does not have all its rows yet."""
        self._check_fresh(plan)
        with self._storage.snapshot() as epoch:
            return run_query(plan, self._storage, epoch, self._columns, self._limits)

    def _check_fresh(self, plan: LogicalPlan) -> None:
        known = self._catalog.snapshot
        failed = self._failures.failed(known)
        if failed or known.creating:
            read = [node.table.id for node in nodes(plan) if isinstance(node, Scan)]
            for table_id in read:
                if table_id in failed:
                    raise job_error(failed[table_id], known)
            self._creations.check(read)

    # -- changes ---------------------------------------------------------------------------------------

    def insert(self, table: TableCatalog, query: LogicalPlan) -> int:
        """Insert the committed rows of `query`, which has one column per stored column of the table. JobFailed."""
        self._check_fresh(query)
        with self._storage.snapshot() as epoch:
            chunks = list(query_chunks(query, self._storage, epoch, self._limits))
        return self.insert_rows(table, DataChunk.concat(chunks)) if chunks else 0

    def first_rows(self, table: TableCatalog, query: LogicalPlan) -> StreamChunk | None:
        """The committed rows of `query` as the first ones of a new table, None if there are none. EvaluationError;
        DuplicateKey or InvalidStatement if the table cannot hold them."""
        self._check_fresh(query)
        chunks: list[DataChunk] = []
        with self._storage.snapshot() as epoch:
            for chunk in query_chunks(query, self._storage, epoch, self._limits):
                chunks.append(chunk)
                self._check_count(table, sum(each.capacity for each in chunks))
        if not chunks:
            return None
        rows = DataChunk.concat(chunks)
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
        """Rows affected. DuplicateKey or InvalidStatement if the statement failed, which then changed nothing."""
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
        """As `insert_rows`, with what the commit of their epoch does besides. Their bytes are limited, not their
        number. REQUIRES rows."""
        self.check_bytes(table, rows.nbytes)
        number = self._node.pending.next_id()
        statement = InsertRows(number, StreamChunk.inserts(rows), table.column_ids, operations=operations)
        return self._send(table, statement)

    def update(
        self,
        table: TableCatalog,
        assignments: Sequence[tuple[int, Expression]],
        predicate: Expression | None,
        keys: DataChunk | None = None,
    ) -> int:
        """Rows affected. `assignments`: column numbers and their new values over the old row; `predicate` None: every
        row. `keys`: primary keys, of which a row must have one."""
        number = self._node.pending.next_id()
        return self._send(table, UpdateRows(number, predicate, tuple(assignments), table.column_ids, keys=keys))

    def delete(self, table: TableCatalog, predicate: Expression | None, keys: DataChunk | None = None) -> int:
        """Rows affected; `predicate` None: every row. `keys` as in `update`."""
        return self._send(table, DeleteRows(self._node.pending.next_id(), predicate, table.column_ids, keys=keys))

    def keys_of(self, table: TableCatalog, query: LogicalPlan) -> DataChunk:
        """The committed rows of `query`, primary keys of `table`. InvalidStatement if they are too many."""
        self._check_fresh(query)
        chunks = [DataChunk.from_rows(query.schema, [])]
        with self._storage.snapshot() as epoch:
            for chunk in query_chunks(query, self._storage, epoch, self._limits):
                chunks.append(chunk)
                self._check_count(table, sum(each.capacity for each in chunks), "UPDATE or DELETE with a subquery")
        return DataChunk.concat(chunks)

    def _send(self, table: TableCatalog, statement: Statement) -> int:
        self._storage.check_process()
        return self._node.execute(table.id, table.name, statement)
