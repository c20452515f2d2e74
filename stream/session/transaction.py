"""Transactions, which read one epoch and write one epoch, and cursors over the rows of a query.

From BEGIN on the queries of a session read the epoch that was the newest one then. Data changes, of SQL and of the
fluent API, are buffered; COMMIT sends them as one block, of which everything takes effect in one epoch or nothing does
[R58]. A change is evaluated at COMMIT, on the rows that its table has then. So a table that the transaction has written
cannot be read in it. After an error the transaction is aborted, as in PostgreSQL: it takes nothing but its end.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.epoch import Epoch
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.errors import Duplicate, NotFound
from relational.relation import Relation
from relational.sql import statement as bound
from stream.errors import InvalidStatement, ReadOnlySession, SessionClosed, TransactionAborted, TransactionTooLarge
from stream.message import Block, BlockPart, InsertRows, Statement
from stream.session.queries import NOT_KNOWN

if TYPE_CHECKING:
    from stream.serving import Host
    from stream.worker.session_worker import SessionWorker

CURSOR_BYTES = 256 << 20
"""Of rows that the cursors of a session hold."""
STATEMENT_BYTES = 1_024
"""That a buffered statement counts as, besides its rows."""
READING = (
    bound.Begin, bound.End, bound.DeclareCursor, bound.Fetch, bound.CloseCursor, bound.Select, bound.Show,
    bound.ShowJobs, bound.ShowErrors, bound.ShowEpochs, bound.ShowMemory, bound.ShowCreate,
    bound.ShowCreateFunction, bound.ShowOptions, bound.SetOption, bound.Describe, bound.Explain, bound.Nothing,
    bound.Prepare, bound.Execute, bound.Deallocate, bound.CopyTo,
)  # fmt: skip
"""Statements that change nothing, which every transaction takes."""
SUBSCRIBING = (bound.Subscribe, bound.CreateSubscription, bound.DropSubscription, bound.ShowSubscriptions)
"""Statements that change no rows, but are no part of a transaction."""
WRITING = (bound.Insert, bound.Update, bound.Delete)


class BufferedChanges:
    """The data changes of a transaction by table, within `limit` bytes: TransactionTooLarge."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._tables: dict[int, str] = {}
        self._statements: dict[int, list[list[Statement]]] = {}  # by table: INSERTs in a row are one list

    def __bool__(self) -> bool:
        return bool(self._statements)

    def written(self, tables: Iterable[int]) -> str | None:
        """The name of the first of these tables that has changes."""
        return next((self._tables[table_id] for table_id in tables if table_id in self._tables), None)

    def add(self, table: TableCatalog, statement: Statement) -> None:
        size = STATEMENT_BYTES + (statement.chunk.nbytes if isinstance(statement, InsertRows) else 0)
        if self._size + size > self._limit:
            raise TransactionTooLarge(self._size + size, self._limit)
        self._size += size
        self._tables[table.id] = table.name
        runs = self._statements.setdefault(table.id, [])
        if runs and _is_insert_after(runs[-1][-1], statement):
            runs[-1].append(statement)
        else:
            runs.append([statement])

    def block(self, number: int) -> Block:
        """All of them. REQUIRES that there are some."""
        parts = [
            BlockPart(table_id, self._tables[table_id], tuple(map(_together, runs)))
            for table_id, runs in self._statements.items()
        ]
        return Block(number, tuple(parts))


class Transaction:
    """What a session reads and buffers from BEGIN to COMMIT or ROLLBACK; and its cursors. Without a transaction each
    query reads the newest epoch, changes are sent at once, and cursors stay until they are closed. Thread safe; all
    threads of a session share its transaction."""

    def __init__(self, host: Host, worker: SessionWorker | None) -> None:
        """`worker`: carries the changes out; None: there are none, in a transaction or without."""
        self._storage, self._worker = host.storage, worker
        self._limit = host.options.stream.transaction_bytes
        self._lock = threading.RLock()
        self._pin = ExitStack()
        self._changes: BufferedChanges | None = None  # None: there is no transaction
        self._is_read_only = False
        self._aborted_by: BaseException | None = None
        self._is_closed = False
        self._cursors: dict[str, pa.Table] = {}
        self._scoped: set[str] = set()  # cursors that end with the transaction
        self.now: datetime | None = None
        """The time of the transaction; None without one."""
        self.epoch: Epoch | None = None
        """The epoch that is pinned; None without a transaction."""

    @property
    def is_open(self) -> bool:
        """Whether there is one, also one that is aborted. SessionClosed after `close`: every read and change asks."""
        if self._is_closed:
            raise SessionClosed("the session is closed")
        return self._changes is not None

    def check_session(self) -> None:
        """SessionClosed."""
        _ = self.is_open

    def begin(self, is_read_only: bool, now: datetime) -> None:
        """Pins the newest epoch. Within a transaction it has no effect, as in PostgreSQL."""
        with self._lock:
            if self._changes is None:
                self.epoch = self._pin.enter_context(self._storage.snapshot())
                self._changes, self._is_read_only, self.now = BufferedChanges(self._limit), is_read_only, now

    def commit(self) -> int | None:
        """The rows affected by all changes, which have been evaluated; None if there are none, or an error has aborted
        the transaction, which ends in any case. The errors of its statements: then none of them had an effect."""
        with self._lock:
            changes = self._changes
            self.end()
        if not changes or self._worker is None:
            return None
        return self._worker.begin_block(changes.block(self._worker.pending.next_id()))()

    def end(self) -> None:
        """Forgets the changes, releases the epoch and closes the cursors of the transaction. Without one it has no
        effect."""
        with self._lock:
            if self._changes is not None:
                self._changes = self._aborted_by = self.epoch = self.now = None
                for name in self._scoped:
                    self._cursors.pop(name, None)
                self._scoped.clear()
                self._pin.close()

    def close(self) -> None:
        """The session ends: what is left of the transaction is forgotten, and nothing else begins."""
        self._is_closed = True
        self.end()

    def abort(self, cause: BaseException) -> None:
        """A statement has failed: the changes are forgotten, and all others are refused until the end. Without a
        transaction it has no effect."""
        with self._lock:
            if self._changes is not None and self._aborted_by is None:
                self._aborted_by, self._changes = cause, BufferedChanges(self._limit)

    # -- what it takes ---------------------------------------------------------------------------------

    def check(self, statement: bound.Statement) -> None:
        """TransactionAborted; InvalidStatement for what a transaction does not take; ReadOnlySession for all but reads
        without a worker."""
        if self._worker is None and not isinstance(statement, (*READING, *SUBSCRIBING)):
            raise ReadOnlySession(kind_of(statement))
        if self._changes is None or isinstance(statement, bound.End):
            return
        self.check_not_aborted()
        if isinstance(statement, WRITING):
            self._check_writes(statement.table.name)
            if statement.returning is not None:
                reason = "a transaction evaluates its changes at COMMIT: leave RETURNING out, or COMMIT before it"
                raise InvalidStatement(statement.table.name, reason)
        elif isinstance(statement, bound.CopyFrom):
            self._check_writes(statement.table.name)
        elif not isinstance(statement, READING):
            reason = f"a transaction takes queries, INSERT, UPDATE and DELETE, and this is {kind_of(statement)}"
            raise InvalidStatement("", f"{reason}: COMMIT or ROLLBACK first")

    def check_not_aborted(self) -> None:
        """TransactionAborted."""
        if self._aborted_by is not None:
            raise TransactionAborted(self._aborted_by)

    def reading(self, tables: Iterable[int]) -> Epoch | None:
        """The epoch at which these tables, by id, are read; None without a transaction. InvalidStatement for a table
        that the transaction has written; TransactionAborted."""
        changes = self._changes if self.is_open else None
        if changes is None:
            return None
        self.check_not_aborted()
        written = changes.written(tables)
        if written is not None:
            raise InvalidStatement(
                written, "the transaction has written it, so it cannot be read before COMMIT: read it before the "
                         "changes, or send the query after COMMIT"
            )
        return self.epoch

    def buffer(self, table: TableCatalog, statement: Statement) -> int:
        """The rows that are inserted if COMMIT finds no conflict; NOT_KNOWN for an UPDATE or DELETE. REQUIRES that it
        is open. TransactionTooLarge, TransactionAborted."""
        with self._lock:
            self.check_not_aborted()
            self._check_writes(table.name)
            if self._changes is None:
                raise InvalidStatement(table.name, "the transaction has ended meanwhile: send the statement again")
            self._changes.add(table, statement)
        return statement.chunk.visible_rows if isinstance(statement, InsertRows) else NOT_KNOWN

    def _check_writes(self, table: str) -> None:
        if self._is_read_only:
            raise InvalidStatement(table, "a read-only transaction changes nothing: ROLLBACK first")

    # -- cursors ---------------------------------------------------------------------------------------

    def declare(self, name: str, query: Relation) -> None:
        """The rows of `query` as a cursor, read at once. Duplicate; InvalidStatement beyond CURSOR_BYTES."""
        if name in self._cursors:
            raise Duplicate(f"there is a cursor {name!r} already: CLOSE it first", name=name)
        rows = query.to_arrow()
        held = rows.nbytes + sum(each.nbytes for each in self._cursors.values())
        if held > CURSOR_BYTES:
            raise InvalidStatement(name, f"cursors would hold {held:,} bytes of rows; the limit is {CURSOR_BYTES:,}")
        self._cursors[name] = rows
        if self.is_open:
            self._scoped.add(name)

    def has_cursor(self, name: str) -> bool:
        return name in self._cursors

    def fetch(self, name: str, count: int | None) -> pa.Table:
        """The next rows of a cursor, all that are left for None. NotFound."""
        rows = self._cursor(name)
        taken = rows.num_rows if count is None else min(count, rows.num_rows)
        self._cursors[name] = rows.slice(taken)
        return rows.slice(0, taken)

    def close_cursor(self, name: str | None) -> None:
        """None: all. NotFound."""
        if name is None:
            self._cursors.clear()
        else:
            self._cursor(name)
            del self._cursors[name]
            self._scoped.discard(name)

    def _cursor(self, name: str) -> pa.Table:
        if name not in self._cursors:
            raise NotFound(f"there is no cursor {name!r}", name=name)
        return self._cursors[name]


def kind_of(statement: bound.Statement) -> str:
    """The words of SQL with which it begins."""
    return re.sub(r"\B(?=[A-Z])", " ", type(statement).__name__).upper()


def _is_insert_after(before: Statement, statement: Statement) -> bool:
    is_insert = isinstance(before, InsertRows) and isinstance(statement, InsertRows)
    return is_insert and before.column_ids == statement.column_ids


def _together(run: list[Statement]) -> Statement:
    """One statement with the rows of INSERTs in a row."""
    first = run[0]
    if len(run) == 1 or not isinstance(first, InsertRows):
        return first
    return replace(first, chunk=StreamChunk.concat([each.chunk for each in run if isinstance(each, InsertRows)]))
